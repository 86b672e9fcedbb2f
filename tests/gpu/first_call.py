"""Times the first call of every op: cold, with an empty disk cache of TileLang, then in a second process from it.

    PYTHONPATH=. python3 tests/gpu/first_call.py [OP ...]         all ops without arguments

The device's context and the inputs are made before the clock starts. The first call imports tilelang, once a process,
which is timed apart: cold it is part of the call, from the cache it is not a kernel's. Of an op the row in the middle
of its list of workloads is taken. Ops run six at a time, which leaves a compilation the cores that it uses. The bars:
5 s cold; 0.5 s a kernel from the cache. Exit status 1 where one is missed.
"""
# ruff: noqa: T201  # a script that prints its result

from __future__ import annotations

import concurrent.futures
import importlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import tileops
from tileops import backend
from tileops.catalog import op_names
from tileops.tools import samples
from tileops.tools.catalogue import known
from tileops.tools.rows import Item

COLD_S, CACHED_S = 5.0, 0.5


def child(op: str) -> None:
    """Prints what the first call of an op and the second one took."""
    about = known(op)
    cases = about.entry.cases()
    item = Item(about, cases[len(cases) // 2])
    tensors = samples.make(op, about.entry.signature, item.case, torch.device("cuda", torch.cuda.current_device()))
    call = item.op(backend.BUILTIN)
    torch.cuda.synchronize()
    start = time.perf_counter()
    importlib.import_module("tilelang")
    seconds = [time.perf_counter() - start]
    for _ in range(2):
        start = time.perf_counter()
        call(*tensors.values())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    builds = sum(count.builds for counts in tileops.stats().values() for count in counts.values())
    print(json.dumps({"seconds": seconds, "builds": builds, "row": item.case.label}))


def run(op: str) -> tuple[str, dict, dict]:
    """Runs an op in two processes, one after the other, on a disk cache of their own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"TILELANG_CACHE_DIR": str(Path(folder) / "cache")}
        found = []
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, __file__, "--child", op], capture_output=True, text=True, check=False, env=environment
            )
            if done.returncode:
                return op, {"failed": done.stderr[-600:]}, {}
            found.append(json.loads(done.stdout.splitlines()[-1]))
    return op, found[0], found[1]


def main() -> int:
    """Runs the ops that were asked for; returns the exit status."""
    logging.disable(logging.INFO)
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
        return 0
    ops = sys.argv[1:] or sorted(op_names())
    missed = 0
    print("op, row: builds; import, cold call; the second process's call, a kernel; a call then")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for op, cold, cached in pool.map(run, ops):
            if not cached:
                print(f"{op}: {cold}")
                missed += 1
                continue
            (imported, first, _), (_, second, then) = cold["seconds"], cached["seconds"]
            each = second / max(1, cold["builds"])
            bad = imported + first > COLD_S or each > CACHED_S
            missed += bad
            print(
                f"{op} {cold['row']}: {cold['builds']} builds; {imported:.2f} + {first:.2f} s; "
                f"{second:.2f} s, {each:.2f} s; {then * 1e6:.0f} us{'  MISSED' if bad else ''}",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
