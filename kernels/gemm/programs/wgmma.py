"""GEMM on Hopper's warpgroup matrix units, fed by its bulk tensor copy engine.

Each block computes one tile of d. One warpgroup issues the copies of the next slices of a and b into a ring in
shared memory; the others multiply (wgmma, both operands from shared memory, float32 accumulators in registers).
The tile leaves through shared memory, by one bulk store where d's row pitch is a multiple of 16 bytes.

2 m n k operations. Of a and b, m k ceil(n / tile columns) + n k ceil(m / tile rows) elements are copied, mostly from
the L2 cache, as blocks run in bands of tiled.BAND tile rows; from memory each at least once, and m n of d go there.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.programs.tiled import BAND, accumulate, rows_of, type_a, type_b
from tileops.kernels.gemm.tiles import Tile


def program(form: Form, tile: Tile) -> Any:
    """Builds the program (a, b, d) for one form and tile."""
    n, k, dtype = form.n, form.k, form.dtype
    m = rows_of(form)
    loop = accumulate(form, tile, tma=True)

    @T.prim_func
    def gemm_wgmma(a: type_a(form, m, k), b: type_b(form, k, n), d: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(m, tile.rows), T.ceildiv(n, tile.cols), threads=tile.threads) as (y, x):
            acc = T.alloc_fragment((tile.rows, tile.cols), "float32")
            out = T.alloc_shared((tile.rows, tile.cols), dtype)
            T.use_swizzle(BAND, order="column")
            T.pdl_sync()
            T.clear(acc)
            loop(a, b, acc, y * tile.rows, x * tile.cols, 0, T.ceildiv(k, tile.depth))
            T.copy(acc, out)
            T.copy(out, d[y * tile.rows, x * tile.cols])

    return gemm_wgmma
