"""SiLU-and-multiply: y[row, i] = silu(x[row, i]) * x[row, length + i], silu(g) = g / (1 + exp(-g)).

A thread reads its accesses of both halves before it computes. 3 * itemsize bytes and 5 operations an element of y.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

import math
from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.rows import Share

LOG2E = math.log2(math.e)


def program(length: int, dtype: str, share: Share, blocks: int | None) -> Any:
    """Builds the program (x, y): x [rows, 2 * length], y [rows, length]; blocks of share.lanes threads.

    ``blocks``: that many blocks walk all there is, with 64-bit indices; None: as many as it takes.
    """
    threads, turns, width = share.lanes, share.turns, share.width
    piece = length // width
    slice_ = threads * turns
    rows = T.dynamic("rows", "int64" if blocks else "int32")

    @T.macro
    def work(x: Any, y: Any, start: Any, thread: Any) -> None:
        gate = T.alloc_local((turns, width), dtype)
        up = T.alloc_local((turns, width), dtype)
        wide = T.alloc_local((width,), "float32")
        factor = T.alloc_local((width,), "float32")
        out = T.alloc_local((width,), dtype)
        for t in T.unroll(turns):
            access = start + t * threads + thread
            if access < rows * piece:
                for i in T.vectorized(width):
                    gate[t, i] = x[access // piece, access % piece * width + i]
                for i in T.vectorized(width):
                    up[t, i] = x[access // piece, length + access % piece * width + i]
        for t in T.unroll(turns):
            access = start + t * threads + thread
            if access < rows * piece:
                for i in T.vectorized(width):
                    wide[i] = T.cast(gate[t, i], "float32")
                for i in T.vectorized(width):
                    factor[i] = T.cast(up[t, i], "float32")
                # Exact division is so much code that fetching it shows in calls of few rows.
                for i in T.unroll(width):
                    wide[i] = wide[i] * T.fast_rcp(1.0 + T.exp2(wide[i] * -LOG2E)) * factor[i]
                for i in T.vectorized(width):
                    out[i] = T.cast(wide[i], dtype)
                for i in T.vectorized(width):
                    y[access // piece, access % piece * width + i] = out[i]

    if blocks:

        @T.prim_func
        def main(x: T.Tensor((rows, 2 * length), dtype), y: T.Tensor((rows, length), dtype)):
            with T.Kernel(blocks, threads=threads) as block:
                thread = T.get_thread_binding()
                for turn in T.serial((rows * piece + blocks * slice_ - 1) // (blocks * slice_)):
                    work(x, y, (turn * blocks + block) * slice_, thread)

        return main

    @T.prim_func
    def main(x: T.Tensor((rows, 2 * length), dtype), y: T.Tensor((rows, length), dtype)):
        with T.Kernel(T.ceildiv(rows * piece, slice_), threads=threads) as block:
            work(x, y, block * slice_, T.get_thread_binding())

    return main
