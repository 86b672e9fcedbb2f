"""What the implementations that work row by row share: which rows one serves, and how threads share them.

An op has three of them: at most a warp keeps a row on chip, a block keeps one, a block walks one twice. The classes
here stand before an op's launch among the bases. rows, length and dtype are facts of its calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch

from tileops.kernels.limits import NARROW, ROW_ACCESSES, ROWS, row_bytes
from tileops.kernels.rows import BLOCK_BYTES, WARP_BYTES, Share, long_row, one_row, short_rows
from tileops.rules.archs import at_least
from tileops.rules.declaration import Declaration, Refusal


class Rows:
    """Builds the program of a call for a share of its rows."""

    walks: ClassVar[bool] = False
    """Blocks walk the rows, with 64-bit indices; else rows stay on chip."""

    def __init__(self, identity: Any) -> None:
        """Compiles the program of a build identity."""
        raise NotImplementedError(f"{type(self).__name__} has no launch among its bases")

    @classmethod
    def share_of(cls, call: Any) -> Any:
        """Returns how threads share the rows of a call."""
        raise NotImplementedError(f"{cls.__name__} shares no rows out")

    @classmethod
    def identity_of(cls, call: Any, share: Any) -> Any:
        """Returns the build identity of a call with a share."""
        raise NotImplementedError(f"{cls.__name__} has no launch among its bases")

    @classmethod
    def entry_for(cls, call: Any) -> tuple[Any, Callable[[], Self]]:
        """Returns the build identity of a call and the function that builds it."""
        identity = cls.identity_of(call, cls.share_of(call))
        return identity, lambda: cls(identity)


def flat(parameter: torch.Tensor | None, instead: torch.Tensor) -> torch.Tensor:
    """Returns a weight or bias in one dim; where there is none, what a program takes in its place."""
    if parameter is None:
        return instead
    return parameter if parameter.dim() == 1 else parameter.view(-1)


class WarpRows(Rows):
    """Keeps each row with a warp or less."""

    @classmethod
    def share_of(cls, call: Any) -> Share:
        """Returns a share with several rows a block, half as many where that leaves SMs idle."""
        return short_rows(call.length, call.dtype.itemsize, busy=call.rows >= 8 * call.sm_count)


class BlockRows(Rows):
    """Keeps each row with a block."""

    @classmethod
    def share_of(cls, call: Any) -> Share:
        """Returns a share with a block a row, of more threads where that leaves SMs idle."""
        return one_row(call.length, call.dtype.itemsize, busy=call.rows >= 2 * call.sm_count)


class WalkedRows(Rows):
    """Walks each row twice with a block."""

    walks: ClassVar[bool] = True

    @classmethod
    def share_of(cls, call: Any) -> Any:
        """Returns a share with a block a row."""
        return long_row(call.length, call.dtype.itemsize)


SLIGHT = 1024
"""Bytes of a row of few that a warp keeps as fast as a block, at most.

On an H200, softmax of 32 rows of 128 bfloat16 takes 1.4 us by warps and 1.5 by blocks, of 256 rows of 500 float16 1.9
by either, of 256 rows of 1000 float16 2.2 and 2.0, of 512 2.3 and 2.2; fused add and RMSNorm of one row of 1024
bfloat16 takes 2.0 and 1.7.
"""

FEW = Refusal(
    f"rows < 8 * sm_count and length * itemsize(dtype) > {SLIGHT}",
    f"{{rows}} rows, a warp each, leave {{sm_count}} SMs waiting for {{length * itemsize(dtype)}} bytes a row: "
    f"few rows have at most {SLIGHT}",
)
"""Of few rows that a block each keeps faster: a thread of a warp takes several accesses, one of a block one."""


MOST_ACCESSES = 192
"""Accesses of a row that a warp keeps, at most: six a thread.

RMSNorm of 1056 rows of 514 bfloat16 takes 4.5 us by warps, which read two elements an access, and 2.7 by blocks; of
262144 rows of 129, one by one, 74 and 160.
"""

ACCESSES = Refusal(
    f"{ROW_ACCESSES} > {MOST_ACCESSES}",
    f"a row takes {{{ROW_ACCESSES}}} accesses: a warp keeps up to {MOST_ACCESSES} faster than a block",
)


def warp_rows(before: str, *more: Refusal, few: Refusal = FEW) -> Declaration:
    """Returns the declaration of WarpRows, which goes before ``before``; ``more``: refusals of the op.

    ``few``: the refusal of rows so few that a block each is faster.
    """
    return Declaration(
        devices={"cuda"},
        supported_archs=at_least(80),
        refusal=(*more, row_bytes(WARP_BYTES, "kept by a warp"), ACCESSES, few, ROWS),
        preferred_over={before},
    )


def block_rows(
    *more: Refusal, kept: tuple[Refusal, ...] = (row_bytes(BLOCK_BYTES, "kept by a block"), NARROW)
) -> Declaration:
    """Returns the declaration of BlockRows; ``kept``: refusals of rows too long for a block."""
    return Declaration(devices={"cuda"}, supported_archs=at_least(80), refusal=(*more, *kept, ROWS))


WALKED_ROWS = Declaration(devices={"cuda"}, supported_archs=at_least(80), general=True)
"""The declaration of WalkedRows, which serve rows of any length and number."""
