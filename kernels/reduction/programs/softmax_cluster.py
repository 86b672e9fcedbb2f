"""Softmax of long contiguous rows, each of which a cluster of blocks keeps in its registers.

A row is read once and written once: 2 * length * itemsize bytes; five operations an element. Clusters that stay, and
copy their next rows into shared memory ahead, are slower: 112 us, not 92, for 256 rows of 151936 float32 on an H200.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.programs.lanes import WARP, combiner
from tileops.kernels.reduction.form import AlongForm
from tileops.kernels.reduction.programs.softmax import Parts
from tileops.kernels.reduction.programs.softmax_meeting import LOG2E, PAIR_BYTES, SEND, lift, meeting
from tileops.kernels.rows import Share


class Cut:
    """Says which accesses of a row a block of a cluster has, and which of them a thread."""

    def __init__(self, form: AlongForm, share: Share, blocks: int) -> None:
        self.lanes, self.accesses = share.lanes, form.length // share.width
        self.size = -(-self.accesses // blocks)
        self.even = self.size * blocks == self.accesses
        self.whole = self.even and self.size == share.lanes * share.turns

    def place(self, part: Any, lane: Any, t: int) -> Any:
        """Returns which access of the row a thread's ``t``th is."""
        return part * self.size + t * self.lanes + lane

    def has(self, part: Any, lane: Any, t: int) -> Any:
        """Says whether a thread has a ``t``th access."""
        if self.whole:
            return True
        mine = t * self.lanes + lane < self.size
        return mine if self.even else T.And(mine, self.place(part, lane, t) < self.accesses)


def clustered(form: AlongForm, share: Share, blocks: int) -> Any:
    """Builds the program (x, y): a cluster of ``blocks`` blocks a row, each with one round of ``share``."""
    length, dtype = form.length, form.dtype
    lanes, turns, width = share.lanes, share.turns, share.width
    cut = Cut(form, share, blocks)
    parts = Parts(form, share, True)
    load, measure, raise_powers, finish = parts.loader(), parts.measurer(), parts.raiser(), parts.finisher()
    count = T.dynamic("count")
    greatest_of, sum_of = combiner(WARP, greatest=True), combiner(WARP)
    meet = meeting(blocks, lanes // WARP)

    @T.prim_func
    def main(x: T.Tensor((count, length), dtype), y: T.Tensor((count, length), dtype)):
        with T.Kernel(count * blocks, threads=lanes, cluster_dims=blocks, prelude=SEND) as block:
            # At most 64 registers a thread: while one row waits or is written, another is read.
            T.annotate_min_blocks_per_sm(max(1, 1024 // lanes))
            lane = T.get_thread_binding(0)
            kept = T.alloc_local((turns, width), dtype)
            powers = T.alloc_local((turns, width), "float32")
            own = T.alloc_local((1,), "float32")
            top = T.alloc_local((1,), "float32")
            base = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            scale = T.alloc_local((1,), "float32")
            pairs = T.alloc_shared((lanes // WARP, 2), "float32")
            told = T.alloc_shared((blocks, 2), "float32")
            arrived = T.alloc_barrier([1])
            row = block // blocks
            part = block % blocks
            # A cluster is launched so that it may start while the kernel before it runs, if that one allows it.
            T.pdl_sync()
            if lane == 0:
                T.call_extern("void", "expect", arrived[0], PAIR_BYTES * (blocks - 1))
            # No block may be told something before it is there.
            T.cluster_arrive()
            top[0] = -T.infinity("float32")
            total[0] = 0.0
            for t in T.unroll(turns):
                if cut.has(part, lane, t):
                    load(x, kept, t, row, cut.place(part, lane, t) * width)
            for t in T.unroll(turns):
                if cut.has(part, lane, t):
                    measure(kept, powers, t, top)
            greatest_of(top, lane, 0)
            lift(base, top)
            for t in T.unroll(turns):
                if cut.has(part, lane, t):
                    raise_powers(kept, powers, t, base, total)
            sum_of(total, lane, 0)
            own[0] = top[0]
            T.cluster_wait()
            meet(pairs, told, arrived, part, lane, top, base, total)
            # Of a warp that has only -inf all powers are 0, and so is their scale.
            scale[0] = T.exp2((own[0] - base[0]) * LOG2E) / total[0]
            for t in T.unroll(turns):
                if cut.has(part, lane, t):
                    finish(kept, powers, t, base, scale, y, row, cut.place(part, lane, t) * width)

    return main
