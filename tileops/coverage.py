"""Coverage: is every call that an op's entry admits, on every device it claims, served by some implementation?

The domain is the entry's signature, read through the op's ``facts`` and ``when``; the claim is its ``serves``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import attrs

from tileops.admitted import Admitted, OpCall
from tileops.manifest import loader
from tileops.manifest.paramtype import show_value
from tileops.manifest.record import OpEntry
from tileops.opdomain import OpDomain, Wide
from tileops.rules.device import describe, ranges
from tileops.rules.domain import Unstatable
from tileops.rules.errors import RuleError
from tileops.rules.merits import unserved
from tileops.rules.proof import Proof
from tileops.rules.query import LIMIT, Answer, Prover
from tileops.rules.spaces import Region, Spaces, spaces
from tileops.rules.span import Span
from tileops.rules.table import RuleTable
from tileops.rules.terms import Term
from tileops.uses import LinkedUse

#: Lengths of runs in which a witness is looked for first: short ones are found sooner and read better.
_SHORT, _LONGEST = 2, 8


@attrs.frozen
class Gap:
    """Says that a call which the entry admits, on a device which it claims, is served by nobody.

    ``call`` is such a call; None where the solver could not say, which ``undecided`` tells.
    """

    op: str
    interface: str | None
    kind: str
    message: str
    call: OpCall | None = None
    undecided: bool = False


@attrs.define
class Effort:
    """Counts what was asked of the solver."""

    queries: int = 0
    spent: int = 0


def gaps(
    entry: OpEntry,
    uses: Sequence[LinkedUse],
    tables: Mapping[str, RuleTable],
    limit: int = LIMIT,
    effort: Effort | None = None,
) -> Iterator[Gap]:
    """Yield a gap of each claimed device kind and interface that has one, and the questions left open."""
    effort = Effort() if effort is None else effort
    for kind, archs in entry.serves.items():
        if entry.composition:
            yield from _of_parts(entry, kind, archs)
            continue
        over = {kind: claimed(kind, archs)}
        yield from _unasked(entry, uses, kind, over, limit, effort)
        for use in uses:
            if use.name in tables:
                search = _Search(entry, use, tables[use.name], kind, over, limit, effort)
                yield from search.nobody_serves()
                yield from search.does_not_fit()


def claimed(kind: str, archs: Sequence[int]) -> tuple[Region, ...]:
    """Return the devices of one kind that a claim of some archs speaks of."""
    every = spaces([kind])[kind]
    known = {int(found.arch.low): found for found in every if found.arch.point is not None}
    others = ranges(kind)
    span, memory = Span(*others.sm_count), Span(*others.smem_budget)
    return tuple(known.get(arch) or Region(Span(arch, arch), span, memory) for arch in archs)


def _of_parts(entry: OpEntry, kind: str, archs: Sequence[int]) -> Iterator[Gap]:
    for step in entry.composition:
        part = loader.entry(step.op)
        lacking = sorted(set(archs) - set(part.serves.get(kind, ())))
        if lacking:
            listed = ", ".join(map(str, lacking))
            message = f"claims {kind} arch {listed}, which its part {step.op} does not claim"
            yield Gap(entry.name, None, kind, message)


def _unasked(
    entry: OpEntry, uses: Sequence[LinkedUse], kind: str, over: Spaces, limit: int, effort: Effort
) -> Iterator[Gap]:
    """Yield a call that asks no interface of the op, or several."""
    if not uses or (all(use.uses.when is None for use in uses) and len(uses) == 1):
        return
    admitted = Admitted(entry, uses[0], _SHORT, asking=tuple(uses))
    domain = OpDomain(admitted, over)
    asked = [True if use.uses.when is None else domain.condition(use.uses.when.root) for use in uses]
    terms = domain.terms
    none = terms.conjunction(terms.negation(each) for each in asked)
    several = terms.disjunction(terms.conjunction((a, b)) for place, a in enumerate(asked) for b in asked[place + 1 :])

    def shows(call: OpCall) -> Sequence[Term] | None:
        return [] if sum(use.applies(call.binding.values) for use in uses) == 1 else None

    answer = _find(domain, [terms.disjunction((none, several))], shows, limit, effort)
    if answer.witness is not None:
        call = cast("OpCall", answer.witness)
        names = [use.name for use in uses if use.applies(call.binding.values)]
        message = f"a call asks {' and '.join(names) or 'no interface'}: {described(call)}; it must ask exactly one"
        yield Gap(entry.name, None, kind, message, call)
    elif answer.status == "undecided":
        message = f"whether each call asks exactly one interface is not decided: {answer.why}"
        yield Gap(entry.name, None, kind, message, undecided=True)


@attrs.frozen
class _Search:
    """Looks for the gaps of one interface on the claimed devices of one kind."""

    entry: OpEntry
    use: LinkedUse
    table: RuleTable
    kind: str
    over: Spaces
    limit: int
    effort: Effort

    def nobody_serves(self) -> Iterator[Gap]:
        """Yield a call that every implementation refuses."""
        proof = Proof(self.table, self.limit, self.over)
        # First without the entry: where the table serves all that its call spec takes, nothing more is to ask.
        if self.table.declarations and unserved(proof, lambda call: True).status == "none":
            self._count(proof.prover.queries, proof.prover.spent)
            return
        self._count(proof.prover.queries, proof.prover.spent)

        def nobody(domain: OpDomain) -> list[Term]:
            asked = Proof(self.table, self.limit, domain=domain)
            return [domain.fits, *(domain.terms.negation(asked.served(key).serves) for key in asked.keys)]

        def shows(call: OpCall) -> Sequence[Term] | None:
            if call.spec is None:
                return []
            try:
                return None if not self.table.explain(call.spec).serving else []
            except RuleError as error:
                raise Unstatable(f"{error.fields.get('key')} raises on {call.spec!r}") from error

        yield from self._told(self._ask(nobody, shows), "whether somebody serves every call", self._refused)

    def does_not_fit(self) -> Iterator[Gap]:
        """Yield a call of which the op can make no call spec."""

        def unfit(domain: OpDomain) -> list[Term]:
            return [domain.terms.negation(domain.fits)]

        def shows(call: OpCall) -> Sequence[Term] | None:
            return None if call.unfit is not None else []

        yield from self._told(self._ask(unfit, shows), "whether every call has a call spec", self._unfit)

    def _refused(self, call: OpCall) -> str:
        assert call.spec is not None, "confirmed by `shows`"
        trace = self.table.explain(call.spec)
        reasons = "; ".join(
            f"{verdict.key}: {', '.join(reason.text for reason in verdict.reasons)}" for verdict in trace.verdicts
        )
        told = reasons or "the interface has no implementation"
        return (
            f"nobody serves {described(call)}, on {describe(self.kind, call.stated)}, which the entry claims ({told})"
        )

    def _unfit(self, call: OpCall) -> str:
        name = self.use.uses.interface.request.__name__
        return f"the entry admits {described(call)}, of which no {name} can be made: {call.unfit}"

    def _told(self, answer: Answer, what: str, message: Any) -> Iterator[Gap]:
        op, name = self.entry.name, self.use.name
        if answer.witness is not None:
            call = cast("OpCall", answer.witness)
            yield Gap(op, name, self.kind, message(call), call)
        elif answer.status == "undecided":
            yield Gap(op, name, self.kind, f"{what} is not decided: {answer.why}", undecided=True)

    def _ask(self, conditions: Any, shows: Any) -> Answer:
        """Ask the wide domain, then of short runs, then of all."""
        wide = OpDomain(Wide(self.entry, self.use, _LONGEST), self.over)
        if _none(wide, conditions(wide), self.limit, self.effort):
            return Answer("none")
        for longest in (_SHORT, _LONGEST):
            domain = OpDomain(Admitted(self.entry, self.use, longest), self.over)
            answer = _find(domain, conditions(domain), shows, self.limit, self.effort)
            if answer.status == "found":
                return answer
        return answer

    def _count(self, queries: int, spent: int) -> None:
        self.effort.queries += queries
        self.effort.spent += spent


def _none(domain: OpDomain, conditions: list[Term], limit: int, effort: Effort) -> bool:
    """Tell whether no call of a wide domain meets some conditions."""
    prover = Prover(domain, limit)
    found = prover.model([*conditions, *domain.everything()])
    effort.queries += 1
    effort.spent += prover.spent
    return found is False


def _find(domain: OpDomain, conditions: list[Term], shows: Any, limit: int, effort: Effort) -> Answer:
    prover = Prover(domain, limit)
    answer = prover.find(conditions, shows)
    effort.queries += prover.queries
    effort.spent += prover.spent
    return answer


def described(call: OpCall) -> str:
    """Write a call's tensors and params: ``x=[2, 3] float16 dim=-1``."""
    parts = [
        f"{name}={'none' if size is None else f'{list(size.shape)} {show_value(size.dtype)}'}"
        for name, size in call.tensors.items()
    ]
    return " ".join([*parts, *(f"{name}={show_value(value)}" for name, value in call.params.items())])
