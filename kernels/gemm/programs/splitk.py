"""GEMM for few tiles and a long k: the slices of k are shared out among blocks, then added up.

First pass: block (tile, part) multiplies its part of k and writes a float32 tile to a workspace [parts, m, n]:
2 m n k operations, a and b copied as in one pass.
Second pass: each thread adds the parts of its elements in order and rounds once, so a result is the same on every
run. The workspace costs 8 bytes an element and part, which stay in the L2 cache at these sizes. On Hopper either
pass starts while the kernel before it ends and waits for its results before it reads.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.programs.tiled import accumulate, rows_of, type_a, type_b
from tileops.kernels.gemm.tiles import Tile

THREADS = 128
"""Threads a block of the second pass."""


def program(form: Form, tile: Tile, parts: int, tma: bool) -> Any:
    """Builds the program (a, b, workspace, d). ``tma`` feeds the tiles by the bulk tensor copy engine (sm_90)."""
    n, k, dtype = form.n, form.k, form.dtype
    m = rows_of(form)
    loop = accumulate(form, tile, tma)
    # Steps past the end of k add zeros: a constant count lets the pipeline be built for any row pitch.
    steps = -(-k // tile.depth)
    share = -(-steps // parts)
    width = 4 if n % 4 == 0 else 1

    @T.prim_func
    def gemm_splitk(
        a: type_a(form, m, k),
        b: type_b(form, k, n),
        workspace: T.Tensor((parts, m, n), "float32"),
        d: T.Tensor((m, n), dtype),
    ):
        with T.Kernel(T.ceildiv(n, tile.cols), T.ceildiv(m, tile.rows), parts, threads=tile.threads) as (x, y, z):
            acc = T.alloc_fragment((tile.rows, tile.cols), "float32")
            if tma:
                T.pdl_sync()
            T.clear(acc)
            loop(a, b, acc, y * tile.rows, x * tile.cols, z * share * tile.depth, share)
            T.copy(acc, workspace[z, y * tile.rows, x * tile.cols], disable_tma=True)

        with T.Kernel(T.ceildiv(n, THREADS * width), m, threads=THREADS) as (x, y):
            thread = T.get_thread_binding()
            total = T.alloc_local((width,), "float32")
            part = T.alloc_local((width,), "float32")
            col = (x * THREADS + thread) * width
            if tma:
                T.pdl_sync()
            if col < n:
                for i in T.vectorized(width):
                    total[i] = workspace[0, y, col + i]
                for z in T.unroll(1, parts):
                    for i in T.vectorized(width):
                        part[i] = workspace[z, y, col + i]
                    for i in T.vectorized(width):
                        total[i] = total[i] + part[i]
                for i in T.vectorized(width):
                    d[y, col + i] = T.cast(total[i], dtype)

    return gemm_splitk
