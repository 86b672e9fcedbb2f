"""Prove every table, read the whole manifest, hold the claims: ``python -m tools.check [OP ...]``."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tileops.blueprint import SHIPPED
from tileops.rules.errors import nearest
from tileops.rules.verdicts import save
from tileops.tools import boundaries, decisions, words
from tileops.tools.audit import Audit, audit, op_names
from tileops.tools.catalogue import known
from tileops.tools.progress import progress
from tileops.tools.usage import NOT_SERVED, SERVED, Parser, UsageError, report

SCHEMA = "tileops.check/1"


def main(argv: Sequence[str]) -> int:
    """Check everything, or some ops, and return the exit status: 0 sound, 1 an error was found, 2 usage."""
    return report(_run, argv)


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        prog="tileops check",
        description="Prove that no call has two winners and no rule can raise; read the manifest; hold its claims.",
        epilog="exit status: 0 no error, 1 an error was found, 2 a mistake in the command line",
    )
    made.add_argument("ops", nargs="*", help="the ops to check (default: all)")
    made.add_argument("--json", action="store_true", help="print JSON; docs/explain-json.md describes it")
    made.add_argument("--update", action="store_true", help="write the proved verdicts and the decisions anew")
    made.add_argument("--digest", action="store_true", help="print one hash over all tables, and prove nothing")
    made.add_argument(
        "--boundaries", action="store_true", help="print calls on both sides of each limit, and prove nothing"
    )
    return made


def _run(argv: Sequence[str]) -> int:
    options = parser().parse(argv)
    known_ops = op_names()
    for name in options.ops:
        if name not in known_ops:
            raise UsageError(f"there is no op {name!r}{nearest(name, known_ops)}; ops: {', '.join(sorted(known_ops))}")
    if options.update and options.ops:
        raise UsageError("--update writes the verdicts of all tables: name no op beside it")
    if options.boundaries:
        return _boundaries(sorted(options.ops or known_ops), as_json=options.json)
    if options.digest:
        print(digest(sorted(options.ops or known_ops)))
        return SERVED
    tell = progress(sys.stderr)
    found = audit(options.ops or None, tell)
    if options.update:
        save(SHIPPED, found.tables)
        if decisions.FILE.parent.is_dir():  # an installed package has no tests
            decisions.save({name: known(name) for name in known_ops})
        found = audit(None, tell)
    print(json.dumps(_plain(found), indent=2) if options.json else _text(found, SHIPPED if options.update else None))
    return NOT_SERVED if found.errors else SERVED


def digest(names: Sequence[str]) -> str:
    """Return one hash over the tables of some ops: equal in every process with the same code and plugins."""
    tables = {f"{name}.{asked.name}": asked.table for name in names for asked in known(name).interfaces.values()}
    told = "\n".join(f"{place} {table.content_hash()}" for place, table in sorted(tables.items()))
    return hashlib.sha256(told.encode()).hexdigest()


def _boundaries(names: Sequence[str], *, as_json: bool) -> int:
    ops = {name: known(name) for name in names}
    found = {name: list(boundaries.boundaries(op)) for name, op in ops.items()}
    if as_json:
        plain = [one.plain() for each in found.values() for one in each]
        print(json.dumps({"schema": "tileops.boundaries/1", "boundaries": plain}, indent=2))
    else:
        print("\n\n".join(boundaries.text(ops[name], each) for name, each in found.items()))
    return SERVED


def _text(found: Audit, written: Path | None) -> str:
    lines = []
    for one in found.findings:
        lines.append(f"{one.severity}: {one.kind}: {one.place}: {one.message}")
        if one.command is not None:
            lines.append(f"  {one.command}")
    counts = found.counts
    looked = ", ".join(words.count(counts[f"{noun}s"], noun) for noun in ("op", "table", "implementation"))
    proved = f"{words.count(counts['pairs'], 'pair')} without precedence, {words.count(counts['queries'], 'query')}"
    lines.append(f"{looked}; {proved}; {words.count(counts['workloads'], 'workload row')}")
    lines.append(words.count(len(found.errors), "error") if found.errors else "sound: no call has two winners")
    if written is not None:
        lines.append(f"wrote {written.resolve()}")
    return "\n".join(lines)


def _plain(found: Audit) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "ok": not found.errors,
        "counts": dict(found.counts),
        "findings": [one.plain() for one in found.findings],
    }


if __name__ == "__main__":
    from tileops.tools.check import main as run  # the module under its one name

    sys.exit(run(sys.argv[1:]))
