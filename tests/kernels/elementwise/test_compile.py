"""Compiles the device programs of SiLU-and-multiply for sm_80 and sm_90a."""

import pytest
import torch

from tests.kernels.compiling import A100, H200, access_bytes, compiled, why_not
from tileops.kernels.elementwise import SILU_AND_MUL_IMPLEMENTATIONS

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    # TileLang and TVM warn while they trace; what counts here is what they emit.
    pytest.mark.filterwarnings("default"),
]


@pytest.mark.parametrize(
    ("key", "facts", "rows", "length", "dtype"),
    [
        ("silu_and_mul_wide", H200, 8192, 14336, torch.bfloat16),
        ("silu_and_mul_wide", A100, 3, 1004, torch.float32),
        ("silu_and_mul_walk", A100, 3, 1003, torch.float16),
        ("silu_and_mul_walk", H200, 2**31, 2**20, torch.bfloat16),
    ],
)
def test_program_compiles(key, facts, rows, length, dtype):
    cls = SILU_AND_MUL_IMPLEMENTATIONS[key]
    _, source = compiled(cls, cls.request(device="cuda:0", stated=facts, rows=rows, length=length, dtype=dtype))
    assert access_bytes(source, "x") == ({16} if length * dtype.itemsize % 16 == 0 else set())
