"""Prebuild: compiles what a run will call in parallel processes, into the disk caches of TileLang and of torch."""

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any, Final

import attrs
import torch

from tileops.catalog import op_class
from tileops.explain import OpTrace, explain
from tileops.rules.errors import BackendError
from tileops.tools import baselines, catalogue, samples
from tileops.tools.rows import Item, told

COMPILED: Final = next(one for one in baselines.BASELINES if one.name == "compile")

Progress = Callable[[int, int], object]


@attrs.frozen
class Program:
    """Is one build identity of an implementation, to be compiled; it pickles."""

    implementation: type
    identity: Any

    def __call__(self) -> None:
        """Compile it."""
        getattr(self.implementation, "compile")(self.identity)  # noqa: B009  # not every implementation has it


@attrs.frozen
class Compiled:
    """Is torch.compile's version of an op's eager function, for one case and device; it pickles."""

    op: str
    label: str
    device: str

    def __call__(self) -> None:
        """Compile it, by a call."""
        known = catalogue.known(self.op)
        case = next(case for case in known.entry.cases() if case.label == self.label)
        given = samples.make(self.op, known.entry.signature, case, torch.device(self.device))
        COMPILED.ready(baselines.eager(self.op))(given, case.params)
        torch.accelerator.synchronize()
        del given
        torch.cuda.empty_cache()  # the processes share one device


Task = Program | Compiled
Begun = dict[Task, "concurrent.futures.Future[str | None]"]


def programs(items: Iterable[Item], target: Any, device: torch.device) -> Iterator[Program]:
    """Yield the programs that calls of these rows launch, those of a composite's parts too, each once."""
    seen: set[tuple[type, Any]] = set()
    for item in items:
        try:
            tensors = samples.blank(item.known.entry.signature, item.case, device)
            trace = explain(item.op(target), *tensors.values())
        except BackendError:
            continue  # the row itself will say so
        for program in _of(trace):
            key = (program.implementation, program.identity)
            if key not in seen:
                seen.add(key)
                yield program


def _of(trace: OpTrace) -> Iterator[Program]:
    if trace.winner is not None:
        implementation = op_class(trace.op).implementations()[trace.winner]
        if hasattr(implementation, "compile"):
            yield Program(implementation, trace.identity)
    for part in trace.parts:
        yield from _of(part)


def _attempt(task: Task) -> str | None:
    logging.disable(logging.INFO)
    try:
        task()
    except Exception as problem:  # noqa: BLE001  # the run will meet it again; here it is told once
        return told(problem)
    return None


class Pool:
    """Carries out tasks in so many processes, in the order in which they are begun, while the caller goes on."""

    def __init__(self, jobs: int) -> None:
        # Each process is one of many: torch.compile shall not start a pool of its own in it.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        # Spawned, for a CUDA context does not survive a fork.
        self._pool = concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        if kind is not None:  # nobody waits for what is still being compiled
            for process in multiprocessing.active_children():
                process.terminate()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, tasks: Iterable[Task]) -> Begun:
        """Queue tasks; what comes back, or a part of it, is for :meth:`end`."""
        # Ctrl-C is for the caller alone, which ends the processes: they start here and keep the signals blocked here.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return {task: self._pool.submit(_attempt, task) for task in tasks}
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self, begun: Begun, progress: Progress) -> list[str]:
        """Wait for tasks; return what went wrong. A process that dies takes down those after it, not the caller."""
        failures = []
        tasks = {future: task for task, future in begun.items()}
        for done, future in enumerate(concurrent.futures.as_completed(tasks), 1):
            try:
                problem = future.result()
            except BrokenExecutor as error:
                problem = told(error)
            if problem is not None:
                failures.append(f"{tasks[future]}: {problem}")
            progress(done, len(tasks))
        return failures


def run(tasks: Sequence[Task], jobs: int, progress: Progress) -> list[str]:
    """Carry out tasks in so many processes; return what went wrong."""
    if not tasks or jobs < 1:
        return []
    with Pool(jobs) as pool:
        return pool.end(pool.begin(tasks), progress)
