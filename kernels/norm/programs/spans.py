"""BatchNorm in training of channels with few elements a sample: spans of channels that lie side by side.

A thread always meets the same elements of a span, an access wide, sample after sample; sums of elements become sums of
channels through shared memory. As in ``flow``, the grid stays, a team of blocks takes a span at a time, each block
some of the samples, which its threads keep in registers while the next span is on its way into shared memory: each
element is read once and written once, 2 * itemsize bytes and about eight operations.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.flow import Flow
from tileops.kernels.norm.batch_norm_train_spans import pitch
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.programs.lanes import WARP
from tileops.kernels.programs.records import hear, prepare, prepared, tell
from tileops.kernels.programs.ring import settle


def program(form: RunForm, side: int, flow: Flow, early: bool) -> Any:
    """Builds the program (x, running_mean, running_var, weight, bias, records, y), spans of ``side`` channels.

    What is not there takes running_mean. records is uint64 [channels, parts]: mean and squares of each channel's part.
    """
    columns, depth, turns, width, slots = flow.lanes, flow.depth, flow.turns, flow.width, flow.slots
    blocks, teams = flow.parts, flow.teams
    channels, spatial, batch, dtype = form.runs, form.spatial, form.batch, form.dtype
    span = side * spatial
    threads = columns * depth
    warps = threads // WARP
    spans = -(-channels // side)
    row = channels * spatial
    part_batch = -(-batch // blocks)
    count = batch * spatial
    across = pitch(columns)
    values = depth * spatial
    whole = channels % side == 0

    @T.macro
    def ask(x: Any, ring: Any, which: Any, part: Any, turn: Any, slot: Any, thread: Any) -> None:
        column = which * span + thread % columns * width
        inner = turn * depth + thread // columns
        there = which < spans and inner < part_batch and part * part_batch + inner < batch
        sample = part * part_batch + inner
        T.ptx_cp_async(
            T.access_ptr(ring[slot, thread * width], "w", width),
            T.access_ptr(x[sample, column], "r", width),
            width,
            there if whole else there and column < row,
        )
        T.ptx_commit_group()

    @T.macro
    def over_warp(value: Any) -> None:
        for step in T.unroll(5):
            value[0] = value[0] + T.shfl_xor(value[0], 1 << step)

    @T.macro
    def gather(sums: Any, value: Any, c: Any, lane: Any) -> None:
        """Sums what all threads laid down of channel ``c`` of the span, over the lanes of a warp."""
        value[0] = 0.0
        for step in T.unroll(-(-values // WARP)):
            place = step * WARP + lane
            if place < values:
                element = c * spatial + place % spatial
                value[0] = value[0] + sums[place // spatial, element % width * across + element // width]
        over_warp(value)

    @T.prim_func
    def main(
        x: T.Tensor((batch, row), dtype),
        running_mean: T.Tensor((channels,), form.param_dtype),
        running_var: T.Tensor((channels,), form.param_dtype),
        weight: T.Tensor((channels,), form.param_dtype),
        bias: T.Tensor((channels,), form.param_dtype),
        records: T.Tensor((channels * blocks,), "uint64"),
        y: T.Tensor((batch, row), dtype),
    ):
        prepare(records, channels * blocks, early)
        with T.Kernel(teams * blocks, threads=threads) as block:
            T.annotate_min_blocks_per_sm(flow.blocks)
            thread = T.get_thread_binding(0)
            ring = T.alloc_shared((slots, threads * width), dtype)
            sums = T.alloc_shared((depth, width * across + 1), "float32")
            middle = T.alloc_shared((side,), "float32")
            told = T.alloc_shared((3, side), "float32")
            kept = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            out = T.alloc_local((width,), dtype)
            own = T.alloc_local((width,), "float32")
            center = T.alloc_local((width,), "float32")
            scale = T.alloc_local((width,), "float32")
            shift = T.alloc_local((width,), "float32")
            value = T.alloc_local((1,), "float32")
            old = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            means = T.alloc_local((1,), "float32")
            squares = T.alloc_local((1,), "float32")
            heard = T.alloc_local((1,), "float32")
            slot = T.alloc_local((1,), "int32")
            team = block // blocks
            part = block % blocks
            own_batch = T.min(part_batch, batch - part * part_batch)
            level = thread // columns
            place = thread % columns * width
            warp = thread // WARP
            lane = thread % WARP
            for s in T.unroll(slots):
                ask(x, ring, team + s // turns * teams, part, s % turns, s, thread)
            slot[0] = 0
            for t in T.unroll(turns):
                for i in T.unroll(width):
                    kept[t, i] = T.cast(0.0, dtype)
            prepared(early)
            rounds = (spans - team + teams - 1) // teams
            for step in T.serial(rounds + 1):
                if step < rounds:
                    for i in T.unroll(width):
                        own[i] = 0.0
                    for t in T.unroll(turns, explicit=True):
                        settle(slots - 1 - t)
                        at = T.if_then_else(slot[0] + t >= slots, slot[0] + t - slots, slot[0] + t)
                        # What is not there was copied as zeros.
                        for i in T.vectorized(width):
                            wide[i] = T.cast(ring[at, thread * width + i], "float32")
                        for i in T.unroll(width):
                            own[i] = own[i] + wide[i]
                    for i in T.unroll(width):
                        sums[level, i * across + thread % columns] = own[i]
                    T.sync_threads()
                    for turn in T.unroll(-(-side // warps)):
                        c = warp + turn * warps
                        if warp < warps and c < side:
                            gather(sums, value, c, lane)
                            if lane == 0:
                                middle[c] = value[0] / T.cast(own_batch * spatial, "float32")
                    T.sync_threads()
                if step > 0:
                    which = team + (step - 1) * teams
                    for turn in T.unroll(-(-side // warps)):
                        c = warp + turn * warps
                        if warp < warps and c < side:
                            channel = T.min(which * side + c, channels - 1)
                            means[0] = 0.0
                            squares[0] = 0.0
                            heard[0] = 0.0
                            if lane < blocks:
                                hear(records, channel * blocks + lane, means, squares, 0)
                                heard[0] = T.cast(T.min(part_batch, batch - lane * part_batch) * spatial, "float32")
                            total[0] = means[0] * (heard[0] / count)
                            over_warp(total)
                            value[0] = squares[0] + (means[0] - total[0]) * (means[0] - total[0]) * heard[0]
                            over_warp(value)
                            value[0] = value[0] / count
                            if lane == 0:
                                told[0, c] = total[0]
                                told[1, c] = T.rsqrt(value[0] + form.eps)
                                told[2, c] = 0.0
                                if form.weighted:
                                    told[1, c] = told[1, c] * T.cast(weight[channel], "float32")
                                if form.biased:
                                    told[2, c] = T.cast(bias[channel], "float32")
                                if part == 0 and (whole or which * side + c < channels):
                                    old[0] = T.cast(running_mean[channel], "float32")
                                    running_mean[channel] = T.cast(
                                        old[0] * (1.0 - form.momentum) + total[0] * form.momentum, form.param_dtype
                                    )
                                    old[0] = T.cast(running_var[channel], "float32")
                                    value[0] = value[0] * (count / (count - 1.0))
                                    running_var[channel] = T.cast(
                                        old[0] * (1.0 - form.momentum) + value[0] * form.momentum, form.param_dtype
                                    )
                    T.sync_threads()
                    for i in T.unroll(width):
                        center[i] = told[0, (place + i) // spatial]
                        scale[i] = told[1, (place + i) // spatial]
                        shift[i] = told[2, (place + i) // spatial]
                    for t in T.unroll(turns):
                        if t * depth + level < own_batch:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            for i in T.unroll(width):
                                wide[i] = (wide[i] - center[i]) * scale[i] + shift[i]
                            for i in T.vectorized(width):
                                out[i] = T.cast(wide[i], dtype)
                            if whole or which * span + place < row:
                                for i in T.vectorized(width):
                                    y[part * part_batch + t * depth + level, which * span + place + i] = out[i]
                if step < rounds:
                    which = team + step * teams
                    for i in T.unroll(width):
                        center[i] = middle[(place + i) // spatial]
                        own[i] = 0.0
                    for t in T.unroll(turns):
                        for i in T.vectorized(width):
                            kept[t, i] = ring[slot[0], thread * width + i]
                        T.sync_warp()
                        ask(x, ring, which + (t + slots) // turns * teams, part, (t + slots) % turns, slot[0], thread)
                        slot[0] = T.if_then_else(slot[0] == slots - 1, 0, slot[0] + 1)
                        if t * depth + level < own_batch:
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[t, i], "float32")
                            for i in T.unroll(width):
                                own[i] = own[i] + (wide[i] - center[i]) * (wide[i] - center[i])
                    for i in T.unroll(width):
                        sums[level, i * across + thread % columns] = own[i]
                    T.sync_threads()
                    for turn in T.unroll(-(-side // warps)):
                        c = warp + turn * warps
                        if warp < warps and c < side:
                            gather(sums, value, c, lane)
                            total[0] = middle[c]
                            if whole or which * side + c < channels:
                                tell(records, (which * side + c) * blocks + part, lane, total, value)
                    T.sync_threads()

    return main
