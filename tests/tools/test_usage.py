"""What every command line does alike."""

from __future__ import annotations

import ctypes
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tileops.tools.usage import taken

ROOT = Path(__file__).resolve().parents[2]


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    command = [sys.executable, "-m", "tools.explain", "GemmFwdOp", "--graph", "mermaid"]
    # Unbuffered, so that the first line already meets the closed pipe.
    with subprocess.Popen(
        [command[0], "-u", *command[1:]], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
        assert (process.wait(), told) == (141, "")


def _said(script: str, **more: Any) -> tuple[int, str, str]:
    script = f"import sys\nfrom tileops.tools.usage import report, taken\n{script}\nsys.exit(report(command, []))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, **more)
    return done.returncode, done.stdout, done.stderr


def test_ctrl_c_gets_a_line_and_no_traceback() -> None:
    script = "def command(argv):\n    print('some')\n    raise KeyboardInterrupt('some is told')"
    assert _said(script) == (130, "some\n", "interrupted: some is told\n")
    assert _said(script.replace("'some is told'", "")) == (130, "some\n", "interrupted\n")


def test_a_file_that_fails_gets_a_line_and_no_traceback() -> None:
    script = "def command(argv):\n    print('some')\n    open('/no/such/file')"
    assert _said(script) == (2, "some\n", "error: /no/such/file: No such file or directory\n")


def test_an_output_that_takes_nothing_gets_a_line_and_no_traceback(tmp_path: Path) -> None:
    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    script = """
def command(argv):
    print('some')
    return 0
"""
    with (tmp_path / "printed").open("w") as stream:
        script = f"import os\nos.dup2({stream.fileno()}, 1)\n{script}"
        status, _, told = _said(script, preexec_fn=full, pass_fds=[stream.fileno()])
    assert (status, told) == (2, "error: the output: File too large\n")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_was_found_until_ctrl_c_is_taken(at: int) -> None:
    closed, seen = [], []

    def found() -> Generator[int, None, None]:
        try:
            for place in range(2):
                if place == at:
                    raise KeyboardInterrupt
                yield place
        finally:
            closed.append(True)

    assert taken(found(), seen.append) is (at == 2)
    assert (seen, closed) == (list(range(at)), [True])


def test_ctrl_c_while_something_is_taken_ends_what_finds_more() -> None:
    closed = []

    def found() -> Generator[int, None, None]:
        try:
            yield from range(3)
        finally:
            closed.append(True)

    def each(one: int) -> None:
        raise KeyboardInterrupt

    assert not taken(found(), each)
    assert closed == [True]


@pytest.mark.parametrize("handed_on", ["as an error", "as a result"])
def test_ctrl_c_that_a_library_hands_on_ends_what_is_taken(handed_on: str) -> None:
    seen = []

    def found() -> Generator[str, None, None]:
        for place in range(3):
            try:
                if place == 1:
                    signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt as problem:
                if handed_on == "as an error":
                    raise ctypes.ArgumentError("argument 1: KeyboardInterrupt") from problem
                yield "failed"
            yield str(place)

    assert not taken(found(), seen.append)
    assert seen == (["0"] if handed_on == "as an error" else ["0", "failed"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_without_ctrl_c_is_no_interruption() -> None:
    def found() -> Generator[int, None, None]:
        yield 1
        raise ctypes.ArgumentError("argument 1")

    with pytest.raises(ctypes.ArgumentError):
        taken(found(), lambda one: None)


def test_a_job_that_ignores_ctrl_c_goes_on() -> None:
    def found() -> Generator[int, None, None]:
        signal.raise_signal(signal.SIGINT)
        yield 1

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert taken(found(), lambda one: None)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
