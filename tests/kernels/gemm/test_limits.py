"""Every limit that a GEMM implementation declares, on both sides; and the table that they make together."""

import subprocess
import sys

import pytest
import torch

from tileops.kernels.gemm import GEMM_IMPLEMENTATIONS, GemmCall, GemmInterface
from tileops.kernels.gemm.cuts import CLUSTERS, RING_BYTES, swapped_cut
from tileops.kernels.gemm.limits import INDEX_LIMIT
from tileops.kernels.gemm.mma import GemmMmaKernel
from tileops.kernels.gemm.padded import GemmPaddedKernel
from tileops.kernels.gemm.persistent import GemmPersistentKernel
from tileops.kernels.gemm.splitk import GemmSplitkKernel
from tileops.kernels.gemm.swapped import GemmSwappedKernel
from tileops.kernels.gemm.tiles import ACCESS, MMA, MMA_LARGE, MMA_WIDE, SPLITK, SPLITK_TMA, WGMMA, splitk_parts
from tileops.kernels.gemm.walks import BLOCK_BYTES, WALKS, walk_of
from tileops.kernels.gemm.wgmma import GemmWgmmaKernel
from tileops.rules.device import DeviceFacts
from tileops.rules.interface import argument_findings
from tileops.rules.table import RuleTable

H200 = DeviceFacts(90, "h200", 132, 232448)
A100 = DeviceFacts(80, "a100_sxm4", 108, 166912)
SMALLEST_BLOCK = 101376
"""Shared memory in bytes that a block may use on the arch from 80 on that has least."""

TABLE = RuleTable("gemm", GemmCall, {key: cls.declaration for key, cls in GEMM_IMPLEMENTATIONS.items()})
BASE = {"m": 64, "n": 1024, "k": 1024, "dtype": torch.bfloat16, "trans_a": False, "trans_b": True}


def call_of(facts=H200, **changes):
    return GemmCall(device="cuda:0", stated=facts, **(BASE | changes))


def reasons(key, call):
    (verdict,) = [verdict for verdict in TABLE.explain(call).verdicts if verdict.key == key]
    return [reason.text for reason in verdict.reasons]


