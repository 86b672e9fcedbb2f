"""The console script ``tileops``: one word says which tool, the rest is the tool's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import cast

from tileops.rules.errors import nearest
from tileops.tools.usage import SERVED, USAGE

COMMANDS = {
    "explain": "which implementation a call gets, and why",
    "check": "prove the tables, check the manifest and its claims",
    "diff": "the calls that get another implementation than at a git revision",
    "claim": "what a backend may claim by the report of a run of the op tests",
    "bench": "time the ops beside torch, or what dispatch costs",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one tool and return its exit status: 0 served or sound, 1 not, 2 a mistake in the words, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in {"-h", "--help"}:
        print("usage: tileops COMMAND ...\n")
        for name, what in COMMANDS.items():
            print(f"  {name:<8} {what}")
        print("\ntileops COMMAND --help says more.")
        return SERVED if words else USAGE
    if words[0] not in COMMANDS:
        known = ", ".join(COMMANDS)
        print(f"error: unknown command {words[0]!r}{nearest(words[0], COMMANDS)}; commands: {known}", file=sys.stderr)
        return USAGE
    # Imported here: explain needs no solver, bench no graph library.
    tool = importlib.import_module(f"tileops.tools.{words[0]}")
    return cast("Callable[[Sequence[str]], int]", tool.main)(words[1:])


if __name__ == "__main__":
    sys.exit(main())
