"""Holds how gemm_persistent walks the tiles of a product, and the table that chooses. No device code."""

from __future__ import annotations

from attrs import frozen

from tileops.kernels.gemm.tiles import ACCESS, Tile

BLOCK_BYTES = 231424
"""Shared memory in bytes that a block may use for tiles on arch 90, 1 KiB for barriers aside."""

SLAB = 64
"""Rows of one wgmma instruction; where threads store d, they are staged together."""


@frozen
class Walk:
    """Describes how the blocks of gemm_persistent walk the tiles."""

    tile: Tile
    turns: bool
    """Whether two multiplying warpgroups take turns with whole tiles, or all share the rows of each."""
    chunk: int
    """Columns that leave a tile together, through shared memory."""
    buffers: int
    """Chunks of a warpgroup that may be on their way."""
    band: int
    """Rows of tiles that are walked before moving on along n: their operands stay in the L2 cache."""

    @property
    def groups(self) -> int:
        """Returns the multiplying warpgroups of a block."""
        return self.tile.threads // 128

    @property
    def share(self) -> int:
        """Returns the rows of a tile that one warpgroup multiplies."""
        return self.tile.rows if self.turns else self.tile.rows // self.groups

    def shared_bytes(self, n: int) -> int:
        """Returns the shared memory of a block in bytes: the ring, and what each warpgroup stages for d."""
        staged = self.share * self.chunk * self.buffers if n % ACCESS == 0 else SLAB * (self.tile.cols + ACCESS)
        return self.tile.shared_bytes() + 2 * self.groups * staged

    def fits(self, n: int, trans_b: bool) -> bool:
        """Returns whether a block has room for it. b stored [k, n] comes 64 columns at a time."""
        return self.shared_bytes(n) <= BLOCK_BYTES and (trans_b or self.tile.cols % SLAB == 0)

    def rounds(self, m: int, n: int, sm_count: int) -> int:
        """Returns the tiles of the block that has most."""
        return -(-self.tile.count(m, n) // max(sm_count, 1))

    def __str__(self) -> str:
        form = "by turns" if self.turns else "in halves" if self.groups == 2 else "in thirds"
        return f"{self.tile}, {form}, {self.buffers} chunks of {self.chunk}, bands of {self.band}"


@frozen
class PricedWalk:
    """Pairs a walk with what one round of tiles, one an SM, costs."""

    walk: Walk
    slope: float
    """Time in us for a thousand elements of k."""
    step: float
    """Time in us besides, of each tile."""
    start: float
    """Time in us once: the launch, filling the ring, storing the last tile."""

    def cost(self, m: int, n: int, k: int, sm_count: int) -> float:
        """Returns the predicted time of a product in us."""
        multiplying = self.walk.rounds(m, n, sm_count) * (self.slope * k / 1000 + self.step)
        moving = (m * k + n * k + m * n) * 2 / 4.1e6
        return max(multiplying, moving) + self.start


WALKS = (
    PricedWalk(Walk(Tile(128, 256, 64, 4, 256, "FullRow"), False, 64, 2, 16), 9.8, 1.4, 3.2),
    PricedWalk(Walk(Tile(192, 192, 64, 4, 384, "FullRow"), False, 64, 1, 16), 11.0, 1.0, 4.2),
    PricedWalk(Walk(Tile(192, 176, 64, 4, 384, "FullRow"), False, 88, 1, 16), 10.45, 1.0, 4.2),
    PricedWalk(Walk(Tile(128, 192, 64, 4, 256, "FullRow"), True, 64, 1, 16), 7.25, 0.6, 3.0),
    PricedWalk(Walk(Tile(128, 176, 64, 4, 256, "FullRow"), True, 88, 1, 16), 7.0, 0.6, 3.2),
    PricedWalk(Walk(Tile(128, 144, 64, 5, 256, "FullRow"), True, 72, 1, 16), 6.0, 0.45, 3.3),
    PricedWalk(Walk(Tile(128, 128, 64, 6, 256, "FullRow"), True, 64, 1, 16), 5.15, 0.25, 3.6),
    PricedWalk(Walk(Tile(64, 128, 64, 8, 256, "FullRow"), True, 64, 1, 16), 2.95, 0.35, 2.45),
    PricedWalk(Walk(Tile(64, 64, 128, 6, 256, "FullRow"), True, 64, 1, 16), 2.4, 0.15, 2.0),
)
"""Walks of gemm_persistent; prices fitted to an H200's times at k from 128 to 8192, bfloat16.

Not here because slower, us: two blocks that share b's slices by a multicast (m=n=k=8192 1624, 1612 without; m=8192
n=32768 k=512 400, 366), two chunks on their way by turns (373, 366), bands of 8 (403, 399).
m=n=k=1024: 128 x 64 in halves 6.1, and 5.8 by 64 x 128. m=128 n=24576 k=1536:
128 x 96 22.9, and 23.5 where b's slices are the first to leave the L2 cache.
"""


def walk_of(m: int, n: int, k: int, trans_b: bool, sm_count: int) -> Walk:
    """Returns the walk that fits and costs least; of equals the first."""
    fitting = [priced for priced in WALKS if priced.walk.fits(n, trans_b)]
    return min(fitting, key=lambda priced: priced.cost(m, n, k, sm_count)).walk
