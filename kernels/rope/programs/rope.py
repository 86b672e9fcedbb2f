"""Rotary position embedding of q and k in one pass: a thread keeps its cosines and sines and rotates several heads.

A block works on one token: lane l of head lane h has the pairs l * width to (l + 1) * width of heads h, h + depth, ...
Elements behind the pairs are copied. 2 * itemsize bytes an element of q and k, six operations a pair.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

from tileops.kernels.rope.form import RoPEForm


def program(form: RoPEForm, blocks: int | None) -> Any:
    """Builds the program (q, k, positions, cos_sin, outside, q_out, k_out); outside [1] gets 1 for a position beyond.

    Unchecked, its place takes anything of cos_sin's shape. ``blocks``: that many blocks walk the tokens, with 64-bit
    indices; None: a block a token.
    """
    dtype, angle_dtype, pairs, head_dim = form.dtype, form.angle_dtype, form.pairs, form.head_dim
    width, lanes, depth, turns = form.width, form.lanes, form.depth, form.turns
    bits = "int64" if blocks else "int32"
    tokens, known = T.dynamic("tokens", bits), T.dynamic("known", "int64")
    vectors = pairs // width
    passes = -(-vectors // lanes)
    rest = head_dim - 2 * pairs
    rest_width = form.rest_width
    rest_passes = -(-rest // (rest_width * lanes)) if rest else 0
    # An access has at most 16 bytes: angles in float32 take two for what the heads have in one.
    angle_width = min(width, 4) if angle_dtype == "float32" else width

    @T.macro
    def angles(cos_sin: Any, position: Any, first: Any, into: Any) -> None:
        part = T.alloc_local((angle_width,), angle_dtype)
        for chunk in T.unroll(width // angle_width):
            for i in T.vectorized(angle_width):
                part[i] = cos_sin[position, first + chunk * angle_width + i]
            for i in T.vectorized(angle_width):
                into[chunk * angle_width + i] = T.cast(part[i], "float32")

    @T.macro
    def rotate(
        x: Any, out: Any, heads: int, token: Any, lane: Any, level: Any, cos: Any, sin: Any, vector: Any
    ) -> None:
        low = T.alloc_local((turns, width), dtype)
        high = T.alloc_local((turns, width), dtype)
        a = T.alloc_local((width,), "float32")
        b = T.alloc_local((width,), "float32")
        c = T.alloc_local((2 * width,), "float32")
        for step in T.serial(-(-heads // (depth * turns))):
            for t in T.unroll(turns):
                head = (step * turns + t) * depth + level
                if head < heads:
                    if form.interleaved:
                        for i in T.vectorized(width):
                            low[t, i] = x[token, head, 2 * vector * width + i]
                        for i in T.vectorized(width):
                            high[t, i] = x[token, head, (2 * vector + 1) * width + i]
                    else:
                        for i in T.vectorized(width):
                            low[t, i] = x[token, head, vector * width + i]
                        for i in T.vectorized(width):
                            high[t, i] = x[token, head, pairs + vector * width + i]
            for t in T.unroll(turns):
                head = (step * turns + t) * depth + level
                if head < heads:
                    for i in T.vectorized(width):
                        a[i] = T.cast(low[t, i], "float32")
                    for i in T.vectorized(width):
                        b[i] = T.cast(high[t, i], "float32")
                    if form.interleaved:
                        for i in T.unroll(width):
                            c[i] = a[i]
                            c[width + i] = b[i]
                        for i in T.unroll(width):
                            a[i] = c[2 * i]
                            b[i] = c[2 * i + 1]
                        for i in T.unroll(width):
                            c[2 * i] = a[i] * cos[i] - b[i] * sin[i]
                            c[2 * i + 1] = b[i] * cos[i] + a[i] * sin[i]
                    else:
                        for i in T.unroll(width):
                            c[i] = a[i] * cos[i] - b[i] * sin[i]
                            c[width + i] = b[i] * cos[i] + a[i] * sin[i]
                    for i in T.vectorized(width):
                        low[t, i] = T.cast(c[i], dtype)
                    for i in T.vectorized(width):
                        high[t, i] = T.cast(c[width + i], dtype)
                    if form.interleaved:
                        for i in T.vectorized(width):
                            out[token, head, 2 * vector * width + i] = low[t, i]
                        for i in T.vectorized(width):
                            out[token, head, (2 * vector + 1) * width + i] = high[t, i]
                    else:
                        for i in T.vectorized(width):
                            out[token, head, vector * width + i] = low[t, i]
                        for i in T.vectorized(width):
                            out[token, head, pairs + vector * width + i] = high[t, i]

    @T.macro
    def copy_rest(x: Any, out: Any, heads: int, token: Any, lane: Any, level: Any, inside: Any) -> None:
        kept = T.alloc_local((rest_width,), dtype)
        for step in T.serial(-(-heads // depth)):
            head = step * depth + level
            for p in T.unroll(rest_passes):
                column = (p * lanes + lane) * rest_width
                if head < heads and column < rest:
                    for i in T.vectorized(rest_width):
                        kept[i] = x[token, head, 2 * pairs + column + i]
                    if not inside:
                        for i in T.unroll(rest_width):
                            kept[i] = T.cast(T.float32(float("nan")), dtype)
                    for i in T.vectorized(rest_width):
                        out[token, head, 2 * pairs + column + i] = kept[i]

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
        cos = T.alloc_local((width,), "float32")
        sin = T.alloc_local((width,), "float32")
        # In a buffer: TileLang 0.1.15 loses a converted value that has a name where indices have 64 bits.
        position = T.alloc_local((1,), "int64")
        position[0] = T.cast(positions[token], "int64")
        inside = position[0] >= 0 and position[0] < known
        if form.checked and lane == 0 and level == 0 and not inside:
            outside[0] = 1
        for p in T.unroll(passes):
            vector = p * lanes + lane
            if vector < vectors:
                for i in T.unroll(width):
                    cos[i] = T.float32(float("nan"))
                    sin[i] = T.float32(float("nan"))
                if inside:
                    angles(cos_sin, position[0], vector * width, cos)
                    angles(cos_sin, position[0], pairs + vector * width, sin)
                rotate(q, q_out, form.q_heads, token, lane, level, cos, sin, vector)
                rotate(k, k_out, form.k_heads, token, lane, level, cos, sin, vector)
        if rest > 0:
            copy_rest(q, q_out, form.q_heads, token, lane, level, inside)
            copy_rest(k, k_out, form.k_heads, token, lane, level, inside)

    def heads_of(heads: int) -> Any:
        return T.Tensor((tokens, heads, head_dim), dtype)

    def table() -> Any:
        return T.Tensor((known, 2 * pairs), angle_dtype)

    @T.prim_func
    def main(
        q: heads_of(form.q_heads),
        k: heads_of(form.k_heads),
        positions: T.Tensor((tokens,), form.position_dtype),
        cos_sin: table(),
        outside: T.Tensor((1,), "int32") if form.checked else table(),
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
