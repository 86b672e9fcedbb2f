"""What a caller hears when the target cannot serve a call, and what such a call leaves behind."""

from __future__ import annotations

import pytest
import torch
from tileops.backend import BUILTIN, BackendError, OpNotAvailableError, TensorSpec, UnknownTargetError
from tileops.gemm import GemmFwdOp
from tileops.norm import RMSNormFwdOp

from tileops_cpu.ops.gemm import build_gemm
from tileops_cpu.target import TARGET


@pytest.fixture
def operands() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(4, 8, dtype=torch.float16), torch.ones(6, 8, dtype=torch.float16)


def test_an_op_without_a_builder_raises_and_nothing_runs_in_its_place(recording, operands):
    recording.serve("RMSNormFwdOp")
    op = GemmFwdOp(target=recording.target)
    with pytest.raises(OpNotAvailableError) as caught:
        op(*operands)
    message = str(caught.value)
    assert message.startswith(
        f"target {recording.target!r} registers no kernel builder for GemmFwdOp; targets that do: ["
    )
    assert f"{TARGET!r}" in message
    assert (
        "There is no fall back to the in-tree implementation: those kernels do not run on this target's devices."
        in message
    )
    assert op.serving_target is None


def test_a_target_that_nobody_registered(operands):
    with pytest.raises(
        UnknownTargetError, match=r"^no backend registered target 'nope'; known targets: \[.*'torch_cpu'"
    ):
        GemmFwdOp(target="nope")(*operands)


def test_asking_for_the_in_tree_kernels_on_the_cpu(operands):
    with pytest.raises(
        OpNotAvailableError, match=r"^GemmFwdOp's in-tree kernels do not run on cpu; known targets for this"
    ):
        GemmFwdOp(target=BUILTIN)(*operands)
    with pytest.raises(
        OpNotAvailableError, match=r"^RMSNormFwdOp's in-tree kernels do not run on cpu; known targets for"
    ):
        RMSNormFwdOp([8], target=BUILTIN)(operands[0])


def test_a_failed_call_binds_the_op_to_no_target(recording, operands):
    state = {"broken": True}

    def build(a, b, *, trans_a, trans_b):
        if state["broken"]:
            raise RuntimeError("the compiler found no registers")
        return build_gemm(a, b, trans_a=trans_a, trans_b=trans_b)

    recording.serve("GemmFwdOp", build)
    op = GemmFwdOp(target=recording.target)
    with pytest.raises(RuntimeError, match="no registers"):
        op(*operands)
    assert op.serving_target is None
    assert op.last_call is None
    state["broken"] = False
    assert op(*operands).shape == (4, 6)
    assert op.serving_target == recording.target
    assert len(recording.asked) == 2, "the failed build is not kept"


def test_a_kernel_that_fails_is_not_kept(recording, operands):
    def build(a, b, *, trans_a, trans_b):
        def kernel(a, b):
            raise RuntimeError("launch failed")

        return kernel

    recording.serve("GemmFwdOp", build)
    op = GemmFwdOp(target=recording.target)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="launch failed"):
            op(*operands)
    assert len(recording.asked) == 2


def test_a_builder_that_returns_no_kernel(recording, operands):
    recording.serve("GemmFwdOp", lambda a, b, **params: "kernel")
    with pytest.raises(BackendError, match="callable, got str: 'kernel'"):
        GemmFwdOp(target=recording.target)(*operands)


def test_the_builders_own_refusal_says_what_came():
    spec = TensorSpec(torch.device("cpu"), torch.float64, (2, 2))
    with pytest.raises(ValueError, match=r"torch\.float16 or torch\.bfloat16, got a of torch\.float64"):
        build_gemm(spec, spec, trans_a=False, trans_b=True)
