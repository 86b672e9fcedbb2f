"""Holds how gemm_swapped cuts a product of few rows into tiles and parts of k. No device code."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from tileops.kernels.gemm.tiles import Tile

ACCESS = 8
"""Elements of 16 bytes: the copy engine wants rows to lie on such boundaries."""

RING_BYTES = 229376
"""Shared memory in bytes that a ring may take on arch 90; a cluster's float32 tiles come to lie in it afterwards."""

ROWS = {8: 128, 16: 128, 32: 128, 64: 128, 96: 64, 128: 64}
"""Heights of a tile and the elements of k a step with each; a warpgroup's matrix unit takes multiples of 8."""

CLUSTERS = {8: 15, 4: 31, 2: 66}
"""Most clusters of so many blocks that an H200 runs at a time, one block an SM: its 132 SMs stand in unequal groups."""


@frozen
class Cut:
    """Describes a tile and the blocks that share its k."""

    tile: Tile
    parts: int
    """Blocks of a cluster, each with a part of k."""

    def __str__(self) -> str:
        return f"{self.tile}" + (f", {self.parts} parts" if self.parts > 1 else "")


def padded(pitch: int) -> int:
    """Returns the least pitch from ``pitch`` on, in elements, whose rows all lie on 16-byte boundaries."""
    return -(-pitch // ACCESS) * ACCESS


def _cuts(k: int) -> Iterator[Cut]:
    """Yields the cuts of a program with this k."""
    for rows, depth in ROWS.items():
        for cols in (64, 128, 192, 256):
            ring = min(RING_BYTES // ((rows + cols) * depth * 2), -(-k // depth))
            for parts in (1, 2, 4, 8):
                tile = Tile(rows, cols, depth, ring, cols * 2, "FullRow")
                if parts == 1 or 2 * 4 * rows * (cols + ACCESS) <= RING_BYTES:
                    yield Cut(tile, parts)


def _cost(cut: Cut, m: int, n: int, k: int, sm_count: int) -> float:
    """Returns the predicted time of a product in us. The figures are an H200's."""
    tile, parts = cut.tile, cut.parts
    clusters = (CLUSTERS[parts] if parts > 1 else 132) * sm_count // 132
    rounds = -(-tile.count(m, n) // max(clusters, 1))
    steps = -(-k // (tile.depth * parts))
    # Further reads of b come from the L2 cache.
    memory = (n * k + m * k + m * n) * 2 / 4.1e6 + (-(-m // tile.rows) - 1) * n * k * 2 / 1e7
    # An SM takes 100 GB/s from the L2 cache.
    block = (tile.rows + tile.cols) * steps * tile.depth * 2 / 1e5
    return max(memory, rounds * block) + 1.5 * rounds + (1.5 if parts > 1 else 0)


def swapped_cut(m: int, n: int, k: int, sm_count: int, trans_a: bool) -> Cut:
    """Returns the cut that is predicted to cost least; of equals the first."""
    # The matrix unit reads eight columns only where k is the fastest dimension.
    fitting = [cut for cut in _cuts(k) if cut.tile.rows * 4 >= m and (cut.tile.rows > 8 or not trans_a)]
    return min(fitting, key=lambda cut: _cost(cut, m, n, k, sm_count))
