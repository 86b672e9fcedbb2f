"""Refusals that several GEMM implementations share."""

from __future__ import annotations

from tileops.rules.declaration import Refusal

INDEX_LIMIT = 2**31 - 256
"""Greatest dimension of the 32-bit programs: rounding up to a whole tile of 256 stays within 31 bits."""

INDEX = Refusal(
    f"max(m, n, k) > {INDEX_LIMIT}",
    f"counts rows and columns in 32 bits, rounded up to whole tiles: at most {INDEX_LIMIT}, "
    "got m={m}, n={n}, k={k}",
)

PITCH = (
    Refusal(
        "(m if trans_a else k) * itemsize(dtype) % 16 != 0",
        "a row of a as stored has {(m if trans_a else k) * itemsize(dtype)} bytes: "
        "the copy engine takes multiples of 16",
    ),
    Refusal(
        "(k if trans_b else n) * itemsize(dtype) % 16 != 0",
        "a row of b as stored has {(k if trans_b else n) * itemsize(dtype)} bytes: "
        "the copy engine takes multiples of 16",
    ),
)
"""Refusals of operands whose rows do not lie on 16-byte boundaries."""

GRID_Y = 65535
"""Most blocks along a grid's second axis, which counts tile columns."""

TILE_COLUMNS = Refusal(
    f"ceildiv(n, 64) > {GRID_Y}",
    f"n={{n}} makes {{ceildiv(n, 64)}} columns of 64: a grid has at most {GRID_Y}",
)
