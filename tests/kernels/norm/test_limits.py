"""Every limit that an implementation of a norm declares, on both sides; the tables that they make; build identities."""

import subprocess
import sys

import pytest
import torch

from tests.kernels.tables import A100, H200, Asked
from tileops.kernels import norm
from tileops.kernels.rows import COUNT_LIMIT

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
ROW = {"rows": 4096, "length": 4096, "dtype": BF16, "weighted": True, "eps": 1e-5}
RMS = Asked(norm.RMS_NORM_IMPLEMENTATIONS, **ROW)
FUSED = Asked(norm.FUSED_ADD_RMS_NORM_IMPLEMENTATIONS, **ROW)
LAYER = Asked(norm.LAYER_NORM_IMPLEMENTATIONS, **ROW, biased=True)
AFFINE = {"dtype": FP16, "weighted": True, "biased": True, "eps": 1e-5}
GROUP = Asked(norm.GROUP_NORM_IMPLEMENTATIONS, batch=2, channels=64, groups=32, spatial=4096, **AFFINE)
TRAIN = Asked(
    norm.BATCH_NORM_TRAIN_IMPLEMENTATIONS, batch=64, channels=64, spatial=64, param_dtype=FP32, momentum=0.1, **AFFINE
)
INFER = Asked(norm.BATCH_NORM_INFER_IMPLEMENTATIONS, batch=64, channels=64, spatial=64, param_dtype=FP32, **AFFINE)

