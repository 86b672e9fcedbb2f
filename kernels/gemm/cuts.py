"""Holds how gemm_swapped cuts a product of few rows into tiles and parts of k. No device code."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.tiles import ACCESS, Tile

RING_BYTES = 229376
"""Shared memory in bytes that rings may take on arch 90; a cluster's float32 tiles come to lie in it afterwards."""

ROWS = {8: 128, 16: 128, 32: 128, 64: 128, 96: 128, 128: 64}
"""Heights of a tile and the elements of k a step with each; a warpgroup's matrix unit takes multiples of 8."""

CLUSTERS = {1: 132, 2: 66, 4: 31, 8: 15}
"""Most clusters of so many blocks that an H200 runs at a time, one block an SM: its 132 SMs stand in unequal groups."""


@frozen
class Cut:
    """Describes a tile, the blocks that share its k, and how many blocks an SM holds."""

    tile: Tile
    parts: int
    """Blocks of a cluster, each with a part of k."""
    blocks: int = 1
    """Blocks that an SM holds at a time."""

    def __str__(self) -> str:
        parts = f", {self.parts} parts" if self.parts > 1 else ""
        return f"{self.tile}{parts}" + (f", {self.blocks} blocks an SM" if self.blocks > 1 else "")


def padded(pitch: int) -> int:
    """Returns the least pitch from ``pitch`` on, in elements, whose rows all lie on 16-byte boundaries."""
    return -(-pitch // ACCESS) * ACCESS


def together(form: Form) -> bool:
    """Returns whether the padded copies of a and b lie in one tensor: both are stored in rows of k that need them."""
    return form.trans_b and not form.trans_a and bool(form.k and form.k % ACCESS)


def cuts(k: int) -> Iterator[Cut]:
    """Yields the cuts of a program with this k."""
    for rows, depth in ROWS.items():
        for cols in (64, 128, 192, 256):
            stages = RING_BYTES // ((rows + cols) * depth * 2)
            for parts in CLUSTERS:
                if parts == 1 or 2 * 4 * rows * (cols + ACCESS) <= RING_BYTES:
                    yield Cut(Tile(rows, cols, depth, min(stages, -(-k // depth)), cols * 2, "FullRow"), parts)
    # Smaller rings do for eight rows: 8 x 5120 x 8192 takes 23.4 us so and 24.7 in one block an SM.
    yield Cut(Tile(8, 64, 128, min(4, -(-k // 128)), 128, "FullRow"), 2, 3)


def cost(cut: Cut, m: int, n: int, k: int, sm_count: int) -> float:
    """Returns the predicted time of a product in us. The figures are fitted to an H200's times, within 10 %."""
    tile, parts = cut.tile, cut.parts
    tiles = tile.count(m, n)
    rounds = -(-tiles // max(CLUSTERS[parts] * cut.blocks * sm_count // 132, 1))
    # Further reads of b come from the L2 cache.
    memory = (n * k + m * k + m * n) * 2 / 4.1e6 + (-(-m // tile.rows) - 1) * n * k * 2 / 3e7
    if tiles * parts * 4 < sm_count * 3:
        memory *= 1.03
    # An SM takes 100 GB/s from the L2 cache.
    steps = -(-k // (tile.depth * parts))
    turns = max(rounds, -(-tiles * parts // max(sm_count, 1)))
    slowest = turns * (tile.rows + tile.cols) * steps * tile.depth * 2 / 1e5
    meeting = (0.7 + tile.rows * tile.cols * 4 / 13e3) / cut.blocks if parts > 1 else 0
    return max(memory, slowest) + 2.6 + 1.5 * (rounds - 1) + meeting


def swapped_cut(m: int, n: int, k: int, sm_count: int, trans_a: bool) -> Cut:
    """Returns the cut that is predicted to cost least; of equals the first."""
    # The matrix unit reads eight columns only where k is the fastest dimension.
    fitting = [cut for cut in cuts(k) if cut.tile.rows * 4 >= m and (cut.tile.rows > 8 or not trans_a)]
    return min(fitting, key=lambda cut: cost(cut, m, n, k, sm_count))
