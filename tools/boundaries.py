"""Boundaries: for each refusal of each implementation a call on either side of its limit, near the workload rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

from tileops.admitted import Admitted, OpCall
from tileops.manifest.workload import bind
from tileops.opdomain import OpDomain
from tileops.rules.callspec import CallSpec
from tileops.rules.declaration import Refusal
from tileops.rules.device import CUDA, DeviceFacts, boards, describe, reference
from tileops.rules.errors import FactError, RuleError
from tileops.rules.evaluate import EVALUATION_ERRORS
from tileops.rules.nearest import Search, only
from tileops.rules.proof import Proof
from tileops.rules.query import LIMIT, Prover
from tileops.rules.table import RuleTable
from tileops.rules.terms import Term
from tileops.tools import calls, words
from tileops.tools.catalogue import Asked, Known
from tileops.tools.question import Place

REDUNDANT = "it decides nothing on this device: other refusals keep the same calls out"
DEVICE_FACTS = frozenset(field.name for field in attrs.fields(DeviceFacts))
_RUNNABLE = 1 << 28  # elements of a tensor up to which a boundary stays near its workload row
_RANK = 3  # dims a run of the calls of an op that are made of call specs
_BASES = 4  # workload rows from which the search for a limit starts, the smallest first


@attrs.frozen
class Boundary:
    """Holds the two sides of one refusal's limit: ``served`` by the implementation, ``refused`` by this refusal.

    Where they are neighbours, they differ in one fact. ``missing`` says why a side is None.
    """

    op: str
    interface: str
    key: str
    rule: str
    device: DeviceFacts
    served: CallSpec | None
    refused: CallSpec | None
    missing: str | None = None

    @property
    def facts(self) -> tuple[str, ...]:
        """Name the facts in which the two sides differ."""
        if self.served is None or self.refused is None:
            return ()
        before, after = self.served.facts(), self.refused.facts()
        return tuple(name for name in before if before[name] != after[name])

    def text(self) -> str:
        """Write the boundary in three lines, or two."""
        lines = [f"{self.key}  refuses {self.rule}"]
        if self.served is not None:
            lines.append(f"  serves   {self.served.text()}")
        if self.refused is not None:
            changed = self.refused.facts()
            told = " ".join(f"{name}={words.value(changed[name])}" for name in self.facts)
            if self.refused.device_facts != self.device:
                told = f"the same on {describe(CUDA, self.refused.device_facts)}"
            lines.append(f"  refuses  {told or self.refused.text()}")
        if self.missing is not None:
            lines.append(f"  {self.missing}")
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """Return the boundary as JSON can hold it."""
        sides = {"served": self.served, "refused": self.refused}
        return {
            "op": self.op,
            "interface": self.interface,
            "key": self.key,
            "rule": self.rule,
            "device": attrs.asdict(self.device),
            **{name: None if call is None else call.text() for name, call in sides.items()},
            "missing": self.missing,
        }


def boundaries(op: Known, device: DeviceFacts | None = None, of: str | None = None) -> Iterator[Boundary]:
    """Yield the boundary of each refusal of an op, or of one of its implementations.

    On one CUDA device, or else on the newest known board that the implementation runs on.
    """
    for asked in op.interfaces.values():
        for key, declaration in asked.table.declarations.items():
            if of not in (None, key):
                continue
            archs = declaration.supported_archs
            known = [device] if device is not None else [reference(arch) for arch in sorted(boards(), key=_newest)]
            here = [facts for facts in known if archs is None or facts.arch in archs]
            if CUDA in declaration.devices and here:
                yield from _of_implementation(op, asked, key, here[0])


def sides(table: RuleTable, key: str, index: int, bases: Sequence[CallSpec]) -> tuple[CallSpec, CallSpec] | None:
    """Return a call that an implementation serves and one that its refusal at ``index`` alone keeps out, neighbours if
    one fact decides; near ``bases``, on their device. None where there are no two such calls.
    """
    stated = bases[0].device_facts
    return _Side(Proof(table, over={CUDA: (only(stated),)}), key, index).pair(bases)


def _newest(arch: int) -> tuple[bool, int]:
    return boards()[arch].reference.calibration is None, -arch


def _of_implementation(op: Known, asked: Asked, key: str, device: DeviceFacts) -> Iterator[Boundary]:
    table = asked.table
    proof = Proof(table, over={CUDA: (only(device),)})
    bases = workload_calls(op, asked, device)
    for index, refusal in enumerate(table.declarations[key].refusal):
        about = (op.name, asked.name, key, refusal.text, device)
        if refusal.rule is None:
            yield Boundary(*about, None, None, "a Python callable: nobody knows where its limit lies")
            continue
        side = _Side(proof, key, index)
        pair = side.pair(bases)
        if pair is not None:
            yield Boundary(*about, *pair)
            continue
        refused = proof.prover.find([*side.available(), side.rule.fires, side.rule.defined], side.shows_refused)
        elsewhere = side.boards(bases) if refusal.rule.facts <= DEVICE_FACTS else None
        if elsewhere is not None:
            yield Boundary(*about, *elsewhere)
            continue
        alone = proof.prover.find(side.conditions(fires=True), side.shows_alone)
        why = "no call that the implementation serves was found near the workload rows"
        if alone.status == "none":
            why = REDUNDANT if refused.status == "found" else "no call on this device is refused by it"
        yield Boundary(*about, None, refused.witness, why)


def workload_calls(op: Known, asked: Asked, device: DeviceFacts) -> list[CallSpec]:
    """Return the call specs of the workload rows that ask an interface, the smallest calls first."""
    where = Place(torch.device(CUDA, 0), device)
    found: dict[CallSpec, int] = {}
    for case in calls.rows(op):
        binding = bind(op.entry.checker, case, CUDA)
        posed = calls.pose(op, None, binding, where)
        if posed.interface is not None and posed.call is not None and posed.interface.name == asked.name:
            found[posed.call] = op.entry.checker.roofline(binding)[1]
    return sorted(found, key=found.__getitem__)


@attrs.frozen(slots=False)
class _Side:
    """Asks on which side of one refusal's limit a call lies."""

    proof: Proof
    key: str
    index: int

    @property
    def rule(self) -> Any:
        return self.proof.served(self.key).rules[self.index]

    @property
    def table(self) -> RuleTable:
        return self.proof.table

    def available(self) -> list[Term]:
        return [self.proof.served(self.key).available]

    def serves(self, call: CallSpec) -> bool:
        """Say whether the implementation takes a call."""
        try:
            return self.table.explain(call, only=self.key).winner == self.key
        except RuleError:
            return False

    def fired(self, call: CallSpec) -> frozenset[int]:
        """Return which refusals of the implementation fire; -1 stands for one that raises."""
        values = call.values()
        return frozenset(
            place if outcome else -1
            for place, refusal in enumerate(self.table.declarations[self.key].refusal)
            if (outcome := _fires(refusal, values)) is not False
        )

    def refused(self, call: CallSpec) -> bool:
        """Say whether this refusal, and no other, keeps a call out."""
        return self.fired(call) == {self.index}

    def shows_refused(self, call: CallSpec) -> Sequence[Term] | None:
        return None if self.index in self.fired(call) else []

    def shows_alone(self, call: CallSpec) -> Sequence[Term] | None:
        return None if self.refused(call) else []

    def conditions(self, fires: bool) -> list[Term]:
        """Return the terms of a call that this refusal alone keeps out, or that the implementation serves."""
        served, negation = self.proof.served(self.key), self.proof.domain.terms.negation
        if not fires:
            return [served.serves]
        others = [rule for place, rule in enumerate(served.rules) if place != self.index]
        clear = [part for rule in others for part in (rule.defined, negation(rule.fires))]
        return [served.available, *clear, self.rule.defined, self.rule.fires]

    def pair(self, bases: Sequence[CallSpec]) -> tuple[CallSpec, CallSpec] | None:
        """Return a call on each side, neighbours where the limit is that of one integer."""
        best: tuple[CallSpec, CallSpec] | None = None
        for base in self._starts(bases):
            refused = Search(self.proof.prover, base).nearest(self.conditions(fires=True), self.refused).witness
            if refused is None:
                continue
            served = self._nearest_served(refused, base)
            if best is None or len(_changed(served, refused)) < len(_changed(*best)):
                best = (served, refused)
            if len(_changed(*best)) == 1:
                break
        return None if best is None else self._smaller(best)

    def boards(self, bases: Sequence[CallSpec]) -> tuple[CallSpec, CallSpec] | None:
        """Return a served call, and the same on a known board where this refusal, and no other, keeps it out."""
        archs = self.table.declarations[self.key].supported_archs
        for served in self._starts(bases):
            for arch in boards():
                refused = served.replace(stated=reference(arch))
                if (archs is None or arch in archs) and self.refused(refused):
                    return served, refused
        return None

    def _smaller(self, pair: tuple[CallSpec, CallSpec]) -> tuple[CallSpec, CallSpec]:
        """Return a pair too large to run with the facts that the two sides share made small."""
        for name in pair[0].kinds:
            value = getattr(pair[0], name)
            if _size(pair[0]) <= _RUNNABLE or type(value) is not int or name in _changed(*pair):
                continue
            for power in range(value.bit_length()):
                try:
                    smaller = pair[0].replace(**{name: 1 << power}), pair[1].replace(**{name: 1 << power})
                except FactError:
                    continue
                if self.serves(smaller[0]) and self.refused(smaller[1]):
                    pair = smaller
                    break
        return pair

    def _nearest_served(self, refused: CallSpec, base: CallSpec) -> CallSpec:
        """Return the served call nearest to the refused one; the base where nobody knows one."""
        answer = Search(self.proof.prover, refused).nearest(self.conditions(fires=False), self.serves)
        return base if answer.witness is None else answer.witness

    def _starts(self, bases: Sequence[CallSpec]) -> Iterator[CallSpec]:
        served = [base for base in bases if self.serves(base)][:_BASES]
        yield from served
        for base in [] if served else bases[:_BASES]:
            near = Search(self.proof.prover, base).nearest(self.conditions(fires=False), self.serves).witness
            if near is not None:
                yield near
        if not bases:
            found = self.proof.prover.find(self.conditions(fires=False), lambda call: None if self.serves(call) else [])
            if found.witness is not None:
                yield found.witness


