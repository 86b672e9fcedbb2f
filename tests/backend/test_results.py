"""What a kernel may return and raise: each wrong result is refused on every call, each exception names its kernel."""

from __future__ import annotations

import attrs
import pytest
import torch

from tileops.backend import process
from tileops.backend.discovery import Discovery
from tileops.backend.registry import BackendWarning, Registry
from tileops.backend.settlement import TargetStage
from tileops.gemm import GemmFwdOp
from tileops.kernels.gemm.interface import GemmInterface
from tileops.results import ResultCheck
from tileops.rules.declaration import Declaration
from tileops.rules.errors import BackendError, KernelResultError, SignatureError

CPU = torch.device("cpu")
A, B = torch.ones(4, 8), torch.ones(6, 8)
HALF = torch.ones(4, 8, dtype=torch.float16), torch.ones(6, 8, dtype=torch.float16)


@attrs.frozen
class Output:
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


def checked(results, outputs=(Output("d", torch.float32, (4, 6)),)):
    """A kernel that returns these results, one a call, with its check around it."""
    given = iter(results)
    return ResultCheck("AnyFwdOp", "'k'", CPU, tuple(outputs), (True, True)).around(lambda a, b: next(given))


def fresh():
    return torch.ones(4, 6)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (torch.ones(4, 6, requires_grad=True), "that requires a gradient$"),
        (torch.ones(4, 6, requires_grad=True) * 2, "that requires a gradient, made by MulBackward0"),
        (torch.nn.Parameter(torch.ones(4, 6)), "that requires a gradient$"),
        (torch.ones(4, 6, dtype=torch.float64), "received a torch.float64 tensor"),
        (torch.ones(6, 4), r"of shape \(6, 4\)"),
        (torch.ones(24), r"of shape \(24,\)"),
        (torch.ones(6, 4).mT, r"with strides \(1, 4\)"),
        (torch.ones(4, 6, device="meta"), "on meta"),
        (torch.ones(4, 6).to_sparse(), "of layout torch.sparse_coo"),
        (A[:, :6].as_strided((4, 6), (6, 1)), "shares storage with an input"),
        (None, "NoneType: None"),
        (3, "int: 3"),
        ([torch.ones(4, 6)], "a list of 1: Tensor"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_result_is_refused_on_the_first_call_and_on_a_later_one(wrong, said):
    with pytest.raises(KernelResultError, match=said) as caught:
        checked([wrong])(A, B)
    assert "expected output 'd' to be a contiguous torch.float32 tensor of shape (4, 6) on cpu" in str(caught.value)
    run = checked([fresh(), fresh(), wrong, fresh()])
    run(A, B)
    run(A, B)
    with pytest.raises(KernelResultError, match=said):
        run(A, B)
    assert run(A, B).shape == (4, 6), "a wrong result spoils no later one"


def test_a_gradient_is_refused_whatever_the_modes_of_the_calls_before():
    leaf = torch.ones(4, 6, requires_grad=True)
    for mode in (torch.no_grad(), torch.inference_mode()):
        run = checked([fresh(), leaf, fresh(), leaf * 2])
        with mode:
            run(A, B)
            with pytest.raises(KernelResultError, match="requires a gradient"):
                run(A, B)
        run(A, B)
        with pytest.raises(KernelResultError, match="requires a gradient"):
            run(A, B)


def test_right_results_pass_in_every_mode_and_are_handed_on_as_they_are():
    with torch.inference_mode():
        inference = fresh()
    odd = torch.ones(24).as_strided((1, 24), (77, 1))
    for results, shape in (([fresh(), inference, fresh(), inference], (4, 6)), ([odd, torch.ones(1, 24)] * 2, (1, 24))):
        run = checked(results, [Output("d", torch.float32, shape)])
        assert all(run(A, B) is result for result in results)
    parameter = torch.nn.Parameter(torch.ones(4, 6), requires_grad=False)
    assert checked([parameter])(A, B) is parameter


def test_a_gradient_in_one_of_several_results_is_refused():
    outputs = Output("y", torch.float32, (4, 6)), Output("z", torch.float32, (4,))
    good, bad = (fresh(), torch.ones(4)), (fresh(), torch.ones(4, requires_grad=True))
    run = checked([good, bad, good], outputs)
    run(A, B)
    with pytest.raises(KernelResultError, match=r"output 'z' .* that requires a gradient"):
        run(A, B)
    assert run(A, B) is good


# Through an op that a target serves.


@pytest.fixture
def registry(monkeypatch):
    """An empty registry in place of the process's, so that a test registers what it likes."""
    made = Registry(lambda: {"GemmFwdOp"})
    discovery = Discovery(made, list)
    for name, value in {"_registry": made, "_discovery": discovery, "_stage": TargetStage(made, discovery)}.items():
        monkeypatch.setattr(process, name, value)
    return made


def serve(registry, kernel, build=None):
    registry.register_kernel_builder("GemmFwdOp", "acme", build or (lambda a, b, **params: kernel))
    return GemmFwdOp(target="acme")


def test_a_target_that_records_a_gradient_is_refused(registry):
    weight = torch.ones((), dtype=torch.float16, requires_grad=True)
    op = serve(registry, lambda a, b: (a @ b.mT) * weight)
    with pytest.raises(KernelResultError, match=r"GemmFwdOp: kernel of target 'acme' returned .* made by MulBackward0"):
        op(*HALF)
    with torch.no_grad():
        assert not op(*HALF).requires_grad, "nothing is recorded here"
    with pytest.raises(KernelResultError, match="made by MulBackward0"):
        op(*HALF)


def test_what_a_kernel_raises_names_the_op_and_the_target_on_every_call(registry):
    failing = iter([True, False, True])

    def kernel(a, b):
        if next(failing):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return a @ b.mT

    op = serve(registry, kernel)

    def fails():
        with pytest.raises(RuntimeError, match="illegal memory access") as caught:
            op(*HALF)
        assert caught.value.__notes__ == ["GemmFwdOp: raised by the kernel of target 'acme' on cpu"]

    fails()  # cold
    op(*HALF)
    fails()  # of a plan


class FailingGemm(GemmInterface):
    """Fails to build for one row, and to launch for more than two."""

    declaration = Declaration(devices={"meta"})

    def forward(self, a, b):
        if a.shape[0] > 2:
            raise RuntimeError("invalid launch configuration")
        return torch.empty(a.shape[0], b.shape[0], dtype=a.dtype, device=a.device)

    @classmethod
    def entry_for(cls, call):
        def build():
            if call.m == 1:
                raise RuntimeError("ptxas: out of registers")
            return cls()

        return call.m, build


def test_what_an_implementation_raises_names_it(registry):
    def call(rows):
        GemmFwdOp()(*(torch.ones(m, 8, dtype=torch.float16, device="meta") for m in (rows, 4)))

    name = GemmFwdOp.dispatcher.add_kernel_type("failing", FailingGemm)
    try:
        call(2)
        with pytest.raises(RuntimeError, match="invalid launch") as launch:
            call(3)
        with pytest.raises(RuntimeError, match="ptxas") as build:
            call(1)
    finally:
        GemmFwdOp.dispatcher.remove(name, "failing")
    assert launch.value.__notes__ == ["GemmFwdOp: raised by the implementation 'failing' on meta"]
    assert build.value.__notes__ == ["GemmFwdOp: raised as the implementation 'failing' built a kernel on meta"]


def test_what_a_builder_raises_names_the_op_and_the_target(registry):
    def build(a, b, **params):
        raise ValueError("takes bfloat16 only")

    with pytest.raises(ValueError, match="takes bfloat16 only") as caught:
        serve(registry, None, build)(*HALF)
    assert caught.value.__notes__ == ["GemmFwdOp: raised as the builder of target 'acme' built a kernel on cpu"]


def test_an_error_of_ours_and_an_interrupt_get_no_note(registry):
    raised = iter([KeyboardInterrupt(), KernelResultError("its own words")])

    def kernel(a, b):
        raise next(raised)

    op = serve(registry, kernel)
    for kind in (KeyboardInterrupt, KernelResultError):
        with pytest.raises(kind) as caught:
            op(*HALF)
        assert not hasattr(caught.value, "__notes__")


# Foreign objects in messages.


class Array:
    """Looks like an array of several rows: its repr has lines of its own."""

    def __repr__(self):
        return "array([[1., 1.],\n       [1., 1.]])"


class Mute:
    def __repr__(self):
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("thing", "said"),
    [(Array(), "Array: array([[1., 1.], [1., 1.]])"), (Mute(), "Mute: (its repr cannot be written)")],
    ids=["lines", "no repr"],
)
def test_a_foreign_object_is_shown_on_one_line(registry, thing, said):
    op = serve(registry, lambda a, b: thing)
    with pytest.raises(KernelResultError) as result:
        op(*HALF)
    with pytest.raises(SignatureError) as argument:
        op(HALF[0], thing)
    registry.register_detector("vague", lambda device: thing)
    with pytest.warns(BackendWarning) as detector:
        process._stage.claimants(CPU)
    registry.register_kernel_builder("GemmFwdOp", "odd", lambda a, b, **params: thing)
    with pytest.raises(BackendError) as builder:
        GemmFwdOp(target="odd")(*HALF)
    messages = [str(one.value) for one in (result, argument, builder)]
    assert [message for message in messages if said not in message] == []
    messages.append(str(detector[0].message))
    assert [message for message in messages if "\n" in message or said.partition(": ")[2] not in message] == []
