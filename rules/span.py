"""Says between which two numbers an integer or a real lies. Imports nothing of ours.

Bounds are exact integers (or fractions), or an infinity. Every operation returns a span that holds every value the
operation can give; it need not be the tightest one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import attrs

Bound = int | float | Fraction

INFINITY = math.inf


@attrs.frozen
class Span:
    """Holds every number from ``low`` to ``high``, both included; empty when ``low > high``."""

    low: Bound = -INFINITY
    high: Bound = INFINITY

    @property
    def empty(self) -> bool:
        """Tell whether no number lies in it."""
        return self.low > self.high

    @property
    def point(self) -> Bound | None:
        """Return the only number in it, or None where there are more."""
        return self.low if self.low == self.high else None

    @property
    def bounded(self) -> bool:
        """Tell whether both ends are finite."""
        return not _infinite(self.low) and not _infinite(self.high)

    def __contains__(self, value: Bound) -> bool:
        """Tell whether ``value`` lies in it."""
        return self.low <= value <= self.high

    def meet(self, other: Span) -> Span:
        """Return what lies in both."""
        return Span(max(self.low, other.low), min(self.high, other.high))

    def join(self, other: Span) -> Span:
        """Return the smallest span around both."""
        return Span(min(self.low, other.low), max(self.high, other.high))

    def __neg__(self) -> Span:
        """Return the span of the negated numbers."""
        return Span(-self.high, -self.low)

    def __add__(self, other: Span) -> Span:
        """Return the span of the sums."""
        return Span(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Span) -> Span:
        """Return the span of the differences."""
        return self + -other

    def __mul__(self, other: Span) -> Span:
        """Return the span of the products."""
        return _corners(self, other, _times)

    def __floordiv__(self, other: Span) -> Span:
        """Return the span of the floored quotients, zero divisors left out; everything if no divisor is left."""
        parts = [_corners(self, part, _quotient) for part in _without_zero(other)]
        return _join_all(parts)

    def __mod__(self, other: Span) -> Span:
        """Return the span of Python's remainders, zero divisors left out; everything if no divisor is left."""
        parts = []
        for part in _without_zero(other):
            if part.low > 0:
                if self.low >= 0 and self.high < part.low:
                    parts.append(self)
                else:
                    top = part.high - 1
                    parts.append(Span(0, min(top, self.high) if self.low >= 0 else top))
            else:
                parts.append(Span(part.low + 1, 0))
        return _join_all(parts)

    def __abs__(self) -> Span:
        """Return the span of the absolute values."""
        if self.low >= 0:
            return self
        if self.high <= 0:
            return -self
        return Span(0, max(-self.low, self.high))

    def smaller(self, other: Span) -> Span:
        """Return the span of ``min(a, b)``."""
        return Span(min(self.low, other.low), min(self.high, other.high))

    def larger(self, other: Span) -> Span:
        """Return the span of ``max(a, b)``."""
        return Span(max(self.low, other.low), max(self.high, other.high))


EVERYTHING = Span()


def point(value: Bound) -> Span:
    """Return the span that holds ``value`` alone."""
    return Span(value, value)


def _infinite(value: Bound) -> bool:
    return isinstance(value, float) and math.isinf(value)


def _times(a: Bound, b: Bound) -> Bound:
    return 0 if a == 0 or b == 0 else a * b


def _quotient(a: Bound, b: Bound) -> Bound:
    if _infinite(b):
        # A finite number over an unboundedly large one comes as near to 0 as it likes: floor gives 0 or -1.
        return 0 if a == 0 or (a > 0) == (b > 0) else -1
    if _infinite(a):
        return a if b > 0 else -a
    return a // b


def _corners(a: Span, b: Span, operation: Callable[[Bound, Bound], Bound]) -> Span:
    values = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Span(min(values), max(values))


def _without_zero(divisor: Span) -> list[Span]:
    parts = [Span(divisor.low, min(divisor.high, -1)), Span(max(divisor.low, 1), divisor.high)]
    return [part for part in parts if not part.empty]


def _join_all(parts: list[Span]) -> Span:
    if not parts:
        return EVERYTHING
    result = parts[0]
    for part in parts[1:]:
        result = result.join(part)
    return result
