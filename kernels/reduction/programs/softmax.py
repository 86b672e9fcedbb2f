"""Softmax of contiguous rows: y = exp(x - max) / sum(exp(x - max)).

On chip: a row stays in registers, read once and written once: 2 * length * itemsize bytes a row. A warp raises e to
its elements less its own greatest; where several share a row they then meet once, and each scales its powers.
Streaming: a block walks a row twice, the first time with a running greatest value and a sum rescaled whenever it grows,
the second time backwards, so that what the L2 cache still holds is read first.
Five operations an element. A row that holds NaN or +inf, or only -inf, becomes NaN.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.programs.lanes import WARP, combiner
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.programs.softmax_meeting import LOG2E, lift, meeting
from tileops.kernels.rows import Share

KEPT_WIDE = 32
"""Elements a thread keeps in float32 at most; more are kept in the tensor's dtype, and their powers computed twice."""


class Parts:
    """Holds the macros that the programs are put together from; a macro is for one access.

    ``wide``: a thread keeps its elements in float32, where powers take their place; else in the tensor's dtype, and
    their powers are computed twice.
    """

    def __init__(self, form: AlongForm, share: Share, wide: bool) -> None:
        self.dtype, self.width, self.wide = form.dtype, share.width, wide

    def loader(self) -> Any:
        """Returns a macro (x, kept, t, row, column): reads into kept[t]."""
        width = self.width

        @T.macro
        def load(x: Any, kept: Any, t: Any, row: Any, column: Any) -> None:
            for i in T.vectorized(width):
                kept[t, i] = x[row, column + i]

        return load

    def measurer(self) -> Any:
        """Returns a macro (kept, powers, t, top): raises top[0] to the greatest; copies to powers[t], where wide."""
        width, keeps = self.width, self.wide

        @T.macro
        def measure(kept: Any, powers: Any, t: Any, top: Any) -> None:
            wide = T.alloc_local((width,), "float32")
            for i in T.vectorized(width):
                wide[i] = T.cast(kept[t, i], "float32")
            for i in T.unroll(width):
                top[0] = T.max(top[0], wide[i])
                if keeps:
                    powers[t, i] = wide[i]

        return measure

    def raiser(self) -> Any:
        """Returns a macro (kept, powers, t, base, total): adds the powers, less base[0], to total[0]."""
        width, keeps = self.width, self.wide

        @T.macro
        def raise_powers(kept: Any, powers: Any, t: Any, base: Any, total: Any) -> None:
            if keeps:
                for i in T.unroll(width):
                    powers[t, i] = T.exp2((powers[t, i] - base[0]) * LOG2E)
                    total[0] = total[0] + powers[t, i]
            else:
                wide = T.alloc_local((width,), "float32")
                for i in T.vectorized(width):
                    wide[i] = T.cast(kept[t, i], "float32")
                for i in T.unroll(width):
                    total[0] = total[0] + T.exp2((wide[i] - base[0]) * LOG2E)

        return raise_powers

    def finisher(self) -> Any:
        """Returns a macro (kept, powers, t, base, scale, y, row, column): writes the powers times scale[0]."""
        width, keeps, dtype = self.width, self.wide, self.dtype

        @T.macro
        def finish(kept: Any, powers: Any, t: Any, base: Any, scale: Any, y: Any, row: Any, column: Any) -> None:
            wide = T.alloc_local((width,), "float32")
            out = T.alloc_local((width,), dtype)
            if keeps:
                for i in T.unroll(width):
                    wide[i] = powers[t, i] * scale[0]
            else:
                for i in T.vectorized(width):
                    wide[i] = T.cast(kept[t, i], "float32")
                for i in T.unroll(width):
                    wide[i] = T.exp2((wide[i] - base[0]) * LOG2E) * scale[0]
            for i in T.vectorized(width):
                out[i] = T.cast(wide[i], dtype)
            for i in T.vectorized(width):
                y[row, column + i] = out[i]

        return finish


