"""Softmax of long rows side by side in memory, each of which several blocks keep in their registers.

The blocks tell each other their greatest value and the sum of their powers, so a row is read once and written once:
2 * length * itemsize bytes. Shared: by way of device memory. Clustered: the blocks start together and write into each
other's shared memory.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.programs.lanes import WARP, combiner
from tileops.kernels.programs.meeting import clear, publish, take_ticket, wait
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.programs.softmax import LOG2E, Parts, lift
from tileops.kernels.rows import Share

TELL = """
__device__ __forceinline__ void tell(float* place, int block, float top, float total) {
  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(place));
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(block));
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" : : "r"(at), "f"(top), "f"(total) : "memory");
}
"""
"""Writes two numbers into the shared memory of another block of the cluster. TileLang's own copy takes the whole block
and a barrier first: 92 us, not 86, for 256 rows of 151936 float32."""


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


def clustered(form: AlongForm, share: Share, blocks: int) -> Any:
    """Builds the program (x, y): a cluster of ``blocks`` blocks a row, each with one round of ``share``.

    A warp raises e to its elements less its own greatest; told by all the others, it scales the powers once more.
    """
    length, dtype = form.length, form.dtype
    lanes, turns, width = share.lanes, share.turns, share.width
    accesses = length // width
    exact = accesses == blocks * lanes * turns
    parts = Parts(form, share, True)
    load, measure, raise_powers, finish = parts.loader(), parts.measurer(), parts.raiser(), parts.finisher()
    count = T.dynamic("count")
    greatest_of, sum_of = combiner(WARP, greatest=True), combiner(WARP)
    warps = lanes // WARP
    looks = -(-blocks * warps // WARP)

    @T.prim_func
    def main(x: T.Tensor((count, length), dtype), y: T.Tensor((count, length), dtype)):
        with T.Kernel(count * blocks, threads=(lanes, 1), cluster_dims=blocks, prelude=TELL) as block:
            # At most 64 registers a thread: while one row waits or is written, another is read.
            T.annotate_min_blocks_per_sm(max(1, 1024 // lanes))
            lane = T.get_thread_binding(0)
            kept = T.alloc_local((turns, width), dtype)
            powers = T.alloc_local((turns, width), "float32")
            top = T.alloc_local((1,), "float32")
            base = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            scale = T.alloc_local((1,), "float32")
            tops = T.alloc_local((looks,), "float32")
            totals = T.alloc_local((looks,), "float32")
            told = T.alloc_shared((blocks * warps, 2), "float32")
            row = block // blocks
            part = block % blocks
            # No block may be told something before it is there.
            T.cluster_arrive()
            top[0] = -T.infinity("float32")
            total[0] = 0.0
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    load(x, kept, t, row, access * width)
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    measure(kept, powers, t, top)
            greatest_of(top, lane, 0)
            lift(base, top)
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    raise_powers(kept, powers, t, base, total)
            sum_of(total, lane, 0)
            T.cluster_wait()
            if lane % WARP < blocks:
                place = part * warps + lane // WARP
                T.call_extern("void", "tell", T.address_of(told[place, 0]), lane % WARP, top[0], total[0])
            T.cluster_sync()
            # To the compiler a cluster's barrier says nothing about memory: this keeps the reads behind it.
            T.sync_warp()
            top[0] = -T.infinity("float32")
            for look in T.unroll(looks):
                place = look * WARP + lane % WARP
                tops[look] = -T.infinity("float32")
                totals[look] = 0.0
                if place < blocks * warps:
                    tops[look] = told[place, 0]
                    totals[look] = told[place, 1]
                top[0] = T.max(top[0], tops[look])
            greatest_of(top, lane, 0)
            scale[0] = base[0]
            lift(base, top)
            scale[0] = T.exp2((scale[0] - base[0]) * LOG2E)
            total[0] = 0.0
            for look in T.unroll(looks):
                total[0] = total[0] + totals[look] * T.exp2((tops[look] - base[0]) * LOG2E)
            sum_of(total, lane, 0)
            scale[0] = scale[0] / total[0]
            for t in T.unroll(turns):
                access = (part * turns + t) * lanes + lane
                if exact or access < accesses:
                    finish(kept, powers, t, base, scale, y, row, access * width)

    return main
