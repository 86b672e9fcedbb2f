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
    """Time in us once: filling the ring, storing the last tile."""

    def cost(self, m: int, n: int, k: int, sm_count: int) -> float:
        """Returns the predicted time of a product in us, its launch aside."""
        return self.walk.rounds(m, n, sm_count) * (self.slope * k / 1000 + self.step) + self.start


WALKS = (
    PricedWalk(Walk(Tile(128, 256, 64, 4, 256, "FullRow"), False, 64, 2, 16), 12.1, 1.2, 1.5),
    PricedWalk(Walk(Tile(128, 192, 64, 4, 256, "FullRow"), True, 64, 1, 16), 9.0, 0.25, 2.5),
    PricedWalk(Walk(Tile(128, 176, 64, 4, 256, "FullRow"), True, 88, 1, 16), 8.35, 0.25, 2.5),
)
"""Walks of gemm_persistent; prices fitted to a warm H200's times at k from 512 to 25600, bfloat16.

Not here because slower, us: two blocks that share b's slices by a multicast (m=n=k=8192 1624, 1612 without; m=8192
n=32768 k=512 400, 366), two chunks on their way by turns (373, 366), bands of 8 (403, 399).
"""


def walk_of(m: int, n: int, k: int, trans_b: bool, sm_count: int) -> Walk:
    """Returns the walk that fits and costs least; of equals the first. b stored [k, n] comes 64 columns at a time."""
    fitting = [
        priced
        for priced in WALKS
        if priced.walk.shared_bytes(n) <= BLOCK_BYTES and (trans_b or priced.walk.tile.cols % SLAB == 0)
    ]
    return min(fitting, key=lambda priced: priced.cost(m, n, k, sm_count)).walk