def on_chip(form: AlongForm, share: Share) -> Any:
    """Builds the program (x, y)."""
    length, dtype = form.length, form.dtype
    lanes, rows, turns, width = share.lanes, share.rows, share.turns, share.width
    accesses = length // width
    exact = accesses == lanes * turns
    keeps = turns * width <= KEPT_WIDE
    parts = Parts(form, share, keeps)
    load, measure, raise_powers, finish = parts.loader(), parts.measurer(), parts.raiser(), parts.finisher()
    count = T.dynamic("count")
    team = min(lanes, WARP)
    greatest_of, sum_of = combiner(team, rows, greatest=True), combiner(team, rows)
    meets = lanes > WARP
    meet = meeting(1, lanes // WARP) if meets else None

    @T.prim_func
    def main(x: T.Tensor((count, length), dtype), y: T.Tensor((count, length), dtype)):
        with T.Kernel(T.ceildiv(count, rows), threads=(lanes, rows)) as block:
            lane = T.get_thread_binding(0)
            place = T.get_thread_binding(1)
            kept = T.alloc_local((turns, width), dtype)
            powers = T.alloc_local((turns if keeps else 1, width), "float32")
            own = T.alloc_local((1,), "float32")
            top = T.alloc_local((1,), "float32")
            base = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            scale = T.alloc_local((1,), "float32")
            pairs = T.alloc_shared((max(1, lanes // WARP), 2), "float32")
            # Places past the last row repeat it and store nothing.
            row = T.min(block * rows + place, count - 1) if rows > 1 else block
            top[0] = -T.infinity("float32")
            total[0] = 0.0
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    load(x, kept, t, row, access * width)
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    measure(kept, powers, t, top)
            greatest_of(top, lane, place)
            lift(base, top)
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    raise_powers(kept, powers, t, base, total)
            sum_of(total, lane, place)
            scale[0] = 1.0
            if meets:
                own[0] = top[0]
                meet(pairs, None, None, 0, lane, top, base, total)
                if keeps:
                    # Of a warp that has only -inf all powers are 0, and so is their scale.
                    scale[0] = T.exp2((own[0] - base[0]) * LOG2E)
            scale[0] = scale[0] / total[0]
            if rows == 1 or block * rows + place < count:
                for t in T.unroll(turns):
                    access = t * lanes + lane
                    if exact or access < accesses:
                        finish(kept, powers, t, base, scale, y, row, access * width)

    return main


def streaming(form: AlongForm, share: Share, blocks: int) -> Any:
    """Builds the program (x, y) for rows of any length and number: ``blocks`` blocks at most, each a row at a time."""
    length, dtype = form.length, form.dtype
    lanes, turns, width = share.lanes, share.turns, share.width
    accesses = length // width
    steps = -(-accesses // (lanes * turns))
    exact = accesses == steps * lanes * turns
    parts = Parts(form, share, False)
    load, measure, raise_powers, finish = parts.loader(), parts.measurer(), parts.raiser(), parts.finisher()
    count = T.dynamic("count", "int64")
    greatest_of, sum_of = combiner(lanes, greatest=True), combiner(lanes)

    @T.prim_func
    def main(x: T.Tensor((count, length), dtype), y: T.Tensor((count, length), dtype)):
        with T.Kernel(T.min(count, blocks), threads=(lanes, 1)) as block:
            lane = T.get_thread_binding(0)
            kept = T.alloc_local((turns, width), dtype)
            top = T.alloc_local((1,), "float32")
            own = T.alloc_local((1,), "float32")
            base = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            first = T.cast(block, "int64")
            for turn in T.serial((count - first + blocks - 1) // blocks):
                row = first + turn * blocks
                own[0] = -T.infinity("float32")
                total[0] = 0.0
                for step in T.serial(T.int64(steps)):
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            load(x, kept, t, row, access * width)
                    top[0] = own[0]
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            measure(kept, kept, t, top)
                    lift(base, top)
                    total[0] = total[0] * T.exp2((own[0] - base[0]) * LOG2E)
                    own[0] = top[0]
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            raise_powers(kept, kept, t, base, total)
                top[0] = own[0]
                greatest_of(top, lane, 0)
                lift(base, top)
                total[0] = total[0] * T.exp2((own[0] - base[0]) * LOG2E)
                sum_of(total, lane, 0)
                total[0] = 1.0 / total[0]
                for back in T.serial(T.int64(steps)):
                    step = steps - 1 - back
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            load(x, kept, t, row, access * width)
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            finish(kept, kept, t, top, total, y, row, access * width)

    return main
