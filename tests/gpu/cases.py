"""The calls that rows.py checks and the shares of threads that it tries: facts of call specs, an op each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from attrs import evolve

from tileops.kernels.rows import Share

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
HALVES, ALL = (BF16, FP16), (BF16, FP16, FP32)


def spread(dtypes: tuple[torch.dtype, ...], cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the cases, each with a dtype, and flags where they leave them out, taken in turn."""
    return [{"dtype": dtypes[i % len(dtypes)]} | case for i, case in enumerate(cases)]


def rows_of(dtypes: tuple[torch.dtype, ...], lengths: list[tuple[int, int]], **flags: Any) -> list[dict[str, Any]]:
    """Returns calls of (rows, length), parameters present in turn."""
    cases = []
    for i, (rows, length) in enumerate(lengths):
        turned = {name: bool((i + j) % 2) for j, name in enumerate(flags.get("turned", ()))}
        cases.append({"rows": rows, "length": length, "eps": 1e-5} | turned)
    return spread(dtypes, cases)


# One, primes, a length for each width of access, both sides of a warp's, a block's and a program's limits.
ROWS = [
    (1, 1),
    (3, 7),
    (37, 64),
    (5, 128),
    (300, 132),
    (1, 1003),
    (9, 1024),
    (2, 1536),
    (41, 2050),
    (1000, 4096),
    (2113, 511),
    (1201, 384),
    (1, 5120),
    (7, 8200),
    (3, 32767),
    (2, 32769),
    (2, 65536),
    (3, 65544),
]

ALONG = [
    (1, 1, 1),
    (3, 7, 1),
    (37, 64, 1),
    (300, 132, 1),
    (5, 1003, 1),
    (9, 512, 1),
    (2, 4097, 1),
    (41, 5120, 1),
    (2, 32769, 1),
    (3, 40000, 1),
    (1, 128256, 1),
    (5, 100001, 1),
    (2, 262144, 1),
    (1, 1, 5),
    (3, 19, 24),
    (2, 33, 17),
    (3, 300, 12),
    (1, 513, 40),
    (2, 2100, 3),
    (1, 4096, 256),
    (7, 1, 1000),
    (150, 1030, 130),
    (2, 2100, 2056),
    (1, 5003, 1048),
    (3, 9001, 40),
    (9, 6200, 520),
]

# Rows enough for clusters to serve them.
CLUSTERS = [(17, 40001, 1), (18, 151936, 1), (20, 327680, 1), (33, 65544, 1), (133, 151936, 1), (259, 66004, 1)]