BOUNDARIES = [
    (RMS, "rms_norm_warp", {"length": 1024}, {"length": 1025}, "a row has 2050 bytes: kept by a warp"),
    (RMS, "rms_norm_warp", {"length": 8, "rows": COUNT_LIMIT}, {"length": 8, "rows": COUNT_LIMIT + 1}, "32 bits"),
    (RMS, "rms_norm_warp", {"length": 520, "rows": 1056}, {"length": 520, "rows": 1055}, "1055 rows, a warp each"),
    (RMS, "rms_norm_warp", {"length": 191}, {"length": 193}, "193 accesses: a warp keeps up to 192"),
    (RMS, "rms_norm_warp", {"length": 512, "rows": 1}, {"length": 513, "rows": 1}, "few rows have at most 1024"),
    (RMS, "rms_norm_block", {"length": 65536}, {"length": 65538}, "a row has 131076 bytes: kept by a block"),
    (RMS, "rms_norm_block", {"length": 32767}, {"length": 32769}, "an odd length=32769"),
    (RMS, "rms_norm_block", {"rows": COUNT_LIMIT}, {"rows": COUNT_LIMIT + 1}, "32 bits"),
    (FUSED, "fused_add_rms_norm_warp", {"length": 512, "dtype": FP32}, {"length": 513, "dtype": FP32}, "2052 bytes"),
    (FUSED, "fused_add_rms_norm_warp", {"length": 8, "rows": COUNT_LIMIT}, {"length": 8, "rows": 2**31}, "32 bits"),
    (
        FUSED,
        "fused_add_rms_norm_block",
        {"length": 1025, "rows": 264},
        {"length": 1025, "rows": 263},
        "length=1025, in accesses of less than 8 bytes",
    ),
    (FUSED, "fused_add_rms_norm_block", {"length": 2049, "rows": 1}, {"length": 2047, "rows": 1}, "length=2047, in"),
    (FUSED, "fused_add_rms_norm_block", {"length": 2044, "rows": 1}, {"length": 2046, "rows": 1}, "length=2046, in"),
    (FUSED, "fused_add_rms_norm_block", {"length": 1023, "rows": 1}, {"length": 1025, "rows": 1}, "length=1025, in"),
    (FUSED, "fused_add_rms_norm_block", {"length": 8192, "rows": 264}, {"length": 8192, "rows": 263}, "whole turns"),
    (
        FUSED,
        "fused_add_rms_norm_block",
        {"length": 12288, "rows": 1},
        {"length": 4096, "rows": 1},
        "8192 bytes are walked",
    ),
    (FUSED, "fused_add_rms_norm_block", {"length": 32768}, {"length": 32770}, "kept twice by a block"),
    (FUSED, "fused_add_rms_norm_block", {"length": 32767}, {"length": 32769}, "65538 bytes: kept twice"),
    (FUSED, "fused_add_rms_norm_block", {"rows": COUNT_LIMIT}, {"rows": 2**31}, "32 bits"),
    (LAYER, "layer_norm_warp", {"length": 1024}, {"length": 1025}, "kept by a warp"),
    (LAYER, "layer_norm_warp", {"length": 8, "rows": COUNT_LIMIT}, {"length": 8, "rows": 2**31}, "32 bits"),
    (LAYER, "layer_norm_warp", {"length": 96, "rows": 1056}, {"length": 96, "rows": 1055}, "1055 rows, a warp each"),
    (LAYER, "layer_norm_block", {"length": 65536}, {"length": 65538}, "kept by a block"),
    (LAYER, "layer_norm_block", {"length": 32767}, {"length": 32769}, "an odd length=32769"),
    (LAYER, "layer_norm_block", {"rows": COUNT_LIMIT}, {"rows": 2**31}, "32 bits"),
    (GROUP, "group_norm_warp", {"batch": 33, "spatial": 512}, {"batch": 33, "spatial": 513}, "2052 bytes"),
    (
        GROUP,
        "group_norm_warp",
        {"batch": 1056, "channels": 2, "groups": 1, "spatial": 49},
        {"batch": 1055, "channels": 2, "groups": 1, "spatial": 49},
        "1055 groups, each kept by a block",
    ),
    (GROUP, "group_norm_warp", {"spatial": 8, "batch": 2**26 - 32}, {"spatial": 8, "batch": 2**26}, "32 bits"),
    (
        GROUP,
        "group_norm_block",
        {"spatial": 16384, "dtype": FP32},
        {"spatial": 16385, "dtype": FP32},
        "131080 bytes: kept by a block",
    ),
    (GROUP, "group_norm_block", {"spatial": 26624}, {"spatial": 26625}, "53250 elements: a block keeps 53248"),
    (
        GROUP,
        "group_norm_block",
        {"channels": 32, "spatial": 32767},
        {"channels": 32, "spatial": 32769},
        "an odd length=32769",
    ),
    (GROUP, "group_norm_block", {"batch": 2**26 - 32}, {"batch": 2**26}, "32 bits"),
    (GROUP, "group_norm_shared", {"spatial": 32769}, {"spatial": 32768}, "64 groups, each kept by a block"),
    (GROUP, "group_norm_shared", {"groups": 1, "spatial": 513}, {"groups": 1, "spatial": 512}, "a block alone is"),
    (
        GROUP,
        "group_norm_shared",
        {"groups": 1, "spatial": 132 * 1792},
        {"groups": 1, "spatial": 132 * 1792 + 1},
        "132 SMs keep 229376 each",
    ),
    (
        GROUP,
        "group_norm_shared",
        {"channels": 33, "groups": 1, "spatial": 1002, "dtype": BF16},
        {"channels": 33, "groups": 1, "spatial": 1001, "dtype": BF16},
        "an odd length=33033",
    ),
    (
        GROUP,
        "group_norm_shared",
        {"batch": 2**15, "spatial": 2**16},
        {"batch": 2**15 + 1, "spatial": 2**16},
        "counts the parts of rows in 32 bits",
    ),
    (
        TRAIN,
        "batch_norm_train_block",
        {"spatial": 512, "dtype": FP32},
        {"spatial": 513, "dtype": FP32},
        "a channel has 131328 bytes",
    ),
    (TRAIN, "batch_norm_train_block", {"spatial": 832}, {"spatial": 834}, "53376 elements: a block keeps 53248"),
    (TRAIN, "batch_norm_train_block", {"spatial": 511}, {"spatial": 513}, "an odd spatial=513"),
    (TRAIN, "batch_norm_train_block", {"channels": 2**31 - 1}, {"channels": 2**31}, "counts channels in 32 bits"),
    (TRAIN, "batch_norm_train_shared", {"spatial": 1026}, {"spatial": 1024}, "64 channels, each kept by a block"),
    (
        TRAIN,
        "batch_norm_train_shared",
        {"channels": 16, "spatial": 770},
        {"channels": 16, "spatial": 768},
        "a block alone is faster",
    ),
    (
        TRAIN,
        "batch_norm_train_shared",
        {"spatial": 132 * 1792},
        {"spatial": 132 * 1792 + 8},
        "132 SMs keep 229376 each",
    ),
    (
        TRAIN,
        "batch_norm_train_shared",
        {"spatial": 132 * 512 - 6},
        {"spatial": 132 * 512 + 2},
        "132 SMs keep 65536 each",
    ),
    (TRAIN, "batch_norm_train_shared", {"spatial": 4098}, {"spatial": 4097}, "an odd spatial=4097"),
    (
        TRAIN,
        "batch_norm_train_shared",
        {"channels": 2**20, "spatial": 2048},
        {"channels": 2**20 + 1, "spatial": 2048},
        "counts the parts of channels in 32 bits",
    ),
    (
        TRAIN,
        "batch_norm_train_columns",
        {"spatial": 1},
        {"spatial": 2},
        "spatial=2: reads channels that lie side by side",
    ),
    (
        TRAIN,
        "batch_norm_train_columns",
        {"spatial": 1, "batch": COUNT_LIMIT},
        {"spatial": 1, "batch": COUNT_LIMIT + 1},
        "counts samples and channels in 32 bits",
    ),
    (
        TRAIN,
        "batch_norm_train_spans",
        {"channels": 2048, "spatial": 49},
        {"channels": 2047, "spatial": 49},
        "accesses take 16",
    ),
    (
        TRAIN,
        "batch_norm_train_spans",
        {"channels": 256, "spatial": 512, "batch": 80, "dtype": FP32},
        {"channels": 256, "spatial": 513, "batch": 80, "dtype": FP32},
        "channels of at most 512 elements",
    ),
    (
        TRAIN,
        "batch_norm_train_spans",
        {"channels": 1096, "spatial": 45},
        {"channels": 1088, "spatial": 45},
        "a block a channel is as fast below 6291456",
    ),
    (
        TRAIN,
        "batch_norm_train_spans",
        {"channels": 2**15, "spatial": 2, "batch": 512},
        {"channels": 2**15, "spatial": 2, "batch": 511},
        "a channel has 1022 elements: teams read too little",
    ),
    (
        TRAIN,
        "batch_norm_train_spans",
        {"channels": 2048, "spatial": 55, "batch": 256},
        {"channels": 2048, "spatial": 56, "batch": 256},
        "pieces of 112 bytes, 28672 in all: a block a channel reads and keeps these faster",
    ),
    (
        TRAIN,
        "batch_norm_train_spans",
        {"channels": 1024, "spatial": 8, "batch": 4096},
        {"channels": 1024, "spatial": 16, "batch": 4096},
        "pieces of 32 bytes, 131072 in all",
    ),
    (
        TRAIN,
        "batch_norm_train_spans",
        {"channels": 2048, "spatial": 49, "batch": 64},
        {"channels": 2048, "spatial": 49, "batch": 63},
        "63 samples: teams read too little",
    ),
    (
        TRAIN,
        "batch_norm_train_spans",
        {"spatial": 1, "batch": 32 * 1664},
        {"spatial": 1, "batch": 32 * 1664 + 1},
        "32 blocks keep 1664 each",
    ),
    (
        TRAIN,
        "batch_norm_train_spans",
        {"channels": 2**20, "spatial": 49},
        {"channels": 2**20 + 8, "spatial": 49},
        "counts the parts of channels in 32 bits",
    ),
    (
        INFER,
        "batch_norm_infer_wide",
        {"channels": 8, "spatial": 49},
        {"channels": 7, "spatial": 49},
        "accesses take 16",
    ),
    (
        INFER,
        "batch_norm_infer_wide",
        {"batch": 2**28 - 2**13, "channels": 8, "spatial": 1},
        {"batch": 2**28, "channels": 8, "spatial": 1},
        "counts elements in 32 bits",
    ),
]


