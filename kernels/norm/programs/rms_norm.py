"""RMSNorm and fused add and RMSNorm: y = x / sqrt(mean(x * x) + eps) * weight, of contiguous rows.

On chip: the threads of a row keep it in registers between the sum and the result, so a row is read once and written
once: 2 * length * itemsize bytes a row (4 with the addition), four operations an element (five).
Streaming: a block walks a row twice, backwards the second time, so that what the L2 cache still holds is read first:
x, or the sum that was written, is read once more.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.norm.form import NormForm
from tileops.kernels.programs.lanes import combiner
from tileops.kernels.rows import Share


class Parts:
    """Holds the types and the macros that both programs are put together from; a macro is for one access."""

    def __init__(self, form: NormForm, share: Share, added: bool, bits: str) -> None:
        self.form, self.width, self.added = form, share.width, added
        self.count = T.dynamic("count", bits)

    def matrix(self) -> Any:
        """Returns the type of x, residual and y."""
        return T.Tensor((self.count, self.form.length), self.form.dtype)

    def vector(self) -> Any:
        """Returns the type of the weight; where there is none, of what stands in its place."""
        return T.Tensor((self.form.length,), self.form.dtype) if self.form.weighted else self.matrix()

    def loader(self) -> Any:
        """Returns a macro (source, into, t, row, column): reads into into[t]."""
        width = self.width

        @T.macro
        def load(source: Any, into: Any, t: Any, row: Any, column: Any) -> None:
            for i in T.vectorized(width):
                into[t, i] = source[row, column + i]

        return load

    def measurer(self) -> Any:
        """Returns a macro (kept, other, t, residual, row, column, valid, total): adds its squares to total[0].

        With the addition, other[t] is added to kept[t] first, and the sum written where it came from.
        """
        width, dtype, added = self.width, self.form.dtype, self.added

        @T.macro
        def measure(
            kept: Any, other: Any, t: Any, residual: Any, row: Any, column: Any, valid: Any, total: Any
        ) -> None:
            wide = T.alloc_local((width,), "float32")
            wide_other = T.alloc_local((width,), "float32")
            one = T.alloc_local((width,), dtype)
            for i in T.vectorized(width):
                wide[i] = T.cast(kept[t, i], "float32")
            if added:
                for i in T.vectorized(width):
                    wide_other[i] = T.cast(other[t, i], "float32")
                for i in T.unroll(width):
                    wide[i] = wide[i] + wide_other[i]
                # A buffer of its own: TileLang 0.1.15 converts the old value of one that is converted, written and
                # converted again.
                for i in T.vectorized(width):
                    one[i] = T.cast(wide[i], dtype)
                if valid:
                    for i in T.vectorized(width):
                        residual[row, column + i] = one[i]
                for i in T.vectorized(width):
                    kept[t, i] = one[i]
                for i in T.vectorized(width):
                    wide[i] = T.cast(one[i], "float32")
            for i in T.unroll(width):
                total[0] = total[0] + wide[i] * wide[i]

        return measure

    def finisher(self) -> Any:
        """Returns a macro (kept, t, scale, weight, y, row, column): writes y."""
        form, width, dtype = self.form, self.width, self.form.dtype

        @T.macro
        def finish(kept: Any, t: Any, scale: Any, weight: Any, y: Any, row: Any, column: Any) -> None:
            part = T.alloc_local((width,), dtype)
            wide = T.alloc_local((width,), "float32")
            factor = T.alloc_local((width,), "float32")
            for i in T.vectorized(width):
                wide[i] = T.cast(kept[t, i], "float32")
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

    def program(self, body: Any) -> Any:
        """Returns the program (x, weight, y), or (x, residual, weight, y) with the addition, of a macro of four."""
        matrix, vector = self.matrix, self.vector
        if self.added:

            @T.prim_func
            def main(x: matrix(), residual: matrix(), weight: vector(), y: matrix()):
                body(x, residual, weight, y)

            return main

        @T.prim_func
        def main(x: matrix(), weight: vector(), y: matrix()):
            body(x, x, weight, y)

        return main


def on_chip(form: NormForm, share: Share, added: bool) -> Any:
    """Builds the program (x, weight, y), or (x, residual, weight, y) where ``added``.

    Without a weight, its place takes anything of x's shape.
    """
    lanes, rows, turns, width = share.lanes, share.rows, share.turns, share.width
    accesses = form.length // width
    exact = accesses == lanes * turns
    parts = Parts(form, share, added, "int32")
    load, measure, finish = parts.loader(), parts.measurer(), parts.finisher()
    combine = combiner(lanes, rows)
    count = parts.count

    @T.macro
    def body(x: Any, residual: Any, weight: Any, y: Any) -> None:
        with T.Kernel(T.ceildiv(count, rows), threads=(lanes, rows)) as block:
            lane = T.get_thread_binding(0)
            place = T.get_thread_binding(1)
            kept = T.alloc_local((turns, width), form.dtype)
            other = T.alloc_local((turns, width), form.dtype)
            total = T.alloc_local((1,), "float32")
            # Places past the last row repeat it and store nothing.
            row = T.min(block * rows + place, count - 1)
            valid = block * rows + place < count
            total[0] = 0.0
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    load(x, kept, t, row, access * width)
                    if added:
                        load(residual, other, t, row, access * width)
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    measure(kept, other, t, residual, row, access * width, valid, total)
            combine(total, lane, place)
            total[0] = T.rsqrt(total[0] * (1.0 / form.length) + form.eps)
            if valid:
                for t in T.unroll(turns):
                    access = t * lanes + lane
                    if exact or access < accesses:
                        finish(kept, t, total, weight, y, row, access * width)

    return parts.program(body)


def streaming(form: NormForm, share: Share, added: bool, blocks: int) -> Any:
    """Builds the same program for rows of any length and number: ``blocks`` blocks at most, each a row at a time."""
    lanes, turns, width = share.lanes, share.turns, share.width
    accesses = form.length // width
    steps = -(-accesses // (lanes * turns))
    exact = accesses == steps * lanes * turns
    parts = Parts(form, share, added, "int64")
    load, measure, finish = parts.loader(), parts.measurer(), parts.finisher()
    combine = combiner(lanes)
    count = parts.count

    @T.macro
    def body(x: Any, residual: Any, weight: Any, y: Any) -> None:
        with T.Kernel(T.min(count, blocks), threads=(lanes, 1)) as block:
            lane = T.get_thread_binding(0)
            kept = T.alloc_local((turns, width), form.dtype)
            other = T.alloc_local((turns, width), form.dtype)
            total = T.alloc_local((1,), "float32")
            first = T.cast(block, "int64")
            for turn in T.serial((count - first + blocks - 1) // blocks):
                row = first + turn * blocks
                total[0] = 0.0
                for step in T.serial(T.int64(steps)):
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            load(x, kept, t, row, access * width)
                            if added:
                                load(residual, other, t, row, access * width)
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            measure(kept, other, t, residual, row, access * width, True, total)
                combine(total, lane, 0)
                total[0] = T.rsqrt(total[0] * (1.0 / form.length) + form.eps)
                for back in T.serial(T.int64(steps)):
                    step = steps - 1 - back
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            # residual is x where nothing is added; a sum is read back by the thread that wrote it.
                            load(residual, kept, t, row, access * width)
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            finish(kept, t, total, weight, y, row, access * width)

    return parts.program(body)
