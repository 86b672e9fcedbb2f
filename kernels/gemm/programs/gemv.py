"""Products of one or two rows: every element of b is used once a row of a, so memory bandwidth is all there is.

b stored [n, k] (trans_b): some warps share one row of b; a thread reads 16 bytes at a time where k allows and keeps
a float32 sum for each row of a; the sums meet by warp shuffles, then in shared memory.
b stored [k, n]: a thread keeps sums for 16 bytes' worth of columns and strides over k; the threads that share
columns meet in shared memory.
2 m n k operations over m k + k n + m n elements read or written.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.programs.tiled import rows_of, type_a, type_b

WARP = 32


def access_width(pitch: int) -> int:
    """Returns how many 2-byte elements one access may take when rows lie ``pitch`` elements apart: 8 at most."""
    return next(width for width in (8, 4, 2, 1) if pitch % width == 0)


def program_rows(form: Form, warps: int, rows: int, unroll: int, early: bool) -> Any:
    """Builds the program (a, b, d) for b stored [n, k]: ``warps`` warps a row of b, ``rows`` rows of b a block.

    ``unroll`` reads of b are in flight a thread. ``early``: blocks start while the kernel before ends (from sm_90 on).
    """
    n, k, dtype, trans_a = form.n, form.k, form.dtype, form.trans_a
    m = rows_of(form)
    width = access_width(k)
    lanes = warps * WARP
    slice_ = lanes * width * unroll

    @T.macro
    def turn(a: Any, b: Any, total: Any, row: Any, start: Any, lane: Any, guarded: bool) -> None:
        b_part = T.alloc_local((unroll, width), dtype)
        a_part = T.alloc_local((m, width), dtype)
        for u in T.unroll(unroll):
            column = start + (u * lanes + lane) * width
            if not guarded or column < k:
                for i in T.vectorized(width):
                    b_part[u, i] = b[row, column + i]
        for u in T.unroll(unroll):
            column = start + (u * lanes + lane) * width
            if not guarded or column < k:
                for r in T.unroll(m):
                    if trans_a:
                        for i in T.unroll(width):
                            a_part[r, i] = a[column + i, r]
                    else:
                        for i in T.vectorized(width):
                            a_part[r, i] = a[r, column + i]
                    for i in T.unroll(width):
                        total[r] += T.cast(a_part[r, i], "float32") * T.cast(b_part[u, i], "float32")

    @T.prim_func
    def gemv(a: type_a(form, m, k), b: type_b(form, k, n), d: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, rows), threads=(lanes, rows)) as block:
            lane = T.get_thread_binding(0)
            row = T.get_thread_binding(1)
            total = T.alloc_local((m,), "float32")
            sums = T.alloc_shared((rows, m, warps), "float32")
            if early:
                T.pdl_sync()
            # Rows past the end repeat the last one and are not stored.
            source = T.min(block * rows + row, n - 1)
            for r in T.unroll(m):
                total[r] = 0.0
            for step in T.serial(k // slice_):
                turn(a, b, total, source, step * slice_, lane, False)
            if k % slice_ != 0:
                turn(a, b, total, source, k // slice_ * slice_, lane, True)
            for r in T.unroll(m):
                total[r] = T.warp_reduce_sum(total[r])
            if warps > 1:
                if lane % WARP == 0:
                    for r in T.unroll(m):
                        sums[row, r, lane // WARP] = total[r]
                T.sync_threads()
                for r in T.unroll(m):
                    total[r] = 0.0
                    for w in T.unroll(warps):
                        total[r] += sums[row, r, w]
            if lane == 0 and block * rows + row < n:
                for r in T.unroll(m):
                    d[r, block * rows + row] = T.cast(total[r], dtype)

    return gemv


def program_columns(form: Form, lanes: int, depth: int, unroll: int, early: bool) -> Any:
    """Builds the program (a, b, d) for b stored [k, n]: ``lanes`` threads along n times ``depth`` threads along k.

    ``unroll`` reads of b are in flight a thread. ``early``: blocks start while the kernel before ends (from sm_90 on).
    """
    n, k, dtype, trans_a = form.n, form.k, form.dtype, form.trans_a
    m = rows_of(form)
    width = access_width(n)
    columns = lanes * width
    slice_ = depth * unroll
    passes = -(-columns // (lanes * depth))

    @T.macro
    def turn(a: Any, b: Any, total: Any, column: Any, start: Any, level: Any, guarded: bool) -> None:
        b_part = T.alloc_local((unroll, width), dtype)
        a_part = T.alloc_local((1,), "float32")
        for u in T.unroll(unroll):
            row = start + u * depth + level
            if not guarded or row < k:
                for i in T.vectorized(width):
                    b_part[u, i] = b[row, column + i]
        for u in T.unroll(unroll):
            row = start + u * depth + level
            if not guarded or row < k:
                for r in T.unroll(m):
                    if trans_a:
                        a_part[0] = T.cast(a[row, r], "float32")
                    else:
                        a_part[0] = T.cast(a[r, row], "float32")
                    for i in T.unroll(width):
                        total[r, i] += a_part[0] * T.cast(b_part[u, i], "float32")

    @T.prim_func
    def gemv(a: type_a(form, m, k), b: type_b(form, k, n), d: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, columns), threads=(lanes, depth)) as block:
            lane = T.get_thread_binding(0)
            level = T.get_thread_binding(1)
            total = T.alloc_local((m, width), "float32")
            summed = T.alloc_local((1,), "float32")
            sums = T.alloc_shared((m, depth, columns), "float32")
            if early:
                T.pdl_sync()
            # Columns past the end repeat the last whole access and are not stored.
            source = T.min(block * columns + lane * width, n - width)
            for r in T.unroll(m):
                for i in T.unroll(width):
                    total[r, i] = 0.0
            for step in T.serial(k // slice_):
                turn(a, b, total, source, step * slice_, level, False)
            if k % slice_ != 0:
                turn(a, b, total, source, k // slice_ * slice_, level, True)
            for r in T.unroll(m):
                for i in T.unroll(width):
                    sums[r, level, lane * width + i] = total[r, i]
            T.sync_threads()
            for p in T.unroll(passes):
                column = p * lanes * depth + level * lanes + lane
                if column < columns and block * columns + column < n:
                    for r in T.unroll(m):
                        summed[0] = 0.0
                        for z in T.serial(depth):
                            summed[0] += sums[r, z, column]
                        d[r, block * columns + column] = T.cast(summed[0], dtype)

    return gemv
