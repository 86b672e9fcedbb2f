"""The console script and the modules that run from a checkout."""

import subprocess
import sys
from pathlib import Path

import pytest

from tileops.tools.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]


def test_the_console_script_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert [name for name in COMMANDS if name not in out] == []
    assert main([]) == 2


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explian"]) == 2
    assert "unknown command 'explian' (did you mean 'explain'?)" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_each_tool_runs_as_a_module_from_the_checkout(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"tools.{name}", "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"usage: tileops {name}" in done.stdout


@pytest.mark.parametrize("name", ["check", "bench"])
def test_a_mistake_gives_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--jsno"]) == 2
    assert "did you mean '--json'?" in capsys.readouterr().err
