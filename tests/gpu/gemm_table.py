"""Joins the figures of gemm_rows.py and peer_gemm.py into the Markdown table of docs/performance.md.

python3 tests/gpu/gemm_table.py gemm_rows.jsonl peer_gemm.jsonl
"""
# ruff: noqa: T201  # a script that prints its result

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def lines(path: str) -> list[dict[str, Any]]:
    """Returns the records of a JSON lines file."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def mean(ratios: Iterable[float]) -> float:
    """Returns the geometric mean."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))


def main() -> None:
    """Prints the table, and the means under it."""
    ours = [record for record in lines(sys.argv[1]) if record["kind"] == "row"]
    peer = {(record["label"], record["dtype"]): record.get("us") for record in lines(sys.argv[2])}
    print("| row | m x n x k | dtype | kernel | ours, us | cuBLAS, us | peer, us | cuBLAS / ours | peer / ours |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    ratios: dict[str, list[tuple[float, float]]] = {}
    for record in ours:
        facts = dict(item.split("=") for item in record["call"].split())
        us, cublas = record["us"][record["winner"]], record["us"]["cublas"]
        other = peer[record["label"], facts["dtype"]]
        ratios.setdefault(facts["dtype"], []).append((cublas / us, other / us))
        print(
            f"| {record['label']} | {facts['m']} x {facts['n']} x {facts['k']} | {facts['dtype']} | {record['winner']} "
            f"| {us:.1f} | {cublas:.1f} | {other:.1f} | {cublas / us:.2f} | {other / us:.2f} |"
        )
    for dtype, found in ratios.items():
        worst = min(min(pair) for pair in found)
        print(
            f"\n{dtype}, geometric mean of {len(found)} rows: cuBLAS / ours {mean(a for a, _ in found):.3f}, "
            f"peer / ours {mean(b for _, b in found):.3f}; the lowest of all ratios {worst:.2f}"
        )


if __name__ == "__main__":
    main()
