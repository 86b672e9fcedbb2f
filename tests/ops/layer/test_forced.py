"""use_kernel: the named implementation runs, or an error says why it cannot. Nothing else runs."""

from __future__ import annotations

import threading

import pytest
import torch

from tileops import backend, explain, use_kernel
from tileops.rules.errors import OpNotAvailableError

A = torch.ones(4, 8)


def test_the_named_kernel_runs_on_warm_and_cold_ops(toy):
    op, cold = toy.op(), toy.op()
    op(A, A)
    with use_kernel("AddFwdOp", "plain"):
        for _ in range(2):
            op(A, A)
            assert op.last_call.key == "plain"
        cold(A, A)
    op(A, A)
    cold(A, A)
    assert [name for name, _ in toy.made.launches] == ["wide", "plain", "plain", "plain", "wide", "wide"]
    assert len(toy.made.builds) == 2


def test_blocks_nest_and_the_innermost_wins(toy):
    op = toy.op()
    with use_kernel("AddFwdOp", "plain"):
        with use_kernel("AddFwdOp", "wide"):
            op(A, A)
        op(A, A)
    assert [name for name, _ in toy.made.launches] == ["wide", "plain"]


def test_a_block_ends_with_an_error_too(toy):
    op = toy.op()
    with pytest.raises(RuntimeError, match="inside"), use_kernel("AddFwdOp", "plain"):
        raise RuntimeError("inside")
    op(A, A)
    assert op.last_call.key == "wide"


def test_a_block_is_its_threads_own(toy):
    op = toy.op()
    op(A, A)
    with use_kernel("AddFwdOp", "plain"):
        other = threading.Thread(target=lambda: op(A, A))
        other.start()
        other.join()
    assert [name for name, _ in toy.made.launches] == ["wide", "wide"]


def test_a_refusal_is_the_error(toy):
    narrow = torch.ones(4, 2)
    op = toy.op()
    with use_kernel("AddFwdOp", "wide"), pytest.raises(OpNotAvailableError) as caught:
        op(narrow, narrow)
    assert "no implementation serves this call of AddFwdOp: m=4 n=2 dtype=float32 biased=False" in str(caught.value)
    assert "n=2: a row has at least 8 elements [n < 8: 2 < 8]" in str(caught.value)
    assert "wide was asked for by name, so none of plain was considered" in str(caught.value)
    assert toy.made.launches == []


def test_unknown_names_are_told_with_the_nearest(toy):
    with (
        pytest.raises(OpNotAvailableError, match=r"AddFwdOp has no implementation 'wid' \(did you mean 'wide'\?\)"),
        use_kernel("AddFwdOp", "wid"),
    ):
        raise AssertionError("the block is not entered")
    with (
        pytest.raises(OpNotAvailableError, match=r"there is no op 'GemmFwd' \(did you mean 'GemmFwdOp'\?\)"),
        use_kernel("GemmFwd", "gemv"),
    ):
        raise AssertionError("the block is not entered")


def test_an_op_that_a_target_serves_cannot_be_forced(toy):
    backend.register_detector("acme", lambda device: True)
    backend.register_kernel_builder("AddFwdOp", "acme", lambda *specs, **params: lambda a, b, bias: a + b)
    op = toy.op()
    op(A, A)
    with use_kernel("AddFwdOp", "plain"):
        with pytest.raises(OpNotAvailableError, match=r"names 'plain', .* but a target serves the call \(acme: "):
            op(A, A)
        assert "a target serves the call" in explain(op, A, A).text()
    op(A, A)
    assert op.serving_target == "acme"


def test_explain_sees_the_named_kernel(toy):
    op = toy.op()
    with use_kernel("AddFwdOp", "plain"):
        assert explain(op, A, A).winner == "plain"
    assert explain(op, A, A).winner == "wide"
