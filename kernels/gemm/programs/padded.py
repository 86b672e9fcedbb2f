"""GEMM on Hopper for row pitches that its bulk tensor copy engine does not take, such as k = 1029.

First launch: an operand whose rows do not lie on 16-byte boundaries is copied to a workspace where they do; a thread
reads eight elements one by one and writes them at once. Where both are stored in rows of k their copies are one tensor,
b's rows under a's, which saves the host an allocation. Second launch: as gemm_wgmma, or as gemm_swapped for few rows,
from the workspace. It starts while the first one ends and waits for its results before it reads.

2 m n k operations; the copy reads and writes each element of the operand once more.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from collections.abc import Callable
from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.gemm.cuts import Cut, padded, together
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.programs import swapped
from tileops.kernels.gemm.programs.tiled import BAND, accumulate, rows_of, type_a, type_b
from tileops.kernels.gemm.tiles import ACCESS, Tile

THREADS = 128
"""Threads a block of the first launch."""


def program(form: Form, plan: Tile | Cut) -> Any:
    """Builds the program (a, b, wide a, wide b, d). An operand that needs no copy is given as its wide one too.

    Where ``together(form)``, wide a and wide b are one tensor.
    """
    n, k, dtype, trans_a, trans_b = form.n, form.k, form.dtype, form.trans_a, form.trans_b
    m = rows_of(form)
    cluster = plan.parts if isinstance(plan, Cut) else 1
    launch = swapped.launcher(form, plan) if isinstance(plan, Cut) else tile_launcher(form, plan)
    a_pitch, b_pitch = (m if trans_a else k), (k if trans_b else n)
    a_rows = (k if trans_a else m) if a_pitch % ACCESS else 0
    b_rows = (n if trans_b else k) if b_pitch % ACCESS else 0
    b_row = m if together(form) else 0
    wide_a_rows = m + n if together(form) else k if trans_a else m
    wide_b_rows = m + n if together(form) else n if trans_b else k

    @T.macro
    def widen(source: Any, target: Any, row: Any, to: Any, pitch: int) -> None:
        thread = T.get_thread_binding()
        part = T.alloc_local((ACCESS,), dtype)
        for turn in T.serial(-(-pitch // (ACCESS * THREADS))):
            first = (turn * THREADS + thread) * ACCESS
            if first < pitch:
                for i in T.unroll(ACCESS):
                    part[i] = T.if_then_else(first + i < pitch, source[row, first + i], T.cast(0, dtype))
                for i in T.vectorized(ACCESS):
                    target[to, first + i] = part[i]

    @T.prim_func
    def gemm_padded(
        a: type_a(form, m, k),
        b: type_b(form, k, n),
        wide_a: T.Tensor((wide_a_rows, padded(a_pitch)), dtype),
        wide_b: T.Tensor((wide_b_rows, padded(b_pitch)), dtype),
        d: T.Tensor((m, n), dtype),
    ):
        # TileLang 0.1.15 launches this one in the clusters of the second too.
        with T.Kernel(T.ceildiv(a_rows + b_rows, cluster) * cluster, threads=THREADS) as block:
            T.pdl_sync()
            if block < a_rows:
                widen(a, wide_a, block, block, a_pitch)
            elif block < a_rows + b_rows:
                widen(b, wide_b, block - a_rows, block - a_rows + b_row, b_pitch)
        launch(wide_a, wide_b, d, m, b_row)

    return gemm_padded


def tile_launcher(form: Form, tile: Tile) -> Callable[..., Any]:
    """Returns the launch of one block a tile as a macro (a, b, d, m, row of the tensor b where the matrix b begins)."""
    n, k = form.n, form.k
    loop = accumulate(form, tile, tma=True)

    @T.macro
    def launch(a: Any, b: Any, d: Any, m: Any, b_row: Any) -> None:
        with T.Kernel(T.ceildiv(m, tile.rows), T.ceildiv(n, tile.cols), threads=tile.threads) as (y, x):
            acc = T.alloc_fragment((tile.rows, tile.cols), "float32")
            T.use_swizzle(BAND, order="column")
            T.pdl_sync()
            T.clear(acc)
            loop(a, b, acc, y * tile.rows, b_row + x * tile.cols, 0, T.ceildiv(k, tile.depth))
            T.copy(acc, d[y * tile.rows, x * tile.cols], disable_tma=True)

    return launch