BOUNDARIES = [
    ("gemm_wgmma", {"m": 64}, {"m": 63}, "m=63: one tile has at least 64 rows"),
    (
        "gemm_wgmma",
        {"k": 1032},
        {"k": 1031},
        "a row of a as stored has 2062 bytes: the copy engine takes multiples of 16",
    ),
    ("gemm_wgmma", {"m": 72, "trans_a": True}, {"m": 73, "trans_a": True}, "a row of a as stored has 146 bytes"),
    ("gemm_wgmma", {"n": 1023}, {"n": 1023, "trans_b": False}, "a row of b as stored has 2046 bytes"),
    ("gemm_wgmma", {"n": 65535 * 64}, {"n": 65535 * 64 + 1}, "makes 65536 columns of 64: a grid has at most 65535"),
    ("gemm_wgmma", {"m": INDEX_LIMIT}, {"m": INDEX_LIMIT + 1}, "32 bits"),
    ("gemm_persistent", {"m": 113}, {"m": 112}, "m=112: one row of tiles, in good part empty"),
    ("gemm_persistent", {"m": 256, "k": 1024}, {"m": 256, "k": 1016}, "k=1016 is short for 16 tiles of 128 x 128"),
    (
        "gemm_persistent",
        {"m": 256, "n": 99 * 128, "k": 64},
        {"m": 256, "n": 98 * 128, "k": 64},
        "196 tiles of 128 x 128, less than three for two of 132 SMs",
    ),
    ("gemm_persistent", {"m": 512, "n": 256, "k": 7168}, {"m": 513, "n": 256, "k": 7168}, "no more than 132 SMs"),
    ("gemm_persistent", {"m": 1024, "n": 256, "k": 4088}, {"m": 1024, "n": 256, "k": 4096}, "no more than 132 SMs"),
    ("gemm_persistent", {"m": 2113, "n": 256, "k": 7168}, {"m": 2112, "n": 256, "k": 7168}, "132 tiles of 64 x 64"),
    (
        "gemm_persistent",
        {"m": 4096, "n": 1025, "k": 1024},
        {"m": 3712, "n": 1025, "k": 1024},
        "2050 bytes, no multiple",
    ),
    (
        "gemm_persistent",
        {"m": 333, "n": 776, "k": 1032},
        {"m": 333, "n": 777, "k": 1032},
        "1554 bytes, no multiple of 16",
    ),
    ("gemm_persistent", {"m": 4096, "k": 1032}, {"m": 4096, "k": 1031}, "a row of a as stored has 2062 bytes"),
    ("gemm_persistent", {"m": INDEX_LIMIT}, {"m": INDEX_LIMIT + 1}, "32 bits"),
    ("gemm_swapped", {"m": 128}, {"m": 129}, "m=129: one tile takes all rows, at most 128"),
    ("gemm_swapped", {"k": 1032}, {"k": 1031}, "a row of a as stored has 2062 bytes"),
    ("gemm_swapped", {"n": 1023}, {"n": 1023, "trans_b": False}, "a row of b as stored has 2046 bytes"),
    ("gemm_swapped", {"k": 8192}, {"k": 8200}, "k=8200 is long for eight blocks a tile, and there are 16 tiles"),
    ("gemm_swapped", {"n": 65535 * 64}, {"n": 65535 * 64 + 1}, "makes 65536 columns of 64: a grid has at most 65535"),
    ("gemm_padded", {"k": 1031}, {"k": 1032}, "the rows of a and b lie on 16-byte boundaries as they are"),
    ("gemm_padded", {"k": 1031, "m": 33}, {"k": 1031, "m": 32}, "m=32: the copy of b costs more"),
    ("gemm_padded", {"k": 129}, {"k": 127}, "k=127: a copy with rows padded to 16 bytes"),
    (
        "gemm_padded",
        {"k": 8191},
        {"k": 8193},
        "16 tiles of 64 x 64 leave most of 132 SMs idle, and k=8193 is very long",
    ),
    ("gemm_padded", {"m": 129, "n": 256, "k": 4095}, {"m": 129, "n": 256, "k": 4097}, "idle, and k=4097 is long"),
    ("gemm_padded", {"m": 128, "n": 256, "k": 4097}, {"m": 129, "n": 256, "k": 4097}, "12 tiles of 64 x 64 leave most"),
    ("gemm_swapped", {"m": 17, "k": 56}, {"m": 16, "k": 56}, "k=56: a slice of k is wider"),
    ("gemm_swapped", {"m": 16, "k": 64}, {"m": 16, "k": 56}, "m=16 rows are not worth a warpgroup"),
    ("gemm_swapped", {"m": 112, "n": 4096}, {"m": 113, "n": 4096}, "113 rows and 64 columns of tiles fill 132 SMs"),
    ("gemm_swapped", {"m": 128, "n": 4096, "k": 1016}, {"m": 128, "n": 4096}, "64 columns of tiles fill 132 SMs"),
    ("gemm_swapped", {"m": 128, "n": 52 * 64}, {"m": 128, "n": 53 * 64}, "53 columns of tiles fill 132 SMs"),
    ("gemm_swapped", {"m": 128, "n": 397 * 64}, {"m": 128, "n": 396 * 64}, "396 columns of tiles fill 132 SMs"),
    ("gemm_swapped", {"m": 64, "n": 8447}, {"m": 64, "n": 8449}, "the 64 rows of d are 8449 elements long"),
    ("gemm_swapped", {"m": 63, "n": 8449}, {"m": 64, "n": 8449}, "they leave an element at a time"),
    ("gemv", {"m": 1, "k": 64, "trans_b": False}, {"m": 1, "k": 63, "trans_b": False}, "k=63: the threads"),
    ("gemv", {"m": 1, "k": 64, "n": 4194248}, {"m": 1, "k": 64, "n": 4194240}, "Hopper's tiles take them"),
    ("gemv", {"m": 1, "k": 512}, {"m": 1, "k": 504}, "k=504: rows of b are too short"),
    ("gemv", {"m": 2}, {"m": 3}, "m=3: keeps the sums of at most two rows"),
    ("gemv", {"m": 1, "k": INDEX_LIMIT}, {"m": 1, "k": INDEX_LIMIT + 1}, "32 bits"),
    ("gemm_splitk", {"n": 66 * 64}, {"n": 66 * 64 + 1}, "67 tiles of 64 x 64 occupy more than half of 132 SMs"),
    ("gemm_splitk", {"k": 1024}, {"k": 1023}, "k=1023: parts of fewer than 512 elements"),
    ("gemm_splitk", {"m": 256, "k": 2048}, {"m": 256, "k": 2040}, "k=2040: Hopper's tiles of all of k take less"),
    ("gemm_splitk", {"m": 128, "k": 2040}, {"m": 129, "k": 2040}, "k=2040: Hopper's tiles of all of k take less"),
    ("gemm_splitk", {"k": INDEX_LIMIT}, {"k": INDEX_LIMIT + 1}, "32 bits"),
]


