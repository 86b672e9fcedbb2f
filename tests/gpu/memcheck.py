"""Runs one small call of every implementation, by name, under compute-sanitizer's memcheck.

    PYTHONPATH=. python3 tests/gpu/memcheck.py [OP ...]         all ops without arguments

Of an implementation the call that moves the fewest bytes is taken, among the workload rows, both sides of every limit
and the neighbours of the rows. Programs are compiled ahead, in parallel, outside of the tool; then each op has a
process of its own under it. Torch's allocator is told to hand out allocations of the driver's as they are, or a read
behind a tensor would lie inside its pool. Exit status: 0 clean, 1 something found, 3 the tool does not take the device
(it refuses those that a sandbox such as gVisor lends).
"""
# ruff: noqa: T201  # a script that prints its result

from __future__ import annotations

import concurrent.futures
import logging
import os
import re
import subprocess
import sys
import time
from typing import Any

import torch

from tileops import backend
from tileops.catalog import op_names
from tileops.manifest.workload import bind
from tileops.rules.device import read_facts
from tileops.tools import prebuild, regret, samples
from tileops.tools.catalogue import known
from tileops.tools.question import Place

TOOL = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9", "--print-limit", "5")
LIMIT_S = float(os.environ.get("LIMIT_S", "600"))
JOBS = int(os.environ.get("JOBS", os.cpu_count() or 1))
PARALLEL = 6  # processes on the one device
CLEAN, FOUND, REFUSED = 0, 1, 3


def smallest(op: str, where: Place) -> dict[tuple[str, str], regret.Contest]:
    """Returns of each interface and key the smallest call that it serves."""
    about = known(op)
    found: dict[tuple[str, str], tuple[int, regret.Contest]] = {}
    for origin, case in regret.sampled(about, where.facts):
        contest = regret.posed(about, case, origin, where)
        if contest is None:
            continue
        _, moved = about.entry.checker.roofline(bind(about.entry.checker, case, where.device))
        for key in contest.keys:
            place = (contest.asked.name, key)
            if place not in found or moved < found[place][0]:
                found[place] = (moved, contest)
    return {place: contest for place, (_, contest) in found.items()}


def programs(chosen: dict[tuple[str, str], regret.Contest]) -> list[prebuild.Program]:
    """Returns the programs of the calls."""
    made = []
    for (_, key), contest in chosen.items():
        implementation: Any = contest.asked.implementations[key]
        made.append(prebuild.Program(implementation, implementation.entry_for(contest.call)[0]))
    return made


def call(op: str, where: Place) -> None:
    """Calls each implementation once; the tool watches."""
    for (interface, key), contest in smallest(op, where).items():
        about, case = contest.item.known, contest.item.case
        tensors = samples.make(op, about.entry.signature, case, where.device)
        regret.by_name(op, key, contest.item.op(backend.BUILTIN))(*tensors.values())
        torch.cuda.synchronize()
        print(f"called {interface} {key} {contest.call.text()}", flush=True)


def watched(op: str) -> tuple[str, int, str]:
    """Calls an op's implementations under the tool; returns op, status and what was said."""
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    command = [*TOOL, sys.executable, __file__, "--call", op]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=environment)
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return op, FOUND, f"{said}\nnot over in {LIMIT_S:g} s"
    return op, done.returncode, done.stdout + done.stderr


def main() -> int:
    """Runs the ops that were asked for; returns the exit status."""
    logging.disable(logging.INFO)
    device = torch.device("cuda", torch.cuda.current_device())
    where = Place(device, read_facts(device))
    if sys.argv[1:2] == ["--call"]:
        call(sys.argv[2], where)
        return CLEAN
    ops = [op for op in sys.argv[1:] or sorted(op_names()) if known(op).interfaces]
    start = time.monotonic()
    chosen = {op: smallest(op, where) for op in ops}
    tasks = [program for one in chosen.values() for program in programs(one)]
    for failure in prebuild.run(tasks, JOBS, lambda done, of: None):
        print(f"compiling: {failure}")
    print(f"{len(tasks)} implementations compiled after {time.monotonic() - start:.0f} s", flush=True)
    status = CLEAN
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        for op, code, said in pool.map(watched, ops):
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
