"""The domain of a proof: every call spec of one class, on every device of some kinds, as z3 variables and conditions.

It reads in both directions: `Domain.values` are the facts as terms, `Domain.decode` makes the call spec of a model.
"""

from __future__ import annotations

import copy
import functools
import math
import sys
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import attrs
import torch

from tileops.rules.callspec import CallSpec
from tileops.rules.device import DeviceFacts, device_kind
from tileops.rules.errors import FactError, RuleError
from tileops.rules.expr import Expression
from tileops.rules.smt import Translation, Translator
from tileops.rules.spaces import Region, Spaces, holds, spaces
from tileops.rules.span import INFINITY, Span
from tileops.rules.symbolic import Arithmetic, Unsupported, Value
from tileops.rules.terms import Term, Terms, is_constant
from tileops.rules.types import DTYPES, Type

if TYPE_CHECKING:
    from tileops.rules.query import Model

DEVICE_FACTS = ("arch", "calibration", "sm_count", "smem_budget")
_LARGEST_FLOAT = Fraction(sys.float_info.max)
_LONGEST = 64  # greatest length that a tuple without one is given in a proof


class Unstatable(Exception):  # noqa: N818 - says that a model is no call spec; the query is undecided then
    """Says why a model of the solver is no call spec."""


class Domain:
    """Holds the facts of ``request`` as values over z3 variables, and the conditions that every call spec meets.

    ``kinds`` are the device kinds of the calls; ``over`` gives the devices of each kind, the boards known by default.
    """

    def __init__(self, request: type[CallSpec], kinds: Iterable[str], over: Spaces | None = None) -> None:
        self.request = request
        self.spaces = spaces(kinds) if over is None else {kind: over[kind] for kind in sorted(kinds)}
        self.kinds = tuple(self.spaces)
        self.numbers = Arithmetic()
        regions = [found for regions in self.spaces.values() for found in regions]
        self.declared: Mapping[str, Type] = {
            name: bounded(name, kind, regions) if name in DEVICE_FACTS else kind
            for name, kind in request.scope.items()
            if name not in request.derived
        }
        self.kind = self.terms.integer("device kind")
        self.numbers.own(self.kind, "arch")
        self._ranges: dict[str, Term] = {}
        values = {name: self._variable(name, kind) for name, kind in self.declared.items()}
        self.values: dict[str, Value] = values
        self.known: dict[str, Term] = {}
        for name, expression in request.derived.items():
            value, defined = self._derived(name, expression)
            self.values = {**self.values, name: value}
            if defined is not True:
                self.known[name] = defined
        self.invariants = [self._invariant(expression) for expression in request.invariants]
        parts = [self._devices(), *self.known.values(), *(part for pair in self.invariants for part in pair)]
        self._ties = [(self.facts_in([part]), part) for part in parts if part is not True]

    @property
    def terms(self) -> Terms:
        """Return the maker of terms."""
        return self.numbers.terms

    @property
    def translator(self) -> Translator:
        """Return the translator of expressions over the facts."""
        return Translator(self.numbers, self.values, self.known)

    def standing_on(self, device: Mapping[str, Value]) -> Domain:
        """Return the same calls with some device facts replaced, to ask of two devices at once."""
        other = copy.copy(self)
        other.values = {**self.values, **device}
        return other

    # -- conditions

    def on(self, kinds: Iterable[str]) -> Term:
        """Return whether the call's device is of one of the kinds."""
        wanted = [self.kinds.index(kind) for kind in sorted(kinds) if kind in self.kinds]
        if len(wanted) == len(self.kinds):
            return True
        return self.terms.disjunction(self.terms.equal(self.kind, index) for index in wanted)

    def arch_in(self, intervals: Iterable[tuple[int, int | None]]) -> Term:
        """Return whether the device's arch lies in one of the intervals; an open end is None."""
        arch = self.values["arch"].term
        return self.terms.disjunction(
            self.terms.between(low, arch, INFINITY if high is None else high) for low, high in intervals
        )

    def everything(self) -> list[Term]:
        """Return every condition that a call spec meets."""
        return [*self.ranges(), *(term for _, term in self._ties)]

    def ranges(self) -> list[Term]:
        """Return the conditions on single facts, and those on the device."""
        return [part for part in (*self._ranges.values(), self._ties[0][1]) if part is not True]

    def around(self, conditions: Iterable[Term]) -> list[Term]:
        """Return the conditions on the facts that occur in ``conditions``, and on those tied to them."""
        names = self.facts_in(conditions)
        ties = list(self._ties)
        chosen: list[Term] = []
        while True:
            near = [(facts, term) for facts, term in ties if facts & names]
            if not near:
                break
            chosen.extend(term for _, term in near)
            ties = [tie for tie in ties if not tie[0] & names]
            names = names.union(*(facts for facts, _ in near))
        return [*(term for name in sorted(names) if (term := self._ranges[name]) is not True), *chosen]

    def facts_in(self, conditions: Iterable[Term]) -> frozenset[str]:
        """Return the declared and device facts whose variables occur in some terms, or in the lemmas about them."""
        return self.numbers.about(conditions).facts

    def below(self, bound: int) -> Term:
        """Return whether no integer of the declared facts is above ``bound``."""
        parts: list[Term] = []
        for name in self.request.kinds:
            value = self.values[name]
            items = [item for _, items in value.cases[-1:] for item in items] if value.kind == "tuple" else [value]
            parts += [self.terms.at_most(item.term, bound) for item in items if item.kind == "int"]
        return self.terms.conjunction(parts)

    def examples(self) -> Term:
        """Return whether the device is one of those that people know."""
        arch, calibration, sm_count, smem = (self.values[name] for name in DEVICE_FACTS)
        terms, numbers = self.terms, self.numbers
        return terms.disjunction(
            terms.conjunction(
                (
                    terms.equal(self.kind, index),
                    terms.equal(arch.term, stated.arch),
                    numbers.equal(calibration, numbers.constant(stated.calibration)),
                    terms.equal(sm_count.term, stated.sm_count),
                    terms.equal(smem.term, stated.smem_budget),
                )
            )
            for index, kind in enumerate(self.kinds)
            for found in self.spaces[kind]
            for stated in found.examples
        )

    # -- variables

    def _derived(self, name: str, expression: Expression) -> Translation:
        """Return the value of a derived fact; one that has no translation may be anything of its type."""
        try:
            return self.translator.translate(expression.root)
        except Unsupported:
            return self._variable(name, self.request.scope[name]), True

    def _invariant(self, expression: Expression) -> tuple[Term, Term]:
        """Return whether an invariant holds and is defined; one that has no translation keeps nothing out."""
        try:
            return self.translator.condition(expression.root)
        except Unsupported:
            return True, True

    def _variable(self, name: str, kind: Type) -> Value:
        terms = self.terms
        none = self.numbers.own(terms.boolean(f"{name} is None"), name) if kind.optional else False
        cases: tuple[tuple[Term, tuple[Value, ...]], ...] = ()
        codes: tuple[int, ...] = ()
        span = Span(-INFINITY if kind.low is None else kind.low, INFINITY if kind.high is None else kind.high)
        term: Term = None
        if kind.kind == "tuple":
            cases = self._lengths(name, kind, span)
        elif kind.kind == "bool":
            term = self.numbers.own(terms.boolean(name), name)
        elif kind.kind == "float":
            span = Span(-_LARGEST_FLOAT, _LARGEST_FLOAT)
            term = self.numbers.own(terms.real(name), name)
            self._ranges[name] = terms.between(span.low, term, span.high)
        elif kind.kind == "int":
            term = span.point if span.point is not None else self.numbers.own(terms.integer(name), name)
            self._ranges[name] = terms.between(span.low, term, span.high)
        else:
            members = kind.members or (tuple(DTYPES.values()) if kind.kind == "dtype" else ())
            codes = tuple(self.numbers.codes.code(member) for member in members)
            term = self.numbers.own(terms.integer(name), name)
            span = Span(min(codes), max(codes)) if codes else Span()
            if codes:
                self._ranges[name] = terms.disjunction(terms.equal(term, code) for code in codes)
        self._ranges.setdefault(name, True)
        kind_name = "code" if kind.kind in ("str", "dtype") else kind.kind
        return Value(kind_name, term, span, none, cases, codes)

    def _lengths(self, name: str, kind: Type, span: Span) -> tuple[tuple[Term, tuple[Value, ...]], ...]:
        terms = self.terms
        longest = max(_LONGEST if kind.max_len is None else kind.max_len, kind.min_len)
        items = [Value("int", self.numbers.own(terms.integer(f"{name}[{i}]"), name), span) for i in range(longest)]
        ranges = [terms.between(span.low, item.term, span.high) for item in items]
        if kind.min_len == longest:
            self._ranges[name] = terms.conjunction(ranges)
            return ((True, tuple(items)),)
        length = self.numbers.own(terms.integer(f"len({name})"), name)
        self._ranges[name] = terms.conjunction((*ranges, terms.between(kind.min_len, length, longest)))
        return tuple((terms.equal(length, n), tuple(items[:n])) for n in range(kind.min_len, longest + 1))

    def _devices(self) -> Term:
        return self.terms.disjunction(
            self.terms.conjunction((self.terms.equal(self.kind, index), self._region(found)))
            for index, kind in enumerate(self.kinds)
            for found in self.spaces[kind]
        )

    def _region(self, found: Region) -> Term:
        terms = self.terms
        arch, calibration, sm_count, smem = (self.values[name] for name in DEVICE_FACTS)
        parts = [
            terms.between(span.low, value.term, span.high)
            for span, value in ((found.arch, arch), (found.sm_count, sm_count), (found.smem_budget, smem))
        ]
        parts += [terms.negation(terms.equal(arch.term, other)) for other in sorted(found.but) if other in found.arch]
        if found.calibrations is not None:
            named = [
                terms.conjunction(
                    (terms.equal(calibration.term, self.numbers.codes.code(name)), terms.equal(sm_count.term, count))
                )
                for name, count in found.calibrations
            ]
            parts.append(terms.disjunction((calibration.none, *named)))
        return terms.conjunction(parts)

    # -- floats

    def gaps(self, model: Model) -> list[Term]:
        """Return, for each float fact that a model puts between two doubles, that it lies on one side or the other.

        To the solver a float is a real. Floats are only compared, so that these conditions make its answers exact.
        """
        terms = self.terms
        found = []
        for name, kind in self.declared.items():
            value = self.values[name]
            if kind.kind == "float" and not is_constant(value.term):
                exact = model.fraction(value.term)
                low, high = doubles_beside(exact)
                if low < high:
                    found.append(terms.disjunction((terms.at_most(value.term, low), terms.at_most(high, value.term))))
        return found

    # -- decoding

    def decode(self, model: Model) -> CallSpec:
        """Return the call spec of a model, its device facts stated; raises Unstatable where there is none."""
        kind, stated, facts = self.facts_of(model)
        if not holds(self.spaces[kind], stated):
            raise Unstatable(f"{stated} is no device of kind {kind}")
        return self.spec(kind, stated, facts)

    def facts_of(self, model: Model) -> tuple[str, DeviceFacts, dict[str, Any]]:
        """Return device kind, device facts and declared facts that a model describes."""
        facts = {name: self._read(model, name, kind) for name, kind in self.declared.items()}
        stated = DeviceFacts(**{name: facts.pop(name) for name in DEVICE_FACTS})
        return self.kinds[model.integer(self.kind)], stated, facts

    def spec(self, kind: str, stated: DeviceFacts, facts: Mapping[str, Any]) -> CallSpec:
        """Return the call spec of these facts; raises Unstatable where there is none."""
        try:
            return self.request(device=device_of(kind), stated=stated, **facts)
        except (FactError, RuleError) as error:
            raise Unstatable(str(error)) from error

    def _read(self, model: Model, name: str, kind: Type) -> Any:
        value = self.values[name]
        if value.none is not False and model.holds(value.none):
            return None
        if value.kind == "tuple":
            for guard, items in value.cases:
                if model.holds(guard):
                    return tuple(model.integer(item.term) for item in items)
            raise Unstatable(f"{name} has no length")
        if value.kind == "bool":
            return model.holds(value.term)
        if value.kind == "float":
            return float(model.fraction(value.term))
        number = model.integer(value.term)
        if value.kind == "int":
            return number
        found = self.numbers.codes.value(number)
        if kind.kind == "str" and not isinstance(found, str):
            return f"other{number}"  # any string that no rule names
        return found


def bounded(name: str, kind: Type, regions: Iterable[Region]) -> Type:
    """Return the type of a device fact with the bounds that it has in some regions; of another kind as it is."""
    spans: list[Span] = [getattr(found, name) for found in regions] if kind.kind == "int" else []
    if not spans:
        return kind
    return attrs.evolve(kind, low=int(min(span.low for span in spans)), high=int(max(span.high for span in spans)))


def doubles_beside(exact: Fraction) -> tuple[Fraction, Fraction]:
    """Return the greatest double at most, and the least at least, a number within their range."""
    near = float(exact)
    if near == exact:
        return exact, exact
    other = math.nextafter(near, math.inf if near < exact else -math.inf)
    return min(Fraction(near), Fraction(other)), max(Fraction(near), Fraction(other))


@functools.cache
def device_of(kind: str) -> torch.device:
    """Return a device of this kind; raises Unstatable where torch has none of that name."""
    try:
        device = torch.device(kind, 0) if kind == "cuda" else torch.device(kind)
    except RuntimeError as error:
        raise Unstatable(f"torch knows no device type {kind!r} in this process") from error
    if device_kind(device) != kind:
        raise Unstatable(f"torch calls devices of kind {kind!r} by another name in this process")
    return device
