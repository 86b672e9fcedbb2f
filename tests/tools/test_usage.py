"""What every command line does alike."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
