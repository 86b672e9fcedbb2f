"""The calls whose winner differs between a git revision and the work tree: ``python -m tools.diff REV [OP ...]``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from tileops.rules.declaration import Declaration, Opaque, Refusal, opaque_name
from tileops.rules.device import boards
from tileops.rules.difference import Comparison, Open, Region
from tileops.rules.errors import DeclarationError, ExpressionError, nearest
from tileops.rules.table import RuleTable
from tileops.tools import snapshot, words
from tileops.tools.audit import op_names
from tileops.tools.calls import command_of
from tileops.tools.catalogue import Asked, known
from tileops.tools.usage import NOT_SERVED, SERVED, Parser, UsageError, report

SCHEMA = "tileops.diff/1"
_FEW = 3  # workload rows named in a table; the text and the JSON have them all


@attrs.frozen(kw_only=True)
class Moved:
    """Is a workload row whose winner differs on some archs."""

    row: str
    archs: tuple[int, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Change:
    """Holds all that differs about one interface of an op."""

    op: str
    interface: str
    notes: tuple[str, ...] = ()
    regions: tuple[Region, ...] = ()
    open: tuple[Open, ...] = ()
    rows: tuple[Moved, ...] = ()
    reasons: Mapping[int, str] = attrs.field(factory=dict)  # by place of a region
    commands: Mapping[int, str] = attrs.field(factory=dict)

    @property
    def alike(self) -> bool:
        """Say whether it is proved that every call is answered as before."""
        return not (self.regions or self.open or self.rows)

    def rows_of(self, region: Region) -> list[str]:
        """Name the workload rows that move as a region does."""
        return [row.row for row in self.rows if (row.old, row.new) == (region.old, region.new)]

    def text(self) -> str:
        """Write the change for people."""
        lines = [f"{self.op}.{self.interface}"]
        lines += [f"  {note}" for note in self.notes]
        for place, region in enumerate(self.regions):
            lines.append(f"  {outcome(region.old)} -> {outcome(region.new)}   {archs(region.archs)}")
            lines.append(f"    {region.witness.text()}   arch {region.witness.arch}, {region.witness.sm_count} SMs")
            lines.append(f"    {self.reasons[place]}")
            lines.append(f"    {self.commands[place]}")
            rows = self.rows_of(region)
            if rows:
                lines.append(f"    workload rows: {', '.join(rows)}")
        lines += [f"  not decided: {each.what}: {each.why}" for each in self.open]
        known_pairs = {(region.old, region.new) for region in self.regions}
        for row in self.rows:
            if (row.old, row.new) not in known_pairs:
                lines.append(f"  {row.row}   {outcome(row.old)} -> {outcome(row.new)}   {archs(row.archs)}")
        if self.alike:
            lines.append("  every call is answered as before: proved")
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """Return the change as JSON can hold it."""
        return {
            "op": self.op,
            "interface": self.interface,
            "alike": self.alike,
            "notes": list(self.notes),
            "regions": [
                {
                    "old": list(region.old),
                    "new": list(region.new),
                    "archs": list(region.archs),
                    "witness": {name: words.plain(value) for name, value in region.witness.facts().items()},
                    "arch": region.witness.arch,
                    "reason": self.reasons[place],
                    "command": self.commands[place],
                    "rows": self.rows_of(region),
                }
                for place, region in enumerate(self.regions)
            ],
            "open": [attrs.asdict(each) for each in self.open],
            "rows": [
                {"row": row.row, "archs": list(row.archs), "old": list(row.old), "new": list(row.new)}
                for row in self.rows
            ],
        }


def main(argv: Sequence[str]) -> int:
    """Compare, and return the exit status: 0 no call differs, 1 some do or are not decided, 2 usage."""
    return report(_run, argv)


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        prog="tileops diff",
        description="Which calls get another implementation than at a git revision? Proved, region by region.",
        epilog="exit status: 0 no call differs, 1 some differ or are not decided, 2 a mistake in the command line",
    )
    made.add_argument("revision", help="what git calls the other side: main, HEAD~1, a tag, a hash")
    made.add_argument("ops", nargs="*", help="the ops to compare (default: all)")
    made.add_argument("--markdown", action="store_true", help="print a table for a review comment")
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def _run(argv: Sequence[str]) -> int:
    options = parser().parse(argv)
    names = op_names()
    for name in options.ops:
        if name not in names:
            raise UsageError(f"there is no op {name!r}{nearest(name, names)}; ops: {', '.join(sorted(names))}")
    found = changes(snapshot.of_revision(options.revision), options.ops or None)
    if options.json:
        plain = {"schema": SCHEMA, "revision": options.revision, "changes": [one.plain() for one in found]}
        print(json.dumps(plain, indent=2))
    elif options.markdown:
        print(markdown(options.revision, found))
    else:
        print(text(found))
    return SERVED if all(one.alike for one in found) else NOT_SERVED


def changes(before: Mapping[str, Any], names: Sequence[str] | None = None) -> list[Change]:
    """Compare the tables of a snapshot with those of the work tree; what is equal as written is left out."""
    found = []
    for name in sorted(op_names()) if names is None else names:
        op, old = known(name), before.get(name)
        if old is None:
            found.append(Change(op=name, interface="", notes=("a new op",)))
            continue
        if "error" in old:
            open_ = Open("what the revision served", str(old["error"]))
            found.append(Change(op=name, interface="", open=(open_,)))
            continue
        after = snapshot_rows(name)
        for interface, asked in op.interfaces.items():
            if interface in old:
                change = compared(name, asked, old[interface], after.get(interface, {}))
                found += [] if change is None else [change]
            elif asked.table.declarations:
                found.append(Change(op=name, interface=interface, notes=("a new interface",)))
        gone = [interface for interface in old if interface not in op.interfaces]
        found += [Change(op=name, interface=interface, notes=("the interface is gone",)) for interface in gone]
    return found


def snapshot_rows(name: str) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return the maximal implementations of each workload row of an op here, by interface, row and arch."""
    from tileops.tools.decisions import decided  # asks the manifest's rows

    return {
        interface: {row: {str(arch): list(keys) for arch, keys in each.items()} for row, each in rows.items()}
        for interface, rows in decided(known(name)).items()
    }


