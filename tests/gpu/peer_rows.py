"""Times the public peer (the package tileops 0.1.0) on our manifest's memory-bound rows, one JSON line a row.

    python3 tests/gpu/peer_rows.py PEER_DIR [SECONDS] [OP ...]

PEER_DIR holds the peer unpacked; this script imports nothing of ours in its place. OP limits it to some of our ops. A
row not reached in SECONDS (default 300) is said to be so; 0 makes the first calls only, which fill TileLang's disk
cache. JSON lines go to standard output and to $OUT/peer_rows.jsonl.

Where the peer's op differs, it is given what it takes for the same function: SiLU-and-multiply a matrix, BatchNorm its
parameters in float32, the fused addition a weight of ones; that has a result of its own for the sum. Its RoPE takes q
and k in two calls and makes its own table of angles; where pairs are neighbours it rotates whole heads by the token's
place, no position.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from peer import Case, Row, main, op, random
from torch.nn import functional

EPS = torch.finfo(torch.float32).eps  # where our RMS norms leave eps out
Size = dict[str, Any]


def optional(size: Size, name: str, *shape: int, dtype: torch.dtype) -> torch.Tensor | None:
    """Returns an optional input, None where the row leaves it out."""
    return None if name in size.get("without", ()) else random(*shape, dtype=dtype)


def wide(x: torch.Tensor | None) -> torch.Tensor | None:
    """Returns a copy in float64."""
    return None if x is None else x.double()


def off_centre(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns random values whose mean is not 0: a norm that loses the mean shows."""
    return random(*shape, dtype=dtype).add_(0.5)


def rms_norm(size: Size, dtype: torch.dtype) -> Case:
    """Returns a call of the RMS norm."""
    shape, eps = tuple(size["normalized_shape"]), float(size.get("eps", EPS))
    x, weight = off_centre(*size["B"], *shape, dtype=dtype), optional(size, "weight", *shape, dtype=dtype)
    norm = op("norm", "RMSNormFwdOp", shape, eps=eps)
    return Case(
        lambda: norm(x, weight),
        lambda: [functional.rms_norm(x.double(), shape, wide(weight), eps)],
        2 * x.nbytes,
        dtype,
    )


def fused_add_rms_norm(size: Size, dtype: torch.dtype) -> Case:
    """Returns a call of the addition with RMS norm."""
    shape, eps = tuple(size["normalized_shape"]), float(size.get("eps", EPS))
    x, residual = (off_centre(*size["B"], *shape, dtype=dtype) for _ in range(2))
    weight = optional(size, "weight", *shape, dtype=dtype)
    given = torch.ones_like(x[(0,) * len(size["B"])]) if weight is None else weight
    norm = op("norm", "FusedAddRMSNormFwdOp", eps=eps)

    def expected() -> list[torch.Tensor]:
        total = x.double() + residual.double()
        return [functional.rms_norm(total, shape, wide(weight), eps), total]

    return Case(lambda: norm(x, residual, given), expected, 4 * x.nbytes, dtype)


def layer_norm(size: Size, dtype: torch.dtype) -> Case:
    """Returns a call of the layer norm."""
    shape, eps = tuple(size["normalized_shape"]), float(size.get("eps", 1e-5))
    x = off_centre(*size["B"], *shape, dtype=dtype)
    weight, bias = (optional(size, name, *shape, dtype=dtype) for name in ("weight", "bias"))
    norm = op("norm", "LayerNormFwdOp", shape, eps=eps)
    return Case(
        lambda: norm(x, weight, bias),
        lambda: [functional.layer_norm(x.double(), shape, wide(weight), wide(bias), eps)],
        2 * x.nbytes,
        dtype,
    )


def group_norm(size: Size, dtype: torch.dtype) -> Case:
    """Returns a call of the group norm."""
    groups, eps = size["num_groups"], float(size.get("eps", 1e-5))
    x = off_centre(size["N"], size["C"], *size["S"], dtype=dtype)
    weight, bias = (optional(size, name, size["C"], dtype=dtype) for name in ("weight", "bias"))
    norm = op("norm", "GroupNormFwdOp", groups, eps=eps)
    return Case(
        lambda: norm(x, weight, bias),
        lambda: [functional.group_norm(x.double(), groups, wide(weight), wide(bias), eps)],
        2 * x.nbytes,
        dtype,
    )