@pytest.mark.parametrize(("key", "served", "refused", "why"), BOUNDARIES)
def test_limit_holds_on_both_sides(key, served, refused, why):
    assert reasons(key, call_of(**served)) == []
    assert any(why in text for text in reasons(key, call_of(**refused)))


def test_the_general_one_serves_every_call():
    for m, n, k in [(1, 1, 1), (2**40, 1, 1), (1, 2**40, 1), (3, 5, 2**40), (2**31 - 255, 2**31 - 255, 1)]:
        for facts in (H200, A100):
            assert reasons("gemm_mma", call_of(facts, m=m, n=n, k=k)) == []


@pytest.mark.parametrize(
    ("facts", "shape", "winner"),
    [
        (H200, (1, 4096, 4096), "gemv"),
        (H200, (2, 2112, 7168), "gemv"),
        (H200, (16, 4096, 7168), "gemm_swapped"),
        (H200, (256, 256, 65536), "gemm_splitk"),
        (H200, (333, 777, 1029), "gemm_padded"),
        (H200, (4096, 4096, 7168), "gemm_persistent"),
        (H200, (256, 21843, 1024), "gemm_persistent"),
        (H200, (1024, 1024, 1024), "gemm_persistent"),
        (H200, (128, 24576, 1536), "gemm_persistent"),
        (H200, (512, 512, 512), "gemm_wgmma"),
        (H200, (32, 24576, 4096), "gemm_swapped"),
        (H200, (31, 777, 1029), "gemm_splitk"),
        (A100, (4096, 4096, 7168), "gemm_mma"),
        (A100, (1, 4096, 4096), "gemv"),
    ],
)
def test_winner(facts, shape, winner):
    m, n, k = shape
    assert TABLE.select(call_of(facts, m=m, n=n, k=k)) == winner


def test_the_table_is_proved_free_of_findings():
    report = TABLE.check()
    assert not report.findings, report.findings


def test_a_missing_preference_is_found():
    declaration = GemmSplitkKernel.declaration
    import attrs

    weaker = TABLE.with_declaration("gemm_splitk", attrs.evolve(declaration, preferred_over=frozenset()))
    found = {frozenset(one.keys): one for one in weaker.check().findings if one.kind == "ambiguous"}
    above, below = ("gemm_splitk", "gemm_swapped"), ("gemm_persistent", "gemm_wgmma")
    assert found.keys() == {frozenset({one, other}) for one in above for other in below}
    assert all(weaker.explain(one.witness).outcome == "ambiguous" for one in found.values())


def test_forward_takes_the_interface_arguments():
    for key, cls in GEMM_IMPLEMENTATIONS.items():
        assert argument_findings(GemmInterface, cls, key) == ()


def test_identity_leaves_m_open():
    for cls in (GemmWgmmaKernel, GemmMmaKernel, GemmSplitkKernel, GemmSwappedKernel, GemmPaddedKernel):
        first, second = (cls.entry_for(call_of(m=m))[0] for m in (100, 101))
        assert first == second
        assert first != cls.entry_for(call_of(m=100, n=1032))[0]
    first, second = (GemmPersistentKernel.entry_for(call_of(m=m, n=4096))[0] for m in (4000, 4001))
    assert first == second
    # A row pitch that the threads' copies are built for is part of the identity.
    first, second = (GemmMmaKernel.entry_for(call_of(m=m, trans_a=True))[0] for m in (100, 101))
    assert first != second


