"""GEMM on the warp matrix units that every GPU from sm_80 on has (mma.sync, cp.async).

Each block computes one tile of d; all its threads copy slices of a and b into a ring in shared memory and multiply.
Copies are as wide as the row pitches allow, down to single elements, so any m, n and k will do.
2 m n k operations; m k ceil(n / tile columns) + n k ceil(m / tile rows) elements copied, mostly from the L2 cache.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.programs.tiled import BAND, accumulate, rows_of, type_a, type_b
from tileops.kernels.gemm.tiles import Tile


def program(form: Form, tile: Tile) -> Any:
    """Builds the program (a, b, d) for one form and tile: one block a tile."""
    n, k, dtype = form.n, form.k, form.dtype
    m = rows_of(form)
    loop = accumulate(form, tile, tma=False)

    @T.prim_func
    def gemm_mma(a: type_a(form, m, k), b: type_b(form, k, n), d: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(m, tile.rows), T.ceildiv(n, tile.cols), threads=tile.threads) as (y, x):
            acc = T.alloc_fragment((tile.rows, tile.cols), "float32")
            T.use_swizzle(BAND, order="column")
            T.clear(acc)
            loop(a, b, acc, y * tile.rows, x * tile.cols, 0, T.ceildiv(k, tile.depth))
            T.copy(acc, d[y * tile.rows, x * tile.cols], disable_tma=True)

    return gemm_mma


def program_wide(form: Form, tile: Tile, blocks: int) -> Any:
    """Builds the program (a, b, d) for dimensions of 2**31 and more: 64-bit indices; ``blocks`` blocks walk the tiles.

    Nothing about the shape is compiled in, so its copies are one element wide: right, not fast.
    """
    dtype = form.dtype
    m, n, k = (T.dynamic(name, "int64") for name in "mnk")
    loop = accumulate(form, tile, tma=False)

    @T.prim_func
    def gemm_mma_wide(a: type_a(form, m, k), b: type_b(form, k, n), d: T.Tensor((m, n), dtype)):
        with T.Kernel(blocks, threads=tile.threads) as block:
            acc = T.alloc_fragment((tile.rows, tile.cols), "float32")
            across = T.ceildiv(n, tile.cols)
            tiles = T.ceildiv(m, tile.rows) * across
            for turn in T.serial(T.ceildiv(tiles - block, blocks)):
                y = T.truncdiv(block + turn * blocks, across)
                x = block + turn * blocks - y * across
                T.clear(acc)
                loop(a, b, acc, y * tile.rows, x * tile.cols, 0, T.ceildiv(k, tile.depth))
                T.copy(acc, d[y * tile.rows, x * tile.cols], disable_tma=True)

    return gemm_mma_wide
