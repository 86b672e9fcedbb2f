"""Compiles the device programs of the rotation for sm_80 and sm_90a."""

import pytest
import torch

from tests.kernels.compiling import A100, H200, access_bytes, compiled, why_not
from tileops.kernels.rope import ROPE_IMPLEMENTATIONS

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    # TileLang and TVM warn while they trace; what counts here is what they emit.
    pytest.mark.filterwarnings("default"),
]


@pytest.mark.parametrize(
    ("key", "facts", "head_dim", "pairs", "dtype", "interleaved", "widest"),
    [
        ("rope_token", H200, 128, 64, torch.bfloat16, False, 16),
        ("rope_token", A100, 96, 36, torch.float16, True, 16),
        ("rope_token", H200, 256, 32, torch.float32, True, 16),
        ("rope_walk", A100, 10, 5, torch.float32, False, 0),
        ("rope_walk", H200, 2**21, 64, torch.bfloat16, True, 16),
    ],
)
def test_program_compiles(key, facts, head_dim, pairs, dtype, interleaved, widest):
    cls = ROPE_IMPLEMENTATIONS[key]
    call = cls.request(
        device="cuda:0",
        stated=facts,
        tokens=100,
        q_heads=32,
        k_heads=8,
        head_dim=head_dim,
        pairs=pairs,
        known=4096,
        dtype=dtype,
        position_dtype=torch.int64,
        angle_dtype=torch.float32,
        interleaved=interleaved,
        check_positions=True,
    )
    _, source = compiled(cls, call)
    assert max(access_bytes(source, "q"), default=0) == widest
    assert max(access_bytes(source, "k_out"), default=0) == widest
