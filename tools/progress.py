"""A progress bar on a terminal, and nothing anywhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

_CELLS = 24


def progress(stream: TextIO) -> Callable[[int, int, str], None]:
    """Return what draws how far a command is: done, of how many, at what. The last one clears the line."""
    if not stream.isatty():
        return lambda done, total, name: None

    def tell(done: int, total: int, name: str) -> None:
        filled = _CELLS * done // max(total, 1)
        bar = f"[{'#' * filled}{'.' * (_CELLS - filled)}] {done}/{total} {name}"
        stream.write(f"\r\x1b[K{bar[:100] if done < total else ''}")
        stream.flush()

    return tell