def test_wide_calls_share_one_build():
    identities = {GemmMmaKernel.entry_for(call_of(m=2**31 + i, n=1, k=1))[0] for i in range(3)}
    assert len(identities) == 1
    assert "64-bit" in str(identities.pop())


def test_tiles_fit_in_shared_memory():
    for tile in [*MMA.values(), MMA_LARGE, MMA_WIDE, *SPLITK.values()]:
        assert tile.shared_bytes() <= SMALLEST_BLOCK
    for tile in [*(priced.tile for priced in WGMMA), *SPLITK_TMA.values()]:
        assert tile.shared_bytes() <= H200.smem_budget


def test_every_walk_fits_where_it_is_chosen():
    for priced in WALKS:
        assert priced.walk.shared_bytes(4096) <= BLOCK_BYTES < H200.smem_budget
        assert priced.walk.tile.cols % priced.walk.chunk == 0
    for m, n, k in ((4096, 4096, 4096), (1024, 50257, 768), (4096, 2112, 7168), (256, 65535, 8)):
        for trans_b in (False, True):
            walk = walk_of(m, n, k, trans_b, 132)
            assert walk.shared_bytes(n) <= BLOCK_BYTES
            assert trans_b or walk.tile.cols % 64 == 0


def test_a_walk_leaves_few_blocks_idle():
    # Tiles over 132 blocks: 3.9, 2.9, 3.9 and 72.7; 1.0 but for four blocks, 1.0, and 1.0 but for four twice more.
    shapes = {(4096, 4096): (128, 256), (4096, 2112): (128, 176), (2048, 6144): (128, 192), (8192, 28672): (128, 192)}
    shapes |= {(1024, 1024): (64, 128), (2048, 2304): (192, 192), (1024, 2304): (128, 144), (512, 1024): (64, 64)}
    for (m, n), expected in shapes.items():
        tile = walk_of(m, n, 2048, True, 132).tile
        assert (tile.rows, tile.cols) == expected


def test_every_part_of_a_split_has_work():
    for tile in [*SPLITK.values(), *SPLITK_TMA.values()]:
        for k in (1024, 1025, 2048, 2111, 7168, 7169, 12288, 10**6 + 1):
            for m, n in ((3, 128), (64, 2112), (128, 4096)):
                parts = splitk_parts(tile, m, n, k, 132)
                steps = -(-k // tile.depth)
                share = -(-steps // parts)
                assert parts >= 1
                assert (parts - 1) * share < steps <= parts * share


@pytest.mark.parametrize("trans_a", [False, True])
def test_a_cut_fits(trans_a):
    for m in (1, 8, 9, 17, 33, 64, 65, 96, 97, 128):
        for n, k in ((64, 8), (256, 7168), (5120, 8192), (24576, 1536), (131072, 4096)):
            cut = swapped_cut(m, n, k, 132, trans_a)
            tile = cut.tile
            assert tile.shared_bytes() * cut.blocks <= RING_BYTES <= H200.smem_budget
            assert tile.rows % cut.parts == 0
            assert tile.rows >= (16 if trans_a else 8)
            assert tile.threads == tile.cols // 64 * 128
            if cut.parts > 1:
                assert cut.parts in CLUSTERS
                # Each block's float32 tile and what it gets of the others', where the ring was.
                assert 2 * 4 * tile.rows * (tile.cols + ACCESS) <= RING_BYTES


def test_few_tiles_share_their_k():
    assert swapped_cut(128, 256, 7168, 132, False).parts == 8
    assert swapped_cut(64, 7168, 2048, 132, False).parts == 1


def test_importing_the_family_imports_no_tilelang():
    code = "import sys, tileops.kernels.gemm; sys.exit('tilelang' in sys.modules or 'tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
