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
