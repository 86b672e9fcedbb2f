"""Tuning requests and ``config``: the optional members of a target's kernel."""

from __future__ import annotations

import pytest
import torch
from tileops.gemm import GemmFwdOp

from tileops_cpu.ops.gemm import CpuGemm


class TunedGemm(CpuGemm):
    """Counts the requests, and has something to report once it is tuned."""

    def __init__(self, trans_a: bool, trans_b: bool) -> None:
        super().__init__(trans_a, trans_b)
        self.requests = 0
        self.requests_at_first_call: int | None = None
        self.config: dict[str, int] = {}

    def request_tune(self) -> None:
        self.requests += 1
        self.config = {"tile": 64}

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if self.requests_at_first_call is None:
            self.requests_at_first_call = self.requests
        return super().__call__(a, b)


def build_tuned(a, b, *, trans_a, trans_b):
    return TunedGemm(trans_a, trans_b)


def operands(m: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(m, 8, dtype=torch.float16), torch.ones(6, 8, dtype=torch.float16)


def test_a_request_reaches_the_kernels_built_before_and_those_built_after(recording):
    recording.serve("GemmFwdOp", build_tuned)
    op = GemmFwdOp(target=recording.target)
    op(*operands(2))
    (before,) = recording.kernels
    assert before.requests == 0
    op.request_tune()
    assert before.requests == 1
    op(*operands(3))
    after = recording.kernels[-1]
    assert after is not before
    assert after.requests == 1
    assert after.requests_at_first_call == 1, "it is asked before its first call"
    op.request_tune()
    assert [kernel.requests for kernel in recording.kernels] == [2, 2]


def test_kernel_config_reports_the_kernels(recording):
    recording.serve("GemmFwdOp", build_tuned)
    op = GemmFwdOp(target=recording.target)
    op(*operands(2))
    assert not op.kernel_config()
    op.request_tune()
    op(*operands(2))
    assert op.kernel_config() == {"tile": 64}


def test_a_kernel_that_cannot_be_tuned_is_named_in_one_warning(recording):
    recording.serve("GemmFwdOp")
    op = GemmFwdOp(target=recording.target)
    op(*operands(2))
    with pytest.warns(UserWarning, match="request_tune") as seen:
        op.request_tune()
    assert len(seen) == 1
    op(*operands(3))  # a kernel more, and no warning more: warnings are errors here
    op.request_tune()


def test_a_tuning_that_fails_while_the_kernel_is_built_leaves_no_kernel(recording):
    class Broken(TunedGemm):
        def request_tune(self) -> None:
            super().request_tune()
            raise RuntimeError("no timer")

    recording.serve("GemmFwdOp", lambda a, b, *, trans_a, trans_b: Broken(trans_a, trans_b))
    op = GemmFwdOp(target=recording.target)
    op.request_tune()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no timer"):
            op(*operands(2))
    assert len(recording.asked) == 2
