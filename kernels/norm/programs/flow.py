"""Centre and scale runs that several blocks share, or that follow one another through a block: groups and channels.

y = (x - mean) / sqrt(var + eps) * weight + bias, over the runs that ``moments`` describes, each read once and written
once: 2 * itemsize bytes and about eight operations an element.

The grid stays: a team of blocks takes a run at a time, each block a part, which stays in shared memory until the team
has met. Where two parts fit, a team measures the next run before it finishes this one, so that nobody waits for the
others' numbers; what is left of shared memory is asked for ahead, so that reading goes on all the time.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.flow import Flow
from tileops.kernels.norm.programs.moments import Parts
from tileops.kernels.norm.runs import RunForm
from tileops.kernels.programs.lanes import WARP, combiner
from tileops.kernels.programs.records import hear, prepare, prepared, tell
from tileops.kernels.programs.ring import settle

CHUNK = 4
"""Accesses of a thread that are finished together."""


def program(form: RunForm, flow: Flow, early: bool) -> Any:
    """Builds the program (x, running_mean, running_var, weight, bias, y), with records before y where blocks meet.

    records is uint64 [runs, parts]: mean and squares of each part. It comes as it is.
    """
    lanes, turns, width, slots, blocks, teams = flow.lanes, flow.turns, flow.width, flow.slots, flow.parts, flow.teams
    length = form.length
    accesses = length // width
    exact = accesses == blocks * lanes * turns
    parts = Parts(form, flow, "int32")
    finish, keep = parts.finisher(), parts.keeper()
    single, piece, dtype = form.batch == 1, parts.piece, form.dtype
    sum_of, warp_sum_of = combiner(lanes), combiner(WARP)
    runs = parts.runs
    part_length = lanes * turns * width
    lag = flow.lag
    looks = -(-blocks // WARP)
    chunk = min(turns, CHUNK)

    @T.macro
    def ask(x: Any, ring: Any, run: Any, first: Any, turn: Any, slot: Any, lane: Any) -> None:
        # What is not there is not read: zeros stand for it.
        access = first + turn * lanes
        there = run < runs if exact else run < runs and access < accesses
        if single:
            T.ptx_cp_async(
                T.access_ptr(ring[slot, lane * width], "w", width),
                T.access_ptr(x[0, run, access * width], "r", width),
                width,
                there,
            )
        else:
            T.ptx_cp_async(
                T.access_ptr(ring[slot, lane * width], "w", width),
                T.access_ptr(x[access // piece, run, access % piece * width], "r", width),
                width,
                there,
            )
        T.ptx_commit_group()

    def wrapped(place: Any) -> Any:
        """Returns a place in the ring, counted past its end."""
        return T.if_then_else(place >= slots, place - slots, place)

    @T.macro
    def measure(ring: Any, newest: Any, part: Any, lane: Any, mean: Any, squares: Any) -> None:
        """Finds mean and squares of a part as it arrives: each access's are merged into those so far."""
        wide = T.alloc_local((width,), "float32")
        own = T.alloc_local((3,), "float32")
        mean[0] = 0.0
        squares[0] = 0.0
        own[2] = 0.0
        for t in T.unroll(turns, explicit=True):
            settle(slots - lag * turns - 1 - t)
            if exact or (part * turns + t) * lanes + lane < accesses:
                for i in T.vectorized(width):
                    wide[i] = T.cast(ring[wrapped(newest + t), lane * width + i], "float32")
                own[0] = 0.0
                own[1] = 0.0
                for i in T.unroll(width):
                    own[0] = own[0] + wide[i]
                own[0] = own[0] * (1.0 / width)
                for i in T.unroll(width):
                    own[1] = own[1] + (wide[i] - own[0]) * (wide[i] - own[0])
                own[0] = own[0] - mean[0]
                mean[0] = mean[0] + own[0] * (1.0 / (t + 1.0))
                squares[0] = squares[0] + own[1] + own[0] * own[0] * (width * t / (t + 1.0))
                own[2] = own[2] + width
        own[0] = mean[0]
        mean[0] = mean[0] * own[2]
        sum_of(mean, lane, 0)
        mean[0] = mean[0] / T.cast(T.min(part_length, length - part * part_length), "float32")
        own[0] = own[0] - mean[0]
        squares[0] = squares[0] + own[0] * own[0] * own[2]
        sum_of(squares, lane, 0)

    @T.macro
    def meet(records: Any, run: Any, lane: Any, mean: Any, squares: Any) -> None:
        """Replaces a part's mean and squares by those of the run."""
        told = T.alloc_shared((2,), "float32")
        means = T.alloc_local((looks,), "float32")
        sums = T.alloc_local((looks,), "float32")
        # What the last meeting told may still be read where no measuring came between.
        T.sync_threads()
        if lane < WARP:
            mean[0] = 0.0
            squares[0] = 0.0
            for look in T.unroll(looks):
                other = look * WARP + lane
                means[look] = 0.0
                sums[look] = 0.0
                if other < blocks:
                    hear(records, run * blocks + other, means, sums, look)
                    count = T.cast(T.min(part_length, length - other * part_length), "float32")
                    mean[0] = mean[0] + means[look] * (count / length)
            warp_sum_of(mean, lane, 0)
            for look in T.unroll(looks):
                other = look * WARP + lane
                if other < blocks:
                    count = T.cast(T.min(part_length, length - other * part_length), "float32")
                    gap = means[look] - mean[0]
                    squares[0] = squares[0] + sums[look] + gap * gap * count
            warp_sum_of(squares, lane, 0)
            if lane == 0:
                told[0] = mean[0]
                told[1] = squares[0]
        T.sync_threads()
        mean[0] = told[0]
        squares[0] = told[1]

    @T.macro
    def work(
        x: Any,
        records: Any,
        running_mean: Any,
        running_var: Any,
        weight: Any,
        bias: Any,
        y: Any,
        block: Any,
        lane: Any,
    ) -> None:
        ring = T.alloc_shared((slots, lanes * width), dtype)
        kept = T.alloc_local((chunk, width), dtype)
        wide = T.alloc_local((width,), "float32")
        mean = T.alloc_local((1,), "float32")
        squares = T.alloc_local((1,), "float32")
        newest = T.alloc_local((1,), "int32")
        oldest = T.alloc_local((1,), "int32")
        team = block // blocks
        part = block % blocks
        first = part * turns * lanes + lane
        rounds = (runs - team + teams - 1) // teams
        for s in T.unroll(slots):
            ask(x, ring, team + s // turns * teams, first, s % turns, s, lane)
        newest[0] = 0
        oldest[0] = 0
        if blocks > 1:
            prepared(early)
        for turn in T.serial(rounds + lag):
            if lag == 0 or turn < rounds:
                measure(ring, newest[0], part, lane, mean, squares)
                if blocks > 1:
                    tell(records, (team + turn * teams) * blocks + part, lane, mean, squares)
            newest[0] = T.if_then_else(newest[0] + turns >= slots, newest[0] + turns - slots, newest[0] + turns)
            if lag == 0 or turn >= lag:
                run = team + (turn - lag) * teams
                if blocks > 1:
                    meet(records, run, lane, mean, squares)
                squares[0] = squares[0] / length
                if form.momentum is not None and lane == 0 and part == 0:
                    keep(mean, squares, length, running_mean, running_var, run)
                squares[0] = T.rsqrt(squares[0] + form.eps)
                for begin in T.unroll(-(-turns // chunk)):
                    for c in T.unroll(chunk):
                        if begin * chunk + c < turns:
                            place = wrapped(oldest[0] + begin * chunk + c)
                            for i in T.vectorized(width):
                                kept[c, i] = ring[place, lane * width + i]
                    T.sync_warp()
                    for c in T.unroll(chunk):
                        t = begin * chunk + c
                        if t < turns:
                            ahead = run + (t + slots) // turns * teams
                            ask(x, ring, ahead, first, (t + slots) % turns, wrapped(oldest[0] + t), lane)
                    for c in T.unroll(chunk):
                        access = first + (begin * chunk + c) * lanes
                        if begin * chunk + c < turns and (exact or access < accesses):
                            for i in T.vectorized(width):
                                wide[i] = T.cast(kept[c, i], "float32")
                            finish(wide, mean, squares, weight, bias, y, run, access)
                oldest[0] = wrapped(oldest[0] + turns)

    if blocks == 1:

        @T.prim_func
        def main(
            x: parts.x(),
            running_mean: parts.statistics(),
            running_var: parts.statistics(),
            weight: parts.vector(form.weighted),
            bias: parts.vector(form.biased),
            y: parts.x(),
        ):
            with T.Kernel(teams, threads=lanes) as block:
                T.annotate_min_blocks_per_sm(flow.blocks)
                lane = T.get_thread_binding(0)
                work(x, None, running_mean, running_var, weight, bias, y, block, lane)

        return main

    @T.prim_func
    def main(
        x: parts.x(),
        running_mean: parts.statistics(),
        running_var: parts.statistics(),
        weight: parts.vector(form.weighted),
        bias: parts.vector(form.biased),
        records: T.Tensor((runs * blocks,), "uint64"),
        y: parts.x(),
    ):
        prepare(records, runs * blocks, early)
        with T.Kernel(teams * blocks, threads=lanes) as block:
            T.annotate_min_blocks_per_sm(flow.blocks)
            lane = T.get_thread_binding(0)
            work(x, records, running_mean, running_var, weight, bias, y, block, lane)

    return main
