"""Cumulative sums, in float32, each rounded once: contiguous rows, and rows whose elements lie ``inner`` apart.

A block walks its rows in slices, each read once and written once, and carries the sum so far from slice to slice.
Split: first each part of a row is summed; then a block a part starts from the sum of the parts before it. x is read
twice, the second time mostly from the L2 cache.
2 * itemsize bytes an element (3 when split), about two operations.

Programs take a tensor that tells device and stream, the addresses of x, of sums of parts and of y, and how many slices
there are: so a tensor of any rank needs no view, which costs the host more than a microsecond.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.columns import ColumnShare
from tileops.kernels.programs.lanes import WARP, combiner
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.rows import Share


def summer(turns: int, width: int, group: int) -> Any:
    """Returns a macro (kept, wide, total, sub): wide becomes what a group's accesses sum up to so far, total all.

    ``group`` threads, of which this is ``sub``, have side-by-side accesses, as many a turn.
    """

    @T.macro
    def sum_up(kept: Any, wide: Any, total: Any, sub: Any) -> None:
        run = T.alloc_local((1,), "float32")
        before = T.alloc_local((1,), "float32")
        moved = T.alloc_local((1,), "float32")
        total[0] = 0.0
        for t in T.unroll(turns):
            for i in T.vectorized(width):
                wide[t, i] = T.cast(kept[t, i], "float32")
            for i in T.unroll(1, width):
                wide[t, i] = wide[t, i] + wide[t, i - 1]
            run[0] = wide[t, width - 1]
            for step in T.unroll(group.bit_length() - 1):
                moved[0] = T.shfl_up(run[0], 1 << step, group)
                if sub >= (1 << step):
                    run[0] = run[0] + moved[0]
            before[0] = T.shfl_up(run[0], 1, group)
            # No subtraction: an infinity must not reach the elements before it.
            before[0] = total[0] + T.if_then_else(sub == 0, T.float32(0), before[0])
            for i in T.unroll(width):
                wide[t, i] = wide[t, i] + before[0]
            total[0] = total[0] + T.shfl_sync(run[0], group - 1, group)

    return sum_up


def rows_scanner(form: AlongForm, share: Share) -> Any:
    """Returns a macro (x, y, row, begin, carry, lane, place, valid): one slice of a row from access ``begin`` on.

    A warp has side-by-side accesses, WARP a turn; the sums of the warps before it come through shared memory.
    """
    lanes, rows, turns, width = share.lanes, share.rows, share.turns, share.width
    group = min(lanes, WARP)
    warps = max(1, lanes // WARP)
    dtype = form.dtype
    sum_up = summer(turns, width, group)

    @T.macro
    def scan(x: Any, y: Any, row: Any, begin: Any, end: Any, carry: Any, lane: Any, place: Any, valid: Any) -> None:
        kept = T.alloc_local((turns, width), dtype)
        wide = T.alloc_local((turns, width), "float32")
        out = T.alloc_local((width,), dtype)
        before = T.alloc_local((1,), "float32")
        total = T.alloc_local((1,), "float32")
        sub = lane % group
        first = begin + lane // group * (group * turns) + sub
        for t in T.unroll(turns):
            for i in T.unroll(width):
                kept[t, i] = T.cast(0.0, dtype)
            if first + t * group < end:
                for i in T.vectorized(width):
                    kept[t, i] = x[row, (first + t * group) * width + i]
        sum_up(kept, wide, total, sub)
        before[0] = carry[0]
        if warps > 1:
            sums = T.alloc_shared((rows, warps), "float32")
            if sub == 0:
                sums[place, lane // group] = total[0]
            T.sync_threads()
            for warp in T.serial(warps):
                if warp < lane // group:
                    before[0] = before[0] + sums[place, warp]
                carry[0] = carry[0] + sums[place, warp]
            T.sync_threads()
        else:
            carry[0] = carry[0] + total[0]
        for t in T.unroll(turns):
            for i in T.unroll(width):
                wide[t, i] = wide[t, i] + before[0]
            for i in T.vectorized(width):
                out[i] = T.cast(wide[t, i], dtype)
            if valid and first + t * group < end:
                for i in T.vectorized(width):
                    y[row, (first + t * group) * width + i] = out[i]

    return scan


def rows(form: AlongForm, share: Share, blocks: int | None) -> Any:
    """Builds the program of x [count, length]: a block walks share.rows rows at a time.

    ``blocks``: that many at most walk all rows, with 64-bit indices; None: a block for each.
    """
    length, dtype = form.length, form.dtype
    lanes, places = share.lanes, share.rows
    accesses = length // share.width
    slice_ = lanes * share.turns
    steps = -(-accesses // slice_)
    scan = rows_scanner(form, share)

    @T.macro
    def work(x: Any, y: Any, count: Any, group: Any, lane: Any, place: Any) -> None:
        carry = T.alloc_local((1,), "float32")
        carry[0] = 0.0
        row = T.min(group * places + place, count - 1)
        valid = group * places + place < count
        if steps == 1:
            scan(x, y, row, 0, accesses, carry, lane, place, valid)
        else:
            for step in T.serial(T.int64(steps) if blocks else steps):
                scan(x, y, row, step * slice_, accesses, carry, lane, place, valid)

    if blocks:

        @T.prim_func
        def main(device: T.handle, x_at: T.int64, y_at: T.int64, count: T.int64):
            x = T.make_tensor_from_addr(x_at, (count, length), dtype)
            y = T.make_tensor_from_addr(y_at, (count, length), dtype)
            with T.Kernel(T.min((count + places - 1) // places, blocks), threads=(lanes, places)) as block:
                lane = T.get_thread_binding(0)
                place = T.get_thread_binding(1)
                first = T.cast(block, "int64")
                for turn in T.serial(((count + places - 1) // places - first + blocks - 1) // blocks):
                    work(x, y, count, first + turn * blocks, lane, place)

        return main

    @T.prim_func
    def main(device: T.handle, x_at: T.int64, y_at: T.int64, count: T.int32):
        x = T.make_tensor_from_addr(x_at, (count, length), dtype)
        y = T.make_tensor_from_addr(y_at, (count, length), dtype)
        with T.Kernel(T.ceildiv(count, places), threads=(lanes, places)) as block:
            work(x, y, count, block, T.get_thread_binding(0), T.get_thread_binding(1))

    return main


def rows_split(form: AlongForm, share: Share, steps: int, early: bool) -> Any:
    """Builds the program of x and partial: a block a part of ``steps`` slices; partial is float32 [count, parts].

    ``early``: the second kernel starts while the first runs, and waits for it.
    """
    length, dtype = form.length, form.dtype
    lanes, turns, width = share.lanes, share.turns, share.width
    accesses = length // width
    slice_ = lanes * turns
    parts = -(-accesses // (slice_ * steps))
    scan, sum_of = rows_scanner(form, share), combiner(lanes)
    looks = -(-parts // lanes)

    @T.prim_func
    def main(device: T.handle, x_at: T.int64, partial_at: T.int64, y_at: T.int64, count: T.int32):
        x = T.make_tensor_from_addr(x_at, (count, length), dtype)
        partial = T.make_tensor_from_addr(partial_at, (count, parts), "float32")
        y = T.make_tensor_from_addr(y_at, (count, length), dtype)
        with T.Kernel(parts, count, threads=(lanes, 1)) as (part, row):
            if early:
                T.pdl_trigger()
            lane = T.get_thread_binding(0)
            kept = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            total = T.alloc_local((1,), "float32")
            total[0] = 0.0
            for step in T.serial(steps):
                for t in T.unroll(turns):
                    access = ((part * steps + step) * turns + t) * lanes + lane
                    if access < accesses:
                        for i in T.vectorized(width):
                            kept[t, i] = x[row, access * width + i]
                for t in T.unroll(turns):
                    access = ((part * steps + step) * turns + t) * lanes + lane
                    if access < accesses:
                        for i in T.vectorized(width):
                            wide[i] = T.cast(kept[t, i], "float32")
                        for i in T.unroll(width):
                            total[0] = total[0] + wide[i]
            sum_of(total, lane, 0)
            if lane == 0:
                partial[row, part] = total[0]

        with T.Kernel(parts, count, threads=(lanes, 1)) as (part, row):
            lane = T.get_thread_binding(0)
            carry = T.alloc_local((1,), "float32")
            carry[0] = 0.0
            if early:
                T.pdl_sync()
            for look in T.unroll(looks):
                if look * lanes + lane < part:
                    carry[0] = carry[0] + partial[row, look * lanes + lane]
            sum_of(carry, lane, 0)
            for step in T.serial(steps):
                scan(x, y, row, (part * steps + step) * slice_, accesses, carry, lane, 0, True)

    return main


def columns_scanner(form: AlongForm, share: ColumnShare) -> Any:
    """Returns a macro (x, y, slab, begin, column, carry, lane, level, valid): depth * turns elements of each row.

    Elements are kept in the tensor's dtype and summed twice, first for the levels behind: so more of them fit.
    """
    lanes, depth, turns, width = share.lanes, share.depth, share.turns, share.width
    length, dtype = form.length, form.dtype

    @T.macro
    def scan(x: Any, y: Any, slab: Any, begin: Any, column: Any, carry: Any, lane: Any, level: Any, valid: Any) -> None:
        kept = T.alloc_local((turns, width), dtype)
        wide = T.alloc_local((width,), "float32")
        out = T.alloc_local((width,), dtype)
        total = T.alloc_local((width,), "float32")
        sums = T.alloc_shared((depth, width, lanes), "float32")
        first = begin + level * turns
        for i in T.unroll(width):
            total[i] = 0.0
        for t in T.unroll(turns):
            for i in T.unroll(width):
                kept[t, i] = T.cast(0.0, dtype)
            if first + t < length:
                for i in T.vectorized(width):
                    kept[t, i] = x[slab, first + t, column + i]
        for t in T.unroll(turns):
            for i in T.vectorized(width):
                wide[i] = T.cast(kept[t, i], "float32")
            for i in T.unroll(width):
                total[i] = total[i] + wide[i]
        for i in T.unroll(width):
            sums[level, i, lane] = total[i]
        T.sync_threads()
        for i in T.unroll(width):
            total[i] = carry[i]
        for other in T.serial(depth):
            for i in T.unroll(width):
                if other < level:
                    total[i] = total[i] + sums[other, i, lane]
                carry[i] = carry[i] + sums[other, i, lane]
        T.sync_threads()
        for t in T.unroll(turns):
            for i in T.vectorized(width):
                wide[i] = T.cast(kept[t, i], "float32")
            for i in T.unroll(width):
                total[i] = total[i] + wide[i]
            for i in T.vectorized(width):
                out[i] = T.cast(total[i], dtype)
            if valid and first + t < length:
                for i in T.vectorized(width):
                    y[slab, first + t, column + i] = out[i]

    return scan


def columns(form: AlongForm, share: ColumnShare, blocks: int) -> Any:
    """Builds the program of x [outer, length, inner]: ``blocks`` blocks at most, with 64-bit indices."""
    length, inner, dtype = form.length, form.inner, form.dtype
    lanes, depth, turns, width = share.lanes, share.depth, share.turns, share.width
    piece = inner // width
    steps = -(-length // (turns * depth))
    scan = columns_scanner(form, share)

    @T.prim_func
    def main(device: T.handle, x_at: T.int64, y_at: T.int64, outer: T.int64):
        x = T.make_tensor_from_addr(x_at, (outer, length, inner), dtype)
        y = T.make_tensor_from_addr(y_at, (outer, length, inner), dtype)
        with T.Kernel(T.min((outer * piece + lanes - 1) // lanes, blocks), threads=(lanes, depth)) as block:
            lane = T.get_thread_binding(0)
            level = T.get_thread_binding(1)
            carry = T.alloc_local((width,), "float32")
            groups = (outer * piece + lanes - 1) // lanes
            first = T.cast(block, "int64")
            for turn in T.serial((groups - first + blocks - 1) // blocks):
                place = (first + turn * blocks) * lanes + lane
                access = T.min(place, outer * piece - 1)
                for i in T.unroll(width):
                    carry[i] = 0.0
                for step in T.serial(T.int64(steps)):
                    begin = step * (turns * depth)
                    valid = place < outer * piece
                    scan(x, y, access // piece, begin, access % piece * width, carry, lane, level, valid)

    return main


def columns_split(form: AlongForm, share: ColumnShare, steps: int, early: bool) -> Any:
    """Builds the program of x and partial: a block a part of ``steps`` slices; partial is [outer, parts, inner].

    ``early``: the second kernel starts while the first runs, and waits for it.
    """
    length, inner, dtype = form.length, form.inner, form.dtype
    lanes, depth, turns, width = share.lanes, share.depth, share.turns, share.width
    piece = inner // width
    part_length = turns * depth * steps
    parts = -(-length // part_length)
    scan = columns_scanner(form, share)

    @T.prim_func
    def main(device: T.handle, x_at: T.int64, partial_at: T.int64, y_at: T.int64, outer: T.int32):
        x = T.make_tensor_from_addr(x_at, (outer, length, inner), dtype)
        partial = T.make_tensor_from_addr(partial_at, (outer, parts, inner), "float32")
        y = T.make_tensor_from_addr(y_at, (outer, length, inner), dtype)
        with T.Kernel(T.ceildiv(outer * piece, lanes), parts, threads=(lanes, depth)) as (block, part):
            if early:
                T.pdl_trigger()
            lane = T.get_thread_binding(0)
            level = T.get_thread_binding(1)
            kept = T.alloc_local((turns, width), dtype)
            wide = T.alloc_local((width,), "float32")
            total = T.alloc_local((width,), "float32")
            sums = T.alloc_shared((depth, width, lanes), "float32")
            access = T.min(block * lanes + lane, outer * piece - 1)
            slab = access // piece
            column = access % piece * width
            for i in T.unroll(width):
                total[i] = 0.0
            for step in T.serial(steps):
                for t in T.unroll(turns):
                    row = part * part_length + (step * turns + t) * depth + level
                    if row < length:
                        for i in T.vectorized(width):
                            kept[t, i] = x[slab, row, column + i]
                for t in T.unroll(turns):
                    row = part * part_length + (step * turns + t) * depth + level
                    if row < length:
                        for i in T.vectorized(width):
                            wide[i] = T.cast(kept[t, i], "float32")
                        for i in T.unroll(width):
                            total[i] = total[i] + wide[i]
            for i in T.unroll(width):
                sums[level, i, lane] = total[i]
            T.sync_threads()
            if level == 0:
                for other in T.serial(depth - 1):
                    for i in T.unroll(width):
                        total[i] = total[i] + sums[other + 1, i, lane]
                if block * lanes + lane < outer * piece:
                    for i in T.unroll(width):
                        partial[slab, part, column + i] = total[i]

        with T.Kernel(T.ceildiv(outer * piece, lanes), parts, threads=(lanes, depth)) as (block, part):
            lane = T.get_thread_binding(0)
            level = T.get_thread_binding(1)
            carry = T.alloc_local((width,), "float32")
            access = T.min(block * lanes + lane, outer * piece - 1)
            slab = access // piece
            column = access % piece * width
            for i in T.unroll(width):
                carry[i] = 0.0
            if early:
                T.pdl_sync()
            for other in T.serial(part):
                for i in T.unroll(width):
                    carry[i] = carry[i] + partial[slab, other, column + i]
            for step in T.serial(steps):
                begin = part * part_length + step * (turns * depth)
                scan(x, y, slab, begin, column, carry, lane, level, block * lanes + lane < outer * piece)

    return main
