#!/usr/bin/env python3
"""Run what CI runs: the README's two commands as they stand there, then lint, types and the static check.

Uses the standard library only, reads no stdin, and exits 1 if any step failed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS = (
    ".venv/bin/ruff check .",
    ".venv/bin/ruff format --check .",
    ".venv/bin/mypy",
    ".venv/bin/python -m tools.check",
)


def readme_commands() -> list[str]:
    """Return the one-line ``sh`` blocks of the README, which are its two commands."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    commands = [block.strip() for block in blocks]
    if len(commands) != 2 or any("\n" in command for command in commands):
        raise SystemExit(f"README.md must hold two sh blocks of one line each, it holds {commands}")
    return commands


def main() -> int:
    """Run every step, the later ones also after a failure, and return the exit status."""
    failed = []
    for command in (*readme_commands(), *CHECKS):
        print(f"\n$ {command}", flush=True)
        start = time.monotonic()
        status = subprocess.run(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL).returncode
        print(f"[exit {status} after {time.monotonic() - start:.0f} s]", flush=True)
        if status:
            failed.append(command)
    for command in failed:
        print(f"FAILED: {command}", flush=True)
    print("CI failed" if failed else "CI passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
