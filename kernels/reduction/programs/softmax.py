"""Softmax of rows side by side in memory: y = exp(x - max) / sum(exp(x - max)).

On chip: a row stays in registers, read once and written once: 2 * length * itemsize bytes a row.
Shared: a row stays in the registers of several blocks, which tell each other their greatest value and sum.
Streaming: a block walks a row twice, the first time with a running greatest value and a sum rescaled whenever it grows,
the second time backwards, so that what the L2 cache still holds is read first.
Five operations an element. A row that holds NaN or +inf, or only -inf, becomes NaN.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

import math
from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.programs.lanes import combiner
from tileops.kernels.programs.meeting import clear, publish, take_ticket, wait
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.rows import Share

LOG2E = math.log2(math.e)
KEPT_WIDE = 32
"""Elements a thread keeps in float32 at most; more are kept in the tensor's dtype, and their powers computed twice."""


@T.macro
def lift(base: Any, greatest: Any) -> None:
    """Sets base[0] to what may be subtracted from every element seen: 0 where all of them are -inf."""
    base[0] = T.if_then_else(greatest[0] == -T.infinity("float32"), T.float32(0), greatest[0])


def on_chip(form: AlongForm, share: Share) -> Any:
    """Builds the program (x, y)."""
    length, dtype = form.length, form.dtype
    lanes, rows, turns, width = share.lanes, share.rows, share.turns, share.width
    accesses = length // width
    exact = accesses == lanes * turns
    kept_wide = turns * width <= KEPT_WIDE
    count = T.dynamic("count")
    greatest_of, sum_of = combiner(lanes, rows, greatest=True), combiner(lanes, rows)

    @T.macro
    def widen(kept: Any, wide: Any, t: Any) -> None:
        for i in T.vectorized(width):
            wide[i] = T.cast(kept[t, i], "float32")

    @T.prim_func
    def main(x: T.Tensor((count, length), dtype), y: T.Tensor((count, length), dtype)):
        with T.Kernel(T.ceildiv(count, rows), threads=(lanes, rows)) as block:
            lane = T.get_thread_binding(0)
            place = T.get_thread_binding(1)
            kept = T.alloc_local((turns, width), dtype)
            powers = T.alloc_local((turns if kept_wide else 1, width), "float32")
            wide = T.alloc_local((width,), "float32")
            out = T.alloc_local((width,), dtype)
            top = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            # Places past the last row repeat it and store nothing.
            row = T.min(block * rows + place, count - 1)
            top[0] = -T.infinity("float32")
            total[0] = 0.0
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    for i in T.vectorized(width):
                        kept[t, i] = x[row, access * width + i]
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    widen(kept, wide, t)
                    for i in T.unroll(width):
                        top[0] = T.max(top[0], wide[i])
                        if kept_wide:
                            powers[t, i] = wide[i]
            greatest_of(top, lane, place)
            for t in T.unroll(turns):
                access = t * lanes + lane
                if exact or access < accesses:
                    if kept_wide:
                        for i in T.unroll(width):
                            powers[t, i] = T.exp2((powers[t, i] - top[0]) * LOG2E)
                            total[0] = total[0] + powers[t, i]
                    else:
                        widen(kept, wide, t)
                        for i in T.unroll(width):
                            total[0] = total[0] + T.exp2((wide[i] - top[0]) * LOG2E)
            sum_of(total, lane, place)
            total[0] = 1.0 / total[0]
            if block * rows + place < count:
                for t in T.unroll(turns):
                    access = t * lanes + lane
                    if exact or access < accesses:
                        if kept_wide:
                            for i in T.unroll(width):
                                wide[i] = powers[t, i] * total[0]
                        else:
                            widen(kept, wide, t)
                            for i in T.unroll(width):
                                wide[i] = T.exp2((wide[i] - top[0]) * LOG2E) * total[0]
                        for i in T.vectorized(width):
                            out[i] = T.cast(wide[i], dtype)
                        for i in T.vectorized(width):
                            y[row, access * width + i] = out[i]

    return main


