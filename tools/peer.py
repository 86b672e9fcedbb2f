"""Peer: the times of another package on our rows, recorded by processes of its own, as one more baseline of a report.

A package that bears our name cannot be loaded beside ours, so a script of its own times it (``tests/gpu/peer_gemm.py``,
``tests/gpu/peer_rows.py``), in the same way, and writes a JSON object a line: ``op``, ``label``, ``dtypes``, then
``timing``, ``reading`` and ``host_us``, or ``problem`` where the package did not run the row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from tileops.tools.figures import Measured, Reading, Report, Row
from tileops.tools.usage import UsageError

NAME: Final = "peer"

Key = tuple[str, str, str]


@attrs.frozen
class Record:
    """Holds what one line says of one row: how it was timed, and the times or what went wrong."""

    timing: str | None
    measured: Measured


def read(paths: Iterable[Path]) -> dict[Key, Record]:
    """Return the records of some files by op, label and dtypes, a later one in place of an earlier.

    Raises UsageError for a line that is no record.
    """
    found = {}
    for path in paths:
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        for number, line in enumerate(lines, 1):
            try:
                plain = json.loads(line)
                found[plain["op"], plain["label"], plain["dtypes"]] = _record(plain)
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{path}, line {number} is no record of a peer: {error!r}") from error
    return found


def _record(plain: Mapping[str, Any]) -> Record:
    if "problem" in plain:
        return Record(None, Measured("preferred", why=str(plain["problem"])))
    return Record(plain["timing"], Measured("preferred", Reading(**plain["reading"]), float(plain["host_us"])))


def joined(report: Report, records: Mapping[Key, Record]) -> Report:
    """Return a report whose rows have the peer among their baselines, where it has a record of them.

    Raises UsageError where no row has one, and where the two were timed in different ways: those are no ratio.
    """
    rows = tuple(_with(row, records.get((row.op, row.label, row.dtypes))) for row in report.rows)
    if not any(NAME in row.baselines for row in rows):
        raise UsageError("the peer's records are of none of the report's rows")
    return attrs.evolve(report, rows=rows)


def _with(row: Row, record: Record | None) -> Row:
    if record is None or row.reading is None:
        return row
    if record.timing not in (None, row.timing):
        raise UsageError(
            f"{row.op} {row.label} {row.dtypes} was timed by {row.timing}, the peer by {record.timing}: "
            "measure both in the same way"
        )
    return attrs.evolve(row, baselines={**row.baselines, NAME: record.measured})