def _fires(refusal: Refusal, values: Mapping[str, Any]) -> bool | None:
    try:
        return False if refusal.rule is None else bool(refusal.rule.evaluate(values))
    except EVALUATION_ERRORS:
        return None


def _size(call: CallSpec) -> int:
    """Return the product of the two greatest facts: about the elements of the largest tensor."""
    integers = sorted((value for value in call.facts().values() if type(value) is int), reverse=True)
    return math.prod(integers[:2])


def _changed(a: CallSpec, b: CallSpec) -> list[str]:
    return [name for name in a.kinds if getattr(a, name) != getattr(b, name)]


# -- in the op's own terms


def op_call(op: Known, asked: Asked, call: CallSpec) -> OpCall | None:
    """Return a call of the op that makes this call spec; None where none of at most three dims a run does."""
    if asked.use is None or call.stated is None:
        return None
    domain = OpDomain(Admitted(op.entry, asked.use, _RANK), {call.device.type: (only(call.stated),)})
    numbers, names = domain.numbers, domain.translator.names
    wanted = [numbers.equal(names[name], numbers.constant(value)) for name, value in call.facts().items()]

    def shows(found: Any) -> Sequence[Term] | None:
        return None if found.spec is not None and found.spec.facts() == call.facts() else []

    found: Any = Prover(domain, LIMIT).find(wanted, shows).witness
    return found if isinstance(found, OpCall) else None


# -- told


def text(op: Known, found: Sequence[Boundary]) -> str:
    """Write the boundaries of an op, by interface."""
    lines: list[str] = []
    heading = None
    for one in found:
        title = f"{op.name}.{one.interface}   {describe(CUDA, one.device)}"
        if title != heading:
            lines += [*([""] if lines else []), title]
            heading = title
        lines += one.text().splitlines()
    return "\n".join(lines) or f"{op.name}: no implementation refuses anything"
