"""What an op says to arguments that are no plain tensors, warm and cold alike: the right result or a sentence."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
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
        (A.as_subclass(Sub), "a tensor subclass; pass plain tensors"),
        (A.to_sparse(), "layout torch.sparse_coo; pass x.to_dense"),
    ],
    ids=["list", "none", "int", "numpy", "subclass", "sparse"],
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


def test_function_transforms_are_refused(op):
    with pytest.raises(SignatureError, match=r"inside a torch.func transform"):
        torch.vmap(lambda t: op(t, A))(torch.ones(3, 4, 8))
    with pytest.raises(SignatureError, match=r"inside a torch.func transform"):
        torch.func.grad(lambda t: op(t, A).sum())(torch.ones(4, 8))
    assert torch.equal(torch.vmap(lambda t: op(A, A) + t)(torch.ones(3, 4, 8))[0], A + A + 1)


def test_under_a_dispatch_mode_the_result_is_the_same(op):
    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise AssertionError("a kernel's work is no torch operation")

    with Watch():
        result = op(A, A)
    assert torch.equal(result, A + A)


def test_fake_tensors_are_refused(op):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(A)
    with pytest.raises(SignatureError, match="FakeTensor, a tensor subclass"):
        op(fake, A)


def test_autocast_changes_nothing(op):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert op(A, A).dtype is torch.float32
