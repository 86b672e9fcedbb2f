"""Rotary position embedding of q and k in one pass: a thread keeps its cosines and sines and rotates several heads.

A block works on one token, on the heads of q and then of k: lane l of head lane h has unit l of heads h, h + depth, ...
and a share of what is copied. Heads and angles are in flight together, once the position is known. 2 * itemsize bytes
an element of q and k, six operations a pair.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.rope.form import RoPEForm
from tileops.kernels.rows import ACCESS


def program(form: RoPEForm, blocks: int | None) -> Any:
    """Builds the program (q, k, positions, cos_sin, outside, q_out, k_out).

    ``outside``: the address of an int32 that gets 1 where a position has no angles; 0: nobody asks. ``blocks``: that
    many blocks walk the tokens, with 64-bit indices; None: a block a token.
    """
    dtype, angle_dtype, pairs, head_dim = form.dtype, form.angle_dtype, form.pairs, form.head_dim
    width, lanes, depth, turns = form.width, form.lanes, form.depth, form.turns
    accesses, copies, unit_pairs, units = form.accesses, form.copies, form.unit_pairs, form.units
    q_heads, heads = form.q_heads, form.q_heads + form.k_heads
    bits = "int64" if blocks else "int32"
    tokens, known = T.dynamic("tokens", bits), T.dynamic("known", "int64")
    steps = -(-heads // (depth * turns))
    angle_width = min(unit_pairs, ACCESS // (4 if angle_dtype == "float32" else 2))

    def start(unit: Any, a: Any) -> Any:
        """Returns the column at which access ``a`` of a unit starts."""
        return (accesses * unit + a) * width if form.interleaved else (unit + a * units) * width

    def start_of_copy(p: Any, c: Any, lane: Any) -> Any:
        """Returns the column at which copy ``c`` of a lane starts when it comes to a head for the ``p``-th time."""
        return 2 * pairs + ((p * copies + c) * lanes + lane) * width

    @T.macro
    def read(q: Any, k: Any, kept: Any, t: Any, a: Any, token: Any, head: Any, column: Any) -> None:
        if head < q_heads:
            for i in T.vectorized(width):
                kept[t, a, i] = q[token, head, column + i]
        elif head < heads:
            for i in T.vectorized(width):
                kept[t, a, i] = k[token, head - q_heads, column + i]

    @T.macro
    def write(q_out: Any, k_out: Any, kept: Any, t: Any, a: Any, token: Any, head: Any, column: Any) -> None:
        if head < q_heads:
            for i in T.vectorized(width):
                q_out[token, head, column + i] = kept[t, a, i]
        elif head < heads:
            for i in T.vectorized(width):
                k_out[token, head - q_heads, column + i] = kept[t, a, i]

    @T.macro
    def load(q: Any, k: Any, kept: Any, step: Any, token: Any, p: Any, lane: Any, level: Any) -> None:
        for t in T.unroll(turns, explicit=True):
            head = (step * turns + t) * depth + level
            for a in T.unroll(accesses, explicit=True):
                if p * lanes + lane < units:
                    read(q, k, kept, t, a, token, head, start(p * lanes + lane, a))
            for c in T.unroll(copies, explicit=True):
                if start_of_copy(p, c, lane) < head_dim:
                    read(q, k, kept, t, accesses + c, token, head, start_of_copy(p, c, lane))

    @T.macro
    def store(q_out: Any, k_out: Any, kept: Any, t: Any, step: Any, token: Any, p: Any, lane: Any, level: Any) -> None:
        head = (step * turns + t) * depth + level
        for a in T.unroll(accesses, explicit=True):
            if p * lanes + lane < units:
                write(q_out, k_out, kept, t, a, token, head, start(p * lanes + lane, a))
        for c in T.unroll(copies, explicit=True):
            if start_of_copy(p, c, lane) < head_dim:
                write(q_out, k_out, kept, t, accesses + c, token, head, start_of_copy(p, c, lane))

    @T.macro
    def angles(cos_sin: Any, position: Any, first: Any, into: Any) -> None:
        part = T.alloc_local((angle_width,), angle_dtype)
        for chunk in T.unroll(unit_pairs // angle_width):
            for i in T.vectorized(angle_width):
                part[i] = cos_sin[position, first + chunk * angle_width + i]
            for i in T.vectorized(angle_width):
                into[chunk * angle_width + i] = T.cast(part[i], "float32")

    @T.macro
    def rotate(kept: Any, t: Any, cos: Any, sin: Any) -> None:
        wide = T.alloc_local((accesses, width), "float32")
        turned = T.alloc_local((accesses, width), "float32")
        for a in T.unroll(accesses, explicit=True):
            for i in T.vectorized(width):
                wide[a, i] = T.cast(kept[t, a, i], "float32")
        for i in T.unroll(unit_pairs, explicit=True):
            if accesses == 1:
                turned[0, 2 * i] = wide[0, 2 * i] * cos[i] - wide[0, 2 * i + 1] * sin[i]
                turned[0, 2 * i + 1] = wide[0, 2 * i + 1] * cos[i] + wide[0, 2 * i] * sin[i]
            else:
                turned[0, i] = wide[0, i] * cos[i] - wide[1, i] * sin[i]
                turned[1, i] = wide[1, i] * cos[i] + wide[0, i] * sin[i]
        for a in T.unroll(accesses, explicit=True):
            for i in T.vectorized(width):
                kept[t, a, i] = T.cast(turned[a, i], dtype)

    @T.macro
    def spoil(kept: Any, t: Any) -> None:
        for c in T.unroll(copies, explicit=True):
            for i in T.vectorized(width):
                kept[t, accesses + c, i] = T.cast(T.float32(float("nan")), dtype)

    @T.macro
    def work(
        q: Any,
        k: Any,
        positions: Any,
        cos_sin: Any,
        outside: Any,
        q_out: Any,
        k_out: Any,
        token: Any,
        lane: Any,
        level: Any,
    ) -> None:
        kept = T.alloc_local((turns, accesses + copies, width), dtype)
        cos = T.alloc_local((unit_pairs,), "float32")
        sin = T.alloc_local((unit_pairs,), "float32")
        # In a buffer: TileLang 0.1.15 loses a converted value that has a name where indices have 64 bits.
        position = T.alloc_local((1,), "int64")
        # nvcc waits for it before it asks for the heads. A barrier behind their reads, each made one instruction that
        # cannot pass it, gave 19.7 us, not 20.2, where 64 of 256 elements turn, but 12.4, not 11.6, where 96 of 128 do.
        position[0] = T.cast(positions[token], "int64")
        for p in T.serial(form.passes):
            unit = p * lanes + lane
            load(q, k, kept, 0, token, p, lane, level)
            inside = position[0] >= 0 and position[0] < known
            if not inside and outside != 0 and lane == 0 and level == 0:
                flag = T.make_tensor_from_addr(outside, (1,), "int32")
                flag[0] = 1
            for i in T.unroll(unit_pairs):
                cos[i] = T.float32(float("nan"))
                sin[i] = T.float32(float("nan"))
            if inside and unit < units:
                angles(cos_sin, position[0], unit * unit_pairs, cos)
                angles(cos_sin, position[0], pairs + unit * unit_pairs, sin)
            for step in T.serial(steps):
                if step > 0:
                    load(q, k, kept, step, token, p, lane, level)
                for t in T.unroll(turns, explicit=True):
                    rotate(kept, t, cos, sin)
                    if copies > 0 and not inside:
                        spoil(kept, t)
                    store(q_out, k_out, kept, t, step, token, p, lane, level)

    def heads_of(count: int) -> Any:
        return T.Tensor((tokens, count, head_dim), dtype)

    @T.prim_func
    def main(
        q: heads_of(form.q_heads),
        k: heads_of(form.k_heads),
        positions: T.Tensor((tokens,), form.position_dtype),
        cos_sin: T.Tensor((known, 2 * pairs), angle_dtype),
        outside: T.int64,
        q_out: heads_of(form.q_heads),
        k_out: heads_of(form.k_heads),
    ):
        with T.Kernel(T.min(tokens, blocks) if blocks else tokens, threads=(lanes, depth)) as block:
            lane = T.get_thread_binding(0)
            level = T.get_thread_binding(1)
            if blocks:
                for turn in T.serial((tokens - block + blocks - 1) // blocks):
                    token = T.cast(block, bits) + turn * blocks
                    work(q, k, positions, cos_sin, outside, q_out, k_out, token, lane, level)
            else:
                work(q, k, positions, cos_sin, outside, q_out, k_out, block, lane, level)

    return main
