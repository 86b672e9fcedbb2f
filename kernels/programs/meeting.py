"""Lets several blocks share a row that stays on chip: each publishes what it found of its part, and waits for the rest.

A block takes a ticket when it starts; consecutive tickets are the parts of one row. A row whose parts have all started
waits for nobody else, and rows start in order, so all is done as long as the parts of one row fit on the chip together.
"""

# mypy: ignore-errors
# TileLang reads annotations as values and its decorators are untyped.

from typing import Any

import tilelang.language as T  # noqa: N812  # the name that TileLang programs use

THREADS = 256
"""Threads a block of the kernel that clears the counters."""


@T.macro
def clear(counters: Any, count: Any) -> None:
    """Sets counters [1 + rows] to zero: the next ticket, then how many parts of each row have been published."""
    with T.Kernel(T.ceildiv(count + 1, THREADS), threads=THREADS) as block:
        index = block * THREADS + T.get_thread_binding(0)
        if index < count + 1:
            counters[index] = 0


@T.macro
def take_ticket(counters: Any, ticket: Any, lane: Any) -> None:
    """Puts this block's ticket in ticket[0], shared."""
    if lane == 0:
        ticket[0] = T.atomic_add(counters[0], 1, return_prev=True)
    T.sync_threads()


@T.macro
def publish(counters: Any, row: Any, lane: Any) -> None:
    """Says that this block's part is done: what the calling thread 0 wrote before is seen by who waited."""
    before = T.alloc_local((1,), "int32")
    if lane == 0:
        # TileLang 0.1.15 drops the order of an atomic_add of integers unless its result is asked for.
        before[0] = T.atomic_add(counters[1 + row], 1, memory_order="release", return_prev=True)


@T.macro
def wait(counters: Any, row: Any, parts: Any, lane: Any) -> None:
    """Returns to all threads once ``parts`` parts of the row are published."""
    if lane == 0:
        while T.atomic_load(counters[1 + row], memory_order="acquire") < parts:
            T.evaluate(0)
    T.sync_threads()
