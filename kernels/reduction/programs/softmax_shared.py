"""Softmax of long contiguous rows, each of which several blocks keep in their registers.

The blocks tell each other their greatest value and the sum of their powers by way of device memory, so a row is read
once and written once: 2 * length * itemsize bytes; five operations an element.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.programs.lanes import combiner
from tileops.kernels.programs.meeting import clear, publish, take_ticket, wait
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.programs.softmax import Parts
from tileops.kernels.reduction.programs.softmax_meeting import LOG2E, lift
from tileops.kernels.rows import Share


def shared(form: AlongForm, share: Share, blocks: int) -> Any:
    """Builds the program (x, counters, partial, y): ``blocks`` blocks a row, each with one round of ``share``.

    counters is int32 [1 + rows], partial float32 [rows, blocks, 2]; both come as they are.
    """
    length, dtype = form.length, form.dtype
    lanes, turns, width = share.lanes, share.turns, share.width
    accesses = length // width
    exact = accesses == blocks * lanes * turns
    parts = Parts(form, share, False)
    load, measure, raise_powers, finish = parts.loader(), parts.measurer(), parts.raiser(), parts.finisher()
    count = T.dynamic("count")
    greatest_of, sum_of = combiner(lanes, greatest=True), combiner(lanes)
    looks = -(-blocks // lanes)

    @T.prim_func
    def main(
        x: T.Tensor((count, length), dtype),
        counters: T.Tensor((count + 1,), "int32"),
        partial: T.Tensor((count, blocks, 2), "float32"),
        y: T.Tensor((count, length), dtype),
    ):
        clear(counters, count)
        with T.Kernel(count * blocks, threads=(lanes, 1)) as _:
            # At most 85 registers a thread: the parts of other rows load while this one waits.
            T.annotate_min_blocks_per_sm(max(1, 768 // lanes))
            lane = T.get_thread_binding(0)
            ticket = T.alloc_shared((1,), "int32")
            kept = T.alloc_local((turns, width), dtype)
            top = T.alloc_local((1,), "float32")
            base = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            tops = T.alloc_local((looks,), "float32")
            totals = T.alloc_local((looks,), "float32")
            take_ticket(counters, ticket, lane)
            row = ticket[0] // blocks
            part = ticket[0] % blocks
            top[0] = -T.infinity("float32")
            total[0] = 0.0
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    load(x, kept, t, row, access * width)
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    measure(kept, kept, t, top)
            greatest_of(top, lane, 0)
            lift(base, top)
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    raise_powers(kept, kept, t, base, total)
            sum_of(total, lane, 0)
            if lane == 0:
                partial[row, part, 0] = top[0]
                partial[row, part, 1] = total[0]
            publish(counters, row, lane)
            wait(counters, row, blocks, lane)
            top[0] = -T.infinity("float32")
            for look in T.unroll(looks):
                other = look * lanes + lane
                tops[look] = -T.infinity("float32")
                totals[look] = 0.0
                if other < blocks:
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
                    finish(kept, kept, t, top, total, y, row, access * width)

    return main
