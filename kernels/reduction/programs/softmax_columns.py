"""Softmax of rows whose elements lie ``inner`` apart: a thread works on one access of side-by-side rows.

x [outer, length, inner]. Threads (lanes, depth): a lane has ``width`` rows side by side, and ``depth`` levels share
their elements, which meet in shared memory.
On chip: the elements stay in registers: 2 * itemsize bytes an element of x.
Streaming: x is read twice, with a running greatest value and a rescaled sum the first time.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from collections.abc import Callable
from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.columns import ColumnShare
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.programs.softmax import LOG2E


def across(share: ColumnShare, greatest: bool) -> Callable[..., Any]:
    """Returns a macro (values, lane, level): each of a thread's values becomes the sum, or greatest, over levels."""
    lanes, depth, width = share.lanes, share.depth, share.width

    @T.macro
    def combine(values: Any, lane: Any, level: Any) -> None:
        if depth > 1:
            scratch = T.alloc_shared((depth, width, lanes), "float32")
            for i in T.unroll(width):
                scratch[level, i, lane] = values[i]
            T.sync_threads()
            for i in T.unroll(width):
                values[i] = scratch[0, i, lane]
                for other in T.serial(depth - 1):
                    if greatest:
                        values[i] = T.max(values[i], scratch[other + 1, i, lane])
                    else:
                        values[i] = values[i] + scratch[other + 1, i, lane]
            T.sync_threads()

    return combine


def on_chip(form: AlongForm, share: ColumnShare) -> Any:
    """Builds the program (x, y): all of a thread's elements are its ``turns`` accesses."""
    length, inner, dtype = form.length, form.inner, form.dtype
    lanes, depth, turns, width = share.lanes, share.depth, share.turns, share.width
    piece = inner // width
    outer = T.dynamic("outer")
    greatest_of, sum_of = across(share, True), across(share, False)

    @T.prim_func
    def main(x: T.Tensor((outer, length, inner), dtype), y: T.Tensor((outer, length, inner), dtype)):
        with T.Kernel(T.ceildiv(outer * piece, lanes), threads=(lanes, depth)) as block:
            lane = T.get_thread_binding(0)
            level = T.get_thread_binding(1)
            kept = T.alloc_local((turns, width), dtype)
            powers = T.alloc_local((turns, width), "float32")
            wide = T.alloc_local((width,), "float32")
            out = T.alloc_local((width,), dtype)
            top = T.alloc_local((width,), "float32")
            total = T.alloc_local((width,), "float32")
            # Lanes past the last access repeat it and store nothing.
            access = T.min(block * lanes + lane, outer * piece - 1)
            slab = access // piece
            column = access % piece * width
            for i in T.unroll(width):
                top[i] = -T.infinity("float32")
                total[i] = 0.0
            for t in T.unroll(turns):
                if t * depth + level < length:
                    for i in T.vectorized(width):
                        kept[t, i] = x[slab, t * depth + level, column + i]
            for t in T.unroll(turns):
                if t * depth + level < length:
                    for i in T.vectorized(width):
                        wide[i] = T.cast(kept[t, i], "float32")
                    for i in T.unroll(width):
                        powers[t, i] = wide[i]
                        top[i] = T.max(top[i], wide[i])
            greatest_of(top, lane, level)
            for t in T.unroll(turns):
                if t * depth + level < length:
                    for i in T.unroll(width):
                        powers[t, i] = T.exp2((powers[t, i] - top[i]) * LOG2E)
                        total[i] = total[i] + powers[t, i]
            sum_of(total, lane, level)
            for i in T.unroll(width):
                total[i] = 1.0 / total[i]
            if block * lanes + lane < outer * piece:
                for t in T.unroll(turns):
                    if t * depth + level < length:
                        for i in T.unroll(width):
                            wide[i] = powers[t, i] * total[i]
                        for i in T.vectorized(width):
                            out[i] = T.cast(wide[i], dtype)
                        for i in T.vectorized(width):
                            y[slab, t * depth + level, column + i] = out[i]

    return main


