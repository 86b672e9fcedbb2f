"""Every GEMM implementation by name on a CUDA device, against a float64 product of the same inputs."""

import math

import pytest
import torch

from tileops.kernels.gemm import GEMM_IMPLEMENTATIONS, GemmCall
from tileops.rules.table import RuleTable

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, to run kernels"),
    pytest.mark.filterwarnings("default"),
]

TABLE = RuleTable("gemm", GemmCall, {key: cls.declaration for key, cls in GEMM_IMPLEMENTATIONS.items()})
# Rounding the result alone costs 1.7e-3 and 2.1e-4 of the norm; the sums are float32.
TOLERANCE = {torch.bfloat16: 4e-3, torch.float16: 5e-4}

# One element, primes, one off a tile, one off a 16-byte row pitch, a k long enough to split, a full tile; many tiles,
# the rows of d on 16-byte boundaries and off them.
SHAPES = [
    *((1, 1, 1), (2, 1000, 1003), (17, 33, 65), (65, 136, 1096), (129, 257, 520), (256, 512, 1024)),
    *((2000, 2056, 520), (2000, 2501, 520)),
]
FORMS = [(False, True), (False, False), (True, False), (True, True)]


@pytest.mark.parametrize("key", sorted(GEMM_IMPLEMENTATIONS))
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_product(key, form, shape, dtype):
    (m, n, k), (trans_a, trans_b) = shape, form
    call = GemmCall(device="cuda", m=m, n=n, k=k, dtype=dtype, trans_a=trans_a, trans_b=trans_b)
    (verdict,) = [verdict for verdict in TABLE.explain(call).verdicts if verdict.key == key]
    if verdict.status not in ("wins", "serves"):
        pytest.skip(f"{key} refuses: {'; '.join(reason.text for reason in verdict.reasons)}")
    _, build = GEMM_IMPLEMENTATIONS[key].entry_for(call)
    kernel = build()
    a = torch.randn((k, m) if trans_a else (m, k), device="cuda", dtype=dtype)
    b = torch.randn((n, k) if trans_b else (k, n), device="cuda", dtype=dtype)
    poison = torch.full((m, n), math.nan, device="cuda", dtype=dtype)
    del poison
    d = kernel(a, b)
    assert (d.shape, d.dtype, d.device) == ((m, n), dtype, a.device)
    reference = (a.T if trans_a else a).double() @ (b.T if trans_b else b).double()
    error = (d.double() - reference).norm() / reference.norm()
    assert error <= TOLERANCE[dtype]
