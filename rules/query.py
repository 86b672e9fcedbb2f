"""Queries: is there a call spec that meets some conditions? Answered by z3 under a deterministic resource limit.

Every answer "found" carries a call spec that the asker confirmed in Python; a model that Python does not confirm makes
the query undecided, never a witness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import attrs
import z3  # type: ignore[import-untyped]  # z3 ships no types

from tileops.rules.domain import Domain, Unstatable
from tileops.rules.shrink import shrink
from tileops.rules.terms import Term, Terms, is_constant

if TYPE_CHECKING:
    from tileops.rules.callspec import CallSpec

# Units of z3's resource limit that one query may spend. Measured: a million units take 0.1 to 0.5 s.
LIMIT = 4_000_000
_SMALL = (16, 1024, 1 << 20)  # greatest integers tried for a witness before any size

_MOST_GAPS = 64  # gaps between doubles that are told to the solver one after the other before a query is given up

_T = TypeVar("_T")

# What the asker says of a call spec: None, it shows what was asked; else conditions that the next one must meet too.
# It is asked about simpler call specs than the solver's as well, so it has to look at all that was asked.
Confirm: TypeAlias = "Callable[[CallSpec], Sequence[Term] | None]"


@attrs.frozen
class _Attempt:
    """Is one way to ask the solver: the share of the limit it may spend, seed, which of its engines."""

    share: float
    seed: int = 1
    simple: bool = True
    older: bool = False


# Measured on the rules of tests/rules/test_proof.py: which engine is quick on nonlinear rules is a matter of luck
# (`ceildiv(m, 64) * ceildiv(n, 256) > 2 * sm_count`: 4,000,000 units and no answer, or 220,000), so that several short
# attempts decide more than a long one.
_ATTEMPTS = (
    _Attempt(0.05),
    _Attempt(0.1, older=True),
    _Attempt(0.05, seed=7),
    _Attempt(0.1, simple=False),
    _Attempt(0.5),
    _Attempt(0.2, seed=7),
)


@attrs.frozen
class Model:
    """Gives the value of terms in one solution."""

    terms: Terms
    model: z3.ModelRef

    def _value(self, term: Term) -> z3.ExprRef:
        return self.model.eval(self.terms.lift(term), model_completion=True)

    def integer(self, term: Term) -> int:
        """Return the value of an integer term."""
        return term if is_constant(term) else int(self._value(term).as_long())

    def holds(self, term: Term) -> bool:
        """Tell whether a condition holds."""
        return bool(term) if is_constant(term) else bool(z3.is_true(self._value(term)))

    def fraction(self, term: Term) -> Fraction:
        """Return the value of a real term; raises Unstatable for a number that is no fraction."""
        value = self._value(term)
        if not z3.is_rational_value(value):
            raise Unstatable(f"the solver's {value} is no fraction")
        return Fraction(value.numerator_as_long(), value.denominator_as_long())


@attrs.frozen
class Answer:
    """Holds the answer to a query: "none" (no call spec meets it), "found" with a witness, or "undecided" with why."""

    status: str
    witness: CallSpec | None = None
    why: str = ""


NONE = Answer("none")


@attrs.define
class Prover:
    """Asks queries over one domain and counts what they cost."""

    domain: Domain
    limit: int = LIMIT
    queries: int = 0
    spent: int = 0

    def find(self, conditions: Sequence[Term], confirm: Confirm) -> Answer:
        """Look for a call spec that meets all conditions and that ``confirm`` accepts, a small one if there is one.

        Where ``confirm`` returns more conditions the search goes on under them; it raises Unstatable for a call spec
        that it can neither accept nor rule out, and then the query is undecided.
        """
        wanted = [condition for condition in conditions if condition is not True]
        self.queries += 1
        try:
            while True:
                if any(condition is False for condition in wanted):
                    return NONE
                if self.model([*wanted, *self.domain.around(wanted)]) is False:
                    return NONE
                call = self._solve([*wanted, *self.domain.everything()], self.domain.decode)
                if call is None:
                    return NONE
                more = confirm(call)
                if more is None:
                    return Answer("found", shrink(self.domain, call, lambda found: self._shown(found, confirm)))
                wanted += [condition for condition in more if condition is not True]
                if not more:
                    raise Unstatable(f"{call!r} does not show it")
        except Unstatable as error:
            return Answer("undecided", None, str(error))

    def _shown(self, call: CallSpec, confirm: Confirm) -> bool:
        try:
            return confirm(call) is None
        except Unstatable:
            return False

    def facts(self, conditions: Sequence[Term]) -> dict[str, Any] | None:
        """Return declared facts that meet the conditions, which are all that is asked of them; None where none do.

        For what keeps a call spec from being made at all. Raises Unstatable where nobody knows.
        """
        self.queries += 1
        return self._solve(conditions, lambda model: self.domain.facts_of(model)[2])

    def _solve(self, everything: Sequence[Term], decode: Callable[[Model], _T]) -> _T | None:
        """Return what the first model decodes to, None where there is none; raises Unstatable where nobody knows."""
        failed = f"the solver spent its {self.limit} units of resource on it"
        known = self.domain.examples()
        tries = [(True, bound) for bound in _SMALL if known is not False] + [(False, bound) for bound in _SMALL]
        for plain, bound in (*tries, (False, None)):
            small = [True if bound is None else self.domain.below(bound), known if plain else True]
            found = self.model([*everything, *small], self.limit if bound is None else self.limit // 16)
            if found is False and bound is None:
                return None
            if isinstance(found, Model):
                try:
                    return decode(found)
                except Unstatable as error:
                    failed = str(error)
        raise Unstatable(failed)

    def model(self, conditions: Sequence[Term], limit: int | None = None) -> Model | Literal[False] | None:
        """Return a model of conditions, False where there is none, or None where the solver gave up."""
        terms = self.domain.terms
        roots = [*conditions, *self.domain.numbers.about(conditions).lemmas.values()]
        if any(root is False for root in roots):
            return False
        formulas = [terms.lift(root) for root in roots if root is not True]
        for attempt in _ATTEMPTS:
            solver = (z3.SimpleSolver if attempt.simple else z3.Solver)(ctx=terms.context)
            solver.set("random_seed", attempt.seed)
            solver.set("rlimit", max(1, int((limit or self.limit) * attempt.share)))
            if attempt.older:
                solver.set("arith.solver", 2)
            solver.add(formulas)
            before = _units(solver)
            found = self._check(solver)
            self.spent += _units(solver) - before
            if found is not None:
                return found
        return None

    def _check(self, solver: z3.Solver) -> Model | Literal[False] | None:
        """Return a model whose float facts are doubles, False where there is none, None where the solver gave up."""
        for _ in range(_MOST_GAPS):
            found = solver.check()
            if found == z3.unsat:
                return False
            if found != z3.sat:
                return None
            model = Model(self.domain.terms, solver.model())
            gaps = self.domain.gaps(model)
            if not gaps:
                return model
            solver.add(gaps)
        return None


def _units(solver: z3.Solver) -> int:
    statistics = solver.statistics()
    return int(statistics.get_key_value("rlimit count")) if "rlimit count" in statistics.keys() else 0  # noqa: SIM118
