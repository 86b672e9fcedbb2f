"""How far a command is, on a terminal: a bar, or a line under headings that stand elsewhere too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

import attrs

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


@attrs.frozen
class Progress:
    """Says on a terminal how far a run is, in one line that is written over; elsewhere a line for each heading."""

    stream: TextIO = sys.stderr

    def heading(self, words_of: str) -> None:
        """Begin a part of the run."""
        if self.stream.isatty():
            self.stream.write("\r\x1b[K")
        self.stream.write(f"{words_of}\n")
        self.stream.flush()

    def step(self, done: int, of: int, what: str = "") -> None:
        """Say what is being done."""
        if self.stream.isatty():
            self.stream.write(f"\r\x1b[K[{done}/{of}] {what}"[:120])
            self.stream.flush()

    def done(self) -> None:
        """End the line that is written over."""
        if self.stream.isatty():
            self.stream.write("\r\x1b[K")
            self.stream.flush()
