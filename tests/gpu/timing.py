"""Times calls on a CUDA device for the scripts in this folder. Not a test."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import yaml

COLD_BYTES = 256 * 2**20
"""Input sets are rotated until they span this much: several times the L2 cache, so that every call reads memory."""


def copies(bytes_per_call: int, most: int = 10) -> int:
    """Returns how many input sets a row needs so that no call finds its operands in the L2 cache."""
    return max(2, min(most, -(-COLD_BYTES // max(bytes_per_call, 1))))


def gpu_us(calls: Sequence[Callable[[], object]], repeats: int = 15) -> float:
    """Returns the GPU time of a call in us: median over replays of a CUDA graph of at least ten, over all ``calls``."""
    rounds = max(1, 10 // len(calls))
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        # All are kept until the end, so that outputs rotate as inputs do: one that is written again may lie in the L2
        # cache, and where a single one lies can make a tenth of difference.
        kept = [call() for _ in range(rounds) for call in calls]
    del kept
    graph.replay()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / (rounds * len(calls)))
    return sorted(times)[repeats // 2]


@functools.cache
def bench_timing() -> ModuleType:
    """Returns the benchmark's module of timing, also in a process whose package of our name is the peer's."""
    theirs = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "tileops"}
    ours = str(Path(__file__).parents[2])
    sys.path.insert(0, ours)
    try:
        return importlib.import_module("tileops.tools.timing")
    finally:
        sys.path.remove(ours)
        for name in [name for name in sys.modules if name.partition(".")[0] == "tileops"]:
            del sys.modules[name]
        sys.modules.update(theirs)


@functools.cache
def bench_timer() -> Any:
    """Returns the benchmark's timer for the current device."""
    return bench_timing().choose(torch.device("cuda", torch.cuda.current_device()), True)


def bench_record(make: Callable[[], Callable[[], object]], moved: int) -> dict[str, Any]:
    """Times a call as ``python -m tools.bench`` does, which joins such records by ``--peer``.

    ``make`` returns a call on fresh inputs, ``moved`` is the bytes that one moves.
    """
    timing = bench_timing()
    count, evict = timing.sets_of(moved)
    calls = [make() for _ in range(count)]
    reading = bench_timer().measure({"": calls}, evict)[""]
    calls_of_host = max(3, min(100, int(20 / max(reading.latency_ms, 1e-6))))
    fields = ("latency_ms", "device_busy_ms", "calls", "spread")
    return {
        "timing": bench_timer().timing,
        "reading": {name: getattr(reading, name) for name in fields},
        "host_us": timing.host_us(calls[0], torch.cuda.synchronize, calls_of_host),
    }


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """Returns ||out - reference|| / ||reference|| in float64; NaN where out holds one."""
    out, reference = out.double(), reference.double()
    return float((out - reference).norm() / reference.norm().clamp_min(1e-300))


def manifest_rows(op: str = "GemmFwdOp", family: str = "gemm") -> list[tuple[str, dict[str, Any]]]:
    """Returns (label, workload) of each row of an op in the manifest, or in the file that $ROWS names."""
    path = Path(os.environ.get("ROWS", Path(__file__).parents[2] / "manifest" / "spec" / f"{family}.yaml"))
    return [(row["label"], row) for row in yaml.safe_load(path.read_text())[op]["workloads"]]
