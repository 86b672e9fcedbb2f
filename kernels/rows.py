"""Shares rows out among threads: the numbers that the programs which work row by row are built with. No device code."""

from __future__ import annotations

import math

from attrs import frozen

WARP = 32
"""Threads of a warp."""

ACCESS = 16
"""Bytes of the widest access of a thread."""

COUNT_LIMIT = 2**31 - 1024
"""Most rows of the programs that count them in 32 bits."""

WARP_BYTES = 2048
"""Bytes of a row that a warp keeps on chip, at most: four accesses a thread."""

BLOCK_BYTES = 131072
"""Bytes of a row that a block keeps on chip, at most: 1024 threads with 32 registers each."""

NARROW_LIMIT = 32768
"""Elements of two bytes that a block keeps on chip one by one: each takes a register."""

REGISTERS = 32
"""Registers in which a thread keeps its share of a row."""

PART_BYTES = 32768
"""Bytes of a row that are not worth sharing among blocks, at most."""


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

WALK = 2048
"""Blocks of the programs that walk what there is with 64-bit indices: several an SM on any board."""


def short_rows(length: int, itemsize: int, busy: bool = True, most: int = 32) -> Share:
    """Returns a share with as many threads a row as it has accesses, at most ``most``, and rows enough for a block.

    ``busy``: there are rows enough for every SM; else a block has half as many rows.
    """
    width = access_width(length, itemsize)
    lanes = min(most, power_of_two(-(-length // width)))
    return Share(lanes, (BLOCK if busy else BLOCK // 2) // lanes, -(-length // (width * lanes)), width)


TURNS = 4
"""Accesses in flight a thread of a block that walks."""

LANES = 256
"""Threads of a block that keeps one row of many: 34 us for 8192 rows of 4096 bfloat16, 35 with 128, 38 with 512."""

MOST_LANES = 288
"""Such threads at most, where a row is not too long: 32 us with 224 for 4096 rows of 7168 bfloat16, 33 with 448."""


def one_row(length: int, itemsize: int, busy: bool, most: int = 1024, run: int | None = None) -> Share:
    """Returns a share with a block a row, all of it on chip, in whole warps.

    ``run``: elements of a row that lies in pieces of ``length``, at whose boundaries accesses end; None: one piece.
    ``busy``: there are rows enough for every SM: of the counts of two accesses a thread and more, the one wins that
    leaves least idle, then the one whose threads are nearest to LANES. Else a thread takes as few as it can.
    """
    width = access_width(length, itemsize)
    accesses = (run or length) // width

    def lanes_of(turns: int) -> int:
        return -(-accesses // (32 * turns)) * 32

    turns = -(-accesses // most)
    counts = range(max(2, turns), 2 * TURNS + 1)
    if busy and counts:
        # Rows too short for two warps get as many threads as there are, rows too long as few.
        rest = counts[0] if lanes_of(counts[0]) < 64 else counts[-1]
        wanted = [count for count in counts if 64 <= lanes_of(count) <= MOST_LANES] or [rest]
        idle = {count: lanes_of(count) * count / accesses for count in wanted}
        turns = min(wanted, key=lambda count: idle[count] + abs(lanes_of(count) - LANES) / (10 * LANES))
    return Share(lanes_of(turns), 1, turns, width)


def long_row(length: int, itemsize: int, lanes: int = 512) -> Share:
    """Returns a share with a block a row that it walks, TURNS accesses a thread at a time."""
    return Share(lanes, 1, TURNS, access_width(length, itemsize))


def part_row(
    length: int, itemsize: int, run: int, rows: int, sm_count: int, most_bytes: int = 4 * REGISTERS
) -> tuple[Share, int]:
    """Returns a share with a block a part of a row, all of it on chip, and how many parts, two at least, a row has.

    ``length``: elements side by side, at whose boundaries accesses end. ``run``: elements of a row.
    ``most_bytes``: what a thread of the smallest block keeps; blocks grow where there would be more parts than SMs.
    Few rows get more parts than they need, a power of two, so that each SM has about two.
    """
    width = access_width(length, itemsize)
    accesses = run // width
    registers = max(1, width * itemsize // 4)
    for lanes, kept in ((256, most_bytes // 4), (512, REGISTERS), (1024, REGISTERS)):
        most = kept // registers
        if -(-accesses // (lanes * most)) <= sm_count:
            break
    idle = power_of_two(sm_count // rows + 1)
    parts = max(2, -(-accesses // (lanes * most)), min(idle, sm_count, accesses // lanes))
    turns = -(-accesses // (lanes * parts))
    return Share(lanes, 1, turns, width), -(-accesses // (lanes * turns))


CLUSTER = 8
"""Blocks of a cluster: the most that every board with clusters takes."""

LARGE_CLUSTER = 16
"""Blocks of a cluster, at most, on arch 90."""

CLUSTER_KEPT = 40
"""Elements that a thread of a cluster keeps in float32: 512 threads of two blocks an SM have the registers for them."""

CLUSTER_LENGTH = CLUSTER * 1024 * CLUSTER_KEPT
"""Elements of a row that a cluster keeps on chip, at most."""


def cluster_row(length: int, itemsize: int, blocks: int = CLUSTER, kept: int = CLUSTER_KEPT, lanes: int = 32) -> Share:
    """Returns a share with a cluster a row, all of it on chip: the share of one of its blocks, in whole warps.

    ``kept``: elements of a thread, at most. ``lanes``: threads of a block at least, where there is something for each.
    """
    width = access_width(length, itemsize)
    accesses = -(-(length // width) // blocks)
    turns = min(kept // width, -(-accesses // lanes))
    return Share(-(-accesses // (turns * 32)) * 32, 1, turns, width)
