"""Inputs that a call writes: what the kernel gets, and what the caller finds in them."""

from __future__ import annotations

import pytest
import torch

from tileops import backend
from tileops.op import Op
from tileops.rules.errors import KernelResultError, SignatureError


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


def test_a_written_input_with_odd_strides_where_a_dim_is_1_is_written_once(op):
    x = torch.randn(1, 8)
    total, seen = torch.ones(1, 8), torch.zeros(1, 9)[:, :8]
    assert seen.is_contiguous()
    assert seen.stride() == (9, 1)
    for _ in range(2):
        op(x, total, seen)
    assert torch.equal(seen, x)
    assert op.last_call.copies == ()


def test_a_written_input_negated_by_torch_is_written_as_what_it_means(toys):
    def kernel(x, total, seen):
        assert not any(tensor.is_neg() for tensor in (x, total, seen)), "a kernel reads memory, and knows no negation"
        total += x
        seen.copy_(x)
        return x * 2

    backend.register_kernel_builder("AccumulateFwdOp", "acme", lambda *specs, **params: kernel)
    op = type("AccumulateFwdOp", (Op,), {}, entry=toys.entries["AccumulateFwdOp"])(target="acme")
    x = torch.randn(4, 8)
    strided = torch.zeros(4, 8, dtype=torch.complex64).conj().imag
    for total in (torch.zeros(4, 8), torch._neg_view(torch.zeros(4, 8)), strided):
        for _ in range(2):
            before, seen = total.resolve_neg().clone(), torch._neg_view(torch.zeros(4, 8))
            op(x, total, seen)
            assert torch.equal(total, before + x)
            assert torch.equal(seen, x)


def test_a_sum_of_nothing_is_what_the_manifest_says(toys):
    backend.register_kernel_builder("SumFwdOp", "acme", lambda *specs, **params: lambda x: x.sum(1))
    op = type("SumFwdOp", (Op,), {}, entry=toys.entries["SumFwdOp"])(target="acme")
    assert torch.equal(op(torch.ones(3, 0)), torch.zeros(3))
    assert torch.equal(op(torch.ones(3, 2)), torch.full((3,), 2.0))
    assert op(torch.ones(0, 2)).shape == (0,)


def test_several_outputs_are_checked_one_by_one(toys):
    halves = {
        "right": lambda x: (x * 2, x[:, 0] + 1),
        "count": lambda x: (x * 2,),
        "list": lambda x: [x * 2, x[:, 0] + 1],
        "shape": lambda x: (x * 2, x + 1),
        "input": lambda x: (x, x[:, 0] + 1),
        "one another": lambda x: (whole := x * 2, whole[0]),
    }
    x = torch.ones(8, 8)
    for name, kernel in halves.items():
        backend.register_kernel_builder("SplitFwdOp", name, lambda *specs, kernel=kernel, **params: kernel)
        op = type("SplitFwdOp", (Op,), {}, entry=toys.entries["SplitFwdOp"])(target=name)
        if name == "right":
            for _ in range(2):
                y, z = op(x)
                assert torch.equal(y, x * 2)
                assert torch.equal(z, x[:, 0] + 1)
            continue
        wrong = "the result to be a tuple of 2 tensors y, z" if name in ("count", "list") else "output '[yz]' to be a"
        with pytest.raises(KernelResultError, match=f"SplitFwdOp: kernel of target '{name}' .* expected {wrong}"):
            op(x)


def test_a_written_input_may_be_an_output_that_the_op_hands_back(toys):
    def kernel(x):
        x += 1

    backend.register_kernel_builder("BumpFwdOp", "acme", lambda *specs, **params: kernel)
    op = type("BumpFwdOp", (Op,), {}, entry=toys.entries["BumpFwdOp"])(target="acme")
    x = torch.zeros(4, 8)
    for count in (1, 2):
        assert op(x) is x
        assert torch.equal(x, torch.full((4, 8), float(count)))
    empty = torch.zeros(0, 8)
    assert op(empty) is empty
    backend.register_kernel_builder("BumpFwdOp", "chatty", lambda *specs, **params: lambda x: x)
    with pytest.raises(KernelResultError, match="to be None, as the op only writes in place"):
        type("BumpFwdOp", (Op,), {}, entry=toys.entries["BumpFwdOp"])(target="chatty")(x)


def test_a_read_input_that_shares_memory_with_a_written_one_is_read_first(op):
    for _ in range(2):
        x = torch.randn(4, 8)
        before, seen = x.clone(), torch.zeros(4, 8)
        assert torch.equal(op(x, x, seen), before * 2)
        assert torch.equal(x, before * 2)
        assert torch.equal(seen, before)
    wide = torch.randn(4, 16)
    left, right = wide[:, :8], wide[:, 8:]
    before, into = left.clone(), right + left
    op(left, right, torch.zeros(4, 8))
    assert torch.equal(right, into)
    assert torch.equal(left, before)


def test_two_written_inputs_in_one_place_are_refused(op):
    total = torch.zeros(4, 8)
    for _ in range(2):
        with pytest.raises(SignatureError, match=r"the inputs 'total' and 'seen' are both written, and share memory"):
            op(torch.ones(4, 8), total, total)
    assert torch.equal(total, torch.zeros(4, 8))


def test_a_written_input_that_repeats_an_element_is_refused(op):
    with pytest.raises(SignatureError, match=r"input 'total' is written, but some of its elements are one place"):
        op(torch.ones(4, 8), torch.ones(1, 8).expand(4, 8), torch.zeros(4, 8))


def test_autograd_hears_of_a_write(op):
    total = torch.ones(4, 8)
    weight = torch.ones(4, 8, requires_grad=True)
    product = (weight * total).sum()  # keeps total for its backward
    op(torch.ones(4, 8), total, torch.zeros(4, 8))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_tensors_of_inference_mode_are_written_too(op):
    with torch.inference_mode():
        x, total, seen = torch.ones(4, 8), torch.ones(4, 8), torch.zeros(4, 8)
        for _ in range(2):
            op(x, total, seen)
    assert torch.equal(total, torch.full((4, 8), 3.0))
