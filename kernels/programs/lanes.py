"""Combines values over the threads that share a row: shuffles inside a warp, then shared memory across warps.

A block has threads (lanes, rows): ``lanes`` threads, a power of two, share each of its ``rows`` rows.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from collections.abc import Callable
from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

WARP = 32


def warps_of(lanes: int) -> int:
    """Returns how many warps share a row: the second extent of a scratch buffer [rows, warps]."""
    return max(1, lanes // WARP)


def combiner(lanes: int, greatest: bool = False) -> Callable[..., Any]:
    """Returns a macro (value, scratch, lane, row): value[0] becomes the sum of all lanes' or the greatest, in each lane.

    A scratch is float32, shared, [rows, warps_of(lanes)]; whoever calls twice gives a scratch for each call, or
    synchronises between.
    """
    warps = warps_of(lanes)

    @T.macro
    def meet(value: Any, width: int) -> None:
        for step in T.unroll(width.bit_length() - 1):
            if greatest:
                value[0] = T.max(value[0], T.shfl_xor(value[0], 1 << step))
            else:
                value[0] = value[0] + T.shfl_xor(value[0], 1 << step)

    @T.macro
    def combine(value: Any, scratch: Any, lane: Any, row: Any) -> None:
        meet(value, min(lanes, WARP))
        if warps > 1:
            if lane % WARP == 0:
                scratch[row, lane // WARP] = value[0]
            T.sync_threads()
            # Every lane picks up one warp's value, so that a second round of shuffles leaves the result in all.
            value[0] = scratch[row, lane % warps]
            meet(value, warps)

    return combine
