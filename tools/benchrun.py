"""A benchmark run: which device, what is compiled ahead, row after row, and the report that grows meanwhile.

A report on its way names as a problem what is not reached yet, so that no file of a run that was ended calls itself
whole; the last report of the run names it no more.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs
import torch

from tileops import backend
from tileops.rules.device import read_facts
from tileops.tools import figures, outputs, prebuild, regret, timing, words
from tileops.tools.baselines import Baseline
from tileops.tools.catalogue import Known
from tileops.tools.figures import About, Reading, Report
from tileops.tools.progress import Progress
from tileops.tools.rows import Bench, Ceilings, Item, ceilings, told
from tileops.tools.usage import UsageError, taken

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


@attrs.frozen(kw_only=True)
class Plan:
    """Says what a run does. ``seconds`` is when rows are no longer begun, counted from when the plan is made."""

    device: torch.device
    target: backend.Target | None
    baselines: Sequence[Baseline]
    allow_events: bool = False
    jobs: int = 0
    seconds: float | None = None
    progress: Progress = attrs.field(factory=Progress)
    clock: Callable[[], float] = time.monotonic
    start: float = attrs.field(init=False, default=attrs.Factory(lambda self: self.clock(), takes_self=True))

    @property
    def late(self) -> bool:
        """Say whether no row is to be begun any more."""
        return self.seconds is not None and self.clock() > self.start + self.seconds

    def timer(self) -> timing.Timer:
        """Return the timer of the run's device, which becomes the current one; raises TimingError."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        return timing.choose(self.device, self.allow_events)

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


def foreseen(plan: Plan, items: Sequence[Item], timer: timing.Timer) -> Report:
    """Return what a run will report if all goes well, but for the times: what is to be joined is held to it first."""
    reading = Reading(1.0, 1.0, 1, 0.0)
    rows = [item.row(figures.TIMED, timing=timer.timing, reading=reading, host_us=1.0) for item in items]
    return Report(plan.about(timer, {}), tuple(rows))


def keep(reports: Generator[Report, None, None], path: Path | None, progress: Progress) -> tuple[Report, bool]:
    """Take the growing report of a run, writing it anew into a file each time.

    Returns the last one, and whether the run came to its end; raises KeyboardInterrupt where Ctrl-C left nothing.
    """
    kept: list[Report] = []

    def each(report: Report) -> None:
        kept[:] = [report]
        if path is not None and outputs.is_replaced(path):  # a pipe gets the last report only
            try:
                figures.write(report, path)
            except UsageError as problem:  # the run goes on, for its figures are printed too
                progress.heading(str(problem))

    whole = taken(reports, each)
    if not kept:
        raise KeyboardInterrupt("nothing was measured yet")
    return kept[-1], whole


def run(plan: Plan, items: Sequence[Item], timer: timing.Timer) -> Generator[Report, None, None]:
    """Compile ahead, measure the ceilings, then every row; yield the report after each."""
    bench, report = _ready(plan, timer)
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
    try:
        for place, item in enumerate(items):
            if place == 0 or item.known.name != items[place - 1].known.name:
                plan.progress.heading(item.known.name)
            plan.progress.step(place + 1, len(items), item.case.label)
            if unreached is None and plan.late:
                unreached = f"not reached in {plan.seconds:g} s"
            if unreached is not None:
                rows.append(item.row(figures.SKIPPED, why=unreached))
                continue
            rows.append(bench.row(item))
            yield _on_its_way(attrs.evolve(report, rows=tuple(rows)), len(items) - len(rows), "row")
            if (problem := _lost(bench)) is not None:
                unreached = f"not reached: after {item.known.name} {item.case.label} the device fails: {problem}"
    finally:
        plan.progress.done()
    report = attrs.evolve(report, rows=tuple(rows))
    if unreached is not None:
        late = sum(row.why == unreached for row in rows)
        report = with_problem(report, f"{words.count(late, 'row')} {unreached}")
    yield report


def _lost(bench: Bench) -> str | None:
    """Give back the memory of a row; say why where the device no longer answers, as after an illegal access."""
    try:
        bench.synchronize()
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()
    except RuntimeError as problem:
        return told(problem)
    return None


def run_regret(plan: Plan, ops: Sequence[Known], most: int, timer: timing.Timer) -> Generator[Report, None, None]:
    """Measure the regret of ops, up to ``most`` calls of each; yield the report after each call."""
    bench, report = _ready(plan, timer, measure_ceilings=False)
    facts = read_facts(plan.device)
    with prebuild.Pool(plan.jobs) if plan.jobs and plan.device.type == "cuda" else nullcontext() as pool:
        # What later calls need is compiled while they are looked for and while earlier ones are measured: only the
        # device's time counts here.
        found, ahead = [], prebuild.Begun()
        for known in ops:
            found.append(regret.contests(known, plan.device, facts, most))
            if pool is not None:
                ahead |= pool.begin(regret.programs(found[-1]))
        waiting = sum(map(len, found))
        for contests in found:
            name = contests[0].item.known.name
            plan.progress.heading(f"{name}: {words.count(len(contests), 'call')}")
            done: list[regret.Contest] = []

            def begin(contest: regret.Contest, done: list[regret.Contest] = done, of: int = len(contests)) -> bool:
                if pool is not None:
                    needed: prebuild.Begun = {program: ahead[program] for program in regret.programs([contest])}
                    _tell_failures(plan, pool.end(needed, lambda done, of: None))
                if plan.late:
                    return False
                done.append(contest)
                plan.progress.step(len(done), of, contest.call.text())
                return True

            before = report.regret
            try:
                for told_of in regret.measure(contests, bench, begin):
                    report = attrs.evolve(report, regret=(*before, *told_of))
                    yield _on_its_way(report, waiting - len(done), "call")
            finally:
                plan.progress.done()
            waiting -= len(contests)
            if left := len(contests) - len(done):
                report = with_problem(report, f"{name}: {words.count(left, 'call')} not reached in {plan.seconds:g} s")
    yield report


def _ready(plan: Plan, timer: timing.Timer, *, measure_ceilings: bool = True) -> tuple[Bench, Report]:
    synchronize = (lambda: None) if plan.device.type == "cpu" else (lambda: torch.accelerator.synchronize(plan.device))
    measured = Ceilings()
    if measure_ceilings and plan.device.type != "cpu":
        plan.progress.heading("copy bandwidth and matrix rates")
        measured = ceilings(timer, plan.device, MATRIX_DTYPES)
    bench = Bench(plan.device, plan.target, timer, synchronize, plan.baselines, measured)
    about = plan.about(timer, bench.missing)
    if measured.copy is not None:
        rates = {str(dtype).removeprefix("torch."): rate / 1e12 for dtype, rate in measured.matrix.items()}
        about = attrs.evolve(about, copy_gb_s=measured.copy / 1e9, matrix_tflops=rates)
    return bench, Report(about)


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


def _on_its_way(report: Report, waiting: int, noun: str) -> Report:
    return with_problem(report, f"{words.count(waiting, noun)} not reached (interrupted)") if waiting else report


def with_problem(report: Report, problem: str) -> Report:
    """Return a report that tells of one more problem."""
    return attrs.evolve(report, about=attrs.evolve(report.about, problems=(*report.about.problems, problem)))


def cores() -> int:
    """Return how many processes compile ahead by default: as many as there are cores for this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
