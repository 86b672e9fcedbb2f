"""One question answered about a device that need not be here: the op's trace, and its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from tileops import backend
from tileops.explain import OpTrace, entry_identity, show_identity
from tileops.manifest import loader
from tileops.manifest.composition import follow
from tileops.manifest.signature import Binding
from tileops.rules.device import NO_FACTS, describe
from tileops.rules.errors import BackendError
from tileops.rules.trace import plain_value
from tileops.tools.calls import Posed, pose
from tileops.tools.catalogue import Known, known
from tileops.tools.question import Place

SCHEMA = "tileops.explain/1"


@attrs.frozen
class Answer:
    """Holds the op's trace for one call, how the call was described, and the device that was asked about.

    ``parts`` are the answers for the parts of a composite that is not served whole. ``notes`` are what a reader of
    the answer should know besides.
    """

    trace: OpTrace
    given: Mapping[str, Any]
    where: Place
    parts: tuple[Answer, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """Return how the call ends, in the words of the JSON schema."""
        if self.trace.trace is not None:
            return self.trace.trace.outcome
        if self.parts:
            return "served by parts" if self.error is None else "part not served"
        on_target = self.trace.settlement.target is not backend.BUILTIN
        if self.trace.error is not None:
            return "no builder" if on_target else "no device"
        return "served by target" if on_target else "nothing to compute"

    @property
    def error(self) -> str | None:
        """Return what the call would raise, or None where it is served."""
        error: BackendError | None = self.trace.error
        if error is None and self.trace.trace is not None and self.trace.winner is None:
            error = self.trace.trace.error(op=self.trace.op, targets=backend.registered_targets(self.trace.op))
        refused = (part.error for part in self.parts if part.error is not None)
        return next(refused, None) if error is None else f"{type(error).__name__}: {error}"

    def text(self, *, rules: bool = False) -> str:
        """Write the answer for people, a line an implementation; with ``rules``, each reason with its rule."""
        lines = [self.trace.text(rules=rules)]
        if self.error is not None and (self.trace.trace is not None or self.parts):
            lines.append(self.error.splitlines()[0])  # the lines below it say what stands above
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def plain(self) -> dict[str, Any]:
        """Return the answer as the JSON schema ``explain-1.json`` has it."""
        plain = self.trace.to_plain()
        selection = self.trace.trace
        identity = None if self.trace.winner is None else show_identity(self.trace.identity)
        return {
            "schema": SCHEMA,
            "op": self.trace.op,
            "interface": plain["interface"],
            "call": {name: plain_value(value) for name, value in self.given.items()},
            "device": {"device": str(self.where.device), "kind": self.where.kind, **attrs.asdict(self.where.facts)},
            "target": plain["target"],
            "outcome": self.outcome,
            "implementations": plain["implementations"],
            "winner": plain["winner"],
            "beaten": [] if selection is None else list(selection.beaten),
            "entry": None if identity is None else {"implementation": plain["winner"], "identity": identity},
            "error": self.error,
            "parts": [part.plain() for part in self.parts],
            "notes": list(self.notes),
        }


def answer(op: Known, posed: Posed, where: Place, target: backend.Target | None) -> Answer:
    """Answer one question as a call would find it: the target stage, then selection. Builds nothing.

    Raises UnknownTargetError and AmbiguousTargetError, as a call does.
    """
    settlement = backend.settle(op.name, where.device, target)
    told = str(where.device) if where.facts == NO_FACTS else describe(where.kind, where.facts)
    trace = OpTrace(op=op.name, device=where.device, asked=posed.text(), settlement=settlement, device_text=told)
    whole = isinstance(settlement.target, str) and backend.has_builder(op.name, settlement.target)
    if op.entry.composition and posed.binding is not None and not whole:
        parts = tuple(_parts(op, posed.binding, where, target))
        remark = "a composite: its parts run, each on a target that it settles"
        trace = attrs.evolve(trace, remark=remark, parts=tuple(part.trace for part in parts))
        return Answer(trace, posed.given, where, parts)
    trace = _complete(trace, op, posed)
    return Answer(trace, posed.given, where, notes=tuple(_notes(trace, op, where)))


def _notes(trace: OpTrace, op: Known, where: Place) -> Iterator[str]:
    if trace.settlement.target is not backend.BUILTIN:
        return  # nothing was selected
    if trace.error is not None and not op.interfaces:
        yield f"{op.name} has no in-tree kernels, for any device"
    beyond = where.beyond_proofs()
    if trace.trace is not None and beyond is not None:
        yield beyond


def _parts(op: Known, binding: Binding, where: Place, target: backend.Target | None) -> Iterator[Answer]:
    for step in follow(op.entry, binding, loader.entry):
        part = known(step.entry.name)
        yield answer(part, pose(part, None, step.binding, where), where, target)


def _complete(trace: OpTrace, op: Known, posed: Posed) -> OpTrace:
    target = trace.settlement.target
    if target is not backend.BUILTIN:
        try:
            backend.builder_for(op.name, target, trace.device)
        except BackendError as error:
            return attrs.evolve(trace, error=error)
        return attrs.evolve(trace, remark="the whole op, with a kernel that the target chooses itself")
    if posed.interface is None or posed.call is None:
        if not posed.empty:
            return attrs.evolve(trace, error=backend.in_tree_error(op.name, trace.device))
        return attrs.evolve(trace, remark="a tensor has no element: nothing runs")
    selection = posed.interface.table.explain(posed.call)
    if selection.winner is None:
        return attrs.evolve(trace, trace=selection)
    identity = entry_identity(posed.interface.implementations[selection.winner], posed.call)
    return attrs.evolve(trace, trace=selection, identity=identity)
