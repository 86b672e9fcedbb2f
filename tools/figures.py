"""Figures: the records of a benchmark run and their JSON form. Measures nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import cattrs

from tileops.tools import outputs

SCHEMA: Final = "tileops.bench/1"
TIMED, WRONG, FAILED, SKIPPED = "timed", "wrong", "failed", "skipped"
OUTCOMES: Final = (TIMED, WRONG, FAILED, SKIPPED)
SLOWER: Final = 1.03  # a time over another's by less than this is noise
CONTRADICTED: Final = 1.05  # a preference is contradicted where the one below is faster by more
PEER: Final = "peer"  # the baseline that has a dispatch of its own


@attrs.frozen
class Reading:
    """Holds the time of a call on the device, in milliseconds; medians over the calls of a run.

    ``latency_ms`` goes from the first kernel's start to the last one's end, ``device_busy_ms`` leaves out the gaps
    between. ``spread`` is the largest difference between the medians of the rounds, over the median of all.
    """

    latency_ms: float
    device_busy_ms: float
    calls: int
    spread: float


@attrs.frozen
class Measured:
    """Holds what one baseline took for a row's call; ``reading`` is None where it did not run, and ``why`` says why."""

    role: str  # "selected" or "preferred"
    reading: Reading | None = None
    host_us: float | None = None
    why: str | None = None


