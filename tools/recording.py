"""Recording: the files of benchmark runs, read back, held against what a run can say, and joined."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import cattrs

from tileops.tools import words
from tileops.tools.figures import (
    OUTCOMES,
    SCHEMA,
    SKIPPED,
    TIMED,
    About,
    Measured,
    Preference,
    Reading,
    Regret,
    Report,
    Row,
    Sample,
)
from tileops.tools.usage import UsageError

# What a figure can be; the others of these classes are words, or follow from others.
ABOVE_ZERO: Final[Mapping[type, tuple[str, ...]]] = {
    Reading: ("latency_ms", "device_busy_ms", "calls"),
    Measured: ("host_us",),
    Row: ("floor_ms", "host_us", "tolerance"),
    About: ("copy_gb_s",),
}
FROM_ZERO: Final[Mapping[type, tuple[str, ...]]] = {
    Reading: ("spread",),
    Row: ("error", "flops", "bytes", "first_call_s"),
}
WORDS: Final[Mapping[type, Mapping[str, tuple[str | None, ...]]]] = {
    Measured: {"role": ("selected", "preferred")},
    Row: {"outcome": OUTCOMES, "bound": ("memory", "matrix", None)},
    Sample: {"origin": ("workload", "neighbour", "limit")},
    Preference: {"declared": ("preferred_over", "general", "through others")},
    About: {"timing": ("cupti", "cuda-events", "events")},
}
_ABOVE, _FROM = "no finite number above 0", "no finite number from 0 on"
SAME: Final = ("device_name", "arch", "target", "timing")  # what runs that are joined have in common, and versions


def _converter() -> cattrs.Converter:
    """Return a converter that takes a number or text for what it is: "1" is no time, null no name."""
    made = cattrs.Converter()

    def strict(value: Any, kind: type) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            raise ValueError(f"{value!r} is no {kind.__name__}")
        if isinstance(value, str):
            value.encode()  # half a surrogate pair is legal JSON, and no text that can be written
        return kind(value)

    for kind in (str, int, float):
        made.register_structure_hook(kind, strict)
    return made


_CONVERTER: Final = _converter()


def structure(plain: Any, kind: type[Any]) -> Any:
    """Return the record that plain data says; raises ValueError for data that says none."""
    try:
        return _CONVERTER.structure(plain, kind)
    except (cattrs.BaseValidationError, KeyError, TypeError, ValueError) as error:
        raise ValueError("; ".join(cattrs.transform_error(error))) from error


def measured(plain: Any) -> Measured:
    """Return what plain data says of a baseline on one row; raises ValueError for what cannot be."""
    one: Measured = structure(plain, Measured)
    if found := list(_of_measured(one)):
        raise ValueError("; ".join(found))
    return one


def read(path: Path) -> Report:
    """Read a recorded run; raises UsageError for a file that holds none, with all that is impossible in it.

    What follows from other figures is not read but found anew.
    """
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA:
        raise UsageError(f"{path} is no record of a benchmark: its schema is {found!r}, not {SCHEMA!r}")
    try:
        report: Report = structure(data, Report)
    except ValueError as error:
        raise UsageError(f"{path} does not hold what {SCHEMA} says: {error}") from error
    UsageError.check([f"{path}, {fault}" for fault in faults(report)])
    if data.get("ok") is not True and report.ok:
        raise UsageError(f"{path} says ok: {data.get('ok')!r}, and nothing in it says what went wrong; measure again")
    return attrs.evolve(report, regret=tuple(one.judged() for one in report.regret))


def joined(paths: Sequence[Path]) -> Report:
    """Read recorded runs of one machine and the same software into one report, the later file's rows before others'.

    Raises UsageError, which names both, where two runs were not made under the same circumstances.
    """
    reports = [read(path) for path in paths]
    first, *others = (report.about for report in reports)
    UsageError.check(
        [
            f"{path} and {paths[0]} are no one run: {' and '.join(differing)}; give runs of one machine and software"
            for path, about in zip(paths[1:], others, strict=True)
            if (differing := list(_differing(about, first)))
        ]
    )
    UsageError.check(
        [
            f"{path} holds no figures: no row and no regret"
            for path, report in zip(paths, reports, strict=True)
            if not report.rows and not report.regret
        ]
    )
    rows: dict[tuple[str, str, str], Row] = {}
    hidden = 0
    for row in (row for report in reports for row in report.rows):
        before = rows.get(row.key)
        if before is None or SKIPPED in (before.outcome, row.outcome):
            # What was not reached takes no other run's time away.
            rows[row.key] = row if before is None or before.outcome == SKIPPED else before
        else:
            rows[row.key] = row
            hidden += 1
    regret = {one.key: one for report in reports for one in report.regret}
    again = sum(len(report.regret) for report in reports) - len(regret)
    held = {name for row in rows.values() for name in row.baselines}
    abouts = (first, *others)
    notes = [note for about in abouts for note in about.notes]
    if hidden or again:
        counts = [words.count(number, noun) for number, noun in ((hidden, "row"), (again, "interface")) if number]
        notes.append(f"{' and '.join(counts)} measured by several of the runs: the last file's figures are told")
    about = attrs.evolve(
        next((one for one in abouts if one.copy_gb_s is not None), first),
        date=" and ".join(sorted({one.date for one in abouts})),
        missing={name: why for one in abouts for name, why in one.missing.items() if name not in held},
        problems=tuple(problem for one in abouts for problem in one.problems),
        notes=tuple(dict.fromkeys(notes)),
    )
    return Report(about, tuple(rows.values()), tuple(regret.values()))


def _differing(one: About, other: About) -> Iterator[str]:
    for name in SAME:
        if getattr(one, name) != getattr(other, name):
            yield f"{name} {getattr(one, name)!r} is not {getattr(other, name)!r}"
    for name in dict.fromkeys([*one.versions, *other.versions]):
        if one.versions.get(name) != other.versions.get(name):
            yield f"{name} {one.versions.get(name)} is not {other.versions.get(name)}"


# -- what a run can say


def faults(report: Report) -> list[str]:
    """List what cannot be in a report that a run wrote, each with its row or call."""
    found = list(_own(report.about))
    found += [f"matrix_tflops: {fault}" for fault in _named(report.about.matrix_tflops)]
    for row in report.rows:
        found += [f"row {' '.join(row.key)}: {fault}" for fault in _of_row(row, report.about.timing)]
    found += [f"row {' '.join(key)} occurs {number} times" for key, number in _doubled(row.key for row in report.rows)]
    for one in report.regret:
        found += [f"regret of {' '.join(one.key)}: {fault}" for fault in _of_regret(one)]
    return found + [
        f"regret of {' '.join(key)} occurs {number} times" for key, number in _doubled(one.key for one in report.regret)
    ]


def _of_row(row: Row, timing: str) -> Iterator[str]:
    yield from _own(row)
    if row.outcome == TIMED and row.reading is None:
        yield "it is timed, without a reading"
    if row.outcome != TIMED and row.reading is not None:
        yield f"it is {row.outcome}, with a reading"
    if row.outcome != TIMED and not row.why:
        yield f"it is {row.outcome}, and why does not say why"
    if row.reading is not None:
        yield from _own(row.reading)
        if row.timing != timing:
            yield f"it was timed by {row.timing}, the run by {timing}"
        if row.error is not None and row.tolerance is None:
            yield "it has an error, and no tolerance"
        if row.error is not None and row.tolerance is not None and row.error > row.tolerance:
            yield f"it is timed, with an error of {row.error:.3g} over {row.tolerance:g}"
    for name, one in row.baselines.items():
        yield from (f"baseline {name}: {fault}" for fault in _of_measured(one))


def _of_measured(one: Measured) -> Iterator[str]:
    yield from _own(one)
    if one.reading is not None:
        yield from _own(one.reading)
    if (one.reading is None) == (one.why is None):
        yield "it has both a reading and a reason why not" if one.why else "it has no reading, and why does not say why"


def _of_regret(one: Regret) -> Iterator[str]:
    for sample in one.samples:
        told = [*_own(sample), *_named(sample.times_ms)]
        if sample.chosen not in {*sample.times_ms, *sample.problems}:
            told.append(f"the chosen {sample.chosen} has neither a time nor a problem")
        yield from (f"{sample.call}: {fault}" for fault in told)
    for call, number in _doubled(sample.call for sample in one.samples):
        yield f"{call} occurs {number} times"
    if not one.preferences and any(len(sample.times_ms) > 1 for sample in one.samples):
        yield "calls were timed by several implementations, and no preference between them is told"
    for preference in one.preferences:
        pair = f"{preference.over} over {preference.under}"
        yield from (f"{pair}: {fault}" for fault in _own(preference))
        if not any({preference.over, preference.under} <= sample.times_ms.keys() for sample in one.samples):
            yield f"{pair}: no call has times of both"
    for pair, number in _doubled((preference.over, preference.under) for preference in one.preferences):
        yield f"{' over '.join(pair)} occurs {number} times"


def _own(record: Any) -> Iterator[str]:
    """Yield what is impossible in the figures and words of one record, not in those that it holds."""
    checks: list[tuple[Collection[str], Callable[[Any], bool], str]] = [
        (ABOVE_ZERO.get(type(record), ()), _above_zero, _ABOVE),
        (FROM_ZERO.get(type(record), ()), _from_zero, _FROM),
    ]
    for names, right, wanted in checks:
        for name in names:
            value = getattr(record, name)
            if value is not None and not right(value):
                yield f"{name} is {value}, {wanted}"
    for name, known in WORDS.get(type(record), {}).items():
        if getattr(record, name) not in known:
            yield f"{name} is {getattr(record, name)!r}, not one of {', '.join(map(str, known))}"


def _named(named: Mapping[str, float]) -> Iterator[str]:
    yield from (f"{name} is {value}, {_ABOVE}" for name, value in named.items() if not _above_zero(value))


def _above_zero(value: float) -> bool:
    return 0 < value < math.inf


def _from_zero(value: float) -> bool:
    return 0 <= value < math.inf


def _doubled(keys: Iterable[Hashable]) -> list[tuple[Any, int]]:
    counted: dict[Any, int] = {}
    for key in keys:
        counted[key] = counted.get(key, 0) + 1
    return [(key, number) for key, number in counted.items() if number > 1]
