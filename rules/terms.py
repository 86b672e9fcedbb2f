"""Builds z3 terms in a context of its own. Imports nothing of ours; the only module that makes terms.

A term is a plain Python constant (``bool``, ``int``, ``Fraction``) or a z3 expression: constants fold in Python, so
that most of a rule never reaches z3. The terms are made by z3's C functions directly: measured, z3py's operators cost
25 to 50 us each, these 1 to 3 us, and a table of 200 rows has a thousand of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import z3  # type: ignore[import-untyped]  # z3 ships no types
from z3 import z3core as core

_DIGITS = 4000
_CHUNK = 10**_DIGITS

Term = Any  # bool, int, Fraction or a z3 expression


def is_constant(term: Term) -> bool:
    """Tell whether a term is a plain Python constant."""
    return isinstance(term, (bool, int, Fraction))


class Terms:
    """Makes terms in one z3 context, which no other thread and no other library shares."""

    def __init__(self) -> None:
        self.context = z3.Context()
        self._ref = self.context.ref()
        self._int = z3.IntSort(self.context)
        self._real = z3.RealSort(self.context)
        self._bool = z3.BoolSort(self.context)
        self._true = z3.BoolVal(True, self.context)
        self._false = z3.BoolVal(False, self.context)
        self._numbers: dict[tuple[bool, int | Fraction], Term] = {}

    # -- names and constants

    def integer(self, name: str) -> Term:
        """Return the integer variable of this name."""
        return z3.Const(name, self._int)

    def real(self, name: str) -> Term:
        """Return the real variable of this name."""
        return z3.Const(name, self._real)

    def boolean(self, name: str) -> Term:
        """Return the boolean variable of this name."""
        return z3.Const(name, self._bool)

    def lift(self, term: Term, real: bool = False) -> Term:
        """Return the z3 expression of a term, as a real where asked for."""
        if term is True:
            return self._true
        if term is False:
            return self._false
        if isinstance(term, (int, Fraction)):
            real = real or isinstance(term, Fraction)
            known = self._numbers.get((real, term))
            if known is None:
                known = z3.RealVal(term, self.context) if real else z3.IntVal(_decimal(int(term)), self.context)
                self._numbers[real, term] = known
            return known
        if real and not term.is_real():
            return z3.ToReal(term)
        return term

    # -- logic

    def conjunction(self, parts: Iterable[Term]) -> Term:
        """Return whether every part holds."""
        kept = []
        for part in parts:
            if part is False:
                return False
            if part is not True:
                kept.append(part)
        return self._joined(core.Z3_mk_and, kept, True)

    def disjunction(self, parts: Iterable[Term]) -> Term:
        """Return whether some part holds."""
        kept = []
        for part in parts:
            if part is True:
                return True
            if part is not False:
                kept.append(part)
        return self._joined(core.Z3_mk_or, kept, False)

    def negation(self, part: Term) -> Term:
        """Return whether the part does not hold."""
        if isinstance(part, bool):
            return not part
        if part.decl().kind() == z3.Z3_OP_NOT:
            return part.arg(0)
        return z3.BoolRef(core.Z3_mk_not(self._ref, part.as_ast()), self.context)

    def implies(self, condition: Term, then: Term) -> Term:
        """Return whether ``then`` holds wherever ``condition`` does."""
        return self.disjunction((self.negation(condition), then))

    def choose(self, condition: Term, then: Term, otherwise: Term) -> Term:
        """Return ``then`` where the condition holds, else ``otherwise``."""
        if condition is True:
            return then
        if condition is False:
            return otherwise
        if isinstance(then, bool) or isinstance(otherwise, bool) or z3.is_bool(then):
            if isinstance(then, bool) and isinstance(otherwise, bool) and then == otherwise:
                return then
            return self.conjunction((self.implies(condition, then), self.disjunction((condition, otherwise))))
        if is_constant(then) and is_constant(otherwise) and then == otherwise:
            return then
        real = _real(then) or _real(otherwise)
        a, b = self.lift(then, real), self.lift(otherwise, real)
        if a.eq(b):
            return then
        made = core.Z3_mk_ite(self._ref, condition.as_ast(), a.as_ast(), b.as_ast())
        return z3.ArithRef(made, self.context)

    # -- comparison

    def equal(self, a: Term, b: Term) -> Term:
        """Return whether two terms are equal: both numbers, or both booleans."""
        if is_constant(a) and is_constant(b):
            return a == b
        if isinstance(a, bool):
            return b if a else self.negation(b)
        if isinstance(b, bool):
            return a if b else self.negation(a)
        if z3.is_bool(a):
            made = core.Z3_mk_eq(self._ref, a.as_ast(), b.as_ast())
            return z3.BoolRef(made, self.context)
        return self._compared(core.Z3_mk_eq, a, b)

    def less(self, a: Term, b: Term) -> Term:
        """Return whether ``a < b``."""
        return a < b if is_constant(a) and is_constant(b) else self._compared(core.Z3_mk_lt, a, b)

    def at_most(self, a: Term, b: Term) -> Term:
        """Return whether ``a <= b``."""
        return a <= b if is_constant(a) and is_constant(b) else self._compared(core.Z3_mk_le, a, b)

    def between(self, low: Any, term: Term, high: Any) -> Term:
        """Return whether a term lies between two bounds; an infinite bound asks nothing."""
        parts = []
        if low != -float("inf"):
            parts.append(self.at_most(low, term))
        if high != float("inf"):
            parts.append(self.at_most(term, high))
        return self.conjunction(parts)

    # -- arithmetic

    def add(self, a: Term, b: Term) -> Term:
        """Return ``a + b``."""
        if is_constant(a) and is_constant(b):
            return a + b
        return b if _is(a, 0) else a if _is(b, 0) else self._computed(core.Z3_mk_add, a, b)

    def subtract(self, a: Term, b: Term) -> Term:
        """Return ``a - b``."""
        if is_constant(a) and is_constant(b):
            return a - b
        return a if _is(b, 0) else self._computed(core.Z3_mk_sub, a, b)

    def multiply(self, a: Term, b: Term) -> Term:
        """Return ``a * b``."""
        if is_constant(a) and is_constant(b):
            return a * b
        if _is(a, 0) or _is(b, 0):
            return 0
        return b if _is(a, 1) else a if _is(b, 1) else self._computed(core.Z3_mk_mul, a, b)

    def negate(self, a: Term) -> Term:
        """Return ``-a``."""
        if is_constant(a):
            return -a
        return z3.ArithRef(core.Z3_mk_unary_minus(self._ref, a.as_ast()), self.context)

    def divide(self, a: Term, b: Term) -> Term:
        """Return z3's ``a div b``, which is floored for ``b > 0`` only."""
        return self._computed(core.Z3_mk_div, a, b, many=False)

    def remainder(self, a: Term, b: Term) -> Term:
        """Return z3's ``a mod b``, which is Python's for ``b > 0`` only."""
        return self._computed(core.Z3_mk_mod, a, b, many=False)

    # -- the C calls

    def _joined(self, make: Callable[..., Any], parts: Sequence[Term], empty: bool) -> Term:
        if not parts:
            return empty
        if len(parts) == 1:
            return parts[0]
        array = (z3.Ast * len(parts))(*(part.as_ast() for part in parts))
        return z3.BoolRef(make(self._ref, len(parts), array), self.context)

    def _pair(self, a: Term, b: Term) -> tuple[Term, Term]:
        real = _real(a) or _real(b)
        return self.lift(a, real), self.lift(b, real)

    def _compared(self, make: Callable[..., Any], a: Term, b: Term) -> Term:
        x, y = self._pair(a, b)
        return z3.BoolRef(make(self._ref, x.as_ast(), y.as_ast()), self.context)

    def _computed(self, make: Callable[..., Any], a: Term, b: Term, many: bool = True) -> Term:
        x, y = self._pair(a, b)
        if many:
            made = make(self._ref, 2, (z3.Ast * 2)(x.as_ast(), y.as_ast()))
        else:
            made = make(self._ref, x.as_ast(), y.as_ast())
        return z3.ArithRef(made, self.context)


def _decimal(number: int) -> str:
    """Return the digits of a number of any size: z3 takes nothing else, and Python stops at 4,300."""
    if abs(number) < _CHUNK:
        return str(number)
    high, low = divmod(abs(number), _CHUNK)
    return f"{'-' * (number < 0)}{_decimal(high)}{low:0{_DIGITS}}"


def _real(term: Term) -> bool:
    if is_constant(term):
        return isinstance(term, Fraction)
    return bool(z3.is_real(term))


def _is(term: Term, number: int) -> bool:
    return is_constant(term) and term == number
