"""Holds the tile shapes of the GEMM implementations and the tables that choose among them. No device code."""

from __future__ import annotations

from attrs import frozen

ACCESS = 8
"""Elements of 16 bytes: a thread's widest access, and what row pitches have to be multiples of for bulk copies."""


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
    """Pairs a tile with what one round of its blocks, one an SM, costs."""

    tile: Tile
    slope: float
    """Time in us for a thousand elements of k."""
    start: float
    """Time in us besides: filling the ring, storing the tile."""
    start_unaligned: float
    """The same where d's row pitch is no multiple of 16 bytes, so that threads store the tile."""

    def cost(self, m: int, n: int, k: int, sm_count: int) -> float:
        """Returns the predicted time of a product in us, its launch aside."""
        rounds = -(-self.tile.count(m, n) // max(sm_count, 1))
        return rounds * (self.slope * k / 1000 + (self.start if n % 8 == 0 else self.start_unaligned))


WGMMA = (
    Priced(Tile(128, 256, 64, 4, 256, "FullRow"), 10.7, 2.9, 4.8),
    Priced(Tile(128, 192, 64, 4, 256, "FullRow"), 8.3, 2.3, 17.6),
    Priced(Tile(128, 128, 64, 6, 256, "FullRow"), 5.9, 1.7, 3.0),
    Priced(Tile(64, 128, 128, 4, 128), 3.9, 0.8, 1.9),
    Priced(Tile(64, 64, 128, 6, 128), 2.75, 0.8, 1.3),
)
"""Tiles of gemm_wgmma, one block an SM; prices fitted to an H200's times at k from 512 to 16384, bfloat16."""


def wgmma_tile(m: int, n: int, k: int, sm_count: int) -> Tile:
    """Returns the tile whose rounds of blocks over the SMs cost least; of equals the first."""
    return min(WGMMA, key=lambda priced: priced.cost(m, n, k, sm_count)).tile


MMA = {
    16: Tile(16, 64, 128, 4, 128, "FullCol"),
    32: Tile(32, 64, 128, 3, 128, "FullCol"),
    64: Tile(64, 64, 64, 5, 128),
}
"""Tiles of gemm_mma by the most rows that one serves; all fit in the 99 KiB a block may use on any arch from 80 on."""

MMA_LARGE = Tile(128, 128, 64, 3, 256)
"""The tile of gemm_mma for results that have one such tile for every SM."""

MMA_WIDE = Tile(64, 64, 32, 0, 128)
"""The tile of gemm_mma's 64-bit program."""


def mma_tile(m: int, n: int, sm_count: int) -> Tile:
    """Returns the lowest tile that takes all m rows at once; for more rows the large one if it keeps the SMs busy."""
    fitting = [tile for rows, tile in MMA.items() if m <= rows]
    if fitting:
        return fitting[0]
    return MMA_LARGE if MMA_LARGE.count(m, n) >= sm_count else MMA[64]


SPLITK = {
    16: Tile(16, 128, 64, 4, 128, "FullCol"),
    32: Tile(32, 128, 64, 4, 128, "FullCol"),
    None: Tile(64, 128, 64, 3, 128),
}
"""Tiles of gemm_splitk without the copy engine, by the most rows that one serves."""

SPLITK_TMA = {64: Tile(64, 128, 64, 4, 128), None: Tile(128, 64, 128, 4, 256, "FullRow")}
"""Tiles of gemm_splitk on Hopper's copy engine and warpgroup matrix units, likewise."""

SPLITK_DEPTH = 256
"""Elements of k that a part has at least: fewer cost more to add up than they save."""


def splitk_tile(m: int, tma: bool) -> Tile:
    """Returns the tile of a split product."""
    return next(tile for rows, tile in (SPLITK_TMA if tma else SPLITK).items() if rows is None or m <= rows)


def splitk_parts(tile: Tile, m: int, n: int, k: int, sm_count: int) -> int:
    """Returns how many parts k is cut into: one block an SM, no part without work."""
    steps = -(-k // tile.depth)
    most = max(1, k // SPLITK_DEPTH)
    share = -(-steps // max(1, min(sm_count // tile.count(m, n), most)))
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


GEMV_ROWS: dict[int, dict[int | None, Sharing]] = {
    1: {2048: Sharing(1, 4, 4), None: Sharing(4, 1, 4)},
    2: {None: Sharing(1, 4, 4)},
}
"""Sharing for b stored [n, k], by m and the greatest k: for one row, several warps share a long row of b."""

GEMV_COLUMNS: dict[int | None, Sharing] = {8192: Sharing(4, 64, 4), None: Sharing(8, 32, 4)}
"""Sharing for b stored [k, n], by the greatest n: narrow results need the threads along k."""


def gemv_sharing(m: int, n: int, k: int, trans_b: bool) -> Sharing:
    """Returns how a product of one or two rows is shared out."""
    table, size = (GEMV_ROWS[m], k) if trans_b else (GEMV_COLUMNS, n)
    return next(sharing for most, sharing in table.items() if most is None or size <= most)
