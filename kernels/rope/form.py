"""Describes the heads and angles of a rotation and how threads share them: what its program is made from."""

from __future__ import annotations

import math

from attrs import evolve, frozen

from tileops.kernels.rope.rope import RoPECall
from tileops.kernels.rows import ACCESS

THREADS = 320
"""Threads of a block at most: 35.1 us for 4096 tokens of 129 heads of 64 with 264 of them, against 36.1 with 520."""

COPIES = 4
"""Accesses of a head that a thread copies at once, at most. With lanes of their own for copies warps ran both branches:
23.0 us for 1024 tokens of 32 heads of 256 float32, 64 turned, against 20.2; 16.7 for 2048 tokens of 32 heads of 128
float16, 96 turned, against 11.6."""


def name_of(dtype: object) -> str:
    """Returns the name of a dtype: ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


@frozen
class RoPEForm:
    """Holds what is compiled in; the numbers of tokens and of known positions are read at each launch.

    The pairs of a head are cut into units of one or two accesses: neighbours lie in one, the members of other pairs in
    two. What lies behind them is copied, by accesses that the same threads have.
    """

    q_heads: int
    k_heads: int
    head_dim: int
    pairs: int
    dtype: str
    position_dtype: str
    angle_dtype: str
    interleaved: bool
    width: int
    """Elements an access."""
    lanes: int
    """Threads that share a head."""
    depth: int
    """Heads that a block works on at once."""
    turns: int
    """Heads of a thread in flight together."""

    @property
    def accesses(self) -> int:
        """Returns the accesses of a unit."""
        return 1 if self.interleaved and self.width > 1 else 2

    @property
    def unit_pairs(self) -> int:
        """Returns the pairs of a unit."""
        return self.accesses * self.width // 2

    @property
    def units(self) -> int:
        """Returns the units of a head."""
        return self.pairs // self.unit_pairs

    @property
    def rest(self) -> int:
        """Returns the accesses of a head that are copied."""
        return (self.head_dim - 2 * self.pairs) // self.width

    @property
    def passes(self) -> int:
        """Returns how often a thread comes to a head: for a unit each time, and for what it copies."""
        return max(-(-self.units // self.lanes), -(-self.rest // (COPIES * self.lanes)))

    @property
    def copies(self) -> int:
        """Returns the accesses that a thread copies when it comes to a head."""
        return -(-self.rest // (self.passes * self.lanes))

    @classmethod
    def of(cls, call: RoPECall) -> RoPEForm:
        """Returns the form of a call, its accesses as wide as every head's and every angle's start allows."""
        side_by_side = 2 * call.pairs if call.interleaved else call.pairs
        form = cls(
            call.q_heads,
            call.k_heads,
            call.head_dim,
            call.pairs,
            name_of(call.dtype),
            name_of(call.position_dtype),
            name_of(call.angle_dtype),
            call.interleaved,
            width=math.gcd(side_by_side, call.head_dim, ACCESS // call.dtype.itemsize),
            lanes=1,
            depth=1,
            turns=1,
        )
        heads, lanes = call.q_heads + call.k_heads, min(32, max(form.units, -(-form.rest // COPIES)))
        turns = 2 if -(-heads // 2) * lanes <= THREADS else 4
        return evolve(form, lanes=lanes, depth=min(-(-heads // turns), THREADS // lanes), turns=turns)

    def __str__(self) -> str:
        form = "interleaved" if self.interleaved else "halves"
        return (
            f"{self.dtype}, {self.q_heads} and {self.k_heads} heads of {self.head_dim}, {self.pairs} pairs, {form}, "
            f"{self.accesses} and {self.copies} accesses of {self.width} and {self.turns} heads a thread, "
            f"{self.lanes} x {self.depth} threads"
        )
