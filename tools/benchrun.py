"""A benchmark run: which device, what is compiled ahead, row after row, and the report that grows meanwhile."""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import attrs
import torch

from tileops import backend
from tileops.rules.device import read_facts
from tileops.tools import figures, prebuild, regret, timing, words
from tileops.tools.baselines import Baseline
from tileops.tools.catalogue import Known
from tileops.tools.figures import About, Report
from tileops.tools.rows import Bench, Ceilings, Item, ceilings, told
from tileops.tools.usage import UsageError

MATRIX_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def run_device(
    name: str,
    accelerator: Callable[[], torch.device | None] = torch.accelerator.current_accelerator,
    cuda: Callable[[], bool] = torch.cuda.is_available,
) -> torch.device:
    """Return the device of a run; raises UsageError for one that is not benchmarked, with the reason."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"--tileops-device {name!r} is no torch device: {str(error).splitlines()[0]}") from error
    if device.type == "cpu":
        raise UsageError(
            "cpu is not benchmarked: its calls are not queued, so the time on the device and the host's are one; "
            "the cost of dispatch on the host is what --host measures"
        )
    if device.type == "cuda":
        if not cuda():
            raise UsageError(f"there is no CUDA device here ({name}), and a benchmark runs on one")
        return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
    here = accelerator()
    if here is None or here.type != device.type:
        found = "this process has none" if here is None else f"this process's is {here.type}"
        raise UsageError(f"{name} is neither CUDA nor the process's accelerator ({found})")
    return torch.device(device.type, device.index or 0)


@attrs.frozen
class Progress:
    """Says on a terminal how far a run is, in one line that is written over; elsewhere a line for each heading."""

    stream: TextIO = sys.stderr

    def heading(self, words_of: str) -> None:
        """Begin a part of the run."""
        if self.stream.isatty():
            self.stream.write("\r\x1b[K")
        self.stream.write(f"{words_of}\n")
        self.stream.flush()

    def step(self, done: int, of: int, what: str = "") -> None:
        """Say what is being done."""
        if self.stream.isatty():
            self.stream.write(f"\r\x1b[K[{done}/{of}] {what}"[:120])
            self.stream.flush()

    def done(self) -> None:
        """End the line that is written over."""
        if self.stream.isatty():
            self.stream.write("\r\x1b[K")
            self.stream.flush()


@attrs.frozen(kw_only=True)
class Plan:
    """Says what a run does. ``seconds`` is when rows are no longer begun, counted from the start of the run."""

    device: torch.device
    target: backend.Target | None
    baselines: Sequence[Baseline]
    allow_events: bool = False
    jobs: int = 0
    seconds: float | None = None
    json: Path | None = None
    progress: Progress = attrs.field(factory=Progress)
    clock: Callable[[], float] = time.monotonic

    def about(self, timer: timing.Timer, missing: dict[str, str]) -> About:
        """Return the circumstances of the run, before anything is measured."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        facts = read_facts(self.device)
        return About(
            date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            device=str(self.device),
            device_name=name,
            arch=facts.arch if facts.arch >= 0 else None,
            target="builtin" if self.target is backend.BUILTIN else self.target,
            timing=timer.timing,
            versions=versions(),
            missing=missing,
        )


