"""What random values do not show: bounds of positions, statistics, NaN and infinity, rows of one, aliases."""

from __future__ import annotations

import math

import pytest
import torch

from tileops.backend import BUILTIN
from tileops.elementwise import SiLUAndMulFwdOp
from tileops.norm import BatchNormFwdOp, FusedAddRMSNormFwdOp, GroupNormFwdOp, LayerNormFwdOp
from tileops.reduction import CumsumFwdOp, SoftmaxFwdOp
from tileops.rope import RoPEFwdOp

INF, NAN = math.inf, math.nan
FLOATS = [torch.float16, torch.bfloat16, torch.float32]


@pytest.fixture
def make(target, device):
    """Constructs an op for the run's target; skips where the in-tree kernels are asked for, and the op has none."""

    def construct(cls, *args, **params):
        if target is BUILTIN and not cls.implementations():
            pytest.skip(f"{cls.__name__} has no in-tree kernel yet: name a target, --tileops-target=...")
        return cls(*args, **params, target=target)

    return construct


def rope_call(device, known=8, tokens=4, dtype=torch.float16, positions=None, index=torch.int64):
    make = torch.Generator(device).manual_seed(0)
    q = torch.randn(tokens, 3, 12, generator=make, device=device).to(dtype)
    k = torch.randn(tokens, 2, 12, generator=make, device=device).to(dtype)
    angles = torch.rand(known, 4, generator=make, device=device) * 6
    wanted = list(range(tokens)) if positions is None else positions
    return q, k, torch.tensor(wanted, device=device, dtype=index), torch.cat([angles.cos(), angles.sin()], dim=-1)


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("outside", [-1, 8, -(2**31), 2**31 - 1])
def test_rope_refuses_a_position_outside_its_table(outside, index, make, device):
    op = make(RoPEFwdOp)
    with pytest.raises(ValueError, match=r"position"):
        op(*rope_call(device, positions=[0, 7, outside, 1], index=index))
    assert op.serving_target is None
    op(*rope_call(device, positions=[0, 7, 0, 7], index=index))  # both ends are inside


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_unchecked_gives_nan_for_such_tokens_and_reads_nothing_outside(
    interleaved, dtype, make, device, check, references
):
    op = make(RoPEFwdOp, interleaved=interleaved, check_positions=False)
    q, k, positions, table = rope_call(device, dtype=dtype, positions=[-1, 3, 8, 2**40])
    around = torch.full((10, 8), 1e30, device=device)
    around[1:9] = table
    outputs = op(q, k, positions, around[1:9])
    expected = references.rope(q.double(), k.double(), positions, table.double(), interleaved)
    for output, reference in zip(outputs, expected, strict=True):
        assert output[[0, 2, 3]].isnan().all()
        check(op, output[1], reference[1])


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_turns_a_quarter_and_copies_the_rest(interleaved, make, device, check):
    op = make(RoPEFwdOp, interleaved=interleaved)
    quarter = torch.tensor([[0.0, 0.0, 1.0, 1.0]], device=device)  # two cosines, two sines
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0]]], device=device)
    turned = [-2, 1, -4, 3, 5] if interleaved else [-3, -4, 1, 2, 5]
    expected = torch.tensor([[turned]], device=device, dtype=torch.float32)
    check(op, op(x, x, torch.zeros(1, dtype=torch.int32, device=device), quarter), (expected, expected))


def test_batch_norm_follows_torchs_module_through_training_and_inference(make, device, check):
    theirs = torch.nn.BatchNorm1d(5, momentum=0.3, eps=1e-3, device=device)
    mean, var = torch.zeros(5, device=device), torch.ones(5, device=device)
    train, infer = (make(BatchNormFwdOp, training, 0.3, 1e-3) for training in (True, False))
    with torch.no_grad():
        theirs.weight.copy_(torch.arange(5.0))
        theirs.bias.copy_(-torch.arange(5.0))
        weight, bias = theirs.weight.detach(), theirs.bias.detach()
        for step in range(3):
            x = torch.randn(7, 5, 4, device=device) + step
            check(train, train(x, mean, var, weight, bias), theirs(x))
            check(train, (mean, var), (theirs.running_mean, theirs.running_var))
        theirs.eval()
        kept = mean.clone(), var.clone()
        check(infer, infer(x, mean, var, weight, bias), theirs(x))
    assert torch.equal(mean, kept[0])
    assert torch.equal(var, kept[1])


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 4), (2, 3, 0)])
def test_batch_norm_of_nothing_leaves_the_statistics_alone(shape, make, device):
    mean, var = torch.full((3,), 2.0, device=device), torch.full((3,), 3.0, device=device)
    y = make(BatchNormFwdOp, training=True)(torch.ones(shape, device=device), mean, var)
    assert y.shape == shape
    assert mean.tolist() == [2.0] * 3
    assert var.tolist() == [3.0] * 3


