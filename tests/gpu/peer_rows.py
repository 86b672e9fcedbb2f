"""Times the public peer (the package tileops 0.1.0) on our manifest's memory-bound rows, one JSON line a row.

    python3 tests/gpu/peer_rows.py PEER_DIR [SECONDS] [OP ...]

PEER_DIR holds the peer unpacked; its package has our name, so it runs in a process of its own, and this script imports
nothing of ours. OP limits it to some of our ops. First calls are made in parallel processes, so that programs lie in
TileLang's disk cache; a row not reached in SECONDS (default 300) is left out and said so. A row that the peer does not
take is a line with its problem. JSON lines go to standard output and to $OUT/peer_rows.jsonl.

Where the peer's op differs: its RoPE takes q and k in two calls, makes its own table of angles, and has positions only
where halves are rotated; its fused addition has a result of its own for the sum.
"""
# ruff: noqa: T201  # a script that prints its result

from __future__ import annotations

import concurrent.futures
import functools
import importlib
import json
import logging
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])

import torch
from timing import bench_record, manifest_rows

FAMILIES = {
    "RMSNormFwdOp": "norm",
    "FusedAddRMSNormFwdOp": "norm",
    "LayerNormFwdOp": "norm",
    "SoftmaxFwdOp": "reduction",
    "SiLUAndMulFwdOp": "elementwise",
    "RoPEFwdOp": "rope",
    "GroupNormFwdOp": "norm",
    "BatchNormFwdOp": "norm",
    "CumsumFwdOp": "reduction",
}
Row = tuple[str, str, dict[str, Any]]
Call = Callable[[], object]


def rows(wanted: list[str]) -> list[Row]:
    """Returns op, label and workload of every row and dtype, the dtypes among the workload's values."""
    return [
        (op, label, row | case)
        for op, family in FAMILIES.items()
        if not wanted or op in wanted
        for label, row in manifest_rows(op, family)
        for case in row["dtypes"]
    ]


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns random values on the current device."""
    return torch.randn(shape, device="cuda", dtype=dtype)


def parameters(row: dict[str, Any], length: int, dtype: torch.dtype, *names: str) -> list[torch.Tensor | None]:
    """Returns the optional inputs of a row, None where it leaves them out."""
    return [None if name in row.get("without", ()) else random(length, dtype=dtype) for name in names]


@functools.cache
def peers(family: str, name: str, *values: Any, **params: Any) -> Any:
    """Returns an op of the peer, one for all calls with the same parameters."""
    return getattr(importlib.import_module(f"tileops.{family}"), name)(*values, **params)


def rotation(row: dict[str, Any], dtype: torch.dtype) -> tuple[Call, int]:
    """Returns a call that rotates q and k, and its bytes."""
    tokens, width, pairs = math.prod(row["B"]), row["D"], row["R"]
    heads = [random(tokens, count, width, dtype=dtype) for count in (row["HQ"], row["HK"])]
    moved = sum(2 * x.nbytes for x in heads)
    if row.get("interleaved"):
        if 2 * pairs != width:
            raise ValueError("the peer rotates whole heads where pairs are neighbours")
        op = peers("rope", "RoPEFwdOp", "interleaved", "2d")
        return lambda: [op(x[None]) for x in heads], moved
    positions = torch.randint(0, row["P"], (tokens,), device="cuda", dtype=getattr(torch, row["I"]))
    op = peers("rope", "RoPENeoxPositionIdsFwdOp", row["P"], rotary_dim=2 * pairs)
    return lambda: [op(x, positions) for x in heads], moved


def prepared(op: str, row: dict[str, Any]) -> tuple[Call, int]:
    """Returns a call of the peer's op on fresh random inputs, and the bytes it has to move."""
    dtype = getattr(torch, row["T"])
    if op == "RoPEFwdOp":
        return rotation(row, dtype)
    if op == "SiLUAndMulFwdOp":
        x = random(math.prod(row["B"]), 2 * row["H"], dtype=dtype)  # it takes matrices only
        run = peers("elementwise", op)
        return lambda: run(x), x.nbytes * 3 // 2
    if op in ("SoftmaxFwdOp", "CumsumFwdOp"):
        x = random(*row["S"], dtype=dtype)
        run = peers("reduction", op, dim=row.get("dim", -1))
        return lambda: run(x), 2 * x.nbytes
    if op in ("GroupNormFwdOp", "BatchNormFwdOp"):
        x = random(row["N"], row["C"], *row["S"], dtype=dtype)
        weight, bias = parameters(row, row["C"], getattr(torch, row.get("P", row["T"])), "weight", "bias")
        if op == "GroupNormFwdOp":
            run = peers("norm", op, row["num_groups"], eps=float(row.get("eps", 1e-5)))
            return lambda: run(x, weight, bias), 2 * x.nbytes
        training, momentum = row.get("training", False), float(row.get("momentum", 0.1))
        run = peers("norm", op, training=training, momentum=momentum, eps=float(row.get("eps", 1e-5)))
        mean, variance = random(row["C"], dtype=getattr(torch, row["P"])), torch.ones(row["C"], device="cuda")
        variance = variance.to(mean.dtype)
        return lambda: run(x, mean, variance, weight, bias), 2 * x.nbytes
    shape = row["normalized_shape"]
    x, length = random(*row["B"], *shape, dtype=dtype), math.prod(shape)
    weight, bias = parameters(row, length, dtype, "weight", "bias")
    eps = float(row.get("eps", 1e-5))
    if op == "FusedAddRMSNormFwdOp":
        run, residual = peers("norm", op, eps=eps), random(*x.shape, dtype=dtype)
        return lambda: run(x, residual, weight), 4 * x.nbytes
    run = peers("norm", op, tuple(shape), eps=eps)
    if op == "LayerNormFwdOp":
        return lambda: run(x, weight, bias), 2 * x.nbytes
    return lambda: run(x, weight), 2 * x.nbytes


