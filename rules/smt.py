"""Translation: nodes of the expression language become z3 terms, with the condition under which they can be computed.

The meaning is that of the generated Python code (`evaluate.py`): `//` and `%` are floored, `and`, `or`, chained
comparisons, `x if c else y`, `any` and `all` leave out what they need not evaluate, None equals only None and raises in
arithmetic and ordering. A translation is a pair: the value, and whether computing it raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce, singledispatch
from typing import TypeAlias

import attrs
import torch

from tileops.rules.nodes import (
    Arithmetic,
    Call,
    Choose,
    Compare,
    Const,
    Fold,
    Index,
    Logic,
    Lookup,
    Member,
    Name,
    Negate,
    Node,
    Not,
    Pack,
    Slice,
    Star,
)
from tileops.rules.span import point
from tileops.rules.symbolic import NONE, Unsupported, Value
from tileops.rules.symbolic import Arithmetic as Numbers
from tileops.rules.terms import Term, Terms, is_constant

Translation: TypeAlias = tuple[Value, Term]  # a value, and whether it is defined


@attrs.frozen
class Translator:
    """Translates nodes whose facts have the values ``names``; the terms belong to ``numbers``.

    ``known`` gives the condition under which a derived fact can be computed, where it is not always.
    """

    numbers: Numbers
    names: Mapping[str, Value]
    known: Mapping[str, Term] = attrs.field(factory=dict)

    @property
    def terms(self) -> Terms:
        """Return the maker of terms."""
        return self.numbers.terms

    def translate(self, node: Node) -> Translation:
        """Return the value of a node and whether it is defined. Raises Unsupported for what has no translation."""
        return translate(node, self)

    def condition(self, node: Node) -> tuple[Term, Term]:
        """Return whether a condition holds, and whether it is defined."""
        value, defined = translate(node, self)
        return self.truth(value), defined

    def truth(self, value: Value) -> Term:
        """Return whether Python takes a value for true: None is false."""
        return self.terms.conjunction((self.terms.negation(value.none), value.term))

    def operands(self, nodes: Iterable[Node]) -> tuple[list[Value], Term]:
        """Return values that an operation reads, and whether all are defined and none is None."""
        pairs = [translate(node, self) for node in nodes]
        defined = [part for value, part in pairs for part in (part, self.terms.negation(value.none))]
        return [value.present() for value, _ in pairs], self.terms.conjunction(defined)

    def binding(self, variable: str, value: Value) -> Translator:
        """Return a translator under which a variable has a value."""
        return attrs.evolve(self, names={**self.names, variable: value})

    def in_order(self, steps: Iterable[tuple[Term, Term]], stop: bool) -> tuple[Term, Term]:
        """Return the outcome of conditions evaluated in turn until one is ``stop``, and whether that is defined.

        ``stop`` is False for ``and``, True for ``or``.
        """
        pairs = list(steps)
        terms = self.terms
        holds, defined = pairs[-1]
        for condition, known in reversed(pairs[:-1]):
            goes_on = terms.negation(condition) if stop else condition
            holds = terms.disjunction((condition, holds)) if stop else terms.conjunction((condition, holds))
            defined = terms.conjunction((known, terms.implies(goes_on, defined)))
        return holds, defined


@singledispatch
def translate(node: Node, to: Translator) -> Translation:
    """Return the translation of a node; a part that adds nodes registers its own here."""
    raise Unsupported(f"no translation of {type(node).__name__}")


@translate.register
def _const(node: Const, to: Translator) -> Translation:
    return to.numbers.constant(node.value), True


@translate.register
def _name(node: Name, to: Translator) -> Translation:
    return to.names[node.name], to.known.get(node.name, True)


@translate.register
def _negate(node: Negate, to: Translator) -> Translation:
    (value,), defined = to.operands((node.operand,))
    return to.numbers.negate(to.numbers.number(value)), defined


@translate.register
def _arithmetic(node: Arithmetic, to: Translator) -> Translation:
    values, defined = to.operands((node.left, node.right))
    left, right = (to.numbers.number(value) for value in values)
    if left.kind != "int" or right.kind != "int":
        raise Unsupported(f"'{node.op}' of anything but integers")
    if node.op in ("//", "%"):
        defined = to.terms.conjunction((defined, _not_zero(right, to)))
        return (to.numbers.floored if node.op == "//" else to.numbers.remainder)(left, right), defined
    operation = {"+": to.numbers.add, "-": to.numbers.subtract, "*": to.numbers.multiply}[node.op]
    return operation(left, right), defined


def _not_zero(value: Value, to: Translator) -> Term:
    return to.terms.negation(to.numbers.equal(value, to.numbers.constant(0)))


@translate.register
def _compare(node: Compare, to: Translator) -> Translation:
    left, so_far = translate(node.left, to)
    steps: list[tuple[Term, Term]] = []
    before = node.left
    for op, right_node in zip(node.ops, node.rights, strict=True):
        right, defined = translate(right_node, to)
        terms = to.terms
        if op in ("is", "is not"):
            holds = left.none if op == "is" else terms.negation(left.none)
        elif op in ("==", "!="):
            divided = _divisibility(before, right_node, to)
            holds = to.numbers.equal(left, right) if divided is None else divided
            holds = holds if op == "==" else terms.negation(holds)
        else:
            defined = terms.conjunction((defined, terms.negation(left.none), terms.negation(right.none)))
            small, large = (left, right) if op in ("<", "<=") else (right, left)
            readable = left.kind != "none" and right.kind != "none"
            holds = readable and to.numbers.less(small.present(), large.present(), strict=op in ("<", ">"))
        steps.append((holds, terms.conjunction((so_far, defined)) if not steps else defined))
        left, before = right, right_node
    holds, defined = to.in_order(steps, stop=False)
    return to.numbers.boolean(holds), defined


def _divisibility(left: Node, right: Node, to: Translator) -> Term | None:
    """Return the condition of ``a % b == 0`` without a remainder, None for another comparison.

    Measured: the solver decides `128 % (heads // heads_kv) == 0` in a tenth of the units that a remainder takes, and
    never finds that the product of two odd numbers is no multiple of 16.
    """
    match left, right:
        case Arithmetic(op="%", left=number, right=divisor), Const(value=0):
            values, _ = to.operands((number, divisor))
            if all(value.kind == "int" for value in values):
                return to.numbers.divides(values[1], values[0])
    return None


@translate.register
def _logic(node: Logic, to: Translator) -> Translation:
    holds, defined = to.in_order([to.condition(operand) for operand in node.operands], stop=node.op == "or")
    return to.numbers.boolean(holds), defined


@translate.register
def _not(node: Not, to: Translator) -> Translation:
    holds, defined = to.condition(node.operand)
    return to.numbers.boolean(to.terms.negation(holds)), defined


@translate.register
def _member(node: Member, to: Translator) -> Translation:
    needle, defined = translate(node.needle, to)
    holds = to.terms.disjunction(to.numbers.equal(needle, translate(option, to)[0]) for option in node.options)
    return to.numbers.boolean(to.terms.negation(holds) if node.negated else holds), defined


@translate.register
def _choose(node: Choose, to: Translator) -> Translation:
    condition, known = to.condition(node.condition)
    then, then_defined = translate(node.then, to)
    otherwise, otherwise_defined = translate(node.otherwise, to)
    defined = to.terms.conjunction((known, to.terms.choose(condition, then_defined, otherwise_defined)))
    return to.numbers.choose(condition, then, otherwise), defined


@translate.register
def _pack(node: Pack, to: Translator) -> Translation:
    parts = [translate(item, to) for item in node.items]
    defined = to.terms.conjunction(part for _, part in parts)
    cases: list[tuple[Term, tuple[Value, ...]]] = [(True, ())]
    for item, (value, _) in zip(node.items, parts, strict=True):
        if isinstance(item, Star):
            defined = to.terms.conjunction((defined, to.terms.negation(value.none)))
            runs = value.cases
        else:
            runs = ((True, (value,)),)
        cases = [(to.terms.conjunction((p, q)), left + right) for p, left in cases for q, right in runs]
    return Value("tuple", cases=tuple(cases)), defined


@translate.register
def _star(node: Star, to: Translator) -> Translation:
    return translate(node.operand, to)


@translate.register
def _index(node: Index, to: Translator) -> Translation:
    (base, index), defined = to.operands((node.base, node.index))
    if base.kind == "none":
        return NONE, False
    numbers, terms = to.numbers, to.terms
    result: Value | None = None
    inside: list[Term] = []
    for guard, items in base.cases:
        for place, item in enumerate(items):
            here = terms.disjunction(
                numbers.equal(index, numbers.constant(number)) for number in (place, place - len(items))
            )
            chosen = terms.conjunction((guard, here))
            if chosen is not False:
                inside.append(chosen)
                result = item if result is None else numbers.choose(chosen, item, result)
    if result is None:
        return numbers.constant(0), False
    return result, terms.conjunction((defined, terms.disjunction(inside)))


@translate.register
def _slice(node: Slice, to: Translator) -> Translation:
    (base,), defined = to.operands((node.base,))
    ends: list[Value] = []
    for end in (node.start, node.stop):
        value, known = (NONE, True) if end is None else translate(end, to)
        defined = to.terms.conjunction((defined, known))
        ends.append(value)
    cases = []
    for guard, items in base.cases:
        for start, starts_here in _places(ends[0], len(items), 0, to):
            for stop, stops_here in _places(ends[1], len(items), len(items), to):
                chosen = to.terms.conjunction((guard, starts_here, stops_here))
                if chosen is not False:
                    cases.append((chosen, items[start:stop]))
    return Value("tuple", cases=tuple(cases)), defined


def _places(end: Value, length: int, default: int, to: Translator) -> list[tuple[int, Term]]:
    """Return each place at which an end of a slice can be, clamped, with the condition that it is there."""
    if end.none is True:
        return [(default, True)]
    terms, term = to.terms, end.term
    places = []
    for place in range(length + 1):
        if 0 < place < length:
            here = terms.disjunction((terms.equal(term, place), terms.equal(term, place - length)))
        elif place == 0:
            at_start = terms.at_most(term, -length)
            here = at_start if length == 0 else terms.disjunction((terms.equal(term, 0), at_start))
            here = True if length == 0 else here
        else:
            here = terms.at_most(length, term)
        here = terms.conjunction((terms.negation(end.none), here))
        places.append((place, terms.disjunction((here, end.none)) if place == default else here))
    return places


@translate.register
def _lookup(node: Lookup, to: Translator) -> Translation:
    key, defined = translate(node.key, to)
    rows = [(to.numbers.equal(key, translate(at, to)[0]), translate(value, to)[0]) for at, value in node.table]
    found = to.terms.disjunction(here for here, _ in rows)
    *others, (_, result) = rows
    for here, value in reversed(others):
        result = to.numbers.choose(here, value, result)
    return result, to.terms.conjunction((defined, found))


@translate.register
def _fold(node: Fold, to: Translator) -> Translation:
    if isinstance(node.over, range):
        items, defined = [to.numbers.constant(number) for number in node.over], True
    else:
        pairs = [translate(item, to) for item in node.over]
        items, defined = [value for value, _ in pairs], to.terms.conjunction(part for _, part in pairs)
    steps: list[Translation] = [(item, True) for item in items]
    if node.variable is not None and node.body is not None:
        steps = [translate(node.body, to.binding(node.variable, item)) for item in items]
    if node.function == "sum":
        total = to.numbers.constant(0)
        for value, known in steps:
            defined = to.terms.conjunction((defined, known, to.terms.negation(value.none)))
            total = to.numbers.add(total, to.numbers.number(value.present()))
        return total, defined
    stop = node.function == "any"
    if not steps:
        return to.numbers.boolean(not stop), defined
    holds, known = to.in_order([(to.truth(value), part) for value, part in steps], stop=stop)
    return to.numbers.boolean(holds), to.terms.conjunction((defined, known))


@translate.register
def _call(node: Call, to: Translator) -> Translation:
    values, defined = to.operands(node.arguments)
    if any(value.kind == "none" for value in values):
        return NONE, False
    values = [to.numbers.number(value) for value in values]
    numbers = to.numbers
    match node.function:
        case "min" | "max":
            operation = numbers.least if node.function == "min" else numbers.greatest
            return reduce(operation, values), defined
        case "abs":
            return numbers.absolute(values[0]), defined
        case "ceildiv" | "align_up":
            a, b = values
            defined = to.terms.conjunction((defined, _not_zero(b, to)))
            tiles = numbers.ceiled(a, b)
            return (tiles if node.function == "ceildiv" else numbers.multiply(tiles, b)), defined
        case "is_pow2":
            return numbers.boolean(numbers.is_power(values[0])), defined
        case "next_pow2":
            return numbers.next_power(values[0]), defined
        case "gcd":
            return reduce(numbers.common_divisor, values), defined
        case "len":
            return numbers.fold_cases(values[0], lambda items: numbers.constant(len(items))), defined
        case "prod":
            return _product(values[0], to), defined
        case "itemsize":
            return _itemsize(values[0], to), defined
    raise Unsupported(f"no translation of the function {node.function}")


def _product(value: Value, to: Translator) -> Value:
    one = to.numbers.constant(1)
    multiply: Callable[[Value, Value], Value] = to.numbers.multiply
    return to.numbers.fold_cases(value, lambda items: reduce(multiply, items, one))


def _itemsize(value: Value, to: Translator) -> Value:
    codes: Sequence[int] = value.codes
    sizes: dict[int, list[int]] = {}
    for code in codes:
        dtype = to.numbers.codes.value(code)
        if isinstance(dtype, torch.dtype):
            sizes.setdefault(dtype.itemsize, []).append(code)
    if not sizes:
        raise Unsupported("itemsize of a dtype that may be any")
    *others, (last, _) = sorted(sizes.items())
    result = to.numbers.constant(last)
    for size, members in reversed(others):
        here = to.terms.disjunction(to.terms.equal(value.term, code) for code in members)
        result = to.numbers.choose(here, to.numbers.constant(size), result)
    return result if is_constant(result.term) else attrs.evolve(result, span=point(min(sizes)).join(point(max(sizes))))
