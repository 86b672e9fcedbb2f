"""Peer: the public package tileops 0.1.0, called and timed on our manifest's rows in processes of its own. Not a test.

Its package has our name, so a process can hold only one of the two: one that calls the peer loads it from PEER_DIR and
stops where another package answers to the name; a row that fails ends its process, so that it spoils none after it.

``main`` is all that ``peer_gemm.py`` and ``peer_rows.py`` do. First calls are made in parallel processes, so that
programs lie in TileLang's disk cache; then one process takes the rows in turn: each is checked against float64 and
timed by the benchmark's own timer. A wrong row is a problem and no time. The records, a JSON object a line, replace
those of the run before once a row has been timed; a row not reached is among them, with that as its problem.
"""
# ruff: noqa: T201  # its scripts print their results

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import queue
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from attrs import field, frozen
from timing import bench_record, bench_timing, manifest_rows, relative_error
from worker import Worker, load, workers

DEVICE = "cuda"
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5}
"""The largest ||out - ref|| / ||ref|| of a right result: the benchmark's."""
FIRST_CALLS = 12
"""Processes that make them: one holds about 0.5 GiB of the GPU's memory, and the operands, 3 GiB of the largest row."""
GET_IT = "pip install --no-deps --only-binary :all: --python-version 3.12 --target PEER_DIR tileops==0.1.0"

Record = dict[str, Any]


@frozen
class Row:
    """Is a workload row of one of our ops with one set of dtypes, which stand among the workload's values."""

    op: str
    label: str
    dtypes: str
    workload: Mapping[str, Any] = field(eq=False)

    def __str__(self) -> str:
        return f"{self.op} {self.label} {self.dtypes}"


@frozen
class Case:
    """Is a call of the peer on fresh inputs.

    ``expected`` returns the same in float64 from the inputs as they are: the call's first outputs, then what it writes
    into ``written``. ``moved`` is the bytes that the call has to move.
    """

    call: Callable[[], object]
    expected: Callable[[], list[torch.Tensor]]
    moved: int
    dtype: torch.dtype
    written: Sequence[torch.Tensor] = ()


Prepared = Callable[[Row], Case]


def rows(families: Mapping[str, str], wanted: Sequence[str]) -> list[Row]:
    """Returns every row and dtype of some ops, by the family whose manifest has them."""
    return [
        Row(op, label, "-".join(case.values()), row | case)
        for op, family in families.items()
        if not wanted or op in wanted
        for label, row in manifest_rows(op, family)
        for case in row["dtypes"]
    ]


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns random values on the device."""
    return torch.randn(shape, device=DEVICE, dtype=dtype)


@functools.cache
def op(family: str, name: str, *values: Any, **params: Any) -> Any:
    """Returns an op of the peer, one for all calls with the same parameters."""
    return getattr(importlib.import_module(f"tileops.{family}"), name)(*values, **params)


# -- in a process of the peer's


def judged(case: Case) -> tuple[float, float]:
    """Returns the error of a call and its tolerance: of the output that is worst."""
    expected = case.expected()
    poison = [torch.full(right.shape, math.nan, dtype=case.dtype, device=right.device) for right in expected]
    del poison  # the call is handed this memory: what it leaves out is NaN
    result = case.call()
    outputs = list(result) if isinstance(result, (list, tuple)) else [result]
    made = [*outputs[: len(expected) - len(case.written)], *case.written]
    pairs = [
        (relative_error(out, right) if out.shape == right.shape else math.nan, TOLERANCE[out.dtype])
        for out, right in zip(made, expected, strict=True)
    ]
    return max(pairs, key=lambda pair: math.inf if math.isnan(pair[0]) else pair[0] / pair[1])


def called(prepared: Prepared, row: Row) -> None:
    """Calls the peer once, so that its program lies in the disk cache."""
    prepared(row).call()
    synchronize()


def ready(row: Row) -> None:
    """Readies a process for timing but for the timer, which tries itself when nothing else runs."""
    bench_timing()
    random(1, dtype=torch.float32)


def measured(prepared: Prepared, row: Row) -> Record:
    """Returns the record of a row: what the benchmark would find of it, or that the result is wrong."""
    case = prepared(row)
    error, tolerance = judged(case)
    if not error <= tolerance:
        return {"problem": f"relative error {error:.3g} is over {tolerance:g}"}
    times = bench_record(lambda: prepared(row).call, case.moved)
    return {"device": device_name(), "error": error, "tolerance": tolerance, "moved": case.moved, **times}


def device_name() -> str:
    """Names the device."""
    return torch.cuda.get_device_name()


def synchronize() -> None:
    """Waits for the device."""
    torch.cuda.synchronize()


# -- in the process that asks


def first_calls(package: Path, prepared: Prepared, todo: Sequence[Row], late: Callable[[], bool]) -> list[str | None]:
    """Makes the first call of each row, none once it is late; returns what went wrong in each, if anything did."""
    jobs = max(1, min(FIRST_CALLS, len(os.sched_getaffinity(0)), len(todo)))
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def first_call(row: Row) -> str | None:
        worker = idle.get()
        try:
            return None if late() else worker(functools.partial(called, prepared), row)[1]
        finally:
            idle.put(worker)

    with workers(package, jobs) as found, ThreadPoolExecutor(jobs) as threads:
        for worker in found:
            idle.put(worker)
        return list(threads.map(first_call, todo))


def write(path: Path, lines: Sequence[Record]) -> None:
    """Writes JSON lines to a file, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text("".join(json.dumps(line) + "\n" for line in lines))
    part.replace(path)


