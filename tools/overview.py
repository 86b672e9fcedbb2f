"""The overview of an op: its interfaces, implementations and precedence, what was proved, and who wins where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch

from tileops.blueprint import SHIPPED
from tileops.manifest.workload import Case, bind
from tileops.rules.declaration import Declaration
from tileops.rules.device import CUDA, boards, describe, reference
from tileops.rules.report import Report
from tileops.rules.verdicts import verdict
from tileops.tools import calls, words
from tileops.tools.catalogue import Asked, Known
from tileops.tools.question import Place

SCHEMA = "tileops.overview/1"
NOBODY = "none"
TARGETS_ONLY = "no in-tree implementation: targets serve it"


@attrs.frozen
class Row:
    """One dtype case of a workload row: the winner per arch, None where nobody serves."""

    case: Case
    winners: Mapping[int, str | None]  # of the device asked about alone, where there is one


@attrs.frozen
class InterfaceView:
    """What is to be told of one interface."""

    asked: Asked
    proof: Report
    rows: tuple[Row, ...]
    where: Place | None = None

    def text(self, op: str) -> list[str]:
        """Write it, a line an implementation, a line a workload case."""
        table = self.asked.table
        facts = " ".join(table.request.kinds)
        lines = [f"{op}.{self.asked.name}   {table.request.__name__}: {facts}"]
        if not table.declarations:
            return [*lines, f"  {TARGETS_ONLY}"]
        for key, declaration in table.declarations.items():
            lines.append(f"  {key}  {where_it_runs(declaration)}{', general' if declaration.general else ''}")
            lines += words.columns([("refuses", refusal.text) for refusal in declaration.refusal], indent="    ")
        lines += self._precedence() + self._proved()
        lines += self._winners()
        return lines

    def _precedence(self) -> list[str]:
        below: dict[str, list[str]] = {}
        for above, key in self.asked.table.precedence.reduction():
            below.setdefault(above, []).append(key)
        if not below:
            return ["precedence: none"]
        return ["precedence", *(f"  {key} > {', '.join(sorted(below[key]))}" for key in sorted(below))]

    def _proved(self) -> list[str]:
        pairs = words.count(self.proof.proved.pairs, "pair")
        counted = f"{pairs} without precedence, {words.count(self.proof.proved.queries, 'query')}"
        if not self.proof.findings:
            return [f"proved: no call has two winners, and no rule can raise ({counted})"]
        return [f"findings ({counted})", *(f"  {finding.text()}" for finding in self.proof.findings)]

    def _winners(self) -> list[str]:
        """Write who wins: a line for the dtype cases of a row that agree, archs that no row is served on left out."""
        archs = sorted({arch for row in self.rows for arch in row.winners})
        if self.where is not None:
            device = describe(self.where.kind, self.where.facts)
            won = [(row.case.label, winner or NOBODY) for row in self.rows for winner in row.winners.values()]
            return [f"winners on {device}", *words.columns(won, indent="  ")]
        served = [arch for arch in archs if any(row.winners[arch] is not None for row in self.rows)]
        if not served:
            return []
        agreeing: dict[tuple[str, str], list[str]] = {}
        for row in self.rows:
            label, _, dtypes = row.case.label.partition("/")
            spans = words.spans([(arch, row.winners[arch] or NOBODY) for arch in served])
            agreeing.setdefault((label, spans), []).append(dtypes)
        unserved = [str(arch) for arch in archs if arch not in served]
        none = f"; none on arch {', '.join(unserved)}" if unserved else ""
        lines = [(label, " ".join(dtypes), spans) for (label, spans), dtypes in agreeing.items()]
        return [f"winners on the reference board of each arch{none}", *words.columns(lines, indent="  ")]

    def plain(self) -> dict[str, Any]:
        """Return the view as the JSON schema ``overview-1.json`` has it."""
        table = self.asked.table
        return {
            "name": self.asked.name,
            "request": table.request.__name__,
            "facts": {name: kind.describe() for name, kind in table.request.kinds.items()},
            "implementations": [_plain(key, declaration) for key, declaration in table.declarations.items()],
            "precedence": [list(edge) for edge in table.precedence.reduction()],
            "proof": {
                "findings": [finding.text() for finding in self.proof.findings],
                "pairs": self.proof.proved.pairs,
                "queries": self.proof.proved.queries,
            },
            "workloads": [
                {"label": row.case.label, "winners": {str(arch): key for arch, key in sorted(row.winners.items())}}
                for row in self.rows
            ],
        }


@attrs.frozen
class Overview:
    """Everything about an op that no single call decides."""

    op: Known
    interfaces: tuple[InterfaceView, ...]

    @classmethod
    def of(cls, op: Known, interface: str | None, where: Place | None = None) -> Overview:
        """Look at every interface of an op, or at one; who wins on every arch, or on one device."""
        chosen = [op.interface(interface)] if interface is not None else list(op.interfaces.values())
        cases = list(calls.rows(op))
        return cls(op, tuple(_view(op, asked, cases, where) for asked in chosen))

    def text(self) -> str:
        """Write the overview for people."""
        lines = [f"{self.op.name}   follows {self.op.entry.ref_api}"]
        if self.op.entry.composition:
            steps = ", ".join(step.op for step in self.op.entry.composition)
            lines.append(f"a composite of {steps}; where no target serves it whole, each part settles for itself")
        elif not self.interfaces:
            lines.append(TARGETS_ONLY)
        for view in self.interfaces:
            lines += ["", *view.text(self.op.name)]
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """Return the overview as the JSON schema ``overview-1.json`` has it."""
        return {
            "schema": SCHEMA,
            "op": self.op.name,
            "ref_api": self.op.entry.ref_api,
            "interfaces": [view.plain() for view in self.interfaces],
        }


def _view(op: Known, asked: Asked, cases: list[Case], where: Place | None) -> InterfaceView:
    rows = []
    places = [Place(torch.device(CUDA), reference(arch, CUDA)) for arch in boards(CUDA)] if where is None else [where]
    for case in cases:
        winners: dict[int, str | None] = {}
        for at in places:
            posed = calls.pose(op, None, bind(op.entry.checker, case, at.device), at)
            if posed.interface is None or posed.call is None or posed.interface.name != asked.name:
                break
            winners[at.facts.arch] = asked.table.explain(posed.call).winner
        if winners:
            rows.append(Row(case, winners))
    return InterfaceView(asked, verdict(asked.table, SHIPPED), tuple(rows), where)


def where_it_runs(declaration: Declaration) -> str:
    """Write the devices and archs of a declaration: ``cuda, arch 80 and newer``."""
    archs = declaration.supported_archs
    devices = " and ".join(sorted(declaration.devices))
    return f"{devices}, {'every arch' if archs is None else f'arch {archs.text()}'}"


def mermaid_labels(asked: Asked) -> dict[str, str]:
    """Return the second line of each implementation in a drawn graph."""
    return {key: where_it_runs(declaration) for key, declaration in asked.table.declarations.items()}


def _plain(key: str, declaration: Declaration) -> dict[str, Any]:
    archs = declaration.supported_archs
    return {
        "key": key,
        "devices": sorted(declaration.devices),
        "archs": None if archs is None else archs.text(),
        "general": declaration.general,
        "refusals": [{"when": refusal.text, "why": refusal.why} for refusal in declaration.refusal],
        "preferred_over": sorted(declaration.preferred_over),
    }
