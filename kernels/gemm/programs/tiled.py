"""The parts that the tiled GEMM programs share: operand types and the main loop."""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from collections.abc import Callable
from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.tiles import Tile

BAND = 8
"""Tile rows that consecutive blocks walk before they move on along n: their operands stay in the L2 cache."""


def rows_of(form: Form) -> Any:
    """Returns m, or a new symbolic variable for it."""
    return T.dynamic("m") if form.m is None else form.m


def type_a(form: Form, m: Any, k: Any) -> Any:
    """Returns the type of a, whose logical shape is [m, k]."""
    return T.Tensor((k, m) if form.trans_a else (m, k), form.dtype)


def type_b(form: Form, k: Any, n: Any) -> Any:
    """Returns the type of b, whose logical shape is [k, n]."""
    return T.Tensor((n, k) if form.trans_b else (k, n), form.dtype)


def accumulate(form: Form, tile: Tile, tma: bool) -> Callable[..., Any]:
    """Returns the main loop as a macro: acc += a[row:, first:] @ b[first:, col:] over ``steps`` slices of tile.depth.

    row, col and first are in elements. What lies outside a tensor counts as zero. ``tma`` lets the bulk
    tensor copy engine load the tiles; without it each thread copies (cp.async where the row pitch allows).
    """
    dtype, trans_a, trans_b = form.dtype, form.trans_a, form.trans_b
    depth, simple = tile.depth, not tma
    a_shape = (depth, tile.rows) if trans_a else (tile.rows, depth)
    b_shape = (tile.cols, depth) if trans_b else (depth, tile.cols)
    policy = getattr(T.GemmWarpPolicy, tile.policy)

    @T.macro
    def loop(a: Any, b: Any, acc: Any, row: Any, col: Any, first: Any, steps: Any) -> None:
        a_tile = T.alloc_shared(a_shape, dtype)
        b_tile = T.alloc_shared(b_shape, dtype)
        for step in T.Pipelined(steps, num_stages=tile.stages):
            if trans_a:
                T.copy(a[first + step * depth, row], a_tile, disable_tma=simple)
            else:
                T.copy(a[row, first + step * depth], a_tile, disable_tma=simple)
            if trans_b:
                T.copy(b[col, first + step * depth], b_tile, disable_tma=simple)
            else:
                T.copy(b[first + step * depth, col], b_tile, disable_tma=simple)
            T.gemm(a_tile, b_tile, acc, transpose_A=trans_a, transpose_B=trans_b, policy=policy)

    return loop
