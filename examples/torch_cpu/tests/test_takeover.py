"""Calls on CPU tensors: right numbers, rejected calls, what the kernel is handed and what the caller gets."""

from __future__ import annotations

import itertools

import pytest
import torch
from tileops.backend import BackendError, TensorSpec
from tileops.gemm import GemmFwdOp
from tileops.norm import RMSNormFwdOp

from tileops_cpu.target import TARGET

DTYPES = [torch.float16, torch.bfloat16]
# Half a unit in the last place of a result near 1, times 4: inputs are rounded once, sums are in float32.
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eps", [None, 1e-3])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    ("shape", "normalized"), [((4, 64), (64,)), ((2, 3, 5, 7), (5, 7)), ((1,), (1,)), ((64,), (64,))]
)
def test_rms_norm_is_torchs_bit_for_bit(dtype, eps, affine, shape, normalized):
    x = torch.randn(shape, dtype=dtype)
    weight = torch.randn(normalized, dtype=dtype) if affine else None
    op = RMSNormFwdOp(normalized_shape=normalized, eps=eps)
    y = op(x, weight)
    assert torch.equal(y, torch.nn.functional.rms_norm(x, normalized, weight, eps))
    assert (y.dtype, y.shape, y.device) == (dtype, x.shape, x.device)
    assert op.serving_target == TARGET


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 64, 48), (33, 17, 130), (64, 96, 256)])
def test_gemm_against_float32(dtype, trans_a, trans_b, m, n, k):
    a = torch.randn((k, m) if trans_a else (m, k), dtype=dtype) / k**0.5
    b = torch.randn((n, k) if trans_b else (k, n), dtype=dtype)
    op = GemmFwdOp(trans_a=trans_a, trans_b=trans_b)
    d = op(a, b)
    expected = (a.float().mT if trans_a else a.float()) @ (b.float().mT if trans_b else b.float())
    torch.testing.assert_close(d.float(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert (d.dtype, d.shape, d.device.type) == (dtype, (m, n), "cpu")
    assert op.serving_target == TARGET


def test_a_call_that_breaks_the_signature_never_reaches_the_backend(recording):
    recording.serve("GemmFwdOp")
    op = GemmFwdOp(target=recording.target)
    a, b = torch.ones(4, 8, dtype=torch.float16), torch.ones(6, 8, dtype=torch.float16)
    for wrong in (
        (a, torch.ones(6, 9, dtype=torch.float16)),  # K of a is not K of b
        (a, b.bfloat16()),  # two dtypes
        (a.float(), b.float()),  # a dtype that the op does not have
        (a[0], b),  # a vector
        (a, b.to("meta")),  # two devices
    ):
        with pytest.raises((ValueError, BackendError)):
            op(*wrong)
    with pytest.raises((TypeError, ValueError)):
        op(a)
    assert recording.asked == []
    assert op(a, b).shape == (4, 6)


def test_the_builder_gets_descriptions_by_position_and_params_by_name(recording):
    recording.serve("RMSNormFwdOp")
    op = RMSNormFwdOp([8], target=recording.target)
    x = torch.ones(3, 8, dtype=torch.float16)
    op(x)
    op(x, torch.ones(8, dtype=torch.float16))
    described = TensorSpec(torch.device("cpu"), torch.float16, (3, 8))
    weight = TensorSpec(torch.device("cpu"), torch.float16, (8,))
    params = {"normalized_shape": [8], "eps": None}  # as the caller passed them; the default where he did not
    assert recording.asked == [
        ("RMSNormFwdOp", (described, None), params),
        ("RMSNormFwdOp", (described, weight), params),
    ]


def test_inputs_arrive_contiguous(recording):
    arrived = []

    def build(a, b, *, trans_a, trans_b):
        def kernel(a, b):
            arrived.append((a.is_contiguous(), b.is_contiguous()))
            return a @ b.mT

        return kernel

    recording.serve("GemmFwdOp", build)
    a = torch.randn(8, 16, dtype=torch.float16)
    b = torch.randn(6, 8, dtype=torch.float16)
    forms = [a.mT, a.mT.contiguous(), a.repeat(1, 2)[:, ::2].mT, a[:1].expand(8, 16).mT]
    op = GemmFwdOp(target=recording.target)
    for form in forms:
        torch.testing.assert_close(op(form, b), form @ b.mT, rtol=2e-3, atol=2e-3)
    assert arrived == [(True, True)] * len(forms)


def test_what_a_kernel_returns_is_held_against_the_manifest(recording):
    a, b = torch.ones(2, 4, dtype=torch.float16), torch.ones(3, 4, dtype=torch.float16)
    recording.serve("GemmFwdOp", lambda a, b, **params: lambda a, b: torch.ones(3, 2, dtype=torch.float16))
    with pytest.raises(BackendError, match=recording.target):
        GemmFwdOp(target=recording.target)(a, b)