@attrs.frozen(kw_only=True)
class Row:
    """Holds what was found about one workload row with one set of dtypes.

    ``floor_ms`` is the time that the run's own copy bandwidth and matrix rate allow, ``bound`` which of the two it is.
    """

    op: str
    label: str
    dtypes: str
    shapes: str
    outcome: str
    why: str | None = None
    target: str | None = None
    implementation: str | None = None
    error: float | None = None
    tolerance: float | None = None
    flops: int = 0
    bytes: int = 0
    floor_ms: float | None = None
    bound: str | None = None
    timing: str | None = None
    reading: Reading | None = None
    host_us: float | None = None
    first_call_s: float | None = None
    baselines: Mapping[str, Measured] = attrs.field(factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what a row is known by: one report has it once."""
        return self.op, self.label, self.dtypes

    @property
    def roofline(self) -> float | None:
        """Return the share of the roofline that the call reaches."""
        if self.reading is None or self.floor_ms is None:
            return None
        return self.floor_ms / self.reading.device_busy_ms

    def ratio(self, baseline: str) -> float | None:
        """Return the baseline's time over ours: above 1 where ours is faster."""
        other = self.baselines.get(baseline)
        if self.reading is None or other is None or other.reading is None:
            return None
        return other.reading.device_busy_ms / self.reading.device_busy_ms

    def host_ratio(self, baseline: str) -> float | None:
        """Return the host's time of the baseline's call over that of ours; None where ``ratio`` is."""
        if self.ratio(baseline) is None or self.host_us is None:
            return None
        host = self.baselines[baseline].host_us
        return None if host is None else host / self.host_us

    @property
    def against(self) -> str | None:
        """Name the selected baseline that ran, the fastest of them."""
        ran = {
            name: one.reading.device_busy_ms
            for name, one in self.baselines.items()
            if one.role == "selected" and one.reading is not None
        }
        return min(ran, key=ran.__getitem__, default=None)

    @property
    def lost(self) -> bool:
        """Say whether some baseline was faster, by more than noise."""
        return any(slower(self.ratio(name)) for name in self.baselines)


@attrs.frozen
class Sample:
    """Holds one call of a regret run: the implementations that serve it, and the milliseconds of each by name."""

    label: str
    origin: str  # "workload", "neighbour" or "limit"
    call: str
    chosen: str
    times_ms: Mapping[str, float]
    problems: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def best(self) -> str:
        """Name the fastest implementation."""
        return min(self.times_ms, key=self.times_ms.__getitem__)

    @property
    def regret(self) -> float | None:
        """Return the chosen one's time over the best one's; None where the chosen one was not timed."""
        chosen = self.times_ms.get(self.chosen)
        return None if chosen is None else chosen / self.times_ms[self.best]


@attrs.frozen
class Preference:
    """Holds what a run says of "``over`` is preferred over ``under``": gains are under's time over over's, by call."""

    interface: str
    over: str
    under: str
    declared: str  # "preferred_over", "general" or "through others"
    calls: int
    mean_gain: float
    worst_gain: float
    contradicted_by: tuple[str, ...] = ()


def preference(interface: str, over: str, under: str, declared: str, samples: Iterable[Sample]) -> Preference | None:
    """Hold a preference to the times of samples; None where none of them times both."""
    gains = {
        one.call: one.times_ms[under] / one.times_ms[over] for one in samples if {over, under} <= one.times_ms.keys()
    }
    if not gains:
        return None
    against = tuple(call for call, gain in gains.items() if gain * CONTRADICTED < 1)
    average = mean(gains.values()) or 0.0
    return Preference(interface, over, under, declared, len(gains), average, min(gains.values()), against)


@attrs.frozen
class Regret:
    """Holds a regret run of one kernel interface of an op."""

    op: str
    interface: str
    samples: tuple[Sample, ...]
    preferences: tuple[Preference, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Return what it is known by: one report has it once."""
        return self.op, self.interface

    def judged(self) -> Regret:
        """Return the same with what the samples say of each preference, whatever was written of it."""
        found = [preference(self.interface, p.over, p.under, p.declared, self.samples) for p in self.preferences]
        return attrs.evolve(self, preferences=tuple(one for one in found if one is not None))

    @property
    def regrets(self) -> list[float]:
        """List the regret of each call whose chosen implementation was timed."""
        return [one.regret for one in self.samples if one.regret is not None]


@attrs.frozen(kw_only=True)
class About:
    """Says where and when figures come from, and the two ceilings that the run measured itself."""

    date: str
    device: str
    device_name: str
    arch: int | None
    target: str | None
    timing: str
    versions: Mapping[str, str]
    copy_gb_s: float | None = None
    matrix_tflops: Mapping[str, float] = attrs.field(factory=dict)
    missing: Mapping[str, str] = attrs.field(factory=dict)  # baselines that no row has, and why
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what else is to be known of a report that was joined of several


@attrs.frozen
class Report:
    """Holds a whole run."""

    about: About
    rows: tuple[Row, ...] = ()
    regret: tuple[Regret, ...] = ()

    @property
    def ok(self) -> bool:
        """Say whether every row was timed or skipped, and every implementation of every sample timed."""
        samples = [sample for one in self.regret for sample in one.samples]
        right = all(row.outcome in (TIMED, SKIPPED) for row in self.rows)
        return right and not any(sample.problems for sample in samples) and not self.about.problems

    def plain(self) -> dict[str, Any]:
        """Return plain data for JSON, with the figures that follow from others."""
        plain: dict[str, Any] = {"schema": SCHEMA, "ok": self.ok, **_CONVERTER.unstructure(self)}
        for row, written in zip(self.rows, plain["rows"], strict=True):
            written["roofline"] = row.roofline
            written["ratios"] = {name: ratio for name in row.baselines if (ratio := row.ratio(name)) is not None}
        for one, written in zip(self.regret, plain["regret"], strict=True):
            written["mean"] = mean(one.regrets)
            written["worst"] = max(one.regrets, default=None)
        return plain


_CONVERTER: Final = cattrs.Converter(omit_if_default=False)


def write(report: Report, path: Path) -> None:
    """Write a report as JSON, whole or not at all; raises UsageError where that cannot be."""
    outputs.write(path, json.dumps(report.plain(), indent=1) + "\n")


def mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean; None of no values."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def median(values: Sequence[float]) -> float:
    """Return the lower median: one of the values."""
    return sorted(values)[(len(values) - 1) // 2]


def slower(ratio: float | None) -> bool:
    """Say whether a baseline's time over ours shows ours to be slower, by more than noise."""
    return ratio is not None and ratio * SLOWER < 1
