"""RMSNormFwdOp: whoever serves the run's device, against a float32 reference. It has no in-tree kernel."""

from __future__ import annotations

import math

import pytest
import torch

from tileops.backend import BUILTIN
from tileops.manifest import loader
from tileops.norm import RMSNormFwdOp
from tileops.rules.errors import OpNotAvailableError, SignatureError

DTYPES = [torch.float16, torch.bfloat16]
CASES = {case.label: case for case in loader.entry("RMSNormFwdOp").cases()}
#: Elements a test spends on a CPU.
CPU_BUDGET = 2**20


@pytest.fixture
def served(target):
    """The run's target; skips where the in-tree kernels are asked for: there are none for this op."""
    if target is BUILTIN:
        pytest.skip("RMSNormFwdOp is served by targets only: name one with --tileops-target")
    return target


def reference(x, normalized_shape, weight, eps):
    weight = None if weight is None else weight.float()
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    return torch.nn.functional.rms_norm(x.float(), tuple(normalized_shape), weight, eps)


@pytest.mark.parametrize("label", CASES)
def test_manifest_rows(label, served, device, check):
    case = CASES[label]
    size, weight_size = case.inputs["x"], case.inputs["weight"]
    normalized = tuple(case.params["normalized_shape"])
    batch = list(size.shape[: len(size.shape) - len(normalized)])
    while device.type == "cpu" and math.prod(batch) * math.prod(normalized) > CPU_BUDGET:
        longest = batch.index(max(batch))
        batch[longest] = (batch[longest] + 1) // 2
    x = torch.randn(*batch, *normalized, device=device, dtype=size.dtype)
    weight = None if weight_size is None else torch.randn(normalized, device=device, dtype=weight_size.dtype)
    op = RMSNormFwdOp(**case.params, target=served)
    check(op, op(x, weight), reference(x, normalized, weight, case.params["eps"]))
    assert op.serving_target == served


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("eps", [None, 0.0, 1e-3])
@pytest.mark.parametrize(
    ("shape", "normalized"), [((7,), (7,)), ((4, 64), (64,)), ((2, 3, 5, 7), (5, 7)), ((3, 1), (1,))]
)
def test_ranks_and_params(shape, normalized, eps, affine, dtype, served, device, check):
    x = torch.randn(shape, device=device, dtype=dtype)
    weight = torch.randn(normalized, device=device, dtype=dtype) if affine else None
    op = RMSNormFwdOp(list(normalized), eps=eps, target=served)
    y = op(x, weight) if affine else op(x)
    check(op, y, reference(x, normalized, weight, eps))
    assert (y.dtype, y.shape, y.is_contiguous()) == (dtype, x.shape, True)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.mT.contiguous().mT,
        lambda x: torch.stack([x, x], dim=-1).flatten(-2)[..., ::2],
        lambda x: x[:1].expand(x.shape),
    ],
    ids=["transposed", "sliced", "expanded"],
)
def test_layouts(layout, served, device, check):
    x = layout(torch.randn(6, 16, device=device, dtype=torch.bfloat16))
    weight = torch.randn(32, device=device, dtype=torch.bfloat16)[::2]
    op = RMSNormFwdOp((16,), target=served)
    check(op, op(x, weight), reference(x, (16,), weight, None))


def test_no_rows(served, device):
    op = RMSNormFwdOp((16,), target=served)
    assert op(torch.ones(0, 16, device=device, dtype=torch.float16)).shape == (0, 16)


def test_calls_outside_the_signature(served, device):
    op = RMSNormFwdOp((16,), target=served)
    x = torch.ones(4, 16, device=device, dtype=torch.float16)
    for tensors, message in [
        ((x[:, :8],), "RMSNormFwdOp: input x"),
        ((x, x[0, :8]), "RMSNormFwdOp: input weight"),
        ((x, x[0].bfloat16()), "RMSNormFwdOp: input weight"),
        ((x.float(),), "RMSNormFwdOp: input x"),
    ]:
        with pytest.raises(SignatureError, match=message):
            op(*tensors)


def test_params_outside_the_signature():
    for params in ({"normalized_shape": 16}, {"normalized_shape": [1.5]}, {"normalized_shape": [4], "eps": "x"}):
        with pytest.raises(SignatureError, match="RMSNormFwdOp: param"):
            RMSNormFwdOp(**params)
    with pytest.raises(SignatureError, match="normalized_shape"):
        RMSNormFwdOp(normalized_shape=[])


@pytest.mark.in_tree_kernels
def test_it_has_no_in_tree_kernel():
    x = torch.ones(4, 64, dtype=torch.float16)
    with pytest.raises(OpNotAvailableError, match=r"^RMSNormFwdOp's in-tree kernels do not run on cpu; known targets"):
        RMSNormFwdOp(normalized_shape=(64,), target=BUILTIN)(x)