def compared(
    op: str, asked: Asked, old: Mapping[str, Any], rows: Mapping[str, Mapping[str, Sequence[str]]]
) -> Change | None:
    """Compare one interface with what it was; None where nothing of it changed, as written."""
    table = asked.table
    now = {key: declaration.content() for key, declaration in table.declarations.items()}
    same_request = old["request"] == table.request.content()
    if old["declarations"] == now and same_request and old["rows"] == rows:
        return None
    notes = list(_notes(old["declarations"], now))
    if not same_request:
        notes.append(f"{table.request.__name__} changed: compared over the calls that it takes now")
    moved = tuple(_moved(old["rows"], rows))
    try:
        before = RuleTable(table.name, table.request, _declarations(old["declarations"], table))
    except (DeclarationError, ExpressionError) as error:
        lost = (Open("which calls differ", str(error)),)
        return Change(op=op, interface=asked.name, notes=tuple(notes), open=lost, rows=moved)
    faults = tuple(Open(f"what {key} served", "; ".join(texts)) for key, texts in before.faults.items())
    found = list(Comparison(before, table).regions())
    regions = tuple(one for one in found if isinstance(one, Region))
    return Change(
        op=op,
        interface=asked.name,
        notes=tuple(notes),
        regions=regions,
        open=(*faults, *(one for one in found if isinstance(one, Open))),
        rows=moved,
        reasons={place: _reason(before, table, region) for place, region in enumerate(regions)},
        commands={place: command_of(op, asked, region.witness) for place, region in enumerate(regions)},
    )


def _declarations(plain: Mapping[str, Any], table: RuleTable) -> dict[str, Declaration]:
    """Make declarations of plain data; a callable is the one of its name in the table that is here now."""
    callables: dict[str, Opaque] = {
        opaque_name(refusal.opaque): refusal.opaque
        for declaration in table.declarations.values()
        for refusal in declaration.refusal
        if refusal.opaque is not None
    }
    made = {}
    for key, each in plain.items():
        refusals = []
        for refusal in each.get("refusal", ()):
            name = refusal.get("opaque")
            if name is None:
                refusals.append(Refusal(refusal["when"], refusal["why"]))
            elif name in callables:
                refusals.append(Refusal(opaque=callables[name], why=refusal["why"]))
            else:
                raise DeclarationError(f"{key} had the opaque refusal {name}, which is not here any more")
        rest = {name: value for name, value in each.items() if name != "refusal"}
        made[key] = attrs.evolve(Declaration.from_plain(rest), refusal=tuple(refusals))
    return made


