"""Times the public peer's GEMM (the package tileops 0.1.0) on our manifest's rows, one JSON line a row.

    python3 tests/gpu/peer_gemm.py PEER_DIR [SECONDS]

PEER_DIR holds the peer unpacked; this script imports nothing of ours in its place. A row not reached in SECONDS
(default 300) is said to be so; 0 makes the first calls only, which fill TileLang's disk cache. JSON lines go to
standard output and to $OUT/peer_gemm.jsonl.
"""

from __future__ import annotations

import sys

import torch
from peer import Case, Row, main, op, random


def prepared(row: Row) -> Case:
    """Returns a call of the peer on fresh random operands as stored."""
    size, dtype = row.workload, getattr(torch, row.workload["T"])
    m, n, k = size["M"], size["N"], size["K"]
    trans_a, trans_b = size.get("trans_a", False), size.get("trans_b", True)
    a = random(*(k, m) if trans_a else (m, k), dtype=dtype)
    b = random(*(n, k) if trans_b else (k, n), dtype=dtype)
    product = op("gemm", "GEMMFwdOp", trans_a=trans_a, trans_b=trans_b)

    def expected() -> list[torch.Tensor]:
        return [(a.T if trans_a else a).double() @ (b.T if trans_b else b).double()]

    return Case(lambda: product(a, b), expected, dtype.itemsize * (m * k + k * n + m * n), dtype)


if __name__ == "__main__":
    sys.exit(main(__doc__, {"GemmFwdOp": "gemm"}, prepared))