def streaming(form: AlongForm, share: ColumnShare, blocks: int) -> Any:
    """Builds the program (x, y) for any sizes: ``blocks`` blocks at most, with 64-bit indices."""
    length, inner, dtype = form.length, form.inner, form.dtype
    lanes, depth, turns, width = share.lanes, share.depth, share.turns, share.width
    piece = inner // width
    steps = -(-length // (turns * depth))
    outer = T.dynamic("outer", "int64")
    greatest_of, sum_of = across(share, True), across(share, False)

    @T.prim_func
    def main(x: T.Tensor((outer, length, inner), dtype), y: T.Tensor((outer, length, inner), dtype)):
        with T.Kernel(T.min((outer * piece + lanes - 1) // lanes, blocks), threads=(lanes, depth)) as block:
            lane = T.get_thread_binding(0)
            level = T.get_thread_binding(1)
            kept = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            top = T.alloc_local((width,), "float32")
            own = T.alloc_local((width,), "float32")
            base = T.alloc_local((width,), "float32")
            total = T.alloc_local((width,), "float32")
            groups = (outer * piece + lanes - 1) // lanes
            first = T.cast(block, "int64")
            for turn in T.serial((groups - first + blocks - 1) // blocks):
                place = (first + turn * blocks) * lanes + lane
                access = T.min(place, outer * piece - 1)
                slab = access // piece
                column = access % piece * width
                for i in T.unroll(width):
                    own[i] = -T.infinity("float32")
                    total[i] = 0.0
                for step in T.serial(T.int64(steps)):
                    for t in T.unroll(turns):
                        if (step * turns + t) * depth + level < length:
                            for i in T.vectorized(width):
                                kept[t, i] = x[slab, (step * turns + t) * depth + level, column + i]
                    for i in T.unroll(width):
                        top[i] = own[i]
                    for t in T.unroll(turns):
                        if (step * turns + t) * depth + level < length:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            for i in T.unroll(width):
                                top[i] = T.max(top[i], wide[i])
                    for i in T.unroll(width):
                        # Where all so far are -inf, nothing is subtracted.
                        base[i] = T.if_then_else(top[i] == -T.infinity("float32"), T.float32(0), top[i])
                        total[i] = total[i] * T.exp2((own[i] - base[i]) * LOG2E)
                        own[i] = top[i]
                    for t in T.unroll(turns):
                        if (step * turns + t) * depth + level < length:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            for i in T.unroll(width):
                                total[i] = total[i] + T.exp2((wide[i] - base[i]) * LOG2E)
                for i in T.unroll(width):
                    top[i] = own[i]
                greatest_of(top, lane, level)
                for i in T.unroll(width):
                    base[i] = T.if_then_else(top[i] == -T.infinity("float32"), T.float32(0), top[i])
                    total[i] = total[i] * T.exp2((own[i] - base[i]) * LOG2E)
                sum_of(total, lane, level)
                for i in T.unroll(width):
                    total[i] = 1.0 / total[i]
                if place < outer * piece:
                    for back in T.serial(T.int64(steps)):
                        for t in T.unroll(turns):
                            row = ((steps - 1 - back) * turns + t) * depth + level
                            if row < length:
                                for i in T.vectorized(width):
                                    kept[t, i] = x[slab, row, column + i]
                        for t in T.unroll(turns):
                            row = ((steps - 1 - back) * turns + t) * depth + level
                            if row < length:
                                for i in T.vectorized(width):
                                    wide[i] = T.cast(kept[t, i], "float32")
                                for i in T.unroll(width):
                                    wide[i] = T.exp2((wide[i] - top[i]) * LOG2E) * total[i]
                                for i in T.vectorized(width):
                                    kept[t, i] = T.cast(wide[i], dtype)
                                for i in T.vectorized(width):
                                    y[slab, row, column + i] = kept[t, i]

    return main