def shared(form: AlongForm, share: Share, parts: int) -> Any:
    """Builds the program (x, counters, partial, y): ``parts`` blocks a row, each with one round of ``share``.

    counters is int32 [1 + rows], partial float32 [rows, parts, 2]; both come as they are.
    """
    length, dtype = form.length, form.dtype
    lanes, turns, width = share.lanes, share.turns, share.width
    accesses = length // width
    exact = accesses == parts * lanes * turns
    count = T.dynamic("count")
    greatest_of, sum_of = combiner(lanes, greatest=True), combiner(lanes)
    looks = -(-parts // lanes)

    @T.prim_func
    def main(
        x: T.Tensor((count, length), dtype),
        counters: T.Tensor((count + 1,), "int32"),
        partial: T.Tensor((count, parts, 2), "float32"),
        y: T.Tensor((count, length), dtype),
    ):
        clear(counters, count)
        with T.Kernel(count * parts, threads=(lanes, 1)) as _:
            # At most 85 registers a thread: the parts of other rows load while this one waits.
            T.annotate_min_blocks_per_sm(max(1, 768 // lanes))
            lane = T.get_thread_binding(0)
            ticket = T.alloc_shared((1,), "int32")
            kept = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            out = T.alloc_local((width,), dtype)
            top = T.alloc_local((1,), "float32")
            base = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            tops = T.alloc_local((looks,), "float32")
            totals = T.alloc_local((looks,), "float32")
            take_ticket(counters, ticket, lane)
            row = ticket[0] // parts
            part = ticket[0] % parts
            top[0] = -T.infinity("float32")
            total[0] = 0.0
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    for i in T.vectorized(width):
                        kept[t, i] = x[row, access * width + i]
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    for i in T.vectorized(width):
                        wide[i] = T.cast(kept[t, i], "float32")
                    for i in T.unroll(width):
                        top[0] = T.max(top[0], wide[i])
            greatest_of(top, lane, 0)
            lift(base, top)
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    for i in T.vectorized(width):
                        wide[i] = T.cast(kept[t, i], "float32")
                    for i in T.unroll(width):
                        total[0] = total[0] + T.exp2((wide[i] - base[0]) * LOG2E)
            sum_of(total, lane, 0)
            if lane == 0:
                partial[row, part, 0] = top[0]
                partial[row, part, 1] = total[0]
            publish(counters, row, lane)
            wait(counters, row, parts, lane)
            top[0] = -T.infinity("float32")
            for look in T.unroll(looks):
                other = look * lanes + lane
                tops[look] = -T.infinity("float32")
                totals[look] = 0.0
                if other < parts:
                    tops[look] = partial[row, other, 0]
                    totals[look] = partial[row, other, 1]
                top[0] = T.max(top[0], tops[look])
            greatest_of(top, lane, 0)
            lift(base, top)
            total[0] = 0.0
            for look in T.unroll(looks):
                total[0] = total[0] + totals[look] * T.exp2((tops[look] - base[0]) * LOG2E)
            sum_of(total, lane, 0)
            total[0] = 1.0 / total[0]
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    for i in T.vectorized(width):
                        wide[i] = T.cast(kept[t, i], "float32")
                    for i in T.unroll(width):
                        wide[i] = T.exp2((wide[i] - top[0]) * LOG2E) * total[0]
                    for i in T.vectorized(width):
                        out[i] = T.cast(wide[i], dtype)
                    for i in T.vectorized(width):
                        y[row, access * width + i] = out[i]

    return main


def streaming(form: AlongForm, share: Share, blocks: int) -> Any:
    """Builds the program (x, y) for rows of any length and number: ``blocks`` blocks at most, each a row at a time."""
    length, dtype = form.length, form.dtype
    lanes, turns, width = share.lanes, share.turns, share.width
    accesses = length // width
    steps = -(-accesses // (lanes * turns))
    exact = accesses == steps * lanes * turns
    count = T.dynamic("count", "int64")
    greatest_of, sum_of = combiner(lanes, greatest=True), combiner(lanes)

    @T.prim_func
    def main(x: T.Tensor((count, length), dtype), y: T.Tensor((count, length), dtype)):
        with T.Kernel(T.min(count, blocks), threads=(lanes, 1)) as block:
            lane = T.get_thread_binding(0)
            kept = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            out = T.alloc_local((width,), dtype)
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
                            for i in T.vectorized(width):
                                kept[t, i] = x[row, access * width + i]
                    top[0] = own[0]
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            for i in T.unroll(width):
                                top[0] = T.max(top[0], wide[i])
                    lift(base, top)
                    total[0] = total[0] * T.exp2((own[0] - base[0]) * LOG2E)
                    own[0] = top[0]
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            for i in T.unroll(width):
                                total[0] = total[0] + T.exp2((wide[i] - base[0]) * LOG2E)
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
                            for i in T.vectorized(width):
                                kept[t, i] = x[row, access * width + i]
                    for t in T.unroll(turns):
                        access = (step * turns + t) * lanes + lane
                        if exact or access < accesses:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            for i in T.unroll(width):
                                wide[i] = T.exp2((wide[i] - top[0]) * LOG2E) * total[0]
                            for i in T.vectorized(width):
                                out[i] = T.cast(wide[i], dtype)
                            for i in T.vectorized(width):
                                y[row, access * width + i] = out[i]

    return main
