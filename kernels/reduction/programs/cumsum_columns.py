"""Cumulative sums of long rows that lie side by side, in float32, each rounded once.

The grid stays: a team of blocks takes ``lanes`` accesses of rows side by side and walks them in steps, each block a
part of a step, each thread a few elements behind one another. What a part sums up to, it tells the others. Threads
keep their elements in registers while the next are on their way into shared memory, so each is read once and written
once: 2 * itemsize bytes an element, about three operations.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.flow import Flow
from tileops.kernels.programs.lanes import WARP
from tileops.kernels.programs.records import UNTOLD_ONE, hear_one, prepare, prepared, tell_one
from tileops.kernels.programs.ring import settle
from tileops.kernels.reduction.form import AlongForm


def program(form: AlongForm, flow: Flow, steps: int, early: bool) -> Any:
    """Builds the program (x, records, y), x [outer, length, inner].

    records is uint32 [teams' rows, steps, parts, rows side by side]: sums of parts. It comes as it is.
    """
    lanes, depth, turns, width, slots = flow.lanes, flow.depth, flow.turns, flow.width, flow.slots
    blocks, teams = flow.parts, flow.teams
    length, inner, dtype = form.length, form.inner, form.dtype
    side = lanes * width
    threads = lanes * depth
    warps = threads // WARP
    across = -(-inner // side)
    part_length = turns * depth
    subs = threads // side
    outer = T.dynamic("outer")
    exact = inner % side == 0

    @T.macro
    def ask(x: Any, ring: Any, now: Any, team: Any, part: Any, turn: Any, slot: Any, thread: Any) -> None:
        group = team + now // steps * teams
        row = (now % steps * blocks + part) * part_length + thread // lanes * turns + turn
        column = group % across * side + thread % lanes * width
        there = group < outer * across and row < length
        T.ptx_cp_async(
            T.access_ptr(ring[slot, thread * width], "w", width),
            T.access_ptr(x[group // across, row, column], "r", width),
            width,
            there if exact else there and column < inner,
        )
        T.ptx_commit_group()

    @T.prim_func
    def main(
        x: T.Tensor((outer, length, inner), dtype),
        records: T.Tensor((outer * across * steps * blocks * side,), "uint32"),
        y: T.Tensor((outer, length, inner), dtype),
    ):
        prepare(records, outer * across * steps * blocks * side, T.uint32(UNTOLD_ONE), early)
        with T.Kernel(teams * blocks, threads=threads) as block:
            thread = T.get_thread_binding(0)
            ring = T.alloc_shared((slots, threads * width), dtype)
            sums = T.alloc_shared((depth, side + 1), "float32")
            told = T.alloc_shared((side,), "float32")
            some = T.alloc_shared((2, threads), "float32")
            kept = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            out = T.alloc_local((width,), dtype)
            held = T.alloc_local((width,), "float32")
            pending = T.alloc_local((width,), "float32")
            run = T.alloc_local((1,), "float32")
            moved = T.alloc_local((1,), "float32")
            before = T.alloc_local((1,), "float32")
            every = T.alloc_local((1,), "float32")
            carry = T.alloc_local((1,), "float32")
            value = T.alloc_local((1,), "float32")
            slot = T.alloc_local((1,), "int32")
            team = block // blocks
            part = block % blocks
            level = thread // lanes
            place = thread % lanes
            warp = thread // WARP
            lane = thread % WARP
            for s in T.unroll(slots):
                ask(x, ring, s // turns, team, part, s % turns, s, thread)
            slot[0] = 0
            carry[0] = 0.0
            for t in T.unroll(turns):
                for i in T.unroll(width):
                    kept[t, i] = T.cast(0.0, dtype)
            for i in T.unroll(width):
                pending[i] = 0.0
            prepared(early)
            rounds = (outer * across - team + teams - 1) // teams * steps
            for now in T.serial(rounds + 1):
                if now < rounds:
                    for i in T.unroll(width):
                        held[i] = 0.0
                    for t in T.unroll(turns, explicit=True):
                        settle(slots - 1 - t)
                        at = T.if_then_else(slot[0] + t >= slots, slot[0] + t - slots, slot[0] + t)
                        for i in T.vectorized(width):
                            wide[i] = T.cast(ring[at, thread * width + i], "float32")
                        for i in T.unroll(width):
                            held[i] = held[i] + wide[i]
                    for i in T.unroll(width):
                        sums[level, i * lanes + place] = held[i]
                    T.sync_threads()
                    for turn in T.unroll(-(-side // warps)):
                        c = warp * (side // warps) + turn
                        run[0] = 0.0
                        if lane < depth:
                            run[0] = sums[lane, c]
                        for hop in T.unroll(depth.bit_length() - 1):
                            moved[0] = T.shfl_up(run[0], 1 << hop)
                            if lane >= (1 << hop):
                                run[0] = run[0] + moved[0]
                        if lane == depth - 1:
                            index = (((team + now // steps * teams) * steps + now % steps) * blocks + part) * side + c
                            tell_one(records, index, run)
                        moved[0] = T.shfl_up(run[0], 1)
                        if lane == 0:
                            moved[0] = 0.0
                        if lane < depth:
                            sums[lane, c] = moved[0]
                if now > 0:
                    group = team + (now - 1) // steps * teams
                    step = (now - 1) % steps
                    if step == 0:
                        carry[0] = 0.0
                    before[0] = 0.0
                    every[0] = 0.0
                    for turn in T.unroll(-(-blocks // subs)):
                        other = turn * subs + thread // side
                        if other < blocks:
                            index = ((group * steps + step) * blocks + other) * side + thread % side
                            hear_one(records, index, value)
                            every[0] = every[0] + value[0]
                            if other < part:
                                before[0] = before[0] + value[0]
                    some[0, thread] = before[0]
                    some[1, thread] = every[0]
                    T.sync_threads()
                    if thread < side:
                        before[0] = carry[0]
                        for sub in T.unroll(subs):
                            before[0] = before[0] + some[0, sub * side + thread]
                            carry[0] = carry[0] + some[1, sub * side + thread]
                        told[thread] = before[0]
                    T.sync_threads()
                    for i in T.unroll(width):
                        held[i] = pending[i] + told[i * lanes + place]
                    for t in T.unroll(turns):
                        row = (step * blocks + part) * part_length + level * turns + t
                        for i in T.vectorized(width):
                            wide[i] = T.cast(kept[t, i], "float32")
                        for i in T.unroll(width):
                            held[i] = held[i] + wide[i]
                        for i in T.vectorized(width):
                            out[i] = T.cast(held[i], dtype)
                        if row < length and (exact or group % across * side + place * width < inner):
                            for i in T.vectorized(width):
                                y[group // across, row, group % across * side + place * width + i] = out[i]
                if now < rounds:
                    for t in T.unroll(turns):
                        for i in T.vectorized(width):
                            kept[t, i] = ring[slot[0], thread * width + i]
                        T.sync_warp()
                        ask(x, ring, now + (t + slots) // turns, team, part, (t + slots) % turns, slot[0], thread)
                        slot[0] = T.if_then_else(slot[0] == slots - 1, 0, slot[0] + 1)
                    T.sync_threads()
                    for i in T.unroll(width):
                        pending[i] = sums[level, i * lanes + place]

    return main