@pytest.mark.parametrize(("asked", "key", "served", "refused", "why"), BOUNDARIES)
def test_limit_holds_on_both_sides(asked, key, served, refused, why):
    asked.holds(key, served, refused, why)


@pytest.mark.parametrize(
    ("asked", "key", "calls"),
    [
        (RMS, "rms_norm_stream", [{"rows": 2**40, "length": 1}, {"rows": 1, "length": 2**40}]),
        (FUSED, "fused_add_rms_norm_stream", [{"rows": 2**40, "length": 1}, {"rows": 1, "length": 2**40}]),
        (LAYER, "layer_norm_stream", [{"rows": 2**40, "length": 1}, {"rows": 1, "length": 2**40}]),
        (GROUP, "group_norm_stream", [{"batch": 2**35}, {"spatial": 2**34}]),
        (TRAIN, "batch_norm_train_stream", [{"batch": 2**28}, {"spatial": 2**28}, {"channels": 2**28}]),
        (INFER, "batch_norm_infer_walk", [{"batch": 2**28}, {"spatial": 2**28 + 1}, {"channels": 2**28}]),
    ],
)
def test_the_general_one_serves_every_call(asked, key, calls):
    for changes in calls:
        for facts in (H200, A100):
            assert asked.reasons(key, facts, **changes) == []
            assert asked.winner(facts, **changes)


