"""The command lines' shared manners: one parser class, one error class, the same exit codes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import NoReturn, TypeVar

from tileops.rules.errors import BackendError, nearest

SERVED, NOT_SERVED, USAGE = 0, 1, 2
#: What a shell reports of a program that Ctrl-C ended, and of one whose reader went away: 128 and the signal's number.
INTERRUPTED, READER_GONE = 130, 141

T = TypeVar("T")


class UsageError(Exception):
    """Says what in a command line is not known or is missing, and what would be right."""

    @classmethod
    def check(cls, faults: Sequence[str]) -> None:
        """Raise one error that tells all faults, each on a line, if there are any."""
        if faults:
            raise cls("\n       ".join(faults))


class Parser(argparse.ArgumentParser):
    """Parses a command line; every mistake in it becomes a ``UsageError`` with the nearest valid option."""

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError`` in place of argparse's exit."""
        raise UsageError(message)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse options and positional words in any order; raises UsageError."""
        options, rest = self.parse_known_intermixed_args(list(argv))
        if rest:
            word = rest[0].partition("=")[0]
            valid = [name for action in self._actions for name in action.option_strings]
            raise UsageError(f"unknown option {word}{nearest(word, valid)}")
        return options


def report(command: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Run a command and return its exit status.

    A usage error, and a file or stream that fails, are printed and give 2, an error of the engine 1, Ctrl-C 130.
    """
    try:
        status = command(argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # `| head` has read what it wanted
        _leave_stdout()
        return READER_GONE
    except UsageError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return USAGE
    except BackendError as problem:
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
        return NOT_SERVED
    except OSError as problem:
        print(f"error: {problem.filename or 'the output'}: {problem.strerror or problem}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _leave_stdout()
        return USAGE
    except KeyboardInterrupt as problem:
        print(": ".join(["interrupted", *map(str, problem.args)]), file=sys.stderr)
        return INTERRUPTED


def _leave_stdout() -> None:
    """Let Python's own flush at exit find something that takes what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def taken(found: Generator[T, None, None], each: Callable[[T], object]) -> bool:
    """Hand what is found to ``each``, one by one; return False where Ctrl-C ended that, with what came until then.

    A library may hand the KeyboardInterrupt on as an error of its own, as ctypes does, a process that got Ctrl-C too
    may fail, and either may be taken for a result: so Ctrl-C is noted where it comes.
    """
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a job in the background ignores it
    if heeded:
        signal.signal(signal.SIGINT, note)
    try:
        with closing(found):
            for one in found:
                each(one)
                if came:
                    break
    except KeyboardInterrupt:
        return False
    except Exception:
        if not came:
            raise
    finally:
        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    return not came
