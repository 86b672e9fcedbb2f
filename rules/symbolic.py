"""Computes with values that are not known yet: what an expression can be, as z3 terms.

A `Value` stands for all the values that a fact or a node can have: a term, the span around it, whether it is None,
and for tuples one case per length. `Arithmetic` is Python's arithmetic over such values, with floored division. What it
adds to help the solver (bounds of products and quotients) are lemmas: true whatever the facts are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import attrs

from tileops.rules.span import EVERYTHING, Span, point
from tileops.rules.terms import Term, Terms, is_constant

_MOST_DIVISORS = 64  # a constant with more divisors is left to the solver's own arithmetic
_MOST_SHARES = 64  # ways to share out a prime power among factors, beyond which the solver gets the product
_LARGEST_FACTORED = 1 << 20
_COMMON = (2, 3)
_WIDEST_POWER = 512  # bits up to which powers of two are listed one by one


@attrs.frozen(eq=False)
class Value:
    """Stands for what a fact or a node can be. ``kind`` is int, float, bool, code (a dtype or string), tuple or none.

    ``none`` is the condition under which it is None; ``term`` and ``cases`` mean something only where it is not.
    """

    kind: str
    term: Term = None
    span: Span = EVERYTHING
    none: Term = False
    cases: tuple[tuple[Term, tuple[Value, ...]], ...] = ()
    codes: tuple[int, ...] = ()  # of a code: every code it can have; empty: any
    factors: tuple[Value, ...] = ()  # of a product: what it is a product of
    branches: tuple[tuple[Term, Value], ...] = ()  # of a choice: what it is under which condition

    def present(self) -> Value:
        """Return the value where it is known not to be None."""
        return self if self.none is False else attrs.evolve(self, none=False)


NONE = Value("none", none=True)


@attrs.frozen
class About:
    """Holds the facts whose variables occur in some terms, and the lemmas about what occurs in them, by id."""

    facts: frozenset[str]
    lemmas: Mapping[int, Term]


class Codes:
    """Numbers the dtypes and strings that a proof meets, so that they are small integers to the solver."""

    def __init__(self) -> None:
        self._codes: dict[tuple[type, Hashable], int] = {}
        self._values: list[Hashable] = []

    def code(self, value: Hashable) -> int:
        """Return the number of a value, the same one each time."""
        known = self._codes.setdefault((type(value), value), len(self._values))
        if known == len(self._values):
            self._values.append(value)
        return known

    def value(self, code: int) -> Hashable:
        """Return the value of a number; None for a number that stands for none."""
        return self._values[code] if 0 <= code < len(self._values) else None


class Arithmetic:
    """Computes with `Value`; keeps the lemmas about the terms it made."""

    def __init__(self, terms: Terms | None = None) -> None:
        self.terms = terms or Terms()
        self.codes = Codes()
        # By the id of a term; a term has its id as long as it lives, so each is kept alive beside what is said of it.
        self._lemmas: dict[int, tuple[Term, dict[int, Term]]] = {}
        self._owners: dict[int, tuple[Term, str]] = {}
        self._about: dict[int, tuple[Term, About]] = {}
        self._divisors: dict[tuple[int, int], tuple[Value, Value, Value]] = {}
        self._fresh = 0

    # -- making values

    def constant(self, value: Any) -> Value:
        """Return the value of a literal: None, bool, int, float, str, dtype or a tuple of these."""
        if value is None:
            return NONE
        if isinstance(value, bool):
            return Value("bool", value)
        if isinstance(value, int):
            return Value("int", value, point(value))
        if isinstance(value, float):
            exact = Fraction(value)
            return Value("float", exact, point(exact))
        if isinstance(value, (tuple, list)):
            return self.pack([self.constant(item) for item in value])
        code = self.codes.code(value)
        return Value("code", code, point(code), codes=(code,))

    def pack(self, items: Iterable[Value]) -> Value:
        """Return the tuple of some values."""
        return Value("tuple", cases=((True, tuple(items)),))

    def integer(self, term: Term, span: Span) -> Value:
        """Return an integer value, a constant where only one integer is possible."""
        if span.point is not None and not is_constant(term):
            term = span.point
        return Value("int", term, point(term) if is_constant(term) else span)

    def boolean(self, term: Term) -> Value:
        """Return a boolean value."""
        return Value("bool", term)

    def note(self, term: Term, *facts: Term) -> None:
        """Keep what is true of a term, for every query in which the term occurs."""
        if is_constant(term):
            return
        kept = self._lemmas.setdefault(term.get_id(), (term, {}))[1]
        kept.update((fact.get_id(), fact) for fact in facts if fact is not True)

    def own(self, term: Term, name: str) -> Term:
        """Return a variable, noting the fact that it belongs to."""
        self._owners[term.get_id()] = (term, name)
        return term

    def about(self, roots: Iterable[Term]) -> About:
        """Return the facts and the lemmas of all terms that occur in ``roots``, and in those lemmas."""
        facts: set[str] = set()
        lemmas: dict[int, Term] = {}
        for root in roots:
            if not is_constant(root):
                found = self._about_one(root)
                facts |= found.facts
                lemmas |= found.lemmas
        return About(frozenset(facts), lemmas)

    def _about_one(self, root: Term) -> About:
        # Remembered: walking terms from Python is most of the time of a query that the solver answers at once.
        known = self._about.get(root.get_id())
        if known is not None:
            return known[1]
        facts: set[str] = set()
        lemmas: dict[int, Term] = {}
        seen: set[int] = set()
        stack = [root]
        while stack:
            term = stack.pop()
            key = term.get_id()
            if key in seen:
                continue
            seen.add(key)
            stack.extend(term.children())
            if key in self._owners:
                facts.add(self._owners[key][1])
            if key in self._lemmas:
                noted = self._lemmas[key][1]
                lemmas |= noted
                stack.extend(noted.values())
        found = About(frozenset(facts), lemmas)
        self._about[root.get_id()] = (root, found)
        return found

    def fresh(self, name: str) -> Term:
        """Return an integer variable that occurs nowhere else."""
        self._fresh += 1
        return self.terms.integer(f"{name}!{self._fresh}")

    # -- comparison

    def equal(self, a: Value, b: Value) -> Term:
        """Return whether two values are equal, as Python's ``==`` says: None equals only None."""
        both_none = self.terms.conjunction((a.none, b.none))
        neither = self.terms.conjunction((self.terms.negation(a.none), self.terms.negation(b.none)))
        if neither is False:
            return both_none
        same = self._same(a, b)
        return self.terms.disjunction((both_none, self.terms.conjunction((neither, same))))

    def _same(self, a: Value, b: Value) -> Term:
        if a.kind == "tuple" or b.kind == "tuple":
            if a.kind != b.kind:
                return False
            return self.terms.disjunction(
                self.terms.conjunction((p, q, *(self.equal(x, y) for x, y in zip(left, right, strict=True))))
                for p, left in a.cases
                for q, right in b.cases
                if len(left) == len(right)
            )
        if (a.kind == "code") != (b.kind == "code"):
            return False
        if a.kind == "code" and (a.codes and b.codes and not set(a.codes) & set(b.codes)):
            return False
        if a.kind == "bool" and b.kind == "bool":
            return self.terms.equal(a.term, b.term)
        a, b = self.number(a), self.number(b)
        if a.span.meet(b.span).empty:
            return False
        return self.terms.equal(a.term, b.term)

    def less(self, a: Value, b: Value, strict: bool = True) -> Term:
        """Return whether ``a < b``, or ``a <= b``; for numbers that are not None, and tuples of them."""
        if a.kind == "tuple":
            return self.terms.disjunction(
                self.terms.conjunction((p, q, self._lexical(left, right, strict)))
                for p, left in a.cases
                for q, right in b.cases
            )
        a, b = self.number(a), self.number(b)
        if strict:
            if a.span.high < b.span.low:
                return True
            return False if a.span.low >= b.span.high else self.terms.less(a.term, b.term)
        if a.span.high <= b.span.low:
            return True
        return False if a.span.low > b.span.high else self.terms.at_most(a.term, b.term)

    def _lexical(self, left: Sequence[Value], right: Sequence[Value], strict: bool) -> Term:
        result: Term = len(left) < len(right) or (not strict and len(left) == len(right))
        for a, b in reversed(list(zip(left, right, strict=False))):
            tied = self.terms.conjunction((self.equal(a, b), result))
            result = self.terms.disjunction((self.less(a, b), tied))
        return result

    def number(self, value: Value) -> Value:
        """Return a boolean as the 0 or 1 it counts as; a number as it is."""
        if value.kind != "bool":
            return value
        return Value("int", self.terms.choose(value.term, 1, 0), Span(0, 1), value.none)

    # -- choice

    def choose(self, condition: Term, then: Value, otherwise: Value) -> Value:
        """Return ``then`` where the condition holds, else ``otherwise``."""
        if condition is True:
            return then
        if condition is False:
            return otherwise
        none = self.terms.choose(condition, then.none, otherwise.none)
        if then.kind == "none" or otherwise.kind == "none":
            return attrs.evolve(otherwise if then.kind == "none" else then, none=none)
        if then.kind == "tuple":
            unless = self.terms.negation(condition)
            cases = [(self.terms.conjunction((condition, guard)), items) for guard, items in then.cases]
            cases += [(self.terms.conjunction((unless, guard)), items) for guard, items in otherwise.cases]
            return Value("tuple", none=none, cases=tuple(case for case in cases if case[0] is not False))
        kind = then.kind
        if kind != otherwise.kind:
            then, otherwise = self.number(then), self.number(otherwise)
            kind = "float" if "float" in (then.kind, otherwise.kind) else "int"
        term = self.terms.choose(condition, then.term, otherwise.term)
        codes = then.codes + otherwise.codes if then.codes and otherwise.codes else ()
        branches = ((condition, then), (self.terms.negation(condition), otherwise)) if kind == "int" else ()
        return Value(kind, term, then.span.join(otherwise.span), none, codes=codes, branches=branches)

    def fold_cases(self, value: Value, of: Callable[[tuple[Value, ...]], Value]) -> Value:
        """Return what ``of`` gives for a tuple, length by length."""
        if not value.cases:
            return of(())
        *others, (_, last) = value.cases
        result = of(last)
        for guard, items in reversed(others):
            result = self.choose(guard, of(items), result)
        return result

    # -- arithmetic over integers that are not None

    def add(self, a: Value, b: Value) -> Value:
        """Return ``a + b``."""
        return self.integer(self.terms.add(a.term, b.term), a.span + b.span)

    def subtract(self, a: Value, b: Value) -> Value:
        """Return ``a - b``."""
        return self.integer(self.terms.subtract(a.term, b.term), a.span - b.span)

    def negate(self, a: Value) -> Value:
        """Return ``-a``, of a float too."""
        return attrs.evolve(a, term=self.terms.negate(a.term), span=-a.span)

    def absolute(self, a: Value) -> Value:
        """Return ``abs(a)``, of a float too."""
        if a.span.low >= 0:
            return a
        term = self.terms.choose(self.terms.at_most(0, a.term), a.term, self.terms.negate(a.term))
        return attrs.evolve(a, term=term, span=abs(a.span))

    def multiply(self, a: Value, b: Value) -> Value:
        """Return ``a * b``."""
        product = self.integer(self.terms.multiply(a.term, b.term), a.span * b.span)
        if not any(is_constant(value.term) for value in (a, b, product)):
            self._bound(product)
            for x, y in ((a, b), (b, a)):
                if x.span.low >= 0 and y.span.low >= 1:
                    self.note(product.term, self.terms.at_most(x.term, product.term))
            even = [self.terms.equal(self.terms.remainder(value.term, 2), 0) for value in (a, b, product)]
            self.note(product.term, self.terms.equal(self.terms.disjunction(even[:2]), even[2]))
        if is_constant(product.term):
            return product
        return attrs.evolve(product, factors=(*(a.factors or (a,)), *(b.factors or (b,))))

    def floored(self, a: Value, b: Value) -> Value:
        """Return ``a // b`` for ``b != 0``."""
        if is_constant(a.term) and is_constant(b.term) and b.term != 0:
            return self.constant(a.term // b.term)
        quotient = self.integer(self._divided(self.terms.divide, a, b, 1), a.span // b.span)
        if not is_constant(b.term):
            self._bound(quotient)
        return quotient

    def remainder(self, a: Value, b: Value) -> Value:
        """Return ``a % b`` for ``b != 0``."""
        if is_constant(a.term) and is_constant(b.term) and b.term != 0:
            return self.constant(a.term % b.term)
        if a.span.low >= 0 and a.span.high < b.span.low:
            return a
        rest = self.integer(self._divided(self.terms.remainder, a, b, -1), a.span % b.span)
        if not is_constant(b.term):
            self._bound(rest)
        return rest

    def divides(self, divisor: Value, number: Value) -> Term:
        """Return whether ``number % divisor == 0`` for ``divisor != 0``.

        A constant number is asked by its divisors, a constant divisor by the prime powers in it: neither needs
        arithmetic over products, of which the solver knows little.
        """
        if is_constant(divisor.term) and divisor.term != 0:
            return self._multiple(number, abs(divisor.term))
        if is_constant(number.term) and number.term != 0 and (known := divisors(abs(number.term))):
            return self.terms.disjunction(
                self.terms.equal(divisor.term, d) for c in known for d in (-c, c) if d in divisor.span
            )
        return self.equal(self.remainder(number, divisor), self.constant(0))

    def _multiple(self, number: Value, of: int) -> Term:
        terms = self.terms
        if is_constant(number.term):
            return number.term % of == 0
        if of == 1:
            return True
        if number.branches:
            return terms.disjunction(
                terms.conjunction((condition, self._multiple(value, of))) for condition, value in number.branches
            )
        powers = prime_powers(of)
        if len(number.factors) > 1 and powers and len(number.factors) * max(powers.values()) <= _MOST_SHARES:
            return terms.conjunction(self._shared(number.factors, prime, count) for prime, count in powers.items())
        return self.equal(self.remainder(number, self.constant(of)), self.constant(0))

    def _shared(self, factors: Sequence[Value], prime: int, count: int) -> Term:
        """Return whether the factors together hold a prime ``count`` times: each way to share them out."""
        first, *rest = factors
        if not rest:
            return self._multiple(first, prime**count)
        return self.terms.disjunction(
            self.terms.conjunction((self._multiple(first, prime**mine), self._shared(rest, prime, count - mine)))
            for mine in range(count + 1)
        )

    def _divided(self, make: Callable[[Term, Term], Term], a: Value, b: Value, sign: int) -> Term:
        """Return z3's division where the divisor is positive, and of the negated numbers where it is negative."""
        if is_constant(b.term):
            if b.term == 0:
                return 0  # undefined; whoever asks has the condition for it
            if b.term > 0:
                return make(a.term, b.term)
            negated = make(self.terms.negate(a.term), -b.term)
            return negated if sign > 0 else self.terms.negate(negated)
        down = None
        if b.span.low < 0:
            down = make(self.terms.negate(a.term), self.terms.negate(b.term))
            down = down if sign > 0 else self.terms.negate(down)
            if b.span.high <= 0:
                return down
        up = make(a.term, b.term)
        return up if down is None else self.terms.choose(self.terms.less(0, b.term), up, down)

    def _bound(self, value: Value) -> None:
        self.note(value.term, self.terms.between(value.span.low, value.term, value.span.high))

    def least(self, a: Value, b: Value) -> Value:
        """Return ``min(a, b)``."""
        return self._extreme(a, b, a.span.smaller(b.span), self.less(b, a))

    def greatest(self, a: Value, b: Value) -> Value:
        """Return ``max(a, b)``."""
        return self._extreme(a, b, a.span.larger(b.span), self.less(a, b))

    def _extreme(self, a: Value, b: Value, span: Span, second: Term) -> Value:
        chosen = self.choose(second, b, a)
        return attrs.evolve(chosen, span=span) if not is_constant(chosen.term) else chosen

    def ceiled(self, a: Value, b: Value) -> Value:
        """Return ``-(-a // b)`` for ``b != 0``."""
        if b.span.low > 0:
            return self.floored(self.add(a, self.subtract(b, self.constant(1))), b)
        return self.negate(self.floored(self.negate(a), b))

    # -- powers of two, common divisors

    def is_power(self, a: Value) -> Term:
        """Return whether ``a`` is a power of two."""
        powers = self._powers(a)
        if powers is None:
            raise Unsupported("is_pow2 of a number that may have more than 512 bits")
        return self.terms.disjunction(self.terms.equal(a.term, power) for power in powers if power in a.span)

    def next_power(self, a: Value) -> Value:
        """Return the least power of two that is at least ``a``, and at least 1."""
        powers = self._powers(a)
        if powers is None:
            raise Unsupported("next_pow2 of a number that may have more than 512 bits")
        powers = [power for power in powers if power >= a.span.low] or [1]
        term: Term = powers[-1]
        for power in reversed(powers[:-1]):
            term = self.terms.choose(self.terms.at_most(a.term, power), power, term)
        return self.integer(term, Span(powers[0], powers[-1]))

    def _powers(self, a: Value) -> list[int] | None:
        if not math.isfinite(a.span.high):
            return None
        bits = max(int(a.span.high) - 1, 0).bit_length() if a.span.high > 0 else 0
        return [1 << exponent for exponent in range(bits + 1)] if bits <= _WIDEST_POWER else None

    def common_divisor(self, a: Value, b: Value) -> Value:
        """Return ``gcd(a, b)``: by the divisors of a constant, else by Bezout's equation."""
        if is_constant(a.term) and is_constant(b.term):
            return self.constant(math.gcd(a.term, b.term))
        if is_constant(a.term):
            a, b = b, a
        if is_constant(b.term) and b.term != 0 and (known := divisors(abs(b.term))):
            term: Term = 1
            for divisor in known[1:]:  # the greatest divisor that fits is asked first
                fits = self.equal(self.remainder(a, self.constant(divisor)), self.constant(0))
                term = self.terms.choose(fits, divisor, term)
            return self.integer(term, Span(1, abs(b.term)))
        if is_constant(a.term) or is_constant(b.term):
            return self._bezout(a, b)
        key = (a.term.get_id(), b.term.get_id())
        if key not in self._divisors:
            self._divisors[key] = (self._bezout(a, b), a, b)  # one for all rules, so that they speak of the same number
        return self._divisors[key][0]

    def _bezout(self, a: Value, b: Value) -> Value:
        t = self.terms
        sizes = abs(a.span), abs(b.span)
        low = 1 if sizes[0].low > 0 or sizes[1].low > 0 else 0
        result = Value("int", self.fresh("gcd"), Span(low, max(sizes[0].high, sizes[1].high)))
        g = result.term
        equation = t.add(t.multiply(a.term, self.fresh("u")), t.multiply(b.term, self.fresh("v")))
        self.note(
            g,
            t.between(result.span.low, g, result.span.high),
            t.equal(a.term, t.multiply(g, self.fresh("a"))),
            t.equal(b.term, t.multiply(g, self.fresh("b"))),
            t.equal(g, equation),
            # Bezout's equation says nothing of remainders to the solver; these are the ones that rules ask for.
            *(
                t.equal(self._multiple(result, d), t.conjunction((self._multiple(a, d), self._multiple(b, d))))
                for d in _COMMON
            ),
        )
        return result


class Unsupported(Exception):  # noqa: N818 - says what the translation cannot express
    """Says which part of an expression has no translation; the query that needs it is undecided."""


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive integer in rising order; none where they are many or the number is large."""
    if number > _LARGEST_FACTORED:
        return []
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    known = small + [number // d for d in reversed(small) if d * d != number]
    return known if len(known) <= _MOST_DIVISORS else []


def prime_powers(number: int) -> dict[int, int]:
    """Return the primes in a positive integer with their counts; none where the number is large."""
    if number > _LARGEST_FACTORED:
        return {}
    powers: dict[int, int] = {}
    prime = 2
    while prime * prime <= number:
        while number % prime == 0:
            powers[prime] = powers.get(prime, 0) + 1
            number //= prime
        prime += 1
    if number > 1:
        powers[number] = powers.get(number, 0) + 1
    return powers
