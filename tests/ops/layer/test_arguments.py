"""What an op does with arguments that are no plain tensors, warm and cold alike: the right result or a sentence."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tileops.rules.errors import SignatureError


class Sub(torch.Tensor):
    pass


@pytest.fixture(params=["cold", "warm"])
def op(request, toy):
    made = toy.op()
    if request.param == "warm":
        made(torch.ones(4, 8), torch.ones(4, 8))
    return made


A = torch.ones(4, 8)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0], "input 'b' takes a torch.Tensor, got list"),
        (None, "input 'b' takes a torch.Tensor, got NoneType"),
        (3, "input 'b' takes a torch.Tensor, got int: 3"),
        (A.numpy(), "input 'b' takes a torch.Tensor, got ndarray"),
        (A.to_sparse(), "layout torch.sparse_coo; pass x.to_dense"),
    ],
    ids=["list", "none", "int", "numpy", "sparse"],
)
def test_what_is_no_plain_tensor_is_named(op, value, message):
    with pytest.raises(SignatureError, match=message):
        op(A, value)


def test_parameters_are_plain_tensors(op):
    weight = torch.nn.Parameter(torch.ones(4, 8))
    with torch.no_grad():
        assert torch.equal(op(A, weight), A + weight)
    with torch.inference_mode():
        assert torch.equal(op(A, weight), A + weight)
    frozen = torch.nn.Parameter(torch.ones(4, 8), requires_grad=False)
    assert torch.equal(op(A, frozen), A + frozen)


def test_a_gradient_is_refused_and_not_lost(op):
    for tensor in (torch.nn.Parameter(torch.ones(4, 8)), torch.ones(4, 8, requires_grad=True)):
        with pytest.raises(SignatureError, match=r"input 'b' requires a gradient, .* call it under torch.no_grad"):
            op(A, tensor)
    with pytest.raises(SignatureError, match="input 'bias' requires a gradient"):
        op(A, A, torch.ones(8, requires_grad=True))


@pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")  # torch's own make_dual calls it
def test_forward_derivatives_are_refused_and_not_lost(op):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(4, 8), torch.ones(4, 8))
        with pytest.raises(SignatureError, match="input 'a' carries a tangent"):
            op(dual, A)
        assert torch.equal(op(A, A), A + A)


def test_a_subclass_is_read_as_what_it_is_and_comes_back(op):
    result = op(A.as_subclass(Sub), A)
    assert type(result) is Sub
    assert torch.equal(result.as_subclass(torch.Tensor), A + A)


class Boxed(torch.Tensor):
    """A tensor that keeps another one, and a list of what was asked of it."""

    @staticmethod
    def __new__(cls, held, seen):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device)

    def __init__(self, held, seen):
        self.held, self.seen = held, seen

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        boxes = [arg for arg in args if isinstance(arg, cls)]
        boxes[0].seen.append(str(func))
        made = func(*(arg.held if isinstance(arg, cls) else arg for arg in args), **(kwargs or {}))
        return cls(made, boxes[0].seen)


def test_a_subclass_with_a_meaning_of_its_own_is_asked(op):
    seen = []
    result = op(Boxed(A, seen), A)
    assert type(result) is Boxed
    assert torch.equal(result.held, A + A)
    assert len(seen) == 1
    assert seen[0].startswith("tileops.AddFwdOp")


@pytest.fixture
def _quiet():
    """Torch tells of each operator that has no batching rule."""
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_warning_enabled(True)  # torch's own default


@pytest.mark.usefixtures("_quiet")
def test_vmap_runs_the_op_for_each_slice(op):
    x = torch.randn(3, 4, 8)
    assert torch.equal(torch.vmap(lambda t: op(t, A))(x), x + A)
    assert torch.equal(torch.vmap(lambda t: op(A, A) + t)(x)[0], A + A + x[0])


def test_a_derivative_of_something_else_may_call_the_op(op):
    x, other = torch.randn(4, 8), A.clone()
    for _ in range(3):  # cold, then with a plan, then like the call before
        assert torch.equal(torch.func.grad(lambda t: (op(A, other) * t).sum())(x), A + other)
        op(A, other)


def test_derivatives_by_torch_func_are_refused(op):
    with pytest.raises(SignatureError, match="input 'a' requires a gradient"):
        torch.func.grad(lambda t: op(t, A).sum())(torch.ones(4, 8))
    with pytest.raises(SignatureError, match="input 'a' requires a gradient"):
        torch.vmap(torch.func.grad(lambda t: op(t, A).sum()))(torch.ones(3, 4, 8))
    with pytest.raises(SignatureError, match="input 'a' carries a tangent"):
        torch.func.jvp(lambda t: op(t, A), (A,), (A,))


def test_a_dispatch_mode_sees_one_operator(op):
    class Watch(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    for _ in range(2):
        with Watch() as watch:
            result = op(A, A)
        assert torch.equal(result, A + A)
        assert len(watch.seen) == 1, watch.seen
        assert watch.seen[0].startswith("tileops.AddFwdOp")


def test_a_function_mode_is_shown_what_the_kernel_calls_and_changes_nothing(op):
    class Watch(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    other = A.clone()
    for _ in range(3):
        with Watch() as watch, torch.device("meta"):
            made = op(A, other)
        assert torch.equal(made, A + other)
        assert not any("AddFwdOp" in name for name in watch.seen)


def test_fake_tensors_run_nothing(op, toy):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    launches = len(toy.made.launches)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(A)
        inside = op(fake, fake)
    for made in (inside, op(fake, fake)):
        assert isinstance(made, FakeTensor)
        assert (made.shape, made.dtype, made.stride()) == (A.shape, A.dtype, A.stride())
    with pytest.raises(SignatureError, match="input b"):
        op(fake, mode.from_tensor(torch.ones(4, 9)))
    assert len(toy.made.launches) == launches


def test_a_fake_mode_runs_nothing_for_a_call_that_is_known(op, toy):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    other = A.clone()
    for _ in range(3):
        op(A, other)
    launches = len(toy.made.launches)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert isinstance(op(A, other), FakeTensor)
    assert len(toy.made.launches) == launches


def test_meta_tensors_run_nothing(op, toy):
    launches = len(toy.made.launches)
    meta = A.to("meta")
    for _ in range(2):
        made = op(meta, meta)
        assert (made.device.type, made.shape, made.dtype) == ("meta", A.shape, A.dtype)
    assert len(toy.made.launches) == launches


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_trace_holds_one_operator(op, mode, calls):
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.randn(4, 8)
    for _ in range(calls):  # a call like the one before is known by torch's guard, which is blind to torch's own modes
        op(A, x)
    graph = make_fx(lambda a, b: op(a, b) * 2, tracing_mode=mode)(A, A.clone())
    assert sum(str(node.target).startswith("tileops.AddFwdOp") for node in graph.graph.nodes) == 1
    assert torch.equal(graph(x, A), (x + A) * 2)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_jit_trace_holds_the_operator_and_no_constant(op):
    traced = torch.jit.trace(lambda a: op(a, A), (torch.zeros(4, 8),))
    x = torch.randn(4, 8)
    assert torch.equal(traced(x), x + A)
    assert "tileops::AddFwdOp" in str(traced.graph)


def test_autocast_changes_nothing(op):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert op(A, A).dtype is torch.float32
