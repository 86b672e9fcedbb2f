"""Runs one small call of every implementation, by name, under compute-sanitizer's memcheck.

    PYTHONPATH=. python3 tests/gpu/memcheck.py [OP ...]         all ops without arguments

Of an implementation the call that moves the fewest bytes is taken. Programs are compiled ahead, in parallel, outside of
the tool; then each op has a process of its own under it. Torch's allocator is told to hand out the driver's allocations
as they are, or a read behind a tensor would lie inside its pool. Exit status: 0 clean, 1 something found, 3 the tool
does not take the device (it refuses those that a sandbox such as gVisor lends).
"""
# ruff: noqa: T201  # a script that prints its result

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from smallcalls import Small, smallest

from tileops import backend
from tileops.catalog import op_names
from tileops.rules.device import read_facts
from tileops.tools import prebuild, regret, samples
from tileops.tools.catalogue import known
from tileops.tools.question import Place
from tileops.tools.rows import Item

TOOL = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9", "--print-limit", "5")
LIMIT_S = float(os.environ.get("LIMIT_S", "600"))
JOBS = int(os.environ.get("JOBS", os.cpu_count() or 1))
PARALLEL = 6  # processes on the one device
CLEAN, FOUND, REFUSED = 0, 1, 3


def call(path: str) -> None:
    """Calls each implementation once; the tool watches."""
    op, calls = pickle.loads(Path(path).read_bytes())
    about = known(op)
    for one in calls:
        device = torch.device("cuda", torch.cuda.current_device())
        tensors = samples.make(op, about.entry.signature, one.case, device)
        regret.by_name(op, one.key, Item(about, one.case).op(backend.BUILTIN))(*tensors.values())
        torch.cuda.synchronize()
        print(f"called {one.interface} {one.key} {one.text}", flush=True)


def watched(op: str, calls: list[Small]) -> tuple[int, str]:
    """Calls an op's implementations under the tool; returns status and what was said."""
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(pickle.dumps((op, calls)))
        command = [*TOOL, sys.executable, __file__, "--call", file.name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=environment
            )
        except subprocess.TimeoutExpired as late:
            said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            return FOUND, f"{said}\nnot over in {LIMIT_S:g} s"
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    """Runs the ops that were asked for; returns the exit status."""
    logging.disable(logging.INFO)
    if sys.argv[1:2] == ["--call"]:
        call(sys.argv[2])
        return CLEAN
    ops = [op for op in sys.argv[1:] or sorted(op_names()) if known(op).interfaces]
    device = torch.device("cuda", torch.cuda.current_device())
    where = Place(device, read_facts(device))
    start = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(JOBS, multiprocessing.get_context("spawn")) as pool:
        chosen = dict(zip(ops, pool.map(smallest, ops, [where] * len(ops)), strict=True))
        print(f"calls found after {time.monotonic() - start:.0f} s", flush=True)
    tasks = [one.program for calls in chosen.values() for one in calls]
    for failure in prebuild.run(tasks, JOBS, lambda done, of: None):
        print(f"compiling: {failure}")
    print(f"{len(tasks)} implementations compiled after {time.monotonic() - start:.0f} s", flush=True)
    status = CLEAN
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as threads:
        for op, (code, said) in zip(ops, threads.map(watched, ops, chosen.values()), strict=True):
            called = len(re.findall("^called ", said, re.MULTILINE))
            summary = re.findall("ERROR SUMMARY: .*", said)[-1:] or ["no summary"]
            print(f"{op}: {called} of {len(chosen[op])} called, {summary[0]}", flush=True)
            if "Device not supported" in said:
                print("compute-sanitizer does not take this device", flush=True)
                return REFUSED
            if code or called < len(chosen[op]):
                status = FOUND
                print(said[-3000:])
    print(f"over after {time.monotonic() - start:.0f} s: {'clean' if status == CLEAN else 'not clean'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
