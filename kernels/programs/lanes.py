"""Combines values over the threads that share a row: shuffles inside a warp, then shared memory across warps.

A block has threads (lanes, rows): ``lanes`` threads, a power of two or whole warps, share each of its ``rows`` rows.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

import math
from collections.abc import Callable
from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.rows import WARP, power_of_two


def combiner(lanes: int, rows: int = 1, greatest: bool = False) -> Callable[..., Any]:
    """Returns a macro (value, lane, row): float32 value[0] becomes the sum of all lanes' or the greatest, in each lane.

    Each use has a scratch of its own, so that one may follow another without a barrier between.
    """
    warps = max(1, lanes // WARP)
    places = power_of_two(warps)
    nothing = -math.inf if greatest else 0.0

    @T.macro
    def meet(value: Any, width: int) -> None:
        for step in T.unroll(width.bit_length() - 1):
            if greatest:
                value[0] = T.max(value[0], T.shfl_xor(value[0], 1 << step))
            else:
                value[0] = value[0] + T.shfl_xor(value[0], 1 << step)

    @T.macro
    def combine(value: Any, lane: Any, row: Any) -> None:
        meet(value, min(lanes, WARP))
        if warps > 1:
            scratch = T.alloc_shared((rows, warps), "float32")
            if lane % WARP == 0:
                scratch[row, lane // WARP] = value[0]
            T.sync_threads()
            # Every lane picks up one warp's value, so that a second round of shuffles leaves the result in all.
            if places == warps:
                value[0] = scratch[row, lane % warps]
            else:
                value[0] = T.if_then_else(
                    lane % places < warps, scratch[row, T.min(lane % places, warps - 1)], T.float32(nothing)
                )
            meet(value, places)

    return combine
