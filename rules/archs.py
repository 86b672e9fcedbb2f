"""Sets of architecture numbers: exact ones, ranges, families. Comparable within one device kind only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import attrs

from tileops.rules.errors import DeclarationError

Interval: TypeAlias = tuple[int, int | None]


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise DeclarationError(f"an arch is a number such as 90 (compute capability 9.0), got {value!r}")
    return value


def _intervals(given: Iterable[Interval]) -> tuple[Interval, ...]:
    result: set[Interval] = set()
    for low, high in given:
        _number(low)
        if high is not None and _number(high) < low:
            raise DeclarationError(f"no arch is at least {low} and at most {high}")
        result.add((low, high))
    if not result:
        raise DeclarationError(
            "a set of archs with none in it serves no device; leave supported_archs out for every arch"
        )
    return tuple(sorted(result, key=lambda pair: (pair[0], pair[1] is None, pair[1] or 0)))


@attrs.frozen(repr=False)
class ArchSet:
    """Holds the archs that an implementation runs on, as closed intervals; an open end is None.

    Make one with `exactly`, `between`, `family` or `at_least`. The unknown arch -1 is in none of them.
    Raises DeclarationError for no arch, a reversed range, and what is no arch number.
    """

    _ranges: tuple[Interval, ...] = attrs.field(converter=_intervals)

    def __contains__(self, arch: object) -> bool:
        """Say whether an arch is in the set."""
        return isinstance(arch, int) and any(
            low <= arch and (high is None or arch <= high) for low, high in self._ranges
        )

    def intervals(self) -> tuple[Interval, ...]:
        """Return the intervals, sorted, both ends included."""
        return self._ranges

    def text(self) -> str:
        """Return the set in words: ``80 and newer``, ``80 to 89``, ``80, 86 or 90``."""
        words = [_words(low, high) for low, high in self._ranges]
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"

    def __repr__(self) -> str:
        """Return the call that makes the set."""
        if len(self._ranges) == 1:
            low, high = self._ranges[0]
            if high is None:
                return f"at_least({low})"
            if low != high:
                return f"between({low}, {high})"
        if all(low == high for low, high in self._ranges):
            return f"exactly({', '.join(str(low) for low, _ in self._ranges)})"
        return f"ArchSet({self._ranges!r})"

    def to_plain(self) -> Any:
        """Return plain data: ``[80, 86]``, ``{"at_least": 80}``, ``{"between": [80, 89]}``, or a list of these."""
        plain = [_plain(low, high) for low, high in self._ranges]
        return plain[0] if len(plain) == 1 and isinstance(plain[0], dict) else plain


def at_least(arch: int) -> ArchSet:
    """Return every arch from ``arch`` on, those not made yet included."""
    return ArchSet([(arch, None)])


def between(low: int, high: int) -> ArchSet:
    """Return the archs from ``low`` to ``high``, both included."""
    return ArchSet([(low, high)])


def family(arch: int) -> ArchSet:
    """Return the archs that share the major number of ``arch``: ``family(90)`` is 90 to 99."""
    major = _number(arch) // 10 * 10
    return between(major, major + 9)


def exactly(*archs: int) -> ArchSet:
    """Return just these archs."""
    return ArchSet([(arch, arch) for arch in archs])


def arch_set(value: Any) -> ArchSet | None:
    """Make an ArchSet of what a declaration or plain data says: None, numbers, a mapping, a list of both."""
    if value is None or isinstance(value, ArchSet):
        return value
    if isinstance(value, dict):
        return _from_mapping(value)
    if isinstance(value, list | tuple | set | frozenset):
        pairs: list[Interval] = []
        for item in value:
            pairs.extend(_from_mapping(item).intervals() if isinstance(item, dict) else [(item, item)])
        return ArchSet(pairs)
    raise DeclarationError(
        f"supported_archs takes at_least(80), between(80, 89), family(90), {{80, 86}} or None, got {value!r}"
    )


def _from_mapping(value: dict[Any, Any]) -> ArchSet:
    match value:
        case {"at_least": low, **rest} if not rest:
            return at_least(low)
        case {"between": [low, high], **rest} if not rest:
            return between(low, high)
        case {"family": arch, **rest} if not rest:
            return family(arch)
    raise DeclarationError(
        f'a range of archs is {{"at_least": 80}}, {{"between": [80, 89]}} or {{"family": 90}}, got {value!r}'
    )


def _words(low: int, high: int | None) -> str:
    if high is None:
        return f"{low} and newer"
    return str(low) if low == high else f"{low} to {high}"


def _plain(low: int, high: int | None) -> int | dict[str, Any]:
    if high is None:
        return {"at_least": low}
    return low if low == high else {"between": [low, high]}
