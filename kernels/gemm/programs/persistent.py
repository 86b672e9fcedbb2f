"""GEMM on Hopper by blocks that stay: one an SM, each walks many tiles, and no phase of a tile waits for another's.

One warp loads (bulk tensor copies of a's and b's slices into a ring in shared memory) and runs ahead across tiles. Two
or three warpgroups multiply (wgmma, float32 sums in registers). In the cooperative form they share each tile's rows;
taking turns, each of two has whole tiles of its own, and one's tile leaves while the other multiplies. A tile leaves in
chunks of columns through shared memory, by bulk stores that nobody waits for; where d's row pitch is no multiple of 16
bytes, rows are staged as they are aligned in d, and leave in accesses of 16 bytes but for the ragged ends of each.

2 m n k operations. a and b are read once a tile column and a tile row, mostly from the L2 cache: tiles are walked in
bands of ``band`` tile rows, whose operands stay there. d is written once.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use
from tilelang.layout import make_swizzled_layout

from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.programs.tiled import rows_of, type_a, type_b
from tileops.kernels.gemm.tiles import ACCESS
from tileops.kernels.gemm.walks import SLAB, Walk

GROUP = 128
"""Threads of a warpgroup."""

REGISTERS = {2: 232, 3: 152}
"""Registers of a multiplying thread by the number of groups; what 40 of each loading thread leave of the SM's 65536.
With 24 the loads spill."""

LOADING_REGISTERS = 40

BARRIER = 8
"""The first of the named barriers by which the threads of one multiplying warpgroup wait for each other."""


def program(form: Form, walk: Walk, blocks: int) -> Any:
    """Builds the program (a, b, d) for one form and walk, on ``blocks`` blocks."""
    n, k, dtype = form.n, form.k, form.dtype
    trans_a, trans_b = form.trans_a, form.trans_b
    tile, turns, chunk, buffers, band = walk.tile, walk.turns, walk.chunk, walk.buffers, walk.band
    rows, cols, depth, stages = tile.rows, tile.cols, tile.depth, tile.stages
    m = rows_of(form)
    steps = -(-k // depth)
    share, groups = walk.share, walk.groups
    bulk = n % ACCESS == 0
    a_shape = (stages, depth, share) if trans_a else (stages, share, depth)
    b_shape = (stages, cols, depth) if trans_b else (stages, depth, cols)
    accesses = cols // ACCESS + 1
    # Sums that the next tile's first product overwrites are alive until then to ptxas, and staging rows by hand spills
    # beside them. Cleared they are not.
    clear = not bulk
    warps = 4 if turns else 4 * groups

    @T.macro
    def place(number, row, col):
        """Sets row and col to the first row and column of a tile."""
        across = T.ceildiv(n, cols)
        first = number // (band * across) * band
        height = T.min(band, T.ceildiv(m, rows) - first)
        place_in_band = number % (band * across)
        row[0] = (first + T.truncmod(place_in_band, height)) * rows
        col[0] = T.truncdiv(place_in_band, height) * cols

    def slice_a(a, row, first):
        return a[first : first + depth, row : row + share] if trans_a else a[row : row + share, first : first + depth]

    def slice_b(b, col, first):
        return b[col : col + cols, first : first + depth] if trans_b else b[first : first + depth, col : col + cols]

    @T.macro
    def load_part(a, ring, row, first, slot, full):
        T.tma_copy(slice_a(a, row, first), ring[slot, :, :], barrier=full[slot])

    def load_a(a, rings, row, first, slot, full):
        """Loads each warpgroup's rows of a slice of a. A plain function: its loop runs while the program is built."""
        for number, ring in enumerate(rings):
            load_part(a, ring, row + number * share, first, slot, full)

    @T.macro
    def load(a, b, rings, b_ring, full, empty, block, tiles):
        """Fills the ring, tile after tile."""
        row = T.alloc_local((1,), "int32")
        col = T.alloc_local((1,), "int32")
        step = T.alloc_var("int32", init=0)
        for turn in T.serial(T.ceildiv(tiles, blocks)):
            number = turn * blocks + block
            if number < tiles:
                place(number, row, col)
                for i in T.serial(steps):
                    slot = step % stages
                    T.barrier_wait(empty[slot], (step // stages & 1) ^ 1)
                    load_a(a, rings, row[0], i * depth, slot, full)
                    T.tma_copy(slice_b(b, col[0], i * depth), b_ring[slot, :, :], barrier=full[slot])
                    T.barrier_arrive(full[slot])
                    step = step + 1

    @T.macro
    def leave_chunk(rounded, out, d, row, col, first, group, thread):
        """Stores one chunk of columns by a bulk store. The one that last read ``out`` has to be done."""
        if T.shuffle_elect(GROUP):
            T.tma_store_wait(buffers - 1)
        T.sync_threads(barrier_id=BARRIER + group, arrive_count=GROUP)
        T.copy(rounded[:, first : first + chunk], out)
        T.fence_proxy_async()
        T.sync_threads(barrier_id=BARRIER + group, arrive_count=GROUP)
        T.tma_copy(out, d[row, col + first], leader_scope_threads=GROUP)

    @T.macro
    def leave_slab(rounded, out, d, row, col, first, group, thread):
        """Stores 64 rows, each staged as far past a 16-byte boundary as it lies in d."""
        T.sync_threads(barrier_id=BARRIER + group, arrive_count=GROUP)
        for i, j in T.Parallel(SLAB, cols):
            out[i, j + ((row + first + i) % ACCESS * (n % ACCESS) + col) % ACCESS] = rounded[first + i, j]
        T.sync_threads(barrier_id=BARRIER + group, arrive_count=GROUP)
        width = T.min(cols, n - col)
        warp = thread // 32
        lane = thread % 32
        for turn in T.unroll(SLAB // 4, unroll_factor=4):
            i = turn * 4 + warp
            at = row + first + i
            shift = (at % ACCESS * (n % ACCESS) + col) % ACCESS
            for part in T.unroll(-(-accesses // 32)):
                access = part * 32 + lane
                start = access * ACCESS - shift
                if T.And(at < m, T.And(start >= 0, start + ACCESS <= width)):
                    T.stg128(d[at, col + start], T.lds128(out[i, access * ACCESS]))
        # What is left of each row: up to seven elements at each end. Half a warp takes a row.
        for turn in T.unroll(SLAB // 8, unroll_factor=4):
            i = turn * 8 + lane // 16 * 4 + warp
            at = row + first + i
            shift = (at % ACCESS * (n % ACCESS) + col) % ACCESS
            head = -shift % ACCESS
            last = (shift + width) // ACCESS * ACCESS - shift
            side = lane % 16 // ACCESS
            j = lane % ACCESS + side * last
            ragged = T.Or(T.And(side == 0, j < head), T.And(side == 1, j >= head))
            if T.And(at < m, T.And(ragged, j < width)):
                d[at, col + j] = out[i, shift + j]

    def leave(rounded, outs, d, row, col, group, thread):
        """Stores a group's rows of a tile. A plain function: its loops run while the program is built."""
        if bulk:
            for number, first in enumerate(range(0, cols, chunk)):
                leave_chunk(rounded, outs[number % buffers], d, row, col, first, group, thread)
        else:
            for first in range(0, share, SLAB):
                leave_slab(rounded, outs[0], d, row, col, first, group, thread)

    @T.macro
    def multiply(a_ring, b_ring, outs, d, full, empty, order, group, block, tiles):
        """Multiplies and stores one warpgroup's tiles, or its share of every tile."""
        T.inc_max_nreg(REGISTERS[groups])
        acc = T.alloc_fragment((share, cols), "float32")
        row = T.alloc_local((1,), "int32")
        col = T.alloc_local((1,), "int32")
        step = T.alloc_var("int32", init=0)
        thread = T.get_thread_binding() % GROUP
        lane = thread % 32
        for turn in T.serial(T.ceildiv(tiles, blocks)):
            number = turn * blocks + block
            if T.And(number < tiles, turn % 2 == group) if turns else number < tiles:
                place(number, row, col)
                if clear:
                    T.clear(acc)
                if turns:
                    step = turn * steps
                    # A barrier tells this round of the ring from the last one only: the other group has to be
                    # through with its waiting before this one begins. It also keeps the tiles in order.
                    if turn > 0:
                        T.barrier_wait(order[1 - group], (turn - 1) // 2 & 1)
                for i in T.serial(steps):
                    slot = step % stages
                    T.barrier_wait(full[slot], step // stages & 1)
                    T.wgmma_gemm(
                        a_ring[slot, :, :],
                        b_ring[slot, :, :],
                        acc,
                        transpose_A=trans_a,
                        transpose_B=trans_b,
                        policy=T.GemmWarpPolicy.FullRow,
                        clear_accum=False if clear else i == 0,
                    )
                    if i > 0:
                        T.wait_wgmma(1)
                        if lane == 0:
                            T.barrier_arrive(empty[(step - 1) % stages])
                    step = step + 1
                if turns and lane == 0:
                    T.barrier_arrive(order[group])
                T.wait_wgmma(0)
                if lane == 0:
                    T.barrier_arrive(empty[(step - 1) % stages])
                T.warpgroup_fence_operand(acc, num_regs=share * cols // GROUP)
                rounded = T.alloc_fragment((share, cols), dtype)
                T.copy(acc, rounded)
                leave(rounded, outs, d, row[0] + (0 if turns else group * share), col[0], group, thread)
        if bulk and T.shuffle_elect(GROUP):
            T.tma_store_wait(0)

    @T.prim_func
    def gemm_persistent(a: type_a(form, m, k), b: type_b(form, k, n), d: T.Tensor((m, n), dtype)):
        with T.Kernel(blocks, threads=(1 + groups) * GROUP) as block:
            rings = [T.alloc_shared(a_shape, dtype) for _ in range(1 if turns else groups)]
            b_ring = T.alloc_shared(b_shape, dtype)
            if bulk:
                outs = [[T.alloc_shared((share, chunk), dtype) for _ in range(buffers)] for _ in range(groups)]
                if chunk % 32 == 0:
                    T.annotate_layout({out: make_swizzled_layout(out) for group in outs for out in group})
            else:
                outs = [[T.alloc_shared((SLAB, cols + ACCESS), dtype)] for _ in range(groups)]
            full = T.alloc_barrier([32] * stages)
            empty = T.alloc_barrier([warps] * stages)
            order = T.alloc_barrier([4, 4])
            tiles = T.ceildiv(m, rows) * T.ceildiv(n, cols)
            thread = T.get_thread_binding()
            T.pdl_sync()
            if thread < GROUP:
                T.dec_max_nreg(LOADING_REGISTERS)
                if thread < 32:
                    load(a, b, rings, b_ring, full, empty, block, tiles)
            elif thread < 2 * GROUP:
                multiply(rings[0], b_ring, outs[0], d, full, empty, order, 0, block, tiles)
            elif thread < 3 * GROUP:
                multiply(rings[0 if turns else 1], b_ring, outs[1], d, full, empty, order, 1, block, tiles)
            elif groups > 2:
                multiply(rings[-1], b_ring, outs[-1], d, full, empty, order, 2, block, tiles)

    return gemm_persistent
