"""Describes the heads and angles of a rotation and how threads share them: the build identity of its program."""

from __future__ import annotations

import math

from attrs import frozen

from tileops.kernels.rope.rope import RoPECall
from tileops.kernels.rows import ACCESS, power_of_two

THREADS = 256
"""Threads of a block at most."""


def name_of(dtype: object) -> str:
    """Returns the name of a dtype: ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


@frozen
class RoPEForm:
    """Holds what is compiled in; the numbers of tokens and of known positions are read at each launch."""

    q_heads: int
    k_heads: int
    head_dim: int
    pairs: int
    dtype: str
    position_dtype: str
    angle_dtype: str
    interleaved: bool
    checked: bool
    width: int
    """Pairs of a thread: each of the two accesses that hold them has this many elements."""
    rest_width: int
    """Elements an access of those that are copied."""
    lanes: int
    """Threads that share a head."""
    depth: int
    """Heads that a block works on at once."""
    turns: int
    """Heads of a thread in flight together."""

    @classmethod
    def of(cls, call: RoPECall) -> RoPEForm:
        """Returns the form of a call, its accesses as wide as every head's and every angle's start allows."""
        most = ACCESS // call.dtype.itemsize
        width = math.gcd(call.pairs, call.head_dim, most)
        rest_width = math.gcd(2 * call.pairs, call.head_dim, most)
        lanes = min(32, power_of_two(-(-call.pairs // width)))
        heads = max(call.q_heads, call.k_heads)
        depth = min(THREADS // lanes, power_of_two(-(-heads // 2)))
        turns = 2 if heads > depth else 1
        return cls(
            call.q_heads,
            call.k_heads,
            call.head_dim,
            call.pairs,
            name_of(call.dtype),
            name_of(call.position_dtype),
            name_of(call.angle_dtype),
            call.interleaved,
            call.check_positions,
            width,
            rest_width,
            lanes,
            depth,
            turns,
        )

    def __str__(self) -> str:
        form = "interleaved" if self.interleaved else "halves"
        return (
            f"{self.dtype}, {self.q_heads} and {self.k_heads} heads of {self.head_dim}, {self.pairs} pairs, {form}, "
            f"{self.width} pairs a thread, {self.lanes} x {self.depth} threads"
        )
