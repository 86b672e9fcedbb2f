"""Describes the heads and angles of a rotation and how threads share them: the build identity of its program."""

from __future__ import annotations

import math

from attrs import evolve, frozen

from tileops.kernels.rope.rope import RoPECall
from tileops.kernels.rows import ACCESS

THREADS = 320
"""Threads of a block at most: 35.1 us for 4096 tokens of 129 heads of 64 with 264 of them, against 36.1 with 520."""


def name_of(dtype: object) -> str:
    """Returns the name of a dtype: ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


@frozen
class RoPEForm:
    """Holds what is compiled in; the numbers of tokens and of known positions are read at each launch.

    A head is cut into units of one or two accesses, all its pairs in the first ones: neighbours lie in one access, the
    members of other pairs in two. Behind them come units of elements that are copied.
    """

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
        """Returns the pairs of a unit that is rotated."""
        return self.accesses * self.width // 2

    @property
    def units(self) -> int:
        """Returns the units of a head."""
        return -(-self.head_dim // (self.accesses * self.width))

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
            call.check_positions,
            width=math.gcd(side_by_side, call.head_dim, ACCESS // call.dtype.itemsize),
            lanes=1,
            depth=1,
            turns=1,
        )
        heads, lanes = call.q_heads + call.k_heads, min(32, form.units)
        turns = 2 if -(-heads // 2) * lanes <= THREADS else 4
        return evolve(form, lanes=lanes, depth=min(-(-heads // turns), THREADS // lanes), turns=turns)

    def __str__(self) -> str:
        form = "interleaved" if self.interleaved else "halves"
        return (
            f"{self.dtype}, {self.q_heads} and {self.k_heads} heads of {self.head_dim}, {self.pairs} pairs, {form}, "
            f"{self.accesses} accesses of {self.width} and {self.turns} heads a thread, "
            f"{self.lanes} x {self.depth} threads"
        )
