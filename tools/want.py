"""The smallest change of a call under which an implementation wins: ``tools.explain OP facts --want KEY``."""

from __future__ import annotations

from typing import Any

import attrs

from tileops.rules.callspec import CallSpec
from tileops.rules.device import CUDA, boards, describe, device_kind, reference
from tileops.rules.errors import RuleError
from tileops.rules.merits import together
from tileops.rules.nearest import Search, only
from tileops.rules.proof import Proof
from tileops.rules.query import Answer
from tileops.rules.table import RuleTable
from tileops.tools import words

SCHEMA = "tileops.want/1"


@attrs.frozen
class Wish:
    """Holds the answer: the nearest call that ``key`` wins, or why there is none on the device that was asked about.

    ``elsewhere`` is a board on which the same call would be won.
    """

    op: str
    interface: str
    key: str
    base: CallSpec
    answer: Answer
    why: str | None = None
    elsewhere: int | None = None

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Return, per fact that changes, what it was and what it becomes."""
        if self.answer.witness is None:
            return {}
        before, after = self.base.facts(), self.answer.witness.facts()
        return {name: (before[name], after[name]) for name in before if before[name] != after[name]}

    def text(self) -> str:
        """Write the answer for people."""
        device = describe(device_kind(self.base.device), self.base.device_facts)
        lines = [f"{self.op}.{self.interface}  {self.base.text()}   {device}"]
        if self.answer.witness is not None and not self.changes:
            lines.append(f"{self.key} wins this call as it is")
        elif self.answer.witness is not None:
            changed = ", ".join(f"{name}={words.value(new)}" for name, (_, new) in self.changes.items())
            before = ", ".join(words.value(old) for old, _ in self.changes.values())
            lines.append(f"{self.key} wins with {changed} (now {before}); fewer facts or a smaller step do not do")
        elif self.answer.status == "none":
            lines.append(f"{self.key} wins no call on this device: {self.why}")
        else:
            lines.append(f"whether {self.key} can win near this call is not decided: {self.answer.why}")
        if self.elsewhere is not None:
            lines.append(f"on arch {self.elsewhere} it wins this call as it is")
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """Return the answer as JSON can hold it."""
        found = self.answer.witness
        return {
            "schema": SCHEMA,
            "op": self.op,
            "interface": self.interface,
            "want": self.key,
            "outcome": self.answer.status,
            "call": {name: words.plain(value) for name, value in self.base.facts().items()},
            "changes": {name: words.plain(new) for name, (_, new) in self.changes.items()},
            "wins": None if found is None else {name: words.plain(value) for name, value in found.facts().items()},
            "why": self.why or self.answer.why or None,
            "elsewhere": self.elsewhere,
        }


def want(op: str, interface: str, table: RuleTable, base: CallSpec, key: str) -> Wish:
    """Look for the nearest call to ``base`` that ``key`` wins, on the device of ``base``."""
    kind = device_kind(base.device)
    stated = base.device_facts
    call = base.replace(stated=stated)
    proof = Proof(table, over={kind: (only(stated),)})
    answer = Search(proof.prover, call).nearest([proof.maximal(key)], lambda found: _wins(table, found, key))
    why = _stands_above(proof, key) if answer.status == "none" else None
    return Wish(op, interface, key, call, answer, why, _elsewhere(table, call, key))


def _wins(table: RuleTable, call: CallSpec, key: str) -> bool:
    try:
        return table.explain(call).winner == key
    except RuleError:
        return False


def _stands_above(proof: Proof, key: str) -> str:
    """Say why an implementation wins nothing on the device: it does not run there, refuses all, or others are above."""
    declaration = proof.table.declarations[key]
    (kind,) = proof.domain.kinds
    (region,) = proof.domain.spaces[kind]
    arch = int(region.arch.low)
    if kind not in declaration.devices:
        return f"it runs on {' and '.join(sorted(declaration.devices))}"
    if declaration.supported_archs is not None and arch not in declaration.supported_archs:
        return f"it runs on arch {declaration.supported_archs.text()}"
    alone = proof.prover.find([proof.served(key).serves], lambda call: None)
    if alone.status == "none":
        return "its refusals leave no call"
    above = [other for other in proof.keys if proof.goes_before(other, key)]
    both = [other for other in above if together(proof, key, other).status != "none"]
    return f"whatever it serves here, one above it serves too: {', '.join(both)}"


def _elsewhere(table: RuleTable, call: CallSpec, key: str) -> int | None:
    """Return the arch of the first reference board on which the implementation wins the call as it is."""
    if device_kind(call.device) != CUDA or _wins(table, call, key):
        return None
    for arch in sorted(boards()):
        if _wins(table, call.replace(stated=reference(arch)), key):
            return arch
    return None