def versions() -> dict[str, str]:
    """Return the versions that figures depend on."""
    found = {"torch": str(torch.__version__)}
    if torch.version.cuda:
        found["CUDA"] = torch.version.cuda
    for name in ("tilelang", "triton"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            module: Any = sys.modules.get(name)
            found[name] = str(getattr(module, "__version__", "of unknown version")) if module else "not seen"
    return found


def run(plan: Plan, items: Sequence[Item], timer: timing.Timer | None = None) -> Report:
    """Compile ahead, measure the ceilings, then every row; the JSON file is written anew after each row."""
    bench, report, until = _ready(plan, timer)
    present = [one for one in plan.baselines if one.name not in bench.missing]
    tasks: list[prebuild.Task] = []
    if plan.jobs and plan.device.type == "cuda":
        tasks += prebuild.programs(items, plan.target, plan.device)
        if any(one.name == "compile" for one in present):
            device = str(plan.device)
            tasks += [
                prebuild.Compiled(item.known.name, item.case.label, device)
                for item in items
                if prebuild.COMPILED.serves(item.known.name)
            ]
    _compile_ahead(plan, tasks)
    rows: list[figures.Row] = []
    unreached: str | None = None
    for place, item in enumerate(items):
        if place == 0 or item.known.name != items[place - 1].known.name:
            plan.progress.heading(item.known.name)
        plan.progress.step(place + 1, len(items), item.case.label)
        if unreached is None and until is not None and plan.clock() > until:
            unreached = f"not reached in {plan.seconds:g} s"
        if unreached is not None:
            rows.append(item.row(figures.SKIPPED, why=unreached))
        else:
            rows.append(bench.row(item))
            if (problem := _lost(bench)) is not None:
                unreached = f"not reached: after {item.known.name} {item.case.label} the device fails: {problem}"
        report = attrs.evolve(report, rows=tuple(rows))
        if plan.json is not None:
            figures.write(report, plan.json)
    plan.progress.done()
    if unreached is not None:
        late = sum(row.why == unreached for row in rows)
        report = _with_problem(report, f"{words.count(late, 'row')} {unreached}")
        if plan.json is not None:
            figures.write(report, plan.json)
    return report


def _lost(bench: Bench) -> str | None:
    """Give back the memory of a row; say why where the device no longer answers, as after an illegal access."""
    try:
        bench.synchronize()
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()
    except RuntimeError as problem:
        return told(problem)
    return None


def run_regret(plan: Plan, ops: Sequence[Known], most: int, timer: timing.Timer | None = None) -> Report:
    """Measure the regret of ops, up to ``most`` calls of each; the JSON file is written anew after each call."""
    bench, report, until = _ready(plan, timer, measure_ceilings=False)
    facts = read_facts(plan.device)
    with prebuild.Pool(plan.jobs) if plan.jobs and plan.device.type == "cuda" else nullcontext() as pool:
        # What later calls need is compiled while they are looked for and while earlier ones are measured: only the
        # device's time counts here.
        found, ahead = [], prebuild.Begun()
        for known in ops:
            found.append(regret.contests(known, plan.device, facts, most))
            if pool is not None:
                ahead |= pool.begin(regret.programs(found[-1]))
        for contests in found:
            name = contests[0].item.known.name
            plan.progress.heading(f"{name}: {words.count(len(contests), 'call')}")
            done: list[regret.Contest] = []

            def begin(contest: regret.Contest, done: list[regret.Contest] = done, of: int = len(contests)) -> bool:
                if pool is not None:
                    needed: prebuild.Begun = {program: ahead[program] for program in regret.programs([contest])}
                    _tell_failures(plan, pool.end(needed, lambda done, of: None))
                if until is not None and plan.clock() > until:
                    return False
                done.append(contest)
                plan.progress.step(len(done), of, contest.call.text())
                return True

            before = report.regret
            for told_of in regret.measure(contests, bench, begin):
                report = attrs.evolve(report, regret=(*before, *told_of))
                if plan.json is not None:
                    figures.write(report, plan.json)
            if left := len(contests) - len(done):
                report = _with_problem(report, f"{name}: {words.count(left, 'call')} not reached in {plan.seconds:g} s")
    plan.progress.done()
    return report


def _ready(
    plan: Plan, timer: timing.Timer | None, *, measure_ceilings: bool = True
) -> tuple[Bench, Report, float | None]:
    until = None if plan.seconds is None else plan.clock() + plan.seconds
    if plan.device.type == "cuda":
        torch.cuda.set_device(plan.device)
    chosen = timing.choose(plan.device, plan.allow_events) if timer is None else timer
    synchronize = (lambda: None) if plan.device.type == "cpu" else (lambda: torch.accelerator.synchronize(plan.device))
    measured = Ceilings()
    if measure_ceilings and plan.device.type != "cpu":
        plan.progress.heading("copy bandwidth and matrix rates")
        measured = ceilings(chosen, plan.device, MATRIX_DTYPES)
    bench = Bench(plan.device, plan.target, chosen, synchronize, plan.baselines, measured)
    about = plan.about(chosen, bench.missing)
    if measured.copy is not None:
        rates = {str(dtype).removeprefix("torch."): rate / 1e12 for dtype, rate in measured.matrix.items()}
        about = attrs.evolve(about, copy_gb_s=measured.copy / 1e9, matrix_tflops=rates)
    return bench, Report(about), until


def _compile_ahead(plan: Plan, tasks: Sequence[prebuild.Task]) -> None:
    """Compile in other processes. A failure is told only: the row that needs the program will meet it again."""
    if not tasks or not plan.jobs:
        return
    plan.progress.heading(f"compiling {words.count(len(tasks), 'program')} in {plan.jobs} processes")
    if plan.device.type == "cuda":
        torch.cuda.empty_cache()
    start = plan.clock()
    failures = prebuild.run(tasks, plan.jobs, lambda done, of: plan.progress.step(done, of, "compiled"))
    plan.progress.heading(f"compiled in {plan.clock() - start:.0f} s, {words.count(len(failures), 'failure')}")
    _tell_failures(plan, failures)


def _tell_failures(plan: Plan, failures: Sequence[str]) -> None:
    for failure in failures:
        plan.progress.heading(f"compiling ahead: {failure}")


def _with_problem(report: Report, *problems: str) -> Report:
    about = attrs.evolve(report.about, problems=(*report.about.problems, *problems))
    return attrs.evolve(report, about=about)


def cores() -> int:
    """Return how many processes compile ahead by default: as many as there are cores for this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
