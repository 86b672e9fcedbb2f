"""Figures: the records of a benchmark run, their JSON form, and the statistics over them. Measures nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import cattrs

from tileops.tools.usage import UsageError

SCHEMA: Final = "tileops.bench/1"
TIMED, WRONG, FAILED, SKIPPED = "timed", "wrong", "failed", "skipped"
SLOWER: Final = 1.03  # a time over another's by less than this is noise


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
        return any((ratio := self.ratio(name)) is not None and ratio * SLOWER < 1 for name in self.baselines)


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


@attrs.frozen
class Regret:
    """Holds a regret run of one kernel interface of an op."""

    op: str
    interface: str
    samples: tuple[Sample, ...]
    preferences: tuple[Preference, ...]

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
    """Write a report as JSON, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(report.plain(), indent=1) + "\n")
    part.replace(path)


def read(path: Path) -> Report:
    """Read a recorded run; raises UsageError for a file that holds none."""
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA:
        raise UsageError(f"{path} is no record of a benchmark: its schema is {found!r}, not {SCHEMA!r}")
    try:
        return _CONVERTER.structure(data, Report)
    except (cattrs.BaseValidationError, KeyError, TypeError, ValueError) as error:
        told = "; ".join(cattrs.transform_error(error))
        raise UsageError(f"{path} does not hold what {SCHEMA} says: {told}") from error


def joined(reports: Sequence[Report]) -> Report:
    """Return one report of several: the first one's circumstances, everyone's rows, regret and problems."""
    rows = tuple(row for report in reports for row in report.rows)
    regret = tuple(one for report in reports for one in report.regret)
    problems = tuple(problem for report in reports for problem in report.about.problems)
    return attrs.evolve(reports[0], about=attrs.evolve(reports[0].about, problems=problems), rows=rows, regret=regret)


def mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean; None of no values."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def median(values: Sequence[float]) -> float:
    """Return the lower median: one of the values."""
    return sorted(values)[(len(values) - 1) // 2]


@attrs.frozen
class Summary:
    """Holds an op's ratios to one baseline over all rows that have it; the host's times have a mean and a worst too."""

    op: str
    baseline: str
    rows: int
    mean: float
    worst: float
    worst_label: str
    lost: int
    host_mean: float | None
    host_worst: float | None


def summaries(rows: Iterable[Row]) -> list[Summary]:
    """Return a summary for each op and baseline, in the order of the rows."""
    found: dict[tuple[str, str], list[tuple[float, str]]] = {}
    hosts: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for name in row.baselines:
            ratio = row.ratio(name)
            if ratio is not None:
                found.setdefault((row.op, name), []).append((ratio, f"{row.label} {row.dtypes}"))
                host = row.baselines[name].host_us
                if host is not None and row.host_us is not None:
                    hosts.setdefault((row.op, name), []).append(host / row.host_us)
    return [
        Summary(
            op=op,
            baseline=name,
            rows=len(ratios),
            mean=mean(ratio for ratio, _ in ratios) or 0.0,
            worst=min(ratios)[0],
            worst_label=min(ratios)[1],
            lost=sum(ratio * SLOWER < 1 for ratio, _ in ratios),
            host_mean=mean(hosts.get((op, name), ())),
            host_worst=min(hosts.get((op, name), ()), default=None),
        )
        for (op, name), ratios in found.items()
    ]


def by_op(rows: Sequence[Row], chosen: Callable[[Row], bool] = lambda row: True) -> dict[str, list[Row]]:
    """Group rows by op, in order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if chosen(row):
            groups.setdefault(row.op, []).append(row)
    return groups