def _notes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for what, keys in (("added", new.keys() - old.keys()), ("removed", old.keys() - new.keys())):
        if keys:
            yield f"{what}: {', '.join(sorted(keys))}"
    changed = sorted(key for key in old.keys() & new.keys() if old[key] != new[key])
    if changed:
        yield f"declared otherwise: {', '.join(changed)}"


def _moved(
    old: Mapping[str, Mapping[str, Sequence[str]]], new: Mapping[str, Mapping[str, Sequence[str]]]
) -> Iterator[Moved]:
    for row in old.keys() & new.keys() and [row for row in new if row in old]:
        pairs: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
        for arch, after in new[row].items():
            before = old[row].get(arch, after)
            if list(before) != list(after):
                pairs.setdefault((tuple(before), tuple(after)), []).append(int(arch))
        for (before_keys, after_keys), moved in pairs.items():
            yield Moved(row=row, archs=tuple(sorted(moved)), old=before_keys, new=after_keys)


def _reason(before: RuleTable, after: RuleTable, region: Region) -> str:
    """Say why the old winner does not win any more, or why the new one did not."""
    parts = []
    for table, keys, now in ((after, region.old, "now"), (before, region.new, "before")):
        for key in keys:
            if key in region.old and key in region.new:
                continue
            if key not in table.declarations:
                parts.append(f"{now}, there is no {key}")
                continue
            verdict = table.explain(region.witness).verdict(key)
            why = ", ".join(reason.text for reason in verdict.reasons) or f"below {' and '.join(verdict.beaten_by)}"
            parts.append(f"{now}, {key} {verdict.status}: {why}")
    return "; ".join(parts) or "precedence alone differs"


def outcome(keys: Sequence[str]) -> str:
    """Write an outcome: the winner, nobody, or who ties."""
    return "nobody" if not keys else keys[0] if len(keys) == 1 else f"ambiguous ({', '.join(keys)})"


def archs(found: Sequence[int]) -> str:
    """Write the archs of a region."""
    known_archs = sorted(boards())
    spans: list[list[int]] = []
    for arch in found:
        if spans and known_archs.index(arch) == known_archs.index(spans[-1][-1]) + 1:
            spans[-1].append(arch)
        else:
            spans.append([arch])
    told = ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
    return f"arch {told}" if told else "no known board"


def text(found: Sequence[Change]) -> str:
    """Write all changes for people."""
    if not found:
        return "every table is as it was"
    return "\n\n".join(one.text() for one in found)


def markdown(revision: str, found: Sequence[Change]) -> str:
    """Write all changes as a comment on a review."""
    if not found:
        return f"Against `{revision}`: every table is as it was."
    lines = [f"### Calls whose implementation differs from `{revision}`", ""]
    rows = []
    for one in found:
        name = ".".join(part for part in (one.op, one.interface) if part)
        lines += [f"- `{name}`: {note}" for note in one.notes]
        lines += [f"- `{name}`: every call is answered as before (proved)"] if one.alike and one.interface else []
        lines += [f"- `{name}`: not decided: {each.what}: {each.why}" for each in one.open]
        for region in one.regions:
            moved = one.rows_of(region)
            named = ", ".join(moved[:_FEW]) + (f" and {len(moved) - _FEW} more" if len(moved) > _FEW else "")
            call = f"`{region.witness.text()}` on arch {region.witness.arch}"
            cells = [f"`{name}`", outcome(region.old), outcome(region.new), archs(region.archs), call, named or "none"]
            rows.append(f"| {' | '.join(cells)} |")
    if rows:
        lines += [
            "",
            "| op | before | now | where | for example | workload rows |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        lines += rows
    return "\n".join(lines)


if __name__ == "__main__":
    from tileops.tools.diff import main as run  # the module under its one name

    sys.exit(run(sys.argv[1:]))
