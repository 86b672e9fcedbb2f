"""Every limit that softmax and the cumulative sum declare, on both sides; their tables; build identities."""

import subprocess
import sys

import pytest
import torch

from tests.kernels.tables import A100, H200, Asked
from tileops.kernels.columns import COLUMN_LENGTH
from tileops.kernels.reduction import CUMSUM_IMPLEMENTATIONS, SOFTMAX_IMPLEMENTATIONS
from tileops.kernels.reduction.cumsum_cluster import (
    BUSY_LENGTH,
    BUSY_MOST,
    FEW_ACCESSES,
    MOST,
    ODD_LENGTH,
    ROW_LENGTH,
)
from tileops.kernels.reduction.cumsum_cluster import COLUMN_LENGTH as LONG_COLUMN
from tileops.kernels.reduction.cumsum_cluster import FEW as FEW_ROWS
from tileops.kernels.reduction.softmax_rows import CLUSTER_ROWS, LARGE_LENGTH
from tileops.kernels.rows import CLUSTER_LENGTH, COUNT_LIMIT

BF16, FP32 = torch.bfloat16, torch.float32
BASE = {"outer": 4096, "length": 4096, "inner": 1, "dtype": BF16}
SOFTMAX = Asked(SOFTMAX_IMPLEMENTATIONS, **BASE)
CLUSTERS = Asked(SOFTMAX_IMPLEMENTATIONS, **(BASE | {"length": 2**17, "dtype": FP32}))
FEW = Asked(SOFTMAX_IMPLEMENTATIONS, **(BASE | {"outer": 16, "length": 128256}))
CUMSUM = Asked(CUMSUM_IMPLEMENTATIONS, **BASE)