@pytest.mark.parametrize(
    ("asked", "changes", "winner"),
    [
        (RMS, {"length": 128}, "rms_norm_warp"),
        (RMS, {"length": 1024}, "rms_norm_warp"),
        (RMS, {}, "rms_norm_block"),
        (RMS, {"length": 2**17}, "rms_norm_stream"),
        (FUSED, {"length": 1024}, "fused_add_rms_norm_warp"),
        (FUSED, {"length": 1024, "rows": 1}, "fused_add_rms_norm_block"),
        (FUSED, {"length": 4096, "rows": 1}, "fused_add_rms_norm_stream"),
        (FUSED, {}, "fused_add_rms_norm_block"),
        (FUSED, {"length": 65536}, "fused_add_rms_norm_stream"),
        (LAYER, {"length": 32}, "layer_norm_warp"),
        (LAYER, {"length": 768}, "layer_norm_warp"),
        (LAYER, {"length": 768, "rows": 8}, "layer_norm_block"),
        (LAYER, {"length": 9216}, "layer_norm_block"),
        (LAYER, {"length": 100000}, "layer_norm_stream"),
        (GROUP, {"spatial": 49, "batch": 33}, "group_norm_warp"),
        (GROUP, {"spatial": 49, "batch": 32}, "group_norm_block"),
        (GROUP, {"spatial": 49}, "group_norm_block"),
        (TRAIN, {"batch": 4, "channels": 2**20, "spatial": 1}, "batch_norm_train_columns"),
        (TRAIN, {"batch": 4096, "channels": 1024, "spatial": 14}, "batch_norm_train_stream"),
        (GROUP, {"spatial": 4096}, "group_norm_block"),
        (GROUP, {"channels": 320, "spatial": 16384}, "group_norm_shared"),
        (GROUP, {"spatial": 2**24}, "group_norm_stream"),
        (TRAIN, {"channels": 2048, "spatial": 49}, "batch_norm_train_spans"),
        (TRAIN, {"channels": 2047, "spatial": 49}, "batch_norm_train_block"),
        (TRAIN, {"spatial": 12544}, "batch_norm_train_shared"),
        (TRAIN, {"channels": 1024, "spatial": 1, "batch": 4096}, "batch_norm_train_spans"),
        (TRAIN, {"spatial": 1}, "batch_norm_train_columns"),
        (TRAIN, {"spatial": 1, "batch": 2**20}, "batch_norm_train_columns"),
        (TRAIN, {"spatial": 2**20}, "batch_norm_train_stream"),
        (INFER, {}, "batch_norm_infer_wide"),
        (INFER, {"channels": 3, "spatial": 49}, "batch_norm_infer_walk"),
    ],
)
def test_winner(asked, changes, winner):
    assert asked.winner(**changes) == winner


@pytest.mark.parametrize("asked", [RMS, FUSED, LAYER, GROUP, TRAIN, INFER])
def test_the_table_is_sound(asked):
    asked.is_sound()


def test_identity_leaves_the_number_of_rows_open():
    for asked, key in ((RMS, "rms_norm_block"), (FUSED, "fused_add_rms_norm_warp"), (LAYER, "layer_norm_warp")):
        length = {"length": 96}
        first, second = (asked.identity(key, rows=rows, **length) for rows in (5000, 5001))
        assert first == second
        assert first != asked.identity(key, rows=5000, length=104)
        assert first != asked.identity(key, rows=5000, weighted=False, **length)
        assert first != asked.identity(key, rows=5000, eps=1e-6, **length)
    first, second = (INFER.identity("batch_norm_infer_wide", batch=batch) for batch in (5, 6))
    assert first == second


def test_a_batch_is_compiled_in_where_channels_stay_on_chip():
    first, second = (TRAIN.identity("batch_norm_train_block", batch=batch) for batch in (5, 6))
    assert first != second
    first, second = (TRAIN.identity("batch_norm_train_stream", batch=batch) for batch in (5, 6))
    assert first == second


def test_importing_the_family_imports_no_tilelang():
    code = "import sys, tileops.kernels.norm; sys.exit('tilelang' in sys.modules or 'tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
