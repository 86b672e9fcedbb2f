"""Peer: the times of another package on our rows, recorded by processes of its own, as one more baseline of a report.

A package that bears our name cannot be loaded beside ours, so scripts of its own time it (``tests/gpu/peer_gemm.py``,
``tests/gpu/peer_rows.py``), in the same way, and write a JSON object a line: ``op``, ``label``, ``dtypes``, then
``problem`` where there is no time of the row, or else

- ``timing``, ``reading`` and ``host_us``, as a report's rows have them;
- ``error`` and ``tolerance``: how far the result lay from float64, relative, and how far it might;
- ``device``: the name of the device.

The last three may be missing, in older records; that nobody checked a result is then said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import torch

from tileops.tools import recording, words
from tileops.tools.figures import PEER, Measured, Report, Row
from tileops.tools.rows import TOLERANCE
from tileops.tools.usage import UsageError

TIMINGS: Final = ("cupti", "cuda-events", "events")

Key = tuple[str, str, str]


@attrs.frozen
class Record:
    """Holds what one line says of one row: the times or what went wrong, and how and on what they were taken."""

    measured: Measured
    timing: str | None = None
    device: str | None = None
    checked: bool = True  # somebody held the result against float64
    again: bool = False  # it takes the place of an earlier file's


def read(paths: Iterable[Path]) -> dict[Key, Record]:
    """Return the records of some files by op, label and dtypes, a later file's in place of an earlier one's.

    Raises UsageError for a file that holds none, or two of one row, and for a line that is no record.
    """
    found: dict[Key, Record] = {}
    for path in paths:
        for key, record in _file(path).items():
            timed = key in found and found[key].measured.reading is not None
            if not timed or record.measured.reading is not None:  # what was not reached takes no time away
                found[key] = attrs.evolve(record, again=timed)
    return found


def _file(path: Path) -> dict[Key, Record]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} holds no records of a peer: {error}") from error
    found: dict[Key, Record] = {}
    for number, line in enumerate(lines, 1):
        try:
            plain = json.loads(line)
            key = _text(plain["op"]), _text(plain["label"]), _text(plain["dtypes"])
            record = _record(plain)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path}, line {number} is no record of a peer: {error!r}") from error
        if key in found:
            raise UsageError(f"{path}, line {number} is of a row that has one already: {' '.join(key)}")
        found[key] = record
    if not found:
        raise UsageError(f"{path} holds no record of a peer: the run that it comes from timed no row")
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    value.encode()  # half a surrogate pair is legal JSON, and no text that can be written
    return value


def _record(plain: Mapping[str, Any]) -> Record:
    """Return what a line says; a result that is wrong has no time."""
    if "problem" in plain:
        return Record(recording.measured({"role": "preferred", "why": plain["problem"] or None}))
    timing, device, error = plain["timing"], plain.get("device"), plain.get("error")
    if timing not in TIMINGS:
        raise ValueError(f"timing is {timing!r}, not one of {', '.join(TIMINGS)}")
    if device is not None and not isinstance(device, str):
        raise ValueError(f"device is {device!r}, no name")
    ours = TOLERANCE[getattr(torch, plain["dtypes"].partition("-")[0])]
    tolerance = min(plain.get("tolerance", ours), ours)
    if error is not None and error < 0:
        raise ValueError(f"error is {error}, below 0")
    if error is not None and not error <= tolerance:
        return Record(_without(f"relative error {error:.3g} is over {tolerance:g}"))
    times = {"role": "preferred", "reading": plain["reading"], "host_us": plain["host_us"]}
    return Record(recording.measured(times), timing, device, checked=error is not None)


def _without(why: str) -> Measured:
    return Measured("preferred", why=why)


def joined(report: Report, records: Mapping[Key, Record]) -> Report:
    """Return a report whose rows have the peer among their baselines: its time, or why there is none.

    A row that the records lack, of an op that they know, says so; its notes tell what else does not meet. Raises
    UsageError where no row has a record, and where the two were timed in different ways or on different devices: those
    are no ratio.
    """
    keys = {row.key for row in report.rows}
    if not keys & records.keys():
        raise UsageError(f"the peer's records are of none of the report's rows, but of {_some(records)}")
    ops = {op for op, _, _ in records}
    rows = tuple(_with(row, records, report.about.device_name) if row.op in ops else row for row in report.rows)
    notes = {
        "the peer has records of rows that are not here": _some(records.keys() - keys),
        "the peer was not measured on": _some(
            {(row.op,) for row in report.rows if row.op not in ops and PEER not in row.baselines}
        ),
        "the peer's result was not checked": _some(key for key in keys & records.keys() if not records[key].checked),
        "the last of the peer's files is told": _some(key for key in keys & records.keys() if records[key].again),
    }
    said = [f"{text}: {names}" for text, names in notes.items() if names]
    kept = [note for note in report.about.notes if note.partition(":")[0] not in notes]
    about = attrs.evolve(report.about, notes=(*kept, *said))
    return attrs.evolve(report, about=about, rows=rows)


def _with(row: Row, records: Mapping[Key, Record], device: str) -> Row:
    if row.reading is None:
        return row
    record = records.get(row.key, Record(_without("it was not measured")))
    for what, ours, theirs in (("timed by", row.timing, record.timing), ("run on", device, record.device)):
        if theirs not in (None, ours):
            raise UsageError(
                f"{' '.join(row.key)} was {what} {ours}, the peer {what.split()[-1]} {theirs}: "
                "measure both in the same way on the same device"
            )
    return attrs.evolve(row, baselines={**row.baselines, PEER: record.measured})


def _some(keys: Iterable[Sequence[str]], most: int = 3) -> str:
    """Name a few rows, and how many more there are."""
    names = sorted(" ".join(key) for key in keys)
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {words.count(more, 'other')}" if more > 0 else "")
