"""Inputs that a call writes: what the kernel gets, and what the caller finds in them."""

from __future__ import annotations

import pytest
import torch

from tileops import backend
from tileops.op import Op


@pytest.fixture
def op(toys):
    def kernel(x, total, seen):
        total += x
        seen.copy_(x)
        return x * 2

    backend.register_kernel_builder("AccumulateFwdOp", "acme", lambda *specs, **params: kernel)
    return type("AccumulateFwdOp", (Op,), {}, entry=toys.entries["AccumulateFwdOp"])(target="acme")


def test_a_written_input_is_written_as_passed(op):
    x = torch.randn(4, 8)
    total, seen = torch.ones(8, 4).mT, torch.zeros(4, 8)
    assert torch.equal(op(x, total, seen), x * 2)
    assert torch.equal(total, x + 1)
    assert torch.equal(seen, x)
    assert op.last_call.copies == ()


def test_a_written_input_declared_contiguous_is_copied_both_ways(op):
    x = torch.randn(8, 4).mT
    total, seen = torch.ones(4, 8), torch.zeros(8, 4).mT
    for _ in range(2):
        op(x, total, seen)
    assert torch.equal(seen, x)
    assert torch.equal(total, 1 + x + x)
    assert [text.split()[0] for text in op.last_call.copies] == ["x", "seen"]


def test_a_sum_of_nothing_is_what_the_manifest_says(toys):
    backend.register_kernel_builder("SumFwdOp", "acme", lambda *specs, **params: lambda x: x.sum(1))
    op = type("SumFwdOp", (Op,), {}, entry=toys.entries["SumFwdOp"])(target="acme")
    assert torch.equal(op(torch.ones(3, 0)), torch.zeros(3))
    assert torch.equal(op(torch.ones(3, 2)), torch.full((3,), 2.0))
    assert op(torch.ones(0, 2)).shape == (0,)
