"""Verdicts: reports of tables already proved, kept by the hash of everything that the proof looked at.

A package ships the verdicts of its own tables in one file; those of other tables are remembered in the user's cache
folder. Whatever is missing, broken or cannot be written only costs the time of a proof. Imports z3 only to prove.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileops.rules.device import unknown_device_type
from tileops.rules.report import Finding, Report

if TYPE_CHECKING:
    from tileops.rules.table import RuleTable

# Raise it whenever the prover could answer differently for the same table: it is part of every verdict's hash.
PROVER = 3
FORMAT = 1

# What reading a stored verdict may raise: no file, no right to it, no JSON, another shape of it.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def verdict(table: RuleTable, shipped: Path | None = None, arguments: Iterable[Finding] = ()) -> Report:
    """Return the report on a table: from the file ``shipped``, else from the user's cache, else proved now.

    ``arguments`` are findings about ``forward`` (`interface.argument_findings`). Code is in no hash, so the caller
    looks at it each time, and they join whatever was stored.
    """
    key = verdict_hash(table)
    report = None if shipped is None else load(shipped).get(key)
    if report is None:
        report = _recall(key)
    if report is None:
        report = table.check()
        if storable(table, report):
            _remember(key, report)
    return report.joined(arguments)


def verdict_hash(table: RuleTable) -> str:
    """Return the hash of all that a proof depends on: table, request, boards, and the versions of the prover."""
    text = f"{table.content_hash()} {prover()}"
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def prover() -> str:
    """Return the versions of this prover and of z3."""
    # Measured: 0.4 ms, against 60 ms to import z3 and ask it.
    from importlib import metadata

    return f"tileops {PROVER}, z3 {metadata.version('z3-solver')}"


def storable(table: RuleTable, report: Report) -> bool:
    """Tell whether a report holds again without looking: no witness in it, and nothing that hangs on opaque code.

    Nor on a device type that torch does not know: another process may.
    """
    if not report.findings:
        return True
    declarations = table.declarations.values()
    opaque = any(refusal.opaque is not None for found in declarations for refusal in found.refusal)
    foreign = any(unknown_device_type(kind) for found in declarations for kind in found.devices)
    return not opaque and not foreign and all(finding.witness is None for finding in report.findings)


def save(path: Path, tables: Iterable[RuleTable]) -> dict[str, Report]:
    """Prove tables and write the verdicts to ship to ``path``; return the reports by hash.

    The file is the same whatever the order of the tables. Raises OSError where it cannot be written.
    """
    reports = {}
    for table in tables:
        report = table.check()
        if storable(table, report):
            reports[verdict_hash(table)] = report
    plain = {key: report.to_plain() for key, report in sorted(reports.items(), key=lambda item: item[1].table)}
    text = json.dumps({"format": FORMAT, "prover": prover(), "verdicts": plain}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    return reports


def load(path: Path) -> Mapping[str, Report]:
    """Return the verdicts of a file by hash; none where the file is missing or broken."""
    try:
        stat = path.stat()
    except OSError:
        return {}
    return _loaded(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=64)
def _loaded(path: Path, changed: int, size: int) -> Mapping[str, Report]:
    try:
        return _reports(json.loads(path.read_text(encoding="utf-8")))
    except _UNREADABLE:
        return {}


def _reports(data: Mapping[str, Any]) -> dict[str, Report]:
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']!r} of verdicts is not known")
    return {key: Report.from_plain(plain) for key, plain in data["verdicts"].items()}


# -- the user's cache


def cache_folder() -> Path:
    """Return the folder in which verdicts are remembered; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~")) / ".cache"
    return root / "tileops" / "verdicts"


def _recall(key: str) -> Report | None:
    return load(cache_folder() / f"{key}.json").get(key)


def _remember(key: str, report: Report) -> None:
    text = json.dumps({"format": FORMAT, "prover": prover(), "verdicts": {key: report.to_plain()}})
    folder = cache_folder()
    # A cache that cannot be written costs a proof each time, and nothing else.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, folder / f"{key}.json")  # whole or not at all, whoever reads meanwhile
        except OSError:
            os.unlink(name)
            raise