def measure(
    worker: Worker,
    prepared: Prepared,
    todo: Sequence[Row],
    failed: Mapping[Row, str],
    late: Callable[[], bool],
    path: Path,
) -> dict[Row, Record]:
    """Times the rows whose first call did not fail, until it is late; writes the records after each row timed."""
    left = {"problem": "not reached in the time that the run was given"}
    found: dict[Row, Record] = {}
    for row in todo:
        if row not in failed and late():
            continue
        if row in failed:
            found[row] = {"problem": failed[row]}
        else:
            record, problem = worker(functools.partial(measured, prepared), row)
            found[row] = record if problem is None else {"problem": problem}
        print(json.dumps(line(row, found[row])), flush=True)
        if any("reading" in record for record in found.values()):
            write(path, [line(one, found.get(one, left)) for one in todo])
    return found


def line(row: Row, record: Record) -> Record:
    """Returns the line of a row."""
    return {"op": row.op, "label": row.label, "dtypes": row.dtypes, **record}


# -- the command line


def arguments(description: str, ops: Sequence[str]) -> argparse.Namespace:
    """Returns the command line's words, checked; ends the process where one is wrong, before anything is done."""
    parser = argparse.ArgumentParser(
        description=description, epilog=f"Get the peer: {GET_IT}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", metavar="PEER_DIR", type=_package, help="the folder into which the peer was unpacked")
    parser.add_argument(
        "seconds", metavar="SECONDS", type=_seconds, nargs="?", default=300.0,
        help="begin no row later than this; 0: make the first calls only (default: 300)",
    )  # fmt: skip
    if len(ops) > 1:
        parser.add_argument("ops", metavar="OP", nargs="*", default=[], help=f"only these ops, of {', '.join(ops)}")
    options = parser.parse_args()
    unknown = [name for name in getattr(options, "ops", ()) if name not in ops]
    if unknown:
        parser.error(f"no op {', '.join(unknown)} here: choose of {', '.join(ops)}")
    options.out = Path(os.environ.get("OUT", "."))
    if not options.out.is_dir() or not os.access(options.out, os.W_OK):
        parser.error(f"OUT={options.out} is no folder that can be written to: the records go there")
    try:
        load(options.peer)
    except ImportError as problem:
        parser.error(f"{problem}: leave out what puts another package of that name before it")
    if not has_device():
        parser.error("there is no CUDA device here: run this on a machine with a GPU")
    return options


def has_device() -> bool:
    """Says whether there is a device to measure on."""
    return torch.cuda.is_available()


def _package(word: str) -> Path:
    package = Path(word).resolve()
    if not (package / "tileops" / "_ops").is_dir():  # which the peer has and we have not
        raise argparse.ArgumentTypeError(
            f"{word} does not hold the public package tileops 0.1.0 (no tileops/_ops); get it by: {GET_IT}"
        )
    return package


def _seconds(word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"takes a number of seconds from 0 on, got {word!r}")
    return seconds


def main(description: str, families: Mapping[str, str], prepared: Prepared) -> int:
    """Runs a script and returns its exit status: 1 where rows were to be timed and none could be."""
    try:
        return run(arguments(description, list(families)), families, prepared)
    except KeyboardInterrupt:
        print("peer: interrupted; what was timed is in the records", file=sys.stderr)
        return 130


def run(options: argparse.Namespace, families: Mapping[str, str], prepared: Prepared) -> int:
    """Makes the first calls, then times; returns 1 where that was asked and no row could be timed."""
    path = options.out / f"{Path(sys.argv[0]).stem}.jsonl"
    todo, end = rows(families, getattr(options, "ops", ())), time.monotonic() + options.seconds
    timing = options.seconds > 0

    def late() -> bool:
        return timing and time.monotonic() > end

    with workers(options.peer, 1) as (timer,), ThreadPoolExecutor(1) as thread:
        warm = thread.submit(timer, ready, todo[0]) if timing else None  # meanwhile: importing the peer takes seconds
        why = first_calls(options.peer, prepared, todo, late)
        failed = {row: problem for row, problem in zip(todo, why, strict=True) if problem is not None}
        for row, problem in failed.items():
            print(f"peer: first call of {row}: {problem}", file=sys.stderr)
        print(f"peer: first calls of {len(todo)} rows, {len(failed)} failed", flush=True)
        if warm is None:
            return 0
        problem = warm.result()[1]
        if problem is not None:
            print(f"peer: nothing can be timed here: {problem}", file=sys.stderr)
            return 1
        found = measure(timer, prepared, todo, failed, late, path)
    timed = sum("reading" in record for record in found.values())
    said = (
        f"{timed} of {len(todo)} rows timed, {len(found) - timed} with a problem, {len(todo) - len(found)} not reached"
    )
    print(f"peer: {said}; {f'in {path}' if timed else f'{path} is as it was'}")
    return 0 if timed else 1
