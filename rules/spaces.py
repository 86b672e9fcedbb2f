"""Device spaces: over which devices a proof quantifies, as regions of device facts for each device kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs

from tileops.rules.device import LIMITS, NO_FACTS, Board, DeviceFacts, boards, ranges
from tileops.rules.span import INFINITY, Bound, Span

_UNKNOWN, _NEWEST = LIMITS["arch"]


@attrs.frozen
class Region:
    """Holds devices whose archs lie in one range and whose other facts are independent of each other.

    ``but`` are archs of the range that other regions describe. ``calibrations`` pairs each calibration with the SM
    count of the board it is for; every device may also have none. None stands for any name on any board.
    ``examples`` are the facts to show people, the best first.
    """

    arch: Span
    sm_count: Span
    smem_budget: Span
    but: frozenset[int] = frozenset()
    calibrations: tuple[tuple[str, int], ...] | None = ()
    examples: tuple[DeviceFacts, ...] = ()

    def __contains__(self, facts: DeviceFacts) -> bool:
        """Tell whether a device with these facts lies in the region."""
        named = (
            facts.calibration is None
            or self.calibrations is None
            or (facts.calibration, facts.sm_count) in self.calibrations
        )
        return (
            named
            and facts.arch in self.arch
            and facts.arch not in self.but
            and facts.sm_count in self.sm_count
            and facts.smem_budget in self.smem_budget
        )


Spaces: TypeAlias = Mapping[str, tuple[Region, ...]]


def spaces(kinds: Iterable[str]) -> Spaces:
    """Return the devices of each kind: the boards listed for it, an arch not listed, or any facts a reader may give."""
    return {kind: _listed(kind) or (_any(kind),) for kind in sorted(kinds)}


def holds(regions: Iterable[Region], facts: DeviceFacts) -> bool:
    """Tell whether some region holds these facts."""
    return any(facts in found for found in regions)


def _listed(kind: str) -> tuple[Region, ...]:
    known = boards(kind)
    if not known:
        return ()
    others = ranges(kind)
    rest = Region(
        Span(0, _NEWEST),
        Span(*others.sm_count),
        Span(*others.smem_budget),
        but=frozenset(known),
    )
    # The boards of which measurements are kept come first: those are the ones to show.
    ordered = sorted(known.items(), key=lambda item: (not item[1].calibrated, item[0]))
    return (*(_board(arch, board) for arch, board in ordered), rest)


def _board(arch: int, board: Board) -> Region:
    return Region(
        Span(arch, arch),
        Span(*board.sm_count),
        Span(*board.smem_budget),
        calibrations=tuple((entry.calibration, entry.sm_count) for entry in board.calibrated),
        examples=(DeviceFacts(arch, *board.facts_without_arch),),
    )


def _any(kind: str) -> Region:
    others = ranges(kind)
    return Region(
        Span(_UNKNOWN, _NEWEST),
        Span(*others.sm_count),
        Span(*others.smem_budget),
        calibrations=None,
        examples=(NO_FACTS,),
    )


def overlap(regions: Iterable[Region], intervals: Iterable[tuple[int, int | None]]) -> bool:
    """Tell whether some device's arch lies in one of the spans; an open end is None."""
    wanted = [Span(low, INFINITY if high is None else high) for low, high in intervals]
    return any(_left(found, part.meet(found.arch)) for found in regions for part in wanted)


def _left(found: Region, part: Span) -> bool:
    return not part.empty and not (part.bounded and all(arch in found.but for arch in _integers(part.low, part.high)))


def _integers(low: Bound, high: Bound) -> range:
    # As many as are left out decide: a longer range has an arch that no other region describes.
    return range(int(low), min(int(high), int(low) + 4096) + 1)
