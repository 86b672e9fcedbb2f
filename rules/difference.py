"""Where two tables over one call spec differ: every pair of outcomes, with a call, or a proof that there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import attrs

from tileops.rules.device import boards, reference
from tileops.rules.domain import DEVICE_FACTS, Domain, Unstatable, device_of
from tileops.rules.errors import RuleError
from tileops.rules.proof import Proof
from tileops.rules.query import LIMIT, Answer, Prover
from tileops.rules.terms import Term, is_constant

if TYPE_CHECKING:
    from tileops.rules.callspec import CallSpec
    from tileops.rules.table import RuleTable


# The maximal implementations of a call in the one table and in the other.
_Outcome: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]


@attrs.frozen
class Region:
    """Is a set of calls on which one table's outcome is ``old`` and the other's ``new``, by the keys that are maximal.

    No key: nobody serves. One: it wins. Several: the table is ambiguous there. ``archs`` are the boards on which there
    are such calls; ``witness`` is one of them.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    witness: CallSpec
    archs: tuple[int, ...]


@attrs.frozen
class Open:
    """Says which question about two tables the solver left open."""

    what: str
    why: str


@attrs.define
class Comparison:
    """Compares two tables; counts what it asked."""

    old: RuleTable
    new: RuleTable
    limit: int = LIMIT
    prover: Prover = attrs.field(init=False)
    _before: Proof = attrs.field(init=False)
    _after: Proof = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Put both tables over one domain, so that equal rules are equal terms."""
        tables = (self.old, self.new)
        kinds = {kind for table in tables for each in table.declarations.values() for kind in each.devices}
        domain = Domain(self.new.request, kinds)
        self.prover = Prover(domain, self.limit)
        self._before, self._after = (Proof(table, self.limit, domain=domain) for table in tables)

    def regions(self) -> Iterator[Region | Open]:
        """Yield every pair of different outcomes that some call has; nothing: the tables answer alike everywhere."""
        for key in sorted({*self._before.keys, *self._after.keys}):
            yield from self._faults(key)
        told: dict[_Outcome, Term] = {}
        for key in sorted({*self._before.keys, *self._after.keys}):
            before, after = self._maximal(self._before, key), self._maximal(self._after, key)
            if _same(before, after):
                continue
            negation = self.prover.domain.terms.negation
            for one, other in ((before, negation(after)), (after, negation(before))):
                yield from self._where([one, other], key, told)

    def _faults(self, key: str) -> Iterator[Open]:
        for proof in (self._before, self._after):
            if key in proof.keys and (why := proof.served(key).unsupported):
                yield Open(f"what {key} serves", why)

    def _maximal(self, proof: Proof, key: str) -> Term:
        return proof.maximal(key) if key in proof.keys else False

    def _where(self, conditions: list[Term], key: str, told: dict[_Outcome, Term]) -> Iterator[Region | Open]:
        """Yield the regions under these conditions that are not ``told`` yet, and note them there."""
        negation = self.prover.domain.terms.negation
        while True:
            beyond = [*conditions, *map(negation, told.values())]
            # A call made smaller must not slip into a region that is told already: it would be found for ever.
            answer = self._find(beyond, lambda outcome: outcome[0] != outcome[1] and outcome not in told)
            if answer.status == "undecided":
                yield Open(f"whether other calls are won, or lost, by {key}", answer.why)
            if answer.witness is None:
                return
            outcome = self._outcomes(answer.witness)
            told[outcome] = self._pattern(outcome)
            yield Region(*outcome, answer.witness, self._archs(told[outcome], outcome, answer.witness))

    def _archs(self, pattern: Term, outcome: _Outcome, witness: CallSpec) -> tuple[int, ...]:
        if "cuda" not in self.prover.domain.kinds:
            return ()
        # Most often the witness shows the same on each board's own device: that needs no solver.
        found = {arch for arch in boards() if self._outcomes(self._on(witness, arch)) == outcome}
        for arch in sorted(set(boards()) - found if self._device_matters(pattern) else ()):
            there = self.prover.domain.arch_in([(arch, arch)])
            if self._find([pattern, there], lambda found: found == outcome).witness is not None:
                found.add(arch)
        return tuple(sorted(found))

    def _on(self, witness: CallSpec, arch: int) -> CallSpec:
        return witness.replace(device=device_of("cuda"), stated=reference(arch))

    def _device_matters(self, pattern: Term) -> bool:
        kind = {"arch"} if len(self.prover.domain.kinds) > 1 else set()
        return bool(self.prover.domain.facts_in([pattern]) & ({*DEVICE_FACTS} | kind))

    def _find(self, conditions: list[Term], wanted: Callable[[_Outcome], bool]) -> Answer:
        return self.prover.find(conditions, lambda call: None if wanted(self._outcomes(call)) else [])

    def _outcomes(self, call: CallSpec) -> _Outcome:
        try:
            return self.old.explain(call).contenders, self.new.explain(call).contenders
        except RuleError as error:
            raise Unstatable(f"{error.fields.get('key')} raises on {call!r}") from error

    def _pattern(self, outcome: _Outcome) -> Term:
        """Return whether a call has this pair of outcomes."""
        terms = self.prover.domain.terms
        return terms.conjunction(
            proof.maximal(key) if key in keys else terms.negation(proof.maximal(key))
            for proof, keys in zip((self._before, self._after), outcome, strict=True)
            for key in proof.keys
        )


def _same(a: Term, b: Term) -> bool:
    """Tell whether two terms are one: equal rules over one domain make the same term."""
    if is_constant(a) or is_constant(b):
        return a is b
    return bool(a.eq(b))
