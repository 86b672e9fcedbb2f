"""Lets blocks that are on the chip together tell each other numbers: a record is written once, and read by waiting.

A record is 64 bits, two numbers: whoever reads it sees all or nothing, so no order of memory matters.
All bits set mean that it has not been told: arithmetic makes no such NaN.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

THREADS = 256
"""Threads a block of the kernel that prepares records."""

UNTOLD = 2**64 - 1


@T.macro
def prepare(records: Any, count: Any, early: bool) -> None:
    """Makes ``count`` records untold. ``early``: the kernel behind need not wait for it before ``prepared``."""
    with T.Kernel(T.ceildiv(count, THREADS), threads=THREADS) as block:
        if early:
            T.pdl_trigger()
        index = block * THREADS + T.get_thread_binding(0)
        if index < count:
            records[index] = T.uint64(UNTOLD)


@T.macro
def prepared(early: bool) -> None:
    """Returns once the kernel before has prepared the records."""
    if early:
        T.pdl_sync()


@T.macro
def tell(records: Any, index: Any, lane: Any, first: Any, second: Any) -> None:
    """Tells first[0] and second[0] of the thread whose ``lane`` is 0."""
    if lane == 0:
        low = T.cast(T.reinterpret(first[0], "uint32"), "uint64")
        high = T.cast(T.reinterpret(second[0], "uint32"), "uint64")
        T.atomic_store(records[index], low | (high << T.uint64(32)), memory_order="relaxed")


@T.macro
def hear(records: Any, index: Any, first: Any, second: Any, place: Any) -> None:
    """Waits for a record and puts its numbers in first[place] and second[place]."""
    word = T.alloc_local((1,), "uint64")
    word[0] = T.atomic_load(records[index], memory_order="relaxed")
    while word[0] == T.uint64(UNTOLD):
        word[0] = T.atomic_load(records[index], memory_order="relaxed")
    first[place] = T.reinterpret(T.cast(word[0] & T.uint64(2**32 - 1), "uint32"), "float32")
    second[place] = T.reinterpret(T.cast(word[0] >> T.uint64(32), "uint32"), "float32")
