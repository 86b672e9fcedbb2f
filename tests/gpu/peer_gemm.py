"""Times the public peer's GEMM (the package tileops 0.1.0) on our manifest's rows, one JSON line a row.

    python3 tests/gpu/peer_gemm.py PEER_DIR [SECONDS]

PEER_DIR holds the peer unpacked; its package has our name, so it runs in a process of its own, and this script imports
nothing of ours. Programs are compiled in parallel into TileLang's disk cache first; a row not reached in SECONDS
(default 300) is left out and said so. JSON lines go to $OUT/peer_gemm.jsonl.
"""
# ruff: noqa: T201  # a script that prints its result

from __future__ import annotations

import concurrent.futures
import json
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])

import torch
from timing import bench_record, copies, gpu_us, manifest_rows, relative_error

Row = tuple[str, int, int, int, str, bool, bool]


def rows() -> list[Row]:
    """Returns every row and dtype of the manifest."""
    return [
        (label, row["M"], row["N"], row["K"], case["T"], row.get("trans_a", False), row.get("trans_b", True))
        for label, row in manifest_rows()
        for case in row["dtypes"]
    ]


def operands(row: Row) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns fresh random operands as stored."""
    _, m, n, k, dtype, trans_a, trans_b = row
    kind = getattr(torch, dtype)
    a = torch.randn((k, m) if trans_a else (m, k), device="cuda", dtype=kind)
    b = torch.randn((n, k) if trans_b else (k, n), device="cuda", dtype=kind)
    return a, b


def op_of(row: Row) -> Callable[..., Any]:
    """Returns the peer's op for a row."""
    from tileops.gemm import GEMMFwdOp  # the peer's, from PEER_DIR

    op: Callable[..., Any] = GEMMFwdOp(trans_a=row[5], trans_b=row[6])
    return op


def first_call(row: Row) -> str | None:
    """Calls the peer once, so that its program lies in the disk cache; returns what went wrong, if anything did."""
    logging.disable(logging.INFO)
    try:
        op_of(row)(*operands(row))
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  # one row must not end the run
        return f"{type(error).__name__}: {str(error)[-200:]}"
    return None


def measure(row: Row) -> dict[str, Any]:
    """Returns the error and the GPU time of a row."""
    _, m, n, k, *_ = row
    op = op_of(row)
    a, b = operands(row)
    left, right = (a.T if row[5] else a), (b.T if row[6] else b)
    error = relative_error(op(a, b), left.double() @ right.double())
    moved = 2 * (m * k + k * n + m * n)

    def fresh() -> Callable[[], object]:
        a, b = operands(row)
        return lambda: op(a, b)

    us = gpu_us([fresh() for _ in range(copies(moved))])
    return {"error": error, "us": us, **bench_record(fresh, moved)}


def main() -> None:
    """Compiles, then times."""
    logging.disable(logging.INFO)
    limit = time.time() + float(sys.argv[2] if len(sys.argv) > 2 else 300)
    todo = rows()
    # A process holds about 0.5 GiB of GPU memory beside its operands, of which the largest row needs 3 GiB.
    with concurrent.futures.ProcessPoolExecutor(12, multiprocessing.get_context("spawn")) as pool:
        problems = [problem for problem in pool.map(first_call, todo) if problem]
    print(f"peer: first calls done, {len(problems)} failed", flush=True)
    left_out = 0
    with (Path(os.environ.get("OUT", ".")) / "peer_gemm.jsonl").open("w") as file:
        for row in todo:
            if time.time() > limit:
                left_out += 1
                continue
            record: dict[str, Any] = {"op": "GemmFwdOp", "label": row[0], "dtypes": row[4], "dtype": row[4]}
            try:
                record |= measure(row)
            except Exception as error:  # noqa: BLE001  # one row must not end the run
                record["problem"] = f"{type(error).__name__}: {str(error)[-200:]}"
            file.write(json.dumps(record) + "\n")
            file.flush()
    print(f"peer: {len(todo) - left_out} of {len(todo)} rows")


if __name__ == "__main__":
    main()