def along(cases: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    """Returns calls of (outer, length, inner)."""
    return spread(ALL, [dict(zip(("outer", "length", "inner"), case, strict=True)) for case in cases])


def channels(cases: list[tuple[int, ...]], names: tuple[str, ...], **more: Any) -> list[dict[str, Any]]:
    """Returns calls of norms of channels: weight and bias present in turn, parameters float32 or of the dtype."""
    calls = []
    for i, case in enumerate(cases):
        dtype = ALL[i % 3]
        facts = dict(zip(names, case, strict=True)) | {"weighted": i % 4 != 3, "biased": i % 2 == 0, "eps": 1e-5}
        if "groups" not in names:
            facts["param_dtype"] = FP32 if i % 2 else dtype
        calls.append({"dtype": dtype} | facts | more)
    return calls


GROUPS = [
    (1, 1, 1, 2),
    (2, 6, 3, 7),
    (3, 32, 8, 49),
    (2, 320, 32, 36),
    (5, 8, 2, 1003),
    (1, 64, 32, 4096),
    (2, 12, 4, 9000),
    (1, 6, 2, 20001),
    (2, 40, 4, 5000),
    (1, 4, 2, 40001),
    (3, 9, 3, 1),
    (1, 8, 1, 131072),
    (67, 48, 16, 35),
]
BATCHES = [
    (2, 1, 1),
    (3, 5, 7),
    (32, 64, 49),
    (9, 33, 196),
    (1, 7, 1003),
    (4, 16, 4096),
    (257, 40, 1),
    (1000, 24, 1),
    (33, 7, 1),
    (5, 3, 16384),
    (64, 20, 1024),
    (3, 300, 8000),
    (2, 2, 100001),
    (700, 9, 49),
    (70, 1000, 49),
    (4100, 1032, 1),
    (33, 3000, 57),
]


def rotations() -> list[dict[str, Any]]:
    """Returns rotations: every form, part of a head, odd widths, positions outside."""
    shapes = [
        (1, 32, 8, 128, 64, 100),
        (33, 5, 1, 96, 36, 50),
        (7, 3, 2, 10, 5, 9),
        (64, 16, 16, 256, 32, 200),
        (5, 1, 1, 2, 1, 3),
        (20, 130, 1, 64, 32, 64),
        (11, 7, 3, 200, 100, 31),
        (9, 40, 8, 80, 24, 17),
        (6, 3, 2, 9, 3, 11),
    ]
    names = ("tokens", "q_heads", "k_heads", "head_dim", "pairs", "known")
    calls = []
    for i, shape in enumerate(shapes):
        for j in range(2):
            dtype = ALL[(i + j) % 3]
            calls.append(
                dict(zip(names, shape, strict=True))
                | {
                    "dtype": dtype,
                    "position_dtype": (torch.int64, torch.int32)[(i + j) % 2],
                    "angle_dtype": dtype if i % 3 == 0 else FP32,
                    "interleaved": bool(j),
                    "check_positions": bool((i + j) % 2),
                }
            )
    return calls


RAGGED: dict[str, list[dict[str, Any]]] = {
    "rms_norm": rows_of(HALVES, ROWS, turned=("weighted",)),
    "fused_add_rms_norm": rows_of(ALL, ROWS, turned=("weighted",)),
    "layer_norm": rows_of(ALL, ROWS, turned=("weighted", "biased")),
    "softmax": along(ALONG) + [call | {"dtype": dtype} for dtype in (FP32, BF16) for call in along(CLUSTERS)],
    "cumsum": along(ALONG),
    "silu_and_mul": spread(ALL, [{"rows": r, "length": n} for r, n in ROWS[:12]]),
    "rope": rotations(),
    "group_norm": channels(GROUPS, ("batch", "channels", "groups", "spatial")),
    "batch_norm_train": channels(BATCHES, ("batch", "channels", "spatial"), momentum=0.1),
    "batch_norm_infer": channels(BATCHES, ("batch", "channels", "spatial")),
}


def put(*values: float) -> Callable[[list[Any]], None]:
    """Returns a change of arguments: values at the starts of the first rows, a row of -inf last."""

    def change(given: list[Any]) -> None:
        x = given[0].view(-1)
        for i, value in enumerate(values):
            x[i * (x.numel() // (len(values) + 1)) + i] = value

    return change


def scaled(factor: float, shift: float = 0.0) -> Callable[[list[Any]], None]:
    """Returns a change of arguments: x times a factor and shifted."""

    def change(given: list[Any]) -> None:
        given[0].mul_(factor).add_(shift)

    return change


def masked(given: list[Any]) -> None:
    """Sets the first half of each row to -inf, and the first row whole."""
    x = given[0]
    x[:, : x.shape[1] // 2] = -math.inf
    x[:1] = -math.inf


def lowered(given: list[Any]) -> None:
    """Sets the first half of each row to -inf, and the rest far below 0: what is not there must not scale it."""
    masked(given)
    given[0].sub_(500.0)


INF, NAN = math.inf, math.nan
SOFT = [
    (3, 100, 1),
    (5, 600, 1),
    (6, 4096, 1),
    (2, 128256, 1),
    (17, 70000, 1),
    (130, 70000, 1),
    (3, 20, 24),
    (3, 1000, 9),
]
SPECIAL: dict[str, list[tuple[dict[str, Any], Callable[[list[Any]], None]]]] = {
    "softmax": [
        ({"outer": o, "length": n, "inner": i, "dtype": FP32 if i < 9 else BF16}, change)
        for o, n, i in SOFT
        for change in (put(NAN), put(INF, -INF), scaled(1e4), masked, lowered)
    ],
    "rms_norm": [
        ({"rows": 4, "length": n, "dtype": BF16, "weighted": True, "eps": 1e-5}, put(NAN, INF)) for n in (100, 4096)
    ],
    "layer_norm": [
        ({"rows": 8, "length": n, "dtype": FP32, "weighted": False, "biased": False, "eps": 1e-5}, change)
        for n in (100, 4096, 70000)
        for change in (put(NAN), scaled(1.0, 100.0))
    ],
    "silu_and_mul": [({"rows": 4, "length": n, "dtype": FP32}, put(NAN, -INF, 1e4, -1e4)) for n in (64, 77)],
    "cumsum": [
        ({"outer": 2, "length": n, "inner": i, "dtype": FP32}, put(NAN)) for n, i in ((100, 1), (5000, 1), (3000, 5))
    ],
}

# More than 2**31 elements, for every implementation that serves the call.
ROWED = {"rows": 262150, "length": 8200, "dtype": BF16, "eps": 1e-5}
IMAGES = {"batch": 520, "channels": 64, "spatial": 65536, "dtype": BF16, "weighted": True, "biased": True, "eps": 1e-5}
FEATURES = IMAGES | {"batch": 2**25 + 8, "spatial": 1}
LINES = [(20000, 107400, 1), (2**25 + 8, 65, 1), (3, 19, 38000000)]
LARGE: dict[str, list[dict[str, Any]]] = {
    "rms_norm": [
        {"rows": 65600, "length": 32776, "dtype": BF16, "weighted": True, "eps": 1e-5},
        {"rows": 2, "length": 2**30 + 24, "dtype": BF16, "weighted": False, "eps": 1e-5},
        {"rows": 2**25 + 8, "length": 64, "dtype": BF16, "weighted": True, "eps": 1e-5},
    ],
    "fused_add_rms_norm": [ROWED | {"weighted": True}],
    "layer_norm": [
        ROWED | {"weighted": True, "biased": True},
        {"rows": 2, "length": 2**30 + 8, "dtype": BF16, "weighted": False, "biased": False, "eps": 1e-5},
    ],
    "softmax": along([*LINES, (1, 2**31 + 16, 1)]),
    "cumsum": along(LINES),
    "silu_and_mul": [{"rows": 70000, "length": 32760, "dtype": BF16}],
    "rope": [
        {
            "tokens": 420000,
            "q_heads": 48,
            "k_heads": 8,
            "head_dim": 128,
            "pairs": 64,
            "known": 8192,
            "dtype": BF16,
            "position_dtype": torch.int64,
            "angle_dtype": FP32,
            "interleaved": False,
            "check_positions": True,
        }
    ],
    "group_norm": [IMAGES | {"groups": 32}],
    "batch_norm_train": [case | {"param_dtype": FP32, "momentum": 0.1} for case in (IMAGES, FEATURES)],
    "batch_norm_infer": [case | {"param_dtype": FP32} for case in (IMAGES, FEATURES)],
}

# Along which dim an argument is cut into parts that are calls of their own: where nothing is said, the first one's 0.
CUTS: dict[str, dict[int, int]] = {
    "fused_add_rms_norm": {0: 0, 1: 0},
    "rope": {0: 0, 1: 0, 2: 0},
    "batch_norm_train": {0: 1, 1: 0, 2: 0, 3: 0, 4: 0},
}


def shares(*choices: tuple[int, int, int]) -> Callable[[Any], Iterator[Any]]:
    """Returns other builds of an identity: (lanes, rows, turns)."""

    def variants(identity: Any) -> Iterator[Any]:
        for lanes, rows, turns in choices:
            yield evolve(identity, share=Share(lanes, rows, turns, identity.share.width))

    return variants


def columns(*choices: tuple[int, ...]) -> Callable[[Any], Iterator[Any]]:
    """Returns other builds of an identity: (lanes, depth, turns) of a column share, and perhaps its width."""

    def variants(identity: Any) -> Iterator[Any]:
        for choice in choices:
            changes = dict(zip(("lanes", "depth", "turns", "width"), choice, strict=False))
            yield evolve(identity, share=evolve(identity.share, **changes))

    return variants


def heads(*choices: tuple[int, int]) -> Callable[[Any], Iterator[Any]]:
    """Returns other builds of a rotation: (depth, turns)."""

    def variants(identity: Any) -> Iterator[Any]:
        for depth, turns in choices:
            yield evolve(identity, form=evolve(identity.form, depth=depth, turns=turns))

    return variants


def teamed(*choices: int) -> Callable[[Any], Iterator[Any]]:
    """Returns other builds of runs that flow through teams of blocks: turns, as many parts as that takes."""

    def variants(identity: Any) -> Iterator[Any]:
        flow, runs = identity.flow, identity.form.runs
        for turns in choices:
            parts = -(-identity.form.length // (flow.lanes * turns * flow.width))
            teams = min(runs, flow.teams * flow.parts // parts)
            yield evolve(identity, flow=evolve(flow, turns=turns, parts=parts, teams=teams))

    return variants


def norm_rows(rows: int, length: int, **more: Any) -> dict[str, Any]:
    """Returns a weighted normalisation of bfloat16 rows."""
    return {"rows": rows, "length": length, "dtype": BF16, "weighted": True, "eps": 1e-5} | more


def rotated(tokens: int, q_heads: int, k_heads: int, head_dim: int, **more: Any) -> dict[str, Any]:
    """Returns a rotation of whole heads in bfloat16."""
    heads = {"tokens": tokens, "q_heads": q_heads, "k_heads": k_heads, "head_dim": head_dim, "pairs": head_dim // 2}
    kinds = {"dtype": BF16, "position_dtype": torch.int64, "angle_dtype": FP32}
    return heads | kinds | {"known": 131072, "interleaved": False, "check_positions": True} | more


SWEEPS: list[tuple[str, str, dict[str, Any], Callable[[Any], Iterator[Any]]]] = [
    ("rms_norm", "rms_norm_block", norm_rows(8192, 4096), shares((128, 1, 4), (512, 1, 1))),
    (
        "layer_norm",
        "layer_norm_warp",
        norm_rows(18464, 1024, biased=True),
        shares((32, 4, 4), (64, 1, 2), (64, 4, 2), (128, 2, 1)),
    ),
    ("layer_norm", "layer_norm_block", norm_rows(4096, 9216, biased=True), shares((192, 1, 6), (384, 1, 3))),
    ("silu_and_mul", "silu_and_mul_wide", {"rows": 1, "length": 14336, "dtype": BF16}, shares((128, 1, 1), (64, 1, 1))),
    (
        "softmax",
        "softmax_cluster",
        {"outer": 256, "length": 151936, "inner": 1, "dtype": FP32},
        shares((512, 1, 10), (320, 1, 15)),
    ),
    (
        "softmax",
        "softmax_columns",
        {"outer": 4, "length": 19, "inner": 524288, "dtype": FP32},
        columns((128, 1, 19, 4), (128, 1, 19, 2)),
    ),
    ("rope", "rope_token", rotated(4096, 128, 1, 64, interleaved=True), heads((43, 3), (65, 2))),
    (
        "batch_norm_train",
        "batch_norm_train_shared",
        {
            "batch": 64,
            "channels": 64,
            "spatial": 12544,
            "dtype": FP16,
            "param_dtype": FP32,
            "weighted": True,
            "biased": True,
            "momentum": 0.1,
            "eps": 1e-5,
        },
        teamed(6, 8, 16, 24),
    ),
    (
        "cumsum",
        "cumsum_walk",
        {"outer": 16, "length": 4096, "inner": 2048, "dtype": BF16},
        columns((8, 32, 8), (16, 16, 8), (16, 8, 16), (8, 16, 8), (8, 8, 16)),
    ),
]
