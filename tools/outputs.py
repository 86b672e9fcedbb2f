"""Outputs: the files that a command writes, tried before its work is done and written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tileops.tools.usage import UsageError

STDOUT = 1  # the descriptor, for a name such as /dev/stdout leads to it


def check(path: Path) -> None:
    """Raise UsageError for a file that :func:`write` could not write; changes nothing."""
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; name a file")
    folder = Path(os.path.realpath(path)).parent
    if is_replaced(path):
        if not folder.is_dir():
            raise UsageError(f"cannot write {path}: there is no folder {folder}")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"cannot write {path}: no file can be made in {folder}")
    if path.exists():
        if not os.access(path, os.W_OK):
            raise UsageError(f"cannot write {path}: it is read-only")
        if path.is_file() and os.path.samestat(path.stat(), os.fstat(STDOUT)):
            raise UsageError(f"cannot write {path}: it is where the printed output goes; name another file")


def check_apart(places: Mapping[str, Sequence[Path]], written: Collection[str]) -> None:
    """Raise UsageError where an option writes a file that another one reads or writes; options name their files."""
    users: dict[str, list[str]] = {}
    for option, paths in places.items():
        for path in paths:
            users.setdefault(os.path.realpath(path), []).append(option)
    UsageError.check(
        [
            f"{' and '.join(options)} name one file, {place}: one would destroy what the other has there"
            for place, options in users.items()
            if len(options) > 1 and set(options) & set(written)
        ]
    )


def is_replaced(path: Path) -> bool:
    """Say whether a file is put in its place anew by each write, unlike a pipe or a terminal, which get all of them."""
    return path.is_file() or not path.exists()


def write(path: Path, text: str) -> None:
    """Write a text as a file, whole or not at all; what is no regular file is written to. Raises UsageError."""
    try:
        if not is_replaced(path):
            path.write_bytes(text.encode())
            return
        place = Path(os.path.realpath(path))  # a link stays, its target is written
        part = place.with_name(f"{place.name}.part")
        try:
            part.write_bytes(text.encode())
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
