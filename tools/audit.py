"""The static check as data: every table proved, every manifest file read, every claim of ``serves`` held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs
import torch

from tileops import backend, catalog
from tileops.blueprint import SHIPPED
from tileops.coverage import Gap
from tileops.manifest import loader
from tileops.manifest.workload import bind
from tileops.rules.callspec import CallSpec
from tileops.rules.device import CUDA, boards, reference
from tileops.rules.errors import BackendError
from tileops.rules.interface import argument_findings
from tileops.rules.report import Finding
from tileops.rules.table import RuleTable
from tileops.rules.trace import plain_value
from tileops.rules.verdicts import load, verdict_hash
from tileops.tools import calls, decisions, proofs
from tileops.tools.answer import answer
from tileops.tools.catalogue import Asked, Known, known
from tileops.tools.question import Place

ERROR, WARNING = "error", "warning"
UNDECIDED = "undecided"


@attrs.frozen(kw_only=True)
class Found:
    """One finding: where, what, how grave, and the command line that shows it again."""

    op: str | None
    interface: str | None = None
    kind: str
    severity: str = ERROR
    keys: tuple[str, ...] = ()
    message: str
    call: Mapping[str, Any] | None = None
    command: str | None = None

    @property
    def place(self) -> str:
        """Return where it was found: ``GemmFwdOp.gemm gemv, gemm_splitk``."""
        name = ".".join(part for part in (self.op, self.interface) if part is not None) or "manifest"
        return f"{name} {', '.join(self.keys)}".rstrip()

    def plain(self) -> dict[str, Any]:
        """Return the finding as the JSON schema ``check-1.json`` has it."""
        witness = None if self.command is None else {"call": self.call, "command": self.command}
        return {
            "op": self.op,
            "interface": self.interface,
            "kind": self.kind,
            "severity": self.severity,
            "keys": list(self.keys),
            "message": self.message,
            "witness": witness,
        }


@attrs.frozen
class Audit:
    """All that a check found, how much it looked at, and the tables."""

    findings: tuple[Found, ...]
    counts: Mapping[str, int]
    tables: tuple[RuleTable, ...]

    @property
    def errors(self) -> tuple[Found, ...]:
        """Return the findings that make the check fail."""
        return tuple(found for found in self.findings if found.severity == ERROR)


def op_names() -> frozenset[str]:
    """Return the names of all ops in the manifest."""
    return catalog.op_names()


def audit(names: Collection[str] | None = None, tell: Callable[[int, int, str], None] = lambda *_: None) -> Audit:
    """Check these ops, or all of them. Proves anew, whatever verdict is stored. Raises for no finding.

    ``tell`` hears before each op how many are done, how many there are, and its name.
    """
    findings: list[Found] = []
    tables: list[RuleTable] = []
    counts = Counter(dict.fromkeys(("ops", "tables", "implementations", "pairs", "queries", "workloads"), 0))
    broken = _unreadable(findings)
    kept = decisions.stored()
    asked = [name for name, family in sorted(catalog.families().items()) if family not in broken]
    asked = [name for name in asked if names is None or name in names]
    for done, name in enumerate(asked):
        tell(done, len(asked), name)
        counts["ops"] += 1
        try:
            op = known(name)
        except Exception as error:  # noqa: BLE001 - a module can raise anything on import; it is told, and the rest goes on
            findings.append(Found(op=name, kind="import", message=f"{type(error).__name__}: {error}"))
            continue
        findings += check_op(op, counts, tables)
        findings += _decisions(op, kept)
    tell(len(asked), len(asked), "")
    return Audit(tuple(findings), counts, tuple(tables))


def _unreadable(findings: list[Found]) -> set[str]:
    """Return the families whose manifest file does not load, noting what is wrong with each."""
    broken = set()
    for family in sorted(set(catalog.families().values())):
        try:
            loader.family(family)
        except BackendError as error:
            broken.add(family)
            findings.append(Found(op=None, kind="manifest", message=str(error)))
    return broken


def check_op(op: Known, counts: Counter[str], tables: list[RuleTable]) -> list[Found]:
    """Prove the tables of one op and hold its claims; adds to ``counts`` and ``tables``."""
    found: list[Found] = []
    for asked in op.interfaces.values():
        report = asked.table.check()
        tables.append(asked.table)
        counts["tables"] += 1
        counts["implementations"] += len(asked.table.declarations)
        counts["pairs"] += report.proved.pairs
        counts["queries"] += report.proved.queries
        beyond = proofs.of_table(asked.table, counts)
        found += [_found(op, asked, finding) for finding in (*report.findings, *beyond)]
        if asked.implementations and not report.findings and verdict_hash(asked.table) not in load(SHIPPED):
            message = f"{SHIPPED.name} lacks this table's verdict, so each import proves it: run tools.check --update"
            found.append(Found(op=op.name, interface=asked.name, kind="verdict", severity=WARNING, message=message))
        for key, cls in asked.implementations.items():
            if asked.use is not None:
                interface = asked.use.uses.interface
                found += [_found(op, asked, finding) for finding in argument_findings(interface, cls, key)]
    told = {(one.kind, one.message) for one in found}
    # What an import would raise beyond its tables: interfaces that nothing fills, implementations of no interface.
    found += [
        Found(op=op.name, kind=finding.kind, severity=finding.severity, keys=finding.keys, message=finding.message)
        for finding in op.findings
        if (finding.kind, finding.message) not in told
    ]
    found += [_gap(op, gap) for gap in proofs.of_claims(op, counts)]
    found += _claims(op, counts)
    return found


def _decisions(op: Known, kept: Mapping[str, Mapping[str, str]] | None) -> Iterator[Found]:
    """Yield a finding for each workload row that is decided otherwise than the stored decisions say."""
    if kept is None:
        return
    for one in decisions.differences(op, kept):
        message = f"{one.message}; run tools.check --update if it is meant"
        command = f"python -m tools.explain {op.name} --workload {one.row} --arch {decisions.ARCHS[0]}"
        yield Found(op=op.name, kind="decision", message=message, call={"workload": one.row}, command=command)


def _gap(op: Known, gap: Gap) -> Found:
    call = gap.call
    return Found(
        op=op.name,
        interface=gap.interface,
        kind=UNDECIDED if gap.undecided else "gap",
        message=gap.message,
        call=None if call is None else proofs.plain_call(call),
        command=None if call is None else proofs.command_of(op.entry, call),
    )


def _found(op: Known, asked: Asked, finding: Finding) -> Found:
    witness = finding.witness
    return Found(
        op=op.name,
        interface=asked.name,
        kind=finding.kind,
        severity=ERROR if finding.kind == UNDECIDED else finding.severity,
        keys=finding.keys,
        message=finding.message,
        call=None if witness is None else plain_call(witness),
        command=None if witness is None else calls.command_of(op.name, asked, witness),
    )


def _claims(op: Known, counts: Counter[str]) -> Iterator[Found]:
    """Yield a finding for each workload case that nobody serves on an arch that the manifest claims."""
    claimed = [(kind, arch) for kind, archs in sorted(op.entry.serves.items()) for arch in archs]
    unknown = {(kind, arch) for kind, arch in claimed if arch not in boards(kind)}
    for kind, arch in sorted(unknown):
        yield Found(op=op.name, kind="claim", message=f"serves {kind} arch {arch}, of which no board is known")
    for case in op.entry.cases():
        counts["workloads"] += 1
        for kind, arch in claimed:
            if (kind, arch) in unknown:
                continue
            where = Place(torch.device(kind), reference(arch, kind))
            claim = f"claims {kind} arch {arch}, but the row {case.label} ends there with"
            try:
                posed = calls.pose(op, None, bind(op.entry.checker, case, kind), where)
                told = answer(op, posed, where, backend.BUILTIN)
            except BackendError as error:
                yield Found(op=op.name, kind="claim", message=f"{claim} {type(error).__name__}: {error}")
                continue
            if told.error is None:
                continue
            asked = [f"--workload {case.label}", f"--arch {arch}", *([f"--device {kind}"] if kind != CUDA else [])]
            yield Found(
                op=op.name,
                interface=None if posed.interface is None else posed.interface.name,
                kind="claim",
                message=f"{claim} {told.error.splitlines()[0]}",
                call={name: plain_value(value) for name, value in told.given.items()},
                command=f"python -m tools.explain {op.name} {' '.join(asked)} --target builtin",
            )


def plain_call(call: CallSpec) -> dict[str, Any]:
    """Return a call's facts and its device's as JSON can hold them."""
    facts: Iterable[tuple[str, Any]] = {
        "device": str(call.device),
        **call.facts(),
        **attrs.asdict(call.device_facts),
    }.items()
    return {name: plain_value(value) for name, value in facts}
