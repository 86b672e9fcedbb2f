"""RMSNorm and fused add and RMSNorm: y = x / sqrt(mean(x * x) + eps) * weight, rows side by side in memory.

On chip: the threads of a row keep it in registers between the sum and the result, so a row is read once and written
once: 2 * length * itemsize bytes a row (4 with the addition), 4 operations an element.
Streaming: a block walks a row twice, backwards the second time, so that what the L2 cache still holds is read first.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.norm.form import NormForm
from tileops.kernels.programs.lanes import combiner
from tileops.kernels.rows import Share


def finisher(form: NormForm, share: Share) -> Any:
    """Returns a macro (kept, scale, weight, y, row, column): stores one access of y."""
    width, dtype = share.width, form.dtype

    @T.macro
    def finish(kept: Any, scale: Any, weight: Any, y: Any, row: Any, column: Any) -> None:
        part = T.alloc_local((width,), dtype)
        wide = T.alloc_local((width,), "float32")
        factor = T.alloc_local((width,), "float32")
        for i in T.vectorized(width):
            wide[i] = T.cast(kept[i], "float32")
        for i in T.unroll(width):
            wide[i] = wide[i] * scale[0]
        if form.weighted:
            for i in T.vectorized(width):
                part[i] = weight[column + i]
            for i in T.vectorized(width):
                factor[i] = T.cast(part[i], "float32")
            for i in T.unroll(width):
                wide[i] = wide[i] * factor[i]
        for i in T.vectorized(width):
            part[i] = T.cast(wide[i], dtype)
        for i in T.vectorized(width):
            y[row, column + i] = part[i]

    return finish


def on_chip(form: NormForm, share: Share, added: bool) -> Any:
    """Builds the program (x, weight, y), or (x, residual, weight, y) where ``added``.

    Without a weight, its place takes anything of x's shape.
    """
    length, dtype, eps = form.length, form.dtype, form.eps
    lanes, rows, turns, width = share.lanes, share.rows, share.turns, share.width
    accesses = length // width
    exact = accesses == lanes * turns
    count = T.dynamic("count")

    def matrix() -> Any:
        return T.Tensor((count, length), dtype)

    def vector() -> Any:
        return T.Tensor((length,), dtype) if form.weighted else matrix()

    combine, finish = combiner(lanes, share.rows), finisher(form, share)

    @T.macro
    def body(x: Any, residual: Any, weight: Any, y: Any) -> None:
        with T.Kernel(T.ceildiv(count, rows), threads=(lanes, rows)) as block:
            lane = T.get_thread_binding(0)
            place = T.get_thread_binding(1)
            kept = T.alloc_local((turns, width), dtype)
            other = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            wide_other = T.alloc_local((width,), "float32")
            total = T.alloc_local((1,), "float32")
            one = T.alloc_local((width,), dtype)
            # Places past the last row repeat it and store nothing.
            row = T.min(block * rows + place, count - 1)
            valid = block * rows + place < count
            total[0] = 0.0
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    for i in T.vectorized(width):
                        kept[t, i] = x[row, access * width + i]
                    if added:
                        for i in T.vectorized(width):
                            other[t, i] = residual[row, access * width + i]
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    for i in T.vectorized(width):
                        wide[i] = T.cast(kept[t, i], "float32")
                    if added:
                        for i in T.vectorized(width):
                            wide_other[i] = T.cast(other[t, i], "float32")
                        for i in T.unroll(width):
                            wide[i] = wide[i] + wide_other[i]
                        # A buffer of its own: TileLang 0.1.15 converts the old value of one that is converted,
                        # written and converted again.
                        for i in T.vectorized(width):
                            one[i] = T.cast(wide[i], dtype)
                        if valid:
                            for i in T.vectorized(width):
                                residual[row, access * width + i] = one[i]
                        for i in T.vectorized(width):
                            kept[t, i] = one[i]
                        for i in T.vectorized(width):
                            wide[i] = T.cast(one[i], "float32")
                    for i in T.unroll(width):
                        total[0] = total[0] + wide[i] * wide[i]
            combine(total, lane, place)
            total[0] = T.rsqrt(total[0] / length + eps)
            if valid:
                for t in T.unroll(turns):
                    access = t * lanes + lane
                    if exact or access < accesses:
                        for i in T.vectorized(width):
                            one[i] = kept[t, i]
                        finish(one, total, weight, y, row, access * width)

    if added:

        @T.prim_func
        def main(x: matrix(), residual: matrix(), weight: vector(), y: matrix()):
            body(x, residual, weight, y)

        return main

    @T.prim_func
    def main(x: matrix(), weight: vector(), y: matrix()):
        body(x, x, weight, y)

    return main


def streaming(form: NormForm, share: Share, added: bool, blocks: int) -> Any:
    """Builds the same program for rows of any length and number: ``blocks`` blocks at most, each a row at a time."""
    length, dtype, eps = form.length, form.dtype, form.eps
    lanes, turns, width = share.lanes, share.turns, share.width
    accesses = length // width
    steps = -(-accesses // (lanes * turns))
    exact = accesses == steps * lanes * turns
    count = T.dynamic("count", "int64")

    def matrix() -> Any:
        return T.Tensor((count, length), dtype)

    def vector() -> Any:
        return T.Tensor((length,), dtype) if form.weighted else matrix()

    combine, finish = combiner(lanes, share.rows), finisher(form, share)

    @T.macro
    def body(x: Any, residual: Any, weight: Any, y: Any) -> None:
        with T.Kernel(T.min(count, blocks), threads=(lanes, 1)) as block:
            lane = T.get_thread_binding(0)
            kept = T.alloc_local((turns, width), dtype)
            other = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            wide_other = T.alloc_local((width,), "float32")
            total = T.alloc_local((1,), "float32")
            one = T.alloc_local((width,), dtype)
            first = T.cast(block, "int64")
            for turn in T.serial((count - first + blocks - 1) // blocks):
                row = first + turn * blocks
                total[0] = 0.0
                for step in T.serial(T.int64(steps)):
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            for i in T.vectorized(width):
                                kept[t, i] = x[row, access * width + i]
                            if added:
                                for i in T.vectorized(width):
                                    other[t, i] = residual[row, access * width + i]
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            if added:
                                for i in T.vectorized(width):
                                    wide_other[i] = T.cast(other[t, i], "float32")
                                for i in T.unroll(width):
                                    wide[i] = wide[i] + wide_other[i]
                                for i in T.vectorized(width):
                                    one[i] = T.cast(wide[i], dtype)
                                for i in T.vectorized(width):
                                    residual[row, access * width + i] = one[i]
                                for i in T.vectorized(width):
                                    wide[i] = T.cast(one[i], "float32")
                            for i in T.unroll(width):
                                total[0] = total[0] + wide[i] * wide[i]
                combine(total, lane, 0)
                total[0] = T.rsqrt(total[0] / length + eps)
                for back in T.serial(T.int64(steps)):
                    step = steps - 1 - back
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            # A thread reads back just what it wrote.
                            for i in T.vectorized(width):
                                kept[t, i] = residual[row, access * width + i]
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            for i in T.vectorized(width):
                                one[i] = kept[t, i]
                            finish(one, total, weight, y, row, access * width)

    if added:

        @T.prim_func
        def main(x: matrix(), residual: matrix(), weight: vector(), y: matrix()):
            body(x, residual, weight, y)

        return main

    @T.prim_func
    def main(x: matrix(), weight: vector(), y: matrix()):
        body(x, x, weight, y)

    return main