def batch_norm(size: Size, dtype: torch.dtype) -> Case:
    """Returns a call of the batch norm, its parameters rounded to the row's dtype and passed in float32."""
    training, momentum, eps = (
        size.get("training", False),
        float(size.get("momentum", 0.1)),
        float(size.get("eps", 1e-5)),
    )
    x, rounded = off_centre(size["N"], size["C"], *size["S"], dtype=dtype), getattr(torch, size["P"])
    given = [optional(size, name, size["C"], dtype=rounded) for name in ("weight", "bias")]
    weight, bias = (None if one is None else one.float() for one in given)
    mean, variance = random(size["C"], dtype=rounded).float(), random(size["C"], dtype=rounded).abs().float() + 0.5
    norm = op("norm", "BatchNormFwdOp", training=training, momentum=momentum, eps=eps)

    def expected() -> list[torch.Tensor]:
        statistics = [mean.double(), variance.double()]
        y = functional.batch_norm(x.double(), *statistics, wide(weight), wide(bias), training, momentum, eps)
        return [y, *statistics] if training else [y]

    call = lambda: norm(x, mean, variance, weight, bias)  # noqa: E731  # beside what it writes
    return Case(call, expected, 2 * x.nbytes, dtype, (mean, variance) if training else ())


def along(name: str, function: Callable[..., torch.Tensor]) -> Callable[[Size, torch.dtype], Case]:
    """Returns what makes calls of an op along one dim."""

    def case(size: Size, dtype: torch.dtype) -> Case:
        x, dim = random(*size["S"], dtype=dtype), size.get("dim", -1)
        peers = op("reduction", name, dim=dim)
        return Case(lambda: peers(x), lambda: [function(x.double(), dim)], 2 * x.nbytes, dtype)

    return case


def silu_and_mul(size: Size, dtype: torch.dtype) -> Case:
    """Returns a call of SiLU-and-multiply."""
    x = random(math.prod(size["B"]), 2 * size["H"], dtype=dtype)
    peers = op("elementwise", "SiLUAndMulFwdOp")

    def expected() -> list[torch.Tensor]:
        gate, up = x.double().chunk(2, -1)
        return [functional.silu(gate) * up]

    return Case(lambda: peers(x), expected, x.nbytes * 3 // 2, dtype)


def turned(x: torch.Tensor, positions: torch.Tensor, pairs: int, interleaved: bool) -> torch.Tensor:
    """Returns heads in float64, the first pairs of each turned by the angles of its token's position."""
    rates = 10000.0 ** -(torch.arange(pairs, device=x.device, dtype=torch.float64) / pairs)
    angles = positions.double()[:, None, None] * rates
    head, rest = x[..., : 2 * pairs].double(), x[..., 2 * pairs :].double()
    real, imaginary = (head[..., ::2], head[..., 1::2]) if interleaved else head.chunk(2, -1)
    both = torch.view_as_real(torch.complex(real, imaginary) * torch.polar(torch.ones_like(angles), angles))
    return torch.cat([(both if interleaved else both.mT).flatten(-2), rest], -1)


def rope(size: Size, dtype: torch.dtype) -> Case:
    """Returns a call that rotates q and k."""
    tokens, width, pairs, interleaved = math.prod(size["B"]), size["D"], size["R"], size.get("interleaved", False)
    heads = [random(tokens, count, width, dtype=dtype) for count in (size["HQ"], size["HK"])]
    moved = sum(2 * x.nbytes for x in heads)
    if interleaved:
        if 2 * pairs != width:
            raise ValueError("the peer rotates whole heads where pairs are neighbours")
        whole = op("rope", "RoPEFwdOp", "interleaved", "2d")
        places = torch.arange(tokens, device=heads[0].device)
        return Case(
            lambda: [whole(x[None]) for x in heads],
            lambda: [turned(x, places, pairs, interleaved)[None] for x in heads],
            moved,
            dtype,
        )
    positions = torch.randint(0, size["P"], (tokens,), device=heads[0].device, dtype=getattr(torch, size["I"]))
    placed = op("rope", "RoPENeoxPositionIdsFwdOp", size["P"], rotary_dim=2 * pairs)
    return Case(
        lambda: [placed(x, positions) for x in heads],
        lambda: [turned(x, positions, pairs, interleaved) for x in heads],
        moved,
        dtype,
    )


OPS: dict[str, tuple[str, Callable[[Size, torch.dtype], Case]]] = {
    "RMSNormFwdOp": ("norm", rms_norm),
    "FusedAddRMSNormFwdOp": ("norm", fused_add_rms_norm),
    "LayerNormFwdOp": ("norm", layer_norm),
    "SoftmaxFwdOp": ("reduction", along("SoftmaxFwdOp", torch.softmax)),
    "SiLUAndMulFwdOp": ("elementwise", silu_and_mul),
    "RoPEFwdOp": ("rope", rope),
    "GroupNormFwdOp": ("norm", group_norm),
    "BatchNormFwdOp": ("norm", batch_norm),
    "CumsumFwdOp": ("reduction", along("CumsumFwdOp", torch.cumsum)),
}


def prepared(row: Row) -> Case:
    """Returns a call of the peer's op on fresh random inputs."""
    return OPS[row.op][1](row.workload, getattr(torch, row.workload["T"]))


if __name__ == "__main__":
    sys.exit(main(__doc__, {name: family for name, (family, _) in OPS.items()}, prepared))
