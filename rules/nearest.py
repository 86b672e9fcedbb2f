"""The nearest call that meets some conditions: the fewest facts changed, then the least distance. By z3, exactly.

The distance of an integer is how far it moves; any other fact that changes counts one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from tileops.rules.domain import DEVICE_FACTS, Domain, Unstatable
from tileops.rules.query import Answer, Model, Prover
from tileops.rules.spaces import Region
from tileops.rules.span import Span
from tileops.rules.symbolic import Value
from tileops.rules.terms import Term

if TYPE_CHECKING:
    from tileops.rules.callspec import CallSpec
    from tileops.rules.device import DeviceFacts


def only(facts: DeviceFacts) -> Region:
    """Return the region that holds one device, to ask about nothing else."""
    arch, sm_count, smem = (Span(value, value) for value in (facts.arch, facts.sm_count, facts.smem_budget))
    named = () if facts.calibration is None else ((facts.calibration, facts.sm_count),)
    return Region(arch, sm_count, smem, calibrations=named, examples=(facts,))


@attrs.frozen
class Search:
    """Looks around one call, on the device that the domain of ``prover`` holds."""

    prover: Prover
    base: CallSpec

    @property
    def domain(self) -> Domain:
        """Return the domain that is looked through."""
        return self.prover.domain

    def nearest(self, conditions: Sequence[Term], shows: Callable[[CallSpec], bool]) -> Answer:
        """Return the nearest call that meets the conditions, which ``shows`` confirms; "none" where no call does.

        "undecided" where the solver cannot say, or where Python does not confirm what it found.
        """
        if shows(self.base):
            return Answer("found", self.base)
        wanted = [condition for condition in conditions if condition is not True]
        names = [name for name in self.base.kinds if name in self._tied(wanted)]
        try:
            if self._model(wanted) is None:
                return Answer("none")
            for size in range(1, len(names) + 1):
                found = [self._least(wanted, set(free), shows) for free in itertools.combinations(names, size)]
                reached = [pair for pair in found if pair is not None]
                if reached:
                    return Answer("found", min(reached, key=lambda pair: pair[0])[1])
        except Unstatable as error:
            return Answer("undecided", None, str(error))
        return Answer("none")

    def _tied(self, wanted: Sequence[Term]) -> frozenset[str]:
        """Return the facts that the conditions read, and those that invariants tie to them."""
        return self.domain.facts_in([*wanted, *self.domain.around(wanted)])

    def _least(
        self, wanted: Sequence[Term], free: set[str], shows: Callable[[CallSpec], bool]
    ) -> tuple[int, CallSpec] | None:
        """Return the nearest call that differs from the base in these facts only, with its distance."""
        held = [self._same(name) for name in self.base.kinds if name not in free]
        model = self._model([*wanted, *held])
        if model is None:
            return None
        call = self._confirmed(model, shows)
        distance, low = self.distance(call), 0
        within = self._distance(free)
        while low + 1 < distance:  # nothing lies nearer than low, and the call lies at distance
            middle = (low + distance) // 2
            model = self._model([*wanted, *held, self.domain.terms.at_most(within, middle)])
            if model is None:
                low = middle
            else:
                call = self._confirmed(model, shows)
                distance = self.distance(call)
        return distance, call

    def _confirmed(self, model: Model, shows: Callable[[CallSpec], bool]) -> CallSpec:
        call = self.domain.decode(model)
        if not shows(call):
            raise Unstatable(f"the solver's {call!r} does not show it")
        return call

    def _model(self, conditions: Sequence[Term]) -> Model | None:
        self.prover.queries += 1
        found = self.prover.model([*conditions, *self._device(), *self.domain.everything()])
        if found is None:
            raise Unstatable(f"the solver spent its {self.prover.limit} units of resource on it")
        return found or None

    def _device(self) -> Iterator[Term]:
        for name in DEVICE_FACTS:
            yield self._equal(self.domain.values[name], getattr(self.base, name))

    def _same(self, name: str) -> Term:
        return self._equal(self.domain.values[name], getattr(self.base, name))

    def _equal(self, value: Value, to: Any) -> Term:
        return self.domain.numbers.equal(value, self.domain.numbers.constant(to))

    def _distance(self, free: set[str]) -> Term:
        terms, total = self.domain.terms, 0
        for name in sorted(free):
            value, before = self.domain.values[name], getattr(self.base, name)
            changed = terms.choose(self._same(name), 0, 1)
            if value.kind == "int" and before is not None:
                moved = terms.choose(
                    terms.at_most(before, value.term),
                    terms.subtract(value.term, before),
                    terms.subtract(before, value.term),
                )
                changed = moved if value.none is False else terms.choose(value.none, 1, moved)
            total = terms.add(total, changed)
        return total

    def distance(self, call: CallSpec) -> int:
        """Return how far a call lies from the base."""
        total = 0
        for name in self.base.kinds:
            before, after = getattr(self.base, name), getattr(call, name)
            if before == after:
                continue
            integers = type(before) is int and type(after) is int
            total += abs(before - after) if integers else 1
        return total
