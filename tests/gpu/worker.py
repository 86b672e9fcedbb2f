"""Worker: calls functions in a process of its own that holds the peer's package under our name. Not a test.

A call that fails may spoil its process (after an error of the device every later call fails as well), so the calls that
follow are given a fresh one.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from attrs import define

PATIENCE_S = 240
"""What takes longer hangs: a first call compiles for half a minute, and shares the cores with the others."""
CONTEXT = multiprocessing.get_context("spawn")


def load(package: Path) -> None:
    """Loads the peer's package; raises ImportError where its name is another one's."""
    if sys.path[0] != str(package):
        sys.path.insert(0, str(package))
    found = Path(importlib.import_module("tileops").__file__ or "nowhere").resolve()
    if not found.is_relative_to(package.resolve()):
        raise ImportError(f"tileops is {found}, not the peer's in {package}")


def told(problem: BaseException) -> str:
    """Writes an exception in one line: how its text begins, which names the cause, and how it ends."""
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text if len(text) <= 500 else f'{text[:300]} ... {text[-200:]}'}"


def serve(pipe: Any, package: Path) -> None:
    """Answers a worker until it hangs up: for each function and row what came of it, and what went wrong."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends without a word: the process that asks tells of it
    logging.disable(logging.INFO)
    while True:
        try:
            function, row = pipe.recv()
        except EOFError:
            return
        try:
            load(package)
            answer = function(row), None
        except Exception as problem:  # noqa: BLE001  # told as the row's problem
            answer = None, told(problem)
        if torch.cuda.is_initialized() and answer[1] is None:
            torch.cuda.empty_cache()
        pipe.send(answer)


@define
class Worker:
    """Calls functions on rows in a process of its own, a fresh one after each failure."""

    package: Path
    process: Any = None
    pipe: Any = None

    def __call__(self, function: Callable[[Any], Any], row: Any) -> tuple[Any, str | None]:
        """Returns what the function returned, and what went wrong, if anything did."""
        if self.process is None:
            self.pipe, theirs = CONTEXT.Pipe()
            self.process = CONTEXT.Process(target=serve, args=(theirs, self.package))
            self.process.start()
            theirs.close()  # so that the end of the process is the end of the pipe
        try:
            self.pipe.send((function, row))
            if not self.pipe.poll(PATIENCE_S):
                result, problem = None, f"TimeoutError: no answer in {PATIENCE_S} s"
            else:
                result, problem = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            result, problem = None, f"its process ended with status {self.process.exitcode}"
        if problem is not None:
            self.close()
        return result, problem

    def close(self) -> None:
        """Ends the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


@contextmanager
def workers(package: Path, count: int) -> Iterator[list[Worker]]:
    """Gives so many workers, and ends their processes."""
    found = [Worker(package) for _ in range(count)]
    try:
        yield found
    finally:
        for worker in found:
            worker.close()
