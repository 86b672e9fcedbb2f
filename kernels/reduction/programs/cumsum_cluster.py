"""Cumulative sums in float32, each rounded once, by clusters of blocks whose registers keep what they sum.

A block takes a part of a row, or of rows side by side. Once it knows what its part sums up to, it writes that into
the shared memory of the blocks after it; told by those before, it adds and writes. So each element is read once and
written once, in one launch and without a workspace: 2 * itemsize bytes an element, about three operations.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.columns import ColumnShare
from tileops.kernels.programs.lanes import WARP, combiner
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.programs.cumsum import summer
from tileops.kernels.rows import Share

TELLING = """
__device__ __forceinline__ unsigned shared_at(const void* place) {
  return static_cast<unsigned>(__cvta_generic_to_shared(place));
}
__device__ __forceinline__ unsigned shared_at(const void* place, int block) {
  unsigned at = shared_at(place);
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(block));
  return at;
}
__device__ __forceinline__ void expect_bytes(void* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               : : "r"(shared_at(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void open_barrier(void* barrier, int bytes) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(shared_at(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  expect_bytes(barrier, bytes);
}
__device__ __forceinline__ void tell_block(void* place, void* barrier, int block, float value) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
               : : "r"(shared_at(place, block)), "f"(value), "r"(shared_at(barrier, block)) : "memory");
}
__device__ __forceinline__ void hear_blocks(void* barrier, int parity) {
  unsigned heard = 0;
  while (!heard) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(heard) : "r"(shared_at(barrier)), "r"(parity) : "memory");
  }
}
template <int words>
__device__ __forceinline__ void renew(void* kept, unsigned zero) {
#pragma unroll
  for (int i = 0; i < words; ++i) {
    asm volatile("xor.b32 %0, %0, %1;" : "+r"(static_cast<unsigned*>(kept)[i]) : "r"(zero));
  }
}
"""
"""Blocks of a cluster write numbers into each other's shared memory; a barrier of the block that is told counts bytes.