def test_batch_norm_infers_from_one_value_and_its_variance_may_be_0(make, device, check):
    op = make(BatchNormFwdOp, eps=0.25)
    x, mean, var = (torch.tensor(values, device=device) for values in ([[3.0, -1.0]], [1.0, -1.0], [0.0, 2.0]))
    check(op, op(x, mean, var), torch.tensor([[4.0, 0.0]], device=device))


@pytest.mark.parametrize("cls", [LayerNormFwdOp, GroupNormFwdOp])
def test_a_mean_far_above_the_deviation(cls, make, device, check):
    """A variance taken as a mean of squares less the square of the mean would be all error here."""
    op = make(cls, [64]) if cls is LayerNormFwdOp else make(cls, 2)
    x = 4096 + torch.arange(64, device=device, dtype=torch.float32).repeat(2, 2, 1) / 64
    x = x if cls is LayerNormFwdOp else x.reshape(2, 4, 32)
    rows = x.double().reshape(-1, 64)
    expected = (rows - rows.mean(1, keepdim=True)) / (rows.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    actual = op(x)
    torch.testing.assert_close(actual.double().reshape(-1, 64), expected, rtol=2e-4, atol=2e-4)
    check(op, (actual - expected.reshape(x.shape)).mul(1e-2).float(), torch.zeros_like(x))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_and_infinity_stay_in_their_row(dtype, make, device, check):
    op = make(LayerNormFwdOp, (8,))
    x = torch.randn(4, 8, device=device).to(dtype)
    x[1, 3], x[2, 5] = NAN, INF
    y = op(x)
    assert y[1].isnan().all()
    assert y[2].isnan().any()
    check(op, y[::3].contiguous(), torch.nn.functional.layer_norm(x[::3].float(), (8,)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_norm_of_a_sum_is_that_of_what_was_written(dtype, make, device, check):
    op = make(FusedAddRMSNormFwdOp, [32], eps=1e-6)
    x, residual = (torch.randn(5, 32, device=device).to(dtype) for _ in range(2))
    total = x.float() + residual.float()
    y = op(x, residual)
    assert torch.equal(residual, total.to(dtype))
    check(op, y, torch.nn.functional.rms_norm(residual.float(), (32,), None, 1e-6))


def test_x_and_residual_may_be_one_tensor(make, device, check):
    op = make(FusedAddRMSNormFwdOp, [32])
    x = torch.randn(5, 32, device=device)
    total = x + x
    check(op, op(x, x), torch.nn.functional.rms_norm(total, (32,)))
    assert torch.equal(x, total)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_softmax_at_its_bounds(dtype, make, device, check):
    rows = [[0.0] * 4, [-INF, 0, -INF, 0], [60000.0, 60000, -60000, 0], [-INF] * 4, [INF, 0, 0, 0], [NAN, 0, 0, 0]]
    x = torch.tensor(rows, device=device).to(dtype)
    op = make(SoftmaxFwdOp)
    y = op(x)
    check(op, y[:3], torch.tensor([[0.25] * 4, [0, 0.5, 0, 0.5], [0.5, 0.5, 0, 0]], device=device))
    assert y[3:].isnan().all()


@pytest.mark.parametrize("cls", [SoftmaxFwdOp, CumsumFwdOp])
@pytest.mark.parametrize("dim", [0, -1])
def test_a_scalar_is_a_row_of_one(cls, dim, make, device, check):
    op = make(cls, dim)
    check(op, op(torch.tensor(3.0, device=device)), torch.tensor(1.0 if cls is SoftmaxFwdOp else 3.0, device=device))


def test_cumsum_carries_nan_and_infinity_on_and_sums_wider_than_its_dtype(make, device, check):
    op = make(CumsumFwdOp)
    y = op(torch.tensor([[1.0, INF, 1, -INF, 1], [1, NAN, 1, 1, 1]], device=device))
    assert y[0].tolist()[:3] == [1.0, INF, INF]
    assert y[0, 3:].isnan().all()
    assert y[1, 0] == 1
    assert y[1, 1:].isnan().all()
    ones = torch.ones(4096, device=device, dtype=torch.bfloat16)  # bfloat16 sums of ones stop at 256
    check(op, op(ones), torch.arange(1, 4097, device=device))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_silu_far_from_zero(dtype, make, device, check):
    op = make(SiLUAndMulFwdOp)
    gate = torch.tensor([-60000.0, -100, -20, 0, 20, 100], device=device)
    y = op(torch.cat([gate, torch.ones_like(gate)]).to(dtype))
    check(op, y, torch.tensor([0.0, 0, -4.12e-8, 0, 20, 100], device=device))