def first_call(item: Row) -> str | None:
    """Calls the peer once, so that its program lies in the disk cache; returns what went wrong, if anything did."""
    logging.disable(logging.INFO)
    try:
        prepared(item[0], item[2])[0]()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  # one row must not end the run
        return f"{type(error).__name__}: {str(error)[-200:]}"
    return None


def measure(op: str, row: dict[str, Any]) -> dict[str, Any]:
    """Returns the GPU time of a row as the benchmark takes it, and its bytes.

    By no graph: some of the peer's ops cannot be captured, and a capture that failed spoils the process.
    """
    moved = prepared(op, row)[1]
    return {"moved": moved, **bench_record(lambda: prepared(op, row)[0], moved)}


def main() -> None:
    """Makes the first calls, then times."""
    logging.disable(logging.INFO)
    limit = time.time() + float(sys.argv[2] if len(sys.argv) > 2 else 300)
    todo = rows(sys.argv[3:])
    problems: dict[int, str] = {}
    with concurrent.futures.ProcessPoolExecutor(12, multiprocessing.get_context("spawn")) as pool:
        problems = {place: text for place, text in enumerate(pool.map(first_call, todo)) if text}
    left_out = 0
    with (Path(os.environ.get("OUT", ".")) / "peer_rows.jsonl").open("w") as file:
        for place, (op, label, row) in enumerate(todo):
            if time.time() > limit:
                left_out += 1
                continue
            dtypes = "-".join(row[name] for name in row["dtypes"][0])
            record: dict[str, Any] = {"op": op, "label": label, "dtypes": dtypes}
            try:
                record |= {"problem": problems[place]} if place in problems else measure(op, row)
            except Exception as error:  # noqa: BLE001  # one row must not end the run
                record["problem"] = f"{type(error).__name__}: {str(error)[-200:]}"
            print(json.dumps(record), flush=True)
            file.write(json.dumps(record) + "\n")
            torch.cuda.empty_cache()
    print(f"peer: {len(todo) - left_out} of {len(todo)} rows, {len(problems)} first calls failed")


if __name__ == "__main__":
    main()
