"""Every limit that SiLU-and-multiply declares, on both sides; the table; build identities."""

import pytest
import torch

from tests.kernels.tables import A100, H200, Asked
from tileops.kernels.elementwise import SILU_AND_MUL_IMPLEMENTATIONS

SILU = Asked(SILU_AND_MUL_IMPLEMENTATIONS, rows=64, length=14336, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("served", "refused", "why"),
    [
        ({"length": 1000}, {"length": 1001}, "half a row has 2002 bytes: accesses take 16"),
        ({"length": 1004, "dtype": torch.float32}, {"length": 1004}, "half a row has 2008 bytes"),
        ({"length": 8, "rows": 2**28 - 2**13}, {"length": 8, "rows": 2**28}, "counts elements of y in 32 bits"),
    ],
)
def test_limit_holds_on_both_sides(served, refused, why):
    SILU.holds("silu_and_mul_wide", served, refused, why)


def test_winner():
    assert SILU.winner() == "silu_and_mul_wide"
    assert SILU.winner(length=1001) == "silu_and_mul_walk"
    for facts in (H200, A100):
        for rows, length in [(1, 1), (2**40, 1), (1, 2**40)]:
            assert SILU.reasons("silu_and_mul_walk", facts, rows=rows, length=length) == []


def test_the_table_is_sound():
    SILU.is_sound()


def test_identity_leaves_the_number_of_rows_open():
    first, second = (SILU.identity("silu_and_mul_wide", rows=rows) for rows in (5, 6))
    assert first == second != SILU.identity("silu_and_mul_wide", length=128)
