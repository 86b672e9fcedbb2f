"""Shares rows out among threads: the numbers that the programs which work row by row are built with. No device code."""

from __future__ import annotations

import math

from attrs import frozen

ACCESS = 16
"""Bytes of the widest access of a thread."""

COUNT_LIMIT = 2**31 - 1024
"""Most rows of the programs that count them in 32 bits."""


def access_width(length: int, itemsize: int) -> int:
    """Returns how many elements one access takes so that each row of ``length`` elements starts on its boundary."""
    return math.gcd(length, ACCESS // itemsize)


def power_of_two(least: int) -> int:
    """Returns the least power of two that is not below ``least``."""
    return 1 << max(least - 1, 0).bit_length()


@frozen
class Share:
    """Describes a thread block: ``rows`` rows of it, each shared by ``lanes`` threads, a power of two."""

    lanes: int
    rows: int
    turns: int
    """Accesses of a thread that are in flight together; where a row stays on chip, all of them."""
    width: int
    """Elements an access."""

    def __str__(self) -> str:
        return f"{self.rows} rows a block, {self.lanes} lanes a row, {self.turns} accesses of {self.width}"


BLOCK = 256
"""Threads of a block that holds several rows."""


def several_rows(length: int, itemsize: int, lanes: int, block: int = BLOCK) -> Share:
    """Returns a share with ``lanes`` threads a row, at most a warp, and as many rows as make a block."""
    width = access_width(length, itemsize)
    return Share(lanes, block // lanes, -(-length // (width * lanes)), width)


def short_rows(length: int, itemsize: int, block: int = BLOCK) -> Share:
    """Returns a share with few threads a row: as many as it has accesses, at most a warp."""
    accesses = -(-length // access_width(length, itemsize))
    return several_rows(length, itemsize, min(32, power_of_two(accesses)), block)


TURNS = 4
"""Accesses in flight a thread at which a full SM reaches the memory's bandwidth."""


def one_row(length: int, itemsize: int, busy: bool, most: int = 1024) -> Share:
    """Returns a share with a block a row, all of it on chip.

    ``busy``: there are rows enough for every SM, so a thread takes several accesses; else it takes as few as it can.
    Of the counts of lanes that need at most twice TURNS, the one that leaves least idle wins, then the fewest turns over
    TURNS.
    """
    width = access_width(length, itemsize)
    accesses = length // width
    wanted = TURNS if busy else 1
    choices = []
    lanes = 64
    while lanes <= most:
        turns = -(-accesses // lanes)
        idle = turns * lanes / accesses
        if turns <= 2 * wanted or lanes == most:
            choices.append((round(idle, 2) + abs(turns - wanted) / 100, lanes, turns))
        lanes *= 2
    _, lanes, turns = min(choices)
    return Share(lanes, 1, turns, width)


def long_row(length: int, itemsize: int, lanes: int = 512) -> Share:
    """Returns a share with a block a row that it walks, TURNS accesses a thread at a time."""
    return Share(lanes, 1, TURNS, access_width(length, itemsize))
