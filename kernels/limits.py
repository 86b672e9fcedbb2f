"""Refusals that implementations which work row by row share: rows, length and dtype are facts of their calls."""

from __future__ import annotations

from tileops.kernels.rows import ACCESS, BLOCK_BYTES, COUNT_LIMIT, NARROW_LIMIT, PART_BYTES
from tileops.rules.declaration import Refusal

TICKET_ROWS = 2**20
"""Most rows whose parts are counted in 32 bits, at up to 1024 parts a row."""

ROWS = Refusal(f"rows > {COUNT_LIMIT}", f"counts rows in 32 bits: at most {COUNT_LIMIT}, got {{rows}}")


def row_bytes(most: int, why: str) -> Refusal:
    """Returns the refusal of rows of more than ``most`` bytes."""
    return Refusal(
        f"length * itemsize(dtype) > {most}",
        f"a row has {{length * itemsize(dtype)}} bytes: {why}, at most {most}",
    )


ROW_ACCESSES = f"length * itemsize(dtype) // gcd(length * itemsize(dtype), {ACCESS})"
"""Accesses of a contiguous row, as a rule's text."""

NARROW = Refusal(
    f"length > {NARROW_LIMIT} and length % 2 != 0 and itemsize(dtype) == 2",
    f"an odd length={{length}} allows accesses of one element only: a block keeps {NARROW_LIMIT} of them",
)

ENOUGH = Refusal(
    f"length * itemsize(dtype) <= {BLOCK_BYTES} and rows * 8 > sm_count",
    "{rows} rows, each kept by a block, use {sm_count} SMs well enough",
)

IDLE = (
    Refusal(
        f"length * itemsize(dtype) <= {PART_BYTES}",
        f"a row has {{length * itemsize(dtype)}} bytes: a block alone keeps {PART_BYTES}",
    ),
    ENOUGH,
)
"""Refusals of calls where several blocks a row would gain nothing over one."""

PART = f"({BLOCK_BYTES // 2} if length % 2 != 0 and itemsize(dtype) == 2 else {BLOCK_BYTES})"
"""Bytes of a part of a row that a block keeps, as a rule's text."""

WAITING = Refusal(
    f"ceildiv(length * itemsize(dtype), {PART}) > sm_count",
    f"a row has {{ceildiv(length * itemsize(dtype), {PART})}} parts, whose blocks wait for each other: "
    "{sm_count} SMs hold as many at once",
)

TICKETS = Refusal(
    f"rows > {TICKET_ROWS}", f"counts the parts of rows in 32 bits: at most {TICKET_ROWS} rows, got {{rows}}"
)
