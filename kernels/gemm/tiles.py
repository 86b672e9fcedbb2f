"""Holds the tile shapes of the GEMM implementations and the tables that choose among them. No device code."""

from __future__ import annotations

from attrs import frozen


@frozen
class Tile:
    """Describes the work of one thread block: a rows x cols piece of d, depth elements of k a step."""

    rows: int
    cols: int
    depth: int
    stages: int
    """Slices of k in flight in shared memory."""
    threads: int
    """Threads that multiply; a warp-specialised program adds one warpgroup that loads."""
    policy: str = "Square"
    """How warps share the tile: FullRow gives each its own rows, FullCol its own columns, Square both."""

    def count(self, m: int, n: int) -> int:
        """Returns how many tiles cover an m x n result."""
        return -(-m // self.rows) * -(-n // self.cols)

    def shared_bytes(self, itemsize: int = 2) -> int:
        """Returns the shared memory of a block in bytes: all stages of both operands."""
        return (self.rows + self.cols) * self.depth * max(self.stages, 1) * itemsize

    def __str__(self) -> str:
        return f"tile {self.rows}x{self.cols}x{self.depth}, {self.stages} stages"


@frozen
class Priced:
    """Pairs a tile with the time one of its blocks needs for a step of k, over that of the largest tile."""

    tile: Tile
    price: float


WGMMA = (
    Priced(Tile(128, 256, 64, 4, 256, "FullRow"), 1.0),
    Priced(Tile(256, 128, 64, 4, 256, "FullRow"), 1.0),
    Priced(Tile(128, 128, 64, 6, 256, "FullRow"), 0.6),
    Priced(Tile(64, 256, 64, 5, 128), 0.6),
    Priced(Tile(64, 128, 64, 8, 128), 0.4),
)
"""Tiles of gemm_wgmma, one block an SM."""


def wgmma_tile(m: int, n: int, sm_count: int) -> Tile:
    """Returns the tile whose rounds of blocks over the SMs cost least; of equals the first."""
    return min(WGMMA, key=lambda priced: -(-priced.tile.count(m, n) // max(sm_count, 1)) * priced.price).tile


MMA = {
    16: Tile(16, 128, 64, 4, 128, "FullCol"),
    32: Tile(32, 128, 64, 4, 128, "FullCol"),
    64: Tile(64, 128, 64, 3, 128),
    None: Tile(128, 128, 32, 4, 256),
}
"""Tiles of gemm_mma by the most rows that one serves; all fit in the 99 KiB a block may use on any arch from 80 on."""

MMA_WIDE = Tile(64, 64, 32, 0, 128)
"""The tile of gemm_mma's 64-bit program."""


def mma_tile(m: int) -> Tile:
    """Returns the lowest tile that takes all m rows at once, or the largest."""
    return next(tile for rows, tile in MMA.items() if rows is None or m <= rows)


SPLITK = {
    16: Tile(16, 128, 64, 4, 128, "FullCol"),
    32: Tile(32, 128, 64, 4, 128, "FullCol"),
    None: Tile(64, 128, 64, 3, 128),
}
"""Tiles of gemm_splitk without the copy engine, by rows."""

SPLITK_TMA = Tile(64, 128, 64, 4, 128)
"""The tile of gemm_splitk on Hopper's copy engine and warpgroup matrix units."""

SPLITK_BLOCKS = 2
"""Blocks an SM that a split aims at: two hide each other's start and end."""

SPLITK_STEPS = 4
"""Steps of k that a part has at least."""


def splitk_tile(m: int, tma: bool) -> Tile:
    """Returns the tile of a split product."""
    if tma:
        return SPLITK_TMA
    return next(tile for rows, tile in SPLITK.items() if rows is None or m <= rows)


def splitk_parts(tile: Tile, m: int, n: int, k: int, sm_count: int) -> int:
    """Returns how many parts k is cut into: enough blocks for the SMs, no part without work."""
    steps = -(-k // tile.depth)
    wanted = max(1, sm_count * SPLITK_BLOCKS // tile.count(m, n))
    share = -(-steps // max(1, min(wanted, steps // SPLITK_STEPS)))
    return -(-steps // share)


@frozen
class Sharing:
    """Describes how a block of gemv shares its work out among threads."""

    across: int
    """b stored [n, k]: warps a row of b. b stored [k, n]: threads along n, each with 16 bytes of columns."""
    down: int
    """b stored [n, k]: rows of b a block. b stored [k, n]: threads along k."""
    unroll: int
    """Reads of b in flight a thread."""

    def __str__(self) -> str:
        return f"{self.across} x {self.down} a block, {self.unroll} reads in flight"


GEMV_ROWS = {2048: Sharing(1, 4, 4), None: Sharing(4, 1, 4)}
"""Sharing for b stored [n, k], by the greatest k: long rows are shared by several warps."""

GEMV_COLUMNS = {8192: Sharing(4, 64, 4), None: Sharing(8, 32, 4)}
"""Sharing for b stored [k, n], by the greatest n: narrow results need the threads along k."""


def gemv_sharing(n: int, k: int, trans_b: bool) -> Sharing:
    """Returns how a product of one or two rows is shared out."""
    table, size = (GEMV_ROWS, k) if trans_b else (GEMV_COLUMNS, n)
    return next(sharing for most, sharing in table.items() if most is None or size <= most)
