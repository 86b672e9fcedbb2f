"""Shares rows that lie side by side out among threads. No device code."""

from __future__ import annotations

from attrs import frozen

from tileops.kernels.rows import WARP, access_width, power_of_two

LANES = 16
"""Threads side by side of a share that walks."""
KEPT = 8
"""Accesses of a thread that stay on chip where more levels can share a row."""
ALONE = 20
"""Elements of two bytes of a row that a thread keeps alone: 41.9 us for 19 of 2097152 rows, 43.8 with four levels."""
DEEPEST = 32
"""Levels at most."""
KEPT_ELEMENTS = 64
"""Elements of a thread that stay on chip in float32."""

COLUMN_LENGTH = 16 * DEEPEST
"""Elements of a row that its threads keep on chip, at most."""


@frozen
class ColumnShare:
    """Describes a thread block: ``lanes`` threads side by side times ``depth`` levels along the rows."""

    lanes: int
    depth: int
    turns: int
    """Accesses of a thread in flight together; where rows stay on chip, all of them."""
    width: int
    """Rows side by side a thread: the elements of an access."""

    def __str__(self) -> str:
        return f"{self.lanes} x {self.depth} threads, {self.turns} accesses of {self.width}"


def short_columns(length: int, inner: int, itemsize: int) -> ColumnShare:
    """Returns a share that keeps rows on chip: as many levels as KEPT accesses each need, DEEPEST at most."""
    width = access_width(inner, itemsize)
    if length <= KEPT:
        return ColumnShare(128, 1, length, width)
    if length <= ALONE and itemsize == 2:
        return ColumnShare(128, 1, length, min(width, 4))
    depth = min(DEEPEST, power_of_two(-(-length // KEPT)))
    turns = -(-length // depth)
    return ColumnShare(
        WARP if depth < DEEPEST else WARP // 2, depth, turns, min(width, KEPT_ELEMENTS // power_of_two(turns))
    )


def long_columns(inner: int, itemsize: int) -> ColumnShare:
    """Returns a share that walks rows of any length."""
    return ColumnShare(WARP, 8, 4, access_width(inner, itemsize))


def sample_columns(count: int, itemsize: int, sm_count: int) -> ColumnShare:
    """Returns a share of ``count`` long columns: as many lanes as leave every SM a block, down to 32 bytes a row."""
    width = access_width(count, itemsize)
    lanes = 16
    while lanes > 2 and -(-count // (width * lanes)) < sm_count:
        lanes //= 2
    return ColumnShare(lanes, 512 // lanes, 4, width)


def walking_columns(inner: int, itemsize: int) -> ColumnShare:
    """Returns a share that walks rows of any length with 256 bytes side by side and 8 levels."""
    return ColumnShare(LANES, 8, 16, access_width(inner, itemsize))
