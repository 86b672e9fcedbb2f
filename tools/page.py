"""Page: the marked places of a page in Markdown, from ``<!-- bench: NAME -->`` to ``<!-- end -->``.

What stands between two marks belongs to the tool, all else to the author: a page whose marks do not tell the two
apart is refused, whole, before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from tileops.rules.errors import nearest
from tileops.tools import outputs
from tileops.tools.usage import UsageError

_MARK: Final = re.compile(r"<!--\s*(?:bench\b:?\s*(?P<name>.*?)|end)\s*-->")


@attrs.frozen
class Filled:
    """Holds a page filled anew, the names of the places that were, and of those left as they stood."""

    text: str
    anew: tuple[str, ...]
    left: tuple[str, ...]

    def told(self) -> str:
        """Say in one line which places were filled and which were not."""
        left = f"; left as they were, for this report says nothing of them: {', '.join(self.left)}"
        return f"filled {', '.join(self.anew)}" + (left if self.left else "")


def places(text: str, names: Collection[str]) -> dict[str, slice]:
    """Return where the content of each marked place of a page stands, by name.

    Raises UsageError that tells every mark that is unknown, doubled, nested, without its other half, or not alone on
    its line, and for a page without any.
    """
    found: dict[str, slice] = {}
    lines: dict[str, int] = {}
    faults = []
    opened: tuple[str, int] | None = None
    for mark in _MARK.finditer(text):
        line = text.count("\n", 0, mark.start()) + 1
        name = mark["name"]
        if text.split("\n")[line - 1].strip() != mark[0]:
            faults.append(f"line {line}: {mark[0]} does not stand alone on its line")
        if name is None:
            if opened is None:
                faults.append(f"line {line}: {mark[0]} ends no marked place")
            else:
                found[opened[0]] = slice(opened[1], mark.start())
            opened = None
            continue
        if opened is not None:
            faults.append(f"line {line}: {mark[0]} begins before {opened[0]} of line {lines[opened[0]]} ends")
        if name not in names:
            faults.append(f"line {line}: {mark[0]} names no table{nearest(name, names)}; tables: {', '.join(names)}")
        elif name in lines:
            faults.append(f"line {line}: {mark[0]} stands in line {lines[name]} already")
        opened = name, mark.end()
        lines[name] = line
    if opened is not None:
        faults.append(f"line {lines[opened[0]]}: {opened[0]} has no <!-- end --> after it")
    if not found and not faults:
        faults.append("the page has no marked place, such as <!-- bench: rows --> ... <!-- end -->")
    UsageError.check(faults)
    return found


def fill(text: str, tables: Mapping[str, str | None]) -> Filled:
    """Return a page with its marked places filled anew, but for those of which ``tables`` holds None.

    Raises UsageError where ``places`` does, and where there is nothing for any of them.
    """
    found = places(text, tables)
    anew = {name: content for name in found if (content := tables[name]) is not None}
    if not anew:
        raise UsageError(f"the report holds nothing of what the page marks: {', '.join(found)}")
    for name, place in reversed(found.items()):
        if name in anew:
            text = f"{text[: place.start]}\n{anew[name]}\n{text[place.stop :]}"
    return Filled(text, tuple(anew), tuple(name for name in found if name not in anew))


def read(path: Path, names: Collection[str]) -> str:
    """Return a page that can be filled; raises UsageError, which names the page, for any other."""
    try:
        text = path.read_bytes().decode()  # bytes: line ends stay those of the author
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no page: byte {error.start} of it is no UTF-8") from error
    with _of(path):
        places(text, names)
    return text


@contextmanager
def _of(path: Path) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def fill_page(path: Path, tables: Mapping[str, str | None]) -> str:
    """Fill a page's marked places; return a line that says which."""
    text = read(path, tables)
    with _of(path):
        filled = fill(text, tables)
    outputs.write(path, filled.text)
    return f"{path}: {filled.told()}"
