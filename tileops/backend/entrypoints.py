"""The installed entry points of the group, those of distributions whose metadata is broken too.

Imports importlib.metadata (15 ms), so it is imported when a discovery starts.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from typing import Any

from tileops.backend.protocol import GROUP


class UnreadableEntryPoint(EntryPoint):
    """Stands for the entry points of a distribution that cannot be read; loading it raises why."""

    def __init__(self, distribution: Distribution, error: Exception) -> None:
        """Take the place of entry points whose names nobody can tell."""
        super().__init__("(unreadable)", "", GROUP)
        vars(self).update(dist=distribution, error=error)

    def load(self) -> Any:
        """Raise what reading the metadata raised."""
        raise vars(self)["error"]


def installed() -> Collection[EntryPoint]:
    """List the entry points of the group.

    One distribution with a malformed ``entry_points.txt`` makes the standard library's listing raise for all of them;
    then each is read by itself.
    """
    try:
        return entry_points(group=GROUP)
    except Exception:  # noqa: BLE001 - what a broken file raises is the parser's; below it is told for what it is
        return _one_by_one()


def packages_of(distribution: Distribution | None) -> frozenset[str] | None:
    """Return the top-level modules that a distribution says it holds, None where it does not say."""
    if distribution is None:
        return None
    try:
        text = distribution.read_text("top_level.txt")
        if text is not None:
            return frozenset(text.split())
        files = [file for file in distribution.files or () if file.suffix == ".py"]
    except Exception:  # noqa: BLE001 - metadata that cannot be read says nothing
        return None
    return frozenset(file.parts[0].removesuffix(".py") for file in files) or None


def _one_by_one() -> list[EntryPoint]:
    found: list[EntryPoint] = []
    seen = set()
    for distribution in distributions():
        try:
            name = distribution.metadata["Name"]
            points = [point for point in distribution.entry_points if point.group == GROUP]
        except Exception as error:  # noqa: BLE001 - kept, and raised again where it is recorded
            name, points = None, [UnreadableEntryPoint(distribution, error)] if _speaks_of_us(distribution) else []
        if name is None or name not in seen:  # of two distributions of a name the first on the path counts
            found += points
        seen.add(name)
    return found


def _speaks_of_us(distribution: Distribution) -> bool:
    try:
        return GROUP in (distribution.read_text("entry_points.txt") or "")
    except Exception:  # noqa: BLE001 - bytes that are no text: whose they are, nobody can tell
        return False