BOUNDARIES = [
    (SOFTMAX, "softmax_warp", {"length": 512, "dtype": FP32}, {"length": 513, "dtype": FP32}, "kept by a warp"),
    (SOFTMAX, "softmax_warp", {"length": 512}, {"length": 512, "inner": 3}, "inner=3"),
    (SOFTMAX, "softmax_warp", {"length": 8, "outer": COUNT_LIMIT}, {"length": 8, "outer": 2**31}, "32 bits"),
    (SOFTMAX, "softmax_warp", {"length": 520, "outer": 1056}, {"length": 520, "outer": 1055}, "1055 rows, a warp each"),
    (SOFTMAX, "softmax_warp", {"length": 191}, {"length": 193}, "193 accesses: a warp keeps up to 192"),
    (SOFTMAX, "softmax_warp", {"length": 382}, {"length": 386}, "193 accesses: a warp keeps up to 192"),
    (SOFTMAX, "softmax_warp", {"length": 512, "outer": 1}, {"length": 513, "outer": 1}, "few rows have at most 1024"),
    (SOFTMAX, "softmax_block", {"length": 32768}, {"length": 32769}, "length=32769 is walked faster"),
    (SOFTMAX, "softmax_block", {"length": 2**15, "dtype": FP32}, {"length": 2**15 + 4, "dtype": FP32}, "at most 32768"),
    (SOFTMAX, "softmax_block", {}, {"inner": 2}, "inner=2"),
    (SOFTMAX, "softmax_block", {"outer": COUNT_LIMIT}, {"outer": 2**31}, "32 bits"),
    (SOFTMAX, "softmax_shared", {"length": 65538}, {"length": 65536}, "4096 rows, each kept by a block, use 132 SMs"),
    (SOFTMAX, "softmax_shared", {"outer": 16, "length": 32769}, {"outer": 16, "length": 32768}, "faster up to 65536"),
    (SOFTMAX, "softmax_shared", {"outer": 16, "length": 32770}, {"outer": 17, "length": 32770}, "17 rows, each kept"),
    (SOFTMAX, "softmax_shared", {"length": 132 * 65536}, {"length": 132 * 65536 + 2}, "133 parts, whose blocks wait"),
    (SOFTMAX, "softmax_shared", {"length": 132 * 32768 - 1}, {"length": 132 * 32768 + 1}, "133 parts"),
    (SOFTMAX, "softmax_shared", {"length": 2**17}, {"length": 2**17, "inner": 2}, "inner=2"),
    (SOFTMAX, "softmax_shared", {"length": 2**17, "outer": 2**20}, {"length": 2**17, "outer": 2**20 + 1}, "32 bits"),
    (
        CLUSTERS,
        "softmax_cluster",
        {"length": CLUSTER_LENGTH},
        {"length": CLUSTER_LENGTH + 4},
        "a cluster keeps at most",
    ),
    (CLUSTERS, "softmax_cluster", {"outer": 17}, {"outer": 16}, "132 SMs idle"),
    (CLUSTERS, "softmax_cluster", {"length": 50257, "outer": 132}, {"length": 50257, "outer": 131}, "odd length=50257"),
    (CLUSTERS, "softmax_cluster", {"outer": CLUSTER_ROWS}, {"outer": CLUSTER_ROWS + 1}, "32 bits"),
    (CLUSTERS, "softmax_cluster", {"length": 32769}, {"length": 32768}, "4096 rows, each kept by a block, use 132 SMs"),
    (CLUSTERS, "softmax_cluster", {}, {"inner": 2}, "inner=2"),
    (CLUSTERS, "softmax_cluster", {}, {"dtype": BF16}, "a cluster keeps float32"),
    (FEW, "softmax_large_cluster", {"outer": 65}, {"outer": 66}, "66 rows of 16 blocks"),
    (FEW, "softmax_large_cluster", {"length": LARGE_LENGTH}, {"length": LARGE_LENGTH + 128}, "at most 131072"),
    (FEW, "softmax_large_cluster", {"length": 128256}, {"length": 128264}, "256528 bytes: 16 blocks have as many each"),
    (
        FEW,
        "softmax_large_cluster",
        {"outer": 16, "length": 16512},
        {"outer": 16, "length": 16384},
        "a block alone keeps",
    ),
    (
        FEW,
        "softmax_large_cluster",
        {"outer": 16, "length": 65536},
        {"outer": 17, "length": 65536},
        "17 rows, each kept",
    ),
    (FEW, "softmax_large_cluster", {}, {"inner": 2}, "inner=2"),
    (SOFTMAX, "softmax_columns", {"inner": 2, "length": 512}, {"inner": 1, "length": 512}, "inner=1"),
    (
        SOFTMAX,
        "softmax_columns",
        {"inner": 2, "length": COLUMN_LENGTH},
        {"inner": 2, "length": COLUMN_LENGTH + 1},
        "keeps at most 512 elements a row",
    ),
    (
        SOFTMAX,
        "softmax_columns",
        {"inner": 2, "length": 2, "outer": 2**30 - 512},
        {"inner": 2, "length": 2, "outer": 2**30},
        "counts rows in 32 bits",
    ),
    (CUMSUM, "cumsum_cluster", {}, {"inner": 2}, "inner=2"),
    (CUMSUM, "cumsum_cluster", {"length": ROW_LENGTH}, {"length": ROW_LENGTH - 1}, "too little work"),
    (
        CUMSUM,
        "cumsum_cluster",
        {"length": BUSY_LENGTH, "dtype": FP32},
        {"length": BUSY_LENGTH - 2, "dtype": FP32},
        "4096 rows keep 132 SMs busy",
    ),
    (
        CUMSUM,
        "cumsum_cluster",
        {"outer": 131, "dtype": FP32},
        {"outer": 132, "dtype": FP32},
        "132 rows keep 132 SMs busy",
    ),
    (
        CUMSUM,
        "cumsum_cluster",
        {"outer": 64, "length": CLUSTER_LENGTH},
        {"outer": 64, "length": CLUSTER_LENGTH + 1},
        "a cluster keeps at most",
    ),
    (
        CUMSUM,
        "cumsum_cluster",
        {"outer": FEW_ROWS, "length": 8 * FEW_ACCESSES + 8},
        {"outer": FEW_ROWS - 1, "length": 8 * FEW_ACCESSES + 8},
        "7 rows of 16385 accesses leave SMs idle",
    ),
    (
        CUMSUM,
        "cumsum_cluster",
        {"outer": 1, "length": FEW_ACCESSES - 1},
        {"outer": 1, "length": FEW_ACCESSES + 1},
        "1 rows of 16385 accesses leave SMs idle",
    ),
    (CUMSUM, "cumsum_cluster", {"length": BUSY_MOST}, {"length": BUSY_MOST + 8}, "4096 rows of length=262152"),
    (
        CUMSUM,
        "cumsum_cluster",
        {"outer": 131, "length": BUSY_MOST + 8},
        {"outer": 132, "length": BUSY_MOST + 8},
        "each walked by a block, keep 132 SMs busy",
    ),
    (CUMSUM, "cumsum_cluster", {"length": ODD_LENGTH - 1}, {"length": ODD_LENGTH + 1}, "an odd length=163841"),
    (CUMSUM, "cumsum_cluster", {"outer": MOST}, {"outer": MOST + 1}, "counts blocks in 32 bits"),
    (CUMSUM, "cumsum_columns", {"outer": 1583, "inner": 8}, {"outer": 1584, "inner": 8}, "bytes idle"),
    (CUMSUM, "cumsum_columns", {"inner": 96}, {"inner": 88}, "bytes idle"),
    (CUMSUM, "cumsum_columns", {"inner": 64}, {"inner": 1}, "inner=1: reads rows that lie side by side"),
    (CUMSUM, "cumsum_columns", {"inner": 2048}, {"inner": 2047}, "4094 bytes apart: accesses take 16"),
    (
        CUMSUM,
        "cumsum_columns",
        {"length": LONG_COLUMN, "inner": 64},
        {"length": LONG_COLUMN - 1, "inner": 64},
        "too little work",
    ),
    (
        CUMSUM,
        "cumsum_columns",
        {"outer": MOST // 2, "inner": 64},
        {"outer": MOST, "inner": 64},
        "counts in 32 bits",
    ),
    (CUMSUM, "cumsum_columns", {"length": 2**30, "inner": 64}, {"length": 2**30 + 1, "inner": 64}, "counts in 32 bits"),
    (CUMSUM, "cumsum_short", {"length": 1024}, {"length": 1025}, "2050 bytes: read by a warp at once"),
    (CUMSUM, "cumsum_short", {"length": 64}, {"length": 64, "inner": 2}, "inner=2"),
    (CUMSUM, "cumsum_short", {"length": 8, "outer": COUNT_LIMIT}, {"length": 8, "outer": 2**31}, "32 bits"),
    (
        CUMSUM,
        "cumsum_split",
        {"outer": 87, "length": 8192},
        {"outer": 88, "length": 8192},
        "88 blocks that walk keep 132 SMs busy",
    ),
    (
        CUMSUM,
        "cumsum_split",
        {"outer": 1, "inner": 87 * 128},
        {"outer": 1, "inner": 87 * 128 + 8},
        "keep 132 SMs busy",
    ),
    (CUMSUM, "cumsum_split", {"outer": 1, "length": 8192}, {"outer": 1, "length": 8191}, "too little work"),
    (
        CUMSUM,
        "cumsum_split",
        {"outer": 1, "length": 1025, "inner": 2},
        {"outer": 1, "length": 1024, "inner": 2},
        "too little work",
    ),
    (
        CUMSUM,
        "cumsum_split",
        {"outer": 1, "length": 1024, "inner": 2, "dtype": FP32},
        {"outer": 1, "length": 1023, "inner": 2, "dtype": FP32},
        "too little work",
    ),
    (CUMSUM, "cumsum_split", {"outer": 1, "length": 2**30}, {"outer": 1, "length": 2**30 + 1}, "counts in 32 bits"),
]


@pytest.mark.parametrize(("asked", "key", "served", "refused", "why"), BOUNDARIES)
def test_limit_holds_on_both_sides(asked, key, served, refused, why):
    asked.holds(key, served, refused, why)


@pytest.mark.parametrize(("asked", "key"), [(SOFTMAX, "softmax_stream"), (CUMSUM, "cumsum_walk")])
def test_the_general_one_serves_every_call(asked, key):
    for outer, length, inner in [(1, 1, 1), (2**40, 1, 1), (1, 2**40, 1), (1, 1, 2**40), (3, 2**31, 5)]:
        for facts in (H200, A100):
            changes = {"outer": outer, "length": length, "inner": inner}
            assert asked.reasons(key, facts, **changes) == []
            assert asked.winner(facts, **changes)


@pytest.mark.parametrize(
    ("asked", "changes", "winner"),
    [
        (SOFTMAX, {"length": 128}, "softmax_warp"),
        (SOFTMAX, {"length": 1000}, "softmax_warp"),
        (SOFTMAX, {"length": 1000, "outer": 256}, "softmax_block"),
        (SOFTMAX, {}, "softmax_block"),
        (SOFTMAX, {"outer": 64, "length": 128256}, "softmax_large_cluster"),
        (SOFTMAX, {"outer": 66, "length": 128256}, "softmax_shared"),
        (CLUSTERS, {"outer": 64, "length": 128256}, "softmax_large_cluster"),
        (CLUSTERS, {"outer": 66, "length": 128256}, "softmax_cluster"),
        (CLUSTERS, {"outer": 64, "length": 128255}, "softmax_shared"),
        (SOFTMAX, {"outer": 16, "length": 128256}, "softmax_large_cluster"),
        (SOFTMAX, {"outer": 4, "length": 19, "inner": 2**19}, "softmax_columns"),
        (SOFTMAX, {"length": 2**24}, "softmax_stream"),
        (SOFTMAX, {"length": 4096, "inner": 4}, "softmax_stream"),
        (CUMSUM, {"length": 64}, "cumsum_short"),
        (CUMSUM, {"outer": 64, "length": 128256}, "cumsum_cluster"),
        (CUMSUM, {"outer": 256, "length": 151936}, "cumsum_cluster"),
        (CUMSUM, {"outer": 1, "length": 2**20}, "cumsum_split"),
        (CUMSUM, {"outer": 1, "inner": 256}, "cumsum_columns"),
        (CUMSUM, {"outer": 1, "inner": 250}, "cumsum_split"),
        (CUMSUM, {"outer": 2, "inner": 2048}, "cumsum_columns"),
        (CUMSUM, {"length": 2047}, "cumsum_walk"),
        (CUMSUM, {"length": 256, "inner": 64}, "cumsum_walk"),
    ],
)
def test_winner(asked, changes, winner):
    assert asked.winner(**changes) == winner


@pytest.mark.parametrize("asked", [SOFTMAX, CUMSUM])
def test_the_table_is_sound(asked):
    asked.is_sound()


def test_every_part_of_a_split_sum_has_work():
    for outer, length, inner in [(1, 1026, 1), (64, 128256, 1), (1, 2**20, 1), (3, 4097, 256), (1, 1500, 9)]:
        identity = CUMSUM.identity("cumsum_split", outer=outer, length=length, inner=inner)
        part = identity.slice_length * identity.steps
        assert (identity.parts - 1) * part < length <= identity.parts * part


def test_identity_leaves_the_number_of_slices_open():
    for asked, key in ((SOFTMAX, "softmax_block"), (SOFTMAX, "softmax_stream"), (CUMSUM, "cumsum_walk")):
        first, second = (asked.identity(key, outer=outer) for outer in (5000, 5001))
        assert first == second
        assert first != asked.identity(key, outer=5000, length=4104)


def test_importing_the_family_imports_no_tilelang():
    code = "import sys, tileops.kernels.reduction; sys.exit('tilelang' in sys.modules or 'tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