So nobody waits for a fence, as before a barrier of the cluster, and its first block for nobody. renew: to the compiler
the words are others afterwards, so that it converts them again; else it keeps what they were converted to before,
twice as many registers as a thread has.
"""


def rows(form: AlongForm, share: Share, blocks: int) -> Any:
    """Builds the program of x [count, length]: a cluster of ``blocks`` blocks a row, all of it in registers.

    A warp has side-by-side accesses, WARP a turn, and every warp is told the sums of all warps before it.
    """
    length, dtype = form.length, form.dtype
    lanes, turns, width = share.lanes, share.turns, share.width
    accesses = length // width
    exact = accesses == blocks * lanes * turns
    warps = lanes // WARP
    looks = -(-blocks * warps // WARP)
    sum_of, sum_up = combiner(WARP), summer(turns, width, WARP)

    @T.prim_func
    def main(device: T.handle, x_at: T.int64, y_at: T.int64, count: T.int32):
        x = T.make_tensor_from_addr(x_at, (count, length), dtype)
        y = T.make_tensor_from_addr(y_at, (count, length), dtype)
        with T.Kernel(count * blocks, threads=(lanes, 1), cluster_dims=blocks, prelude=TELLING) as block:
            # At most 64 registers a thread: while one row waits or is written, another is read.
            T.annotate_min_blocks_per_sm(max(1, 1024 // lanes))
            thread = T.get_thread_binding(0)
            kept = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((turns, width), "float32")
            out = T.alloc_local((width,), dtype)
            before = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            told = T.alloc_shared((blocks * warps,), "float32")
            arrived = T.alloc_shared((1,), "uint64")
            row = block // blocks
            part = block % blocks
            lane = thread % WARP
            mine = part * warps + thread // WARP
            first = mine * (WARP * turns) + lane
            if thread == 0:
                T.call_extern("void", "open_barrier", T.address_of(arrived[0]), 4 * warps * (part + 1))
            # No block may be told something before it is there.
            T.cluster_arrive_relaxed()
            # A cluster is launched so that it may start while the kernel before it runs, which may still write x.
            T.pdl_sync()
            for t in T.unroll(turns):
                for i in T.unroll(width):
                    kept[t, i] = T.cast(0.0, dtype)
                if exact or first + t * WARP < accesses:
                    for i in T.vectorized(width):
                        kept[t, i] = x[row, (first + t * WARP) * width + i]
            sum_up(kept, wide, total, lane)
            T.cluster_wait()
            if lane >= part and lane < blocks:
                T.call_extern("void", "tell_block", T.address_of(told[mine]), T.address_of(arrived[0]), lane, total[0])
            T.call_extern("void", "hear_blocks", T.address_of(arrived[0]), 0)
            before[0] = 0.0
            for look in T.unroll(looks):
                if look * WARP + lane < mine:
                    before[0] = before[0] + told[look * WARP + lane]
            sum_of(before, lane, 0)
            for t in T.unroll(turns):
                for i in T.unroll(width):
                    wide[t, i] = wide[t, i] + before[0]
                for i in T.vectorized(width):
                    out[i] = T.cast(wide[t, i], dtype)
                if exact or first + t * WARP < accesses:
                    for i in T.vectorized(width):
                        y[row, (first + t * WARP) * width + i] = out[i]

    return main


def columns(form: AlongForm, share: ColumnShare, blocks: int) -> Any:
    """Builds the program of x [outer, length, inner]: a cluster walks ``lanes`` accesses of rows side by side.

    In a step each thread keeps ``turns`` accesses that lie behind one another, each block depth * turns.
    """
    length, inner, dtype = form.length, form.inner, form.dtype
    lanes, depth, turns, width = share.lanes, share.depth, share.turns, share.width
    threads = lanes * depth
    side = lanes * width
    subs = depth // width
    words = turns * width // 2 if dtype != "float32" else 0
    across = -(-inner // side)
    exact = inner % side == 0
    steps = -(-length // (blocks * depth * turns))
    rounds = min(steps, 2)

    @T.prim_func
    def main(device: T.handle, x_at: T.int64, y_at: T.int64, outer: T.int32):
        x = T.make_tensor_from_addr(x_at, (outer, length, inner), dtype)
        y = T.make_tensor_from_addr(y_at, (outer, length, inner), dtype)
        with T.Kernel(outer * across * blocks, threads=threads, cluster_dims=blocks, prelude=TELLING) as block:
            # While the rows of one cluster wait or are written, those of another are read.
            T.annotate_min_blocks_per_sm(max(1, 1024 // threads))
            thread = T.get_thread_binding(0)
            kept = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            out = T.alloc_local((width,), dtype)
            held = T.alloc_local((width,), "float32")
            run = T.alloc_local((1,), "float32")
            before = T.alloc_local((1,), "float32")
            every = T.alloc_local((1,), "float32")
            carry = T.alloc_local((1,), "float32")
            # A pitch at which the levels of a warp fall into banks of their own.
            sums = T.alloc_shared((depth, side + lanes), "float32")
            parts = T.alloc_shared((subs, side), "float32")
            told = T.alloc_shared((rounds, blocks, side), "float32")
            arrived = T.alloc_shared((rounds,), "uint64")
            slab = block // blocks // across
            part = block % blocks
            lane = thread % lanes
            level = thread // lanes
            place = thread % side
            sub = thread // side
            column = block // blocks % across * side + lane * width
            bytes = 4 * side * (blocks if steps > 1 else part)
            if thread == 0:
                for turn in T.unroll(rounds):
                    T.call_extern("void", "open_barrier", T.address_of(arrived[turn]), bytes)
            # No block may be told something before it is there.
            T.cluster_arrive_relaxed()
            # A cluster is launched so that it may start while the kernel before it runs, which may still write x.
            T.pdl_sync()
            carry[0] = 0.0
            for step in T.serial(steps):
                first = ((step * blocks + part) * depth + level) * turns
                for t in T.unroll(turns):
                    for i in T.unroll(width):
                        kept[t, i] = T.cast(0.0, dtype)
                    if first + t < length and (exact or column < inner):
                        for i in T.vectorized(width):
                            kept[t, i] = x[slab, first + t, column + i]
                for i in T.unroll(width):
                    held[i] = 0.0
                for t in T.unroll(turns):
                    for i in T.vectorized(width):
                        wide[i] = T.cast(kept[t, i], "float32")
                    for i in T.unroll(width):
                        held[i] = held[i] + wide[i]
                for i in T.unroll(width):
                    sums[level, i * lanes + lane] = held[i]
                T.sync_threads()
                run[0] = 0.0
                for j in T.unroll(width):
                    held[j] = run[0]
                    run[0] = run[0] + sums[sub * width + j, place]
                parts[sub, place] = run[0]
                T.sync_threads()
                before[0] = carry[0]
                every[0] = 0.0
                for other in T.unroll(subs):
                    if other < sub:
                        before[0] = before[0] + parts[other, place]
                    every[0] = every[0] + parts[other, place]
                if step == 0:
                    T.cluster_wait()
                for turn in T.unroll(-(-blocks // subs)):
                    to = turn * subs + sub
                    if to < blocks and (to > part or steps > 1):
                        T.call_extern(
                            "void",
                            "tell_block",
                            T.address_of(told[step % rounds, part, place]),
                            T.address_of(arrived[step % rounds]),
                            to,
                            every[0],
                        )
                T.call_extern("void", "hear_blocks", T.address_of(arrived[step % rounds]), step // 2 % 2)
                if thread == 0 and step + 2 < steps:
                    T.call_extern("void", "expect_bytes", T.address_of(arrived[step % rounds]), bytes)
                for other in T.unroll(blocks):
                    if other < part:
                        before[0] = before[0] + told[step % rounds, other, place]
                    if steps > 1:
                        carry[0] = carry[0] + told[step % rounds, other, place]
                for j in T.unroll(width):
                    sums[sub * width + j, place] = before[0] + held[j]
                T.sync_threads()
                if words:
                    # There are fewer rows than would leave a bit.
                    T.call_extern("void", f"renew<{words}>", T.address_of(kept[0, 0]), outer >> 30)
                for i in T.unroll(width):
                    held[i] = sums[level, i * lanes + lane]
                for t in T.unroll(turns):
                    for i in T.vectorized(width):
                        wide[i] = T.cast(kept[t, i], "float32")
                    for i in T.unroll(width):
                        held[i] = held[i] + wide[i]
                    for i in T.vectorized(width):
                        out[i] = T.cast(held[i], dtype)
                    if first + t < length and (exact or column < inner):
                        for i in T.vectorized(width):
                            y[slab, first + t, column + i] = out[i]

    return main
