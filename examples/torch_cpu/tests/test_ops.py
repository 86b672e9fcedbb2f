"""Every op of the target against torch: the same numbers as the function that a user would call instead."""

from __future__ import annotations

import importlib

import pytest
import torch
from tileops import manifest
from tileops.elementwise import SiLUAndMulFwdOp
from tileops.gemm import GemmFwdOp
from tileops.mlp import GatedMLPFwdOp
from tileops.norm import BatchNormFwdOp, FusedAddRMSNormFwdOp, GroupNormFwdOp, LayerNormFwdOp, RMSNormFwdOp
from tileops.reduction import CumsumFwdOp, SoftmaxFwdOp
from tileops.rope import RoPEFwdOp

from tileops_cpu.ops import BUILDERS
from tileops_cpu.target import TARGET

F = torch.nn.functional
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
EPS = torch.finfo(torch.float32).eps


def close(op, actual, expected):
    assert op.serving_target == TARGET
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5}[actual.dtype]
    torch.testing.assert_close(actual.float(), expected.float(), rtol=tolerance, atol=tolerance)


def test_every_op_of_the_manifest_has_a_builder():
    assert set(BUILDERS) == set(manifest.families())


@pytest.mark.parametrize("op", BUILDERS)
def test_a_builder_takes_what_the_manifest_says_by_position_and_by_name(op):
    import inspect

    signature = manifest.entry(op).signature
    given = inspect.signature(BUILDERS[op]).parameters.values()
    assert [item.name for item in given if item.kind is not item.KEYWORD_ONLY] == list(signature.inputs)
    assert [item.name for item in given if item.kind is item.KEYWORD_ONLY] == list(signature.params)
    module = importlib.import_module(BUILDERS[op].__module__)
    assert (module.__doc__ or "").startswith(f"{op}: ")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(dtype, affine):
    op, x = LayerNormFwdOp((5, 7), eps=1e-3), torch.randn(2, 3, 5, 7, dtype=dtype)
    weight, bias = (torch.randn(5, 7, dtype=dtype) if affine else None for _ in range(2))
    close(op, op(x, weight, bias), F.layer_norm(x, (5, 7), weight, bias, 1e-3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 6), (2, 6, 5), (2, 6, 3, 4)])
def test_group_norm(dtype, shape):
    op, x = GroupNormFwdOp(3), torch.randn(shape, dtype=dtype)
    weight, bias = (torch.randn(6, dtype=dtype) for _ in range(2))
    close(op, op(x, weight, bias), F.group_norm(x, 3, weight, bias))
    close(op, op(x, bias=bias), F.group_norm(x, 3, None, bias))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_moves_its_statistics_when_training_only(dtype, training):
    op, x = BatchNormFwdOp(training, momentum=0.3), torch.randn(4, 6, 5, dtype=dtype)
    ours, theirs = ((torch.zeros(6), torch.ones(6)) for _ in range(2))
    weight, bias = torch.randn(6), torch.randn(6)
    close(op, op(x, *ours, weight, bias), F.batch_norm(x, *theirs, weight, bias, training, 0.3))
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    assert bool(ours[0].any()) is training


@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_add_rms_norm_writes_the_sum(dtype):
    op = FusedAddRMSNormFwdOp([16])
    x, residual = (torch.randn(4, 16, dtype=dtype) for _ in range(2))
    weight, total = torch.randn(16, dtype=dtype), x + residual
    y = op(x, residual, weight)
    assert torch.equal(residual, total)
    close(op, y, F.rms_norm(total.float(), (16,), weight.float(), EPS))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [-1, 0, 1])
@pytest.mark.parametrize(("cls", "function"), [(SoftmaxFwdOp, torch.softmax), (CumsumFwdOp, torch.cumsum)])
def test_reductions(cls, function, dim, dtype):
    op, x = cls(dim), torch.randn(3, 4, 5, dtype=dtype)
    close(op, op(x), function(x.float(), dim))


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_and_mul(dtype):
    op, x = SiLUAndMulFwdOp(), torch.randn(3, 4, 10, dtype=dtype)
    close(op, op(x), F.silu(x[..., :5].float()) * x[..., 5:].float())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [True, False])
def test_rope_turns_pairs_as_complex_numbers(interleaved, dtype):
    op = RoPEFwdOp(interleaved)
    q, k = torch.randn(5, 3, 12, dtype=dtype), torch.randn(5, 1, 12, dtype=dtype)
    angle = torch.rand(9, 4)
    positions = torch.tensor([0, 8, 3, 3, 1])
    turned = op(q, k, positions, torch.cat([angle.cos(), angle.sin()], -1))
    for x, y in zip((q, k), turned, strict=True):
        head = x[..., :8].float()
        pairs = head.unflatten(-1, (4, 2)) if interleaved else head.unflatten(-1, (2, 4)).mT
        theirs = torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones(5, 1, 4), angle[positions][:, None])
        real = torch.view_as_real(theirs)
        expected = (real if interleaved else real.mT).flatten(-2)
        close(op, y, torch.cat([expected, x[..., 8:].float()], -1))


def test_rope_checks_positions_unless_told_not_to():
    q, table = torch.randn(2, 1, 4), torch.ones(3, 4)
    with pytest.raises(ValueError, match="position 3 is outside cos_sin, which has 3 positions"):
        RoPEFwdOp()(q, q, torch.tensor([0, 3]), table)
    y, _ = RoPEFwdOp(check_positions=False)(q, q, torch.tensor([0, -1]), table)
    assert not y[0].isnan().any()
    assert y[1].isnan().all()


def test_gated_mlp_is_served_whole_and_is_its_parts():
    x, w_gate_up, w_down = (torch.randn(size).half() / 4 for size in ((3, 16), (24, 16), (8, 12)))
    op, project, gate = GatedMLPFwdOp(), GemmFwdOp(), SiLUAndMulFwdOp()
    y = op(x, w_gate_up, w_down)
    assert torch.equal(y, project(gate(project(x, w_gate_up)), w_down))
    assert op.serving_target == TARGET
    assert all(part.last_call is None for part in op.parts)


def test_rms_norm_without_eps_takes_that_of_float32():
    op, x = RMSNormFwdOp((8,)), torch.full((1, 8), 1e-4).half()
    close(op, op(x), F.rms_norm(x.float(), (8,), None, EPS))
