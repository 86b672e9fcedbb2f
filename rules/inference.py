"""Static types of expressions, and the errors of those that have none.

A test for None narrows: in ``x is not None and x > 1`` the second x is never None. Elsewhere arithmetic on a fact that
may be None has a type, and raises on a call where it is: the proof says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce, singledispatch
from typing import NoReturn

import torch
from attrs import evolve, frozen

from tileops.rules import intervals
from tileops.rules.errors import nearest
from tileops.rules.functions import FUNCTIONS
from tileops.rules.intervals import Interval
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
    fault,
)
from tileops.rules.types import Type, type_of_value

ZERO: Interval = (0, 0)
KEY = "a table's key"
_INTERVALS: Mapping[str, Callable[[Interval, Interval], Interval]] = {
    "+": intervals.add,
    "-": lambda a, b: intervals.add(a, intervals.negate(b)),
    "*": intervals.multiply,
    "//": intervals.floor_divide,
    "%": intervals.modulo,
    "min": intervals.least,
    "max": intervals.greatest,
    "ceildiv": intervals.ceil_divide,
    "align_up": intervals.align,
    "gcd": intervals.common_divisor,
}


@frozen
class Scope:
    """Knows the types of the names in one text. Raises ExpressionError for a node that has no type."""

    text: str
    types: Mapping[str, Type]

    def type_of(self, node: Node) -> Type:
        """Return the type of a node."""
        return type_of(node, self)

    def fail(self, node: Node, message: str) -> NoReturn:
        """Raise the error that points at a node."""
        raise fault(self.text, node.column, message)

    def integer(self, node: Node, where: str) -> Interval:
        """Return the bounds of a node that must be an integer; one that may be None raises when it is."""
        found = self.type_of(node)
        if found.kind != "int":
            hint = ": floats are only compared" if found.kind == "float" else ""
            hint = ": write 'x if flag else y'" if found.kind == "bool" else hint
            self.fail(node, f"{where} takes integers, got {found}{hint}")
        return found.bounds

    def condition(self, node: Node, where: str) -> None:
        """Require a node that is True or False, never None."""
        found = self.type_of(node)
        if found.kind != "bool":
            hint = {"int": ": compare it, as in 'm != 0'", "none": ""}.get(found.kind, ": compare it")
            hint = ": write 'x is not None'" if found.optional else hint
            self.fail(node, f"{where} takes a condition, got {found}{hint}")
        if found.optional:
            self.fail(
                node, f"{where} takes a condition that is never None: write 'x is not None and x', or 'x == True'"
            )

    def divisor(self, node: Node, where: str) -> Interval:
        """Return the bounds of a divisor; the constant 0 is refused."""
        bounds = self.integer(node, where)
        if bounds == (0, 0):
            self.fail(node, f"{where} divides by 0")
        return bounds

    def sequence(self, node: Node, where: str) -> Type:
        """Return the type of a node that must be a tuple; one that may be None raises when it is."""
        found = self.type_of(node)
        if found.kind != "tuple":
            self.fail(node, f"{where} takes a tuple, got {found}")
        return found

    def agree(self, node: Node, found: Type, other_node: Node, other: Type, op: str) -> None:
        """Require that two types can be equal, and that a string is one of the other side's choices."""
        if not found.comparable(other):
            key = f"the table is asked with {found}, and one of its keys is {other}: the two are never equal"
            self.fail(other_node, key if op == KEY else f"'{op}' between {found} and {other} never holds")
        for side, theirs in ((other_node, found), (node, other)):
            if isinstance(side, Const) and isinstance(side.value, str) and theirs.members:
                choices = [str(member) for member in theirs.members]
                if side.value not in choices:
                    known = ", ".join(map(repr, choices))
                    self.fail(side, f"{side.value!r} is none of {known}{nearest(side.value, choices)}")

    def without_none(self, names: Iterable[str]) -> Scope:
        """Return the scope in which these names are known not to be None."""
        known = {name: evolve(self.types[name], optional=False) for name in names if name in self.types}
        return evolve(self, types={**self.types, **known}) if known else self

    def bind(self, node: Node, variable: str, bound: Type) -> Scope:
        """Return the scope in which a fold's variable is known too."""
        if variable in self.types:
            self.fail(node, f"the variable {variable!r} hides the fact of that name: name it otherwise")
        return evolve(self, types={**self.types, variable: bound})


@singledispatch
def type_of(node: Node, scope: Scope) -> Type:
    """Return the type of a node; a part that adds nodes registers its own here."""
    raise TypeError(f"no type for {type(node).__name__}")


@type_of.register
def _const(node: Const, scope: Scope) -> Type:
    return type_of_value(node.value)


@type_of.register
def _name(node: Name, scope: Scope) -> Type:
    found = scope.types.get(node.name)
    if found is None:
        known = sorted(scope.types)
        listed = f"known here: {', '.join(known)}" if known else "no fact is known here"
        scope.fail(node, f"unknown fact {node.name!r}{nearest(node.name, known)}; {listed}")
    return found


@type_of.register
def _negate(node: Negate, scope: Scope) -> Type:
    low, high = intervals.negate(scope.integer(node.operand, "unary '-'"))
    return Type("int", low=low, high=high)


@type_of.register
def _arithmetic(node: Arithmetic, scope: Scope) -> Type:
    where = f"'{node.op}'"
    left = scope.integer(node.left, where)
    right = scope.divisor(node.right, where) if node.op in ("//", "%") else scope.integer(node.right, where)
    low, high = _INTERVALS[node.op](left, right)
    return Type("int", low=low, high=high)


@type_of.register
def _compare(node: Compare, scope: Scope) -> Type:
    previous, found = node.left, scope.type_of(node.left)
    for op, right in zip(node.ops, node.rights, strict=True):
        other = scope.type_of(right)
        if op in ("<", "<=", ">", ">="):
            for side, kind in ((previous, found), (right, other)):
                if not kind.numeric:
                    scope.fail(side, f"'{op}' orders integers and floats, got {kind}")
        elif op in ("==", "!="):
            scope.agree(previous, found, right, other, op)
        previous, found = right, other
    return Type("bool")


@type_of.register
def _logic(node: Logic, scope: Scope) -> Type:
    for operand in node.operands:
        scope.condition(operand, f"'{node.op}'")
        scope = scope.without_none(_never_none(operand, node.op == "and"))
    return Type("bool")


@type_of.register
def _not(node: Not, scope: Scope) -> Type:
    scope.condition(node.operand, "'not'")
    return Type("bool")


@type_of.register
def _member(node: Member, scope: Scope) -> Type:
    _match(node.needle, node.options, scope, "in")
    return Type("bool")


@type_of.register
def _choose(node: Choose, scope: Scope) -> Type:
    scope.condition(node.condition, "'if'")
    then = scope.without_none(_never_none(node.condition, True)).type_of(node.then)
    otherwise = scope.without_none(_never_none(node.condition, False)).type_of(node.otherwise)
    joined = then.join(otherwise)
    if joined is None:
        scope.fail(node.otherwise, f"the two sides of 'if' differ: {then}, and {otherwise}")
    return joined


@type_of.register
def _call(node: Call, scope: Scope) -> Type:
    name, arguments = node.function, node.arguments
    where = FUNCTIONS[name].usage.split(" of ")[0]
    if name == "itemsize":
        found = scope.type_of(arguments[0])
        if found.kind != "dtype":
            scope.fail(arguments[0], f"{where} takes a dtype, got {found}")
        sizes = [dtype.itemsize for dtype in found.members if isinstance(dtype, torch.dtype)]
        return Type("int", low=min(sizes, default=1), high=max(sizes, default=16))
    if name == "len":
        sequence = scope.sequence(arguments[0], where)
        return Type("int", low=sequence.min_len, high=sequence.max_len)
    if name == "prod":
        low, high = _product(scope.sequence(arguments[0], where))
        return Type("int", low=low, high=high)
    if name in ("ceildiv", "align_up"):
        bounds = [scope.integer(arguments[0], where), scope.divisor(arguments[1], where)]
    else:
        bounds = [scope.integer(argument, where) for argument in arguments]
    if name == "is_pow2":
        return Type("bool")
    if name == "abs":
        low, high = intervals.absolute(bounds[0])
    elif name == "next_pow2":
        low, high = intervals.next_power(bounds[0])
    else:
        low, high = reduce(_INTERVALS[name], bounds)
    return Type("int", low=low, high=high)


@type_of.register
def _index(node: Index, scope: Scope) -> Type:
    base = scope.sequence(node.base, "an index")
    scope.integer(node.index, "an index")
    if isinstance(node.index, Const) and type(node.index.value) is int and base.max_len is not None:
        index = node.index.value
        if not -base.max_len <= index < base.max_len:
            scope.fail(node.index, f"index {index} is never in {evolve(base, optional=False)}")
    return Type("int", low=base.low, high=base.high)


@type_of.register
def _slice(node: Slice, scope: Scope) -> Type:
    base = scope.sequence(node.base, "a slice")
    ends: list[int | None] = []
    constant = True
    for end in (node.start, node.stop):
        if end is not None:
            scope.integer(end, "a slice")
        value = end.value if isinstance(end, Const) else None
        constant = constant and (end is None or isinstance(end, Const))
        ends.append(value if type(value) is int else None)
    lengths = [0, base.max_len]
    if constant and base.max_len is not None and base.max_len - base.min_len <= 4096:
        taken = [len(range(n)[ends[0] : ends[1]]) for n in range(base.min_len, base.max_len + 1)]
        lengths = [min(taken), max(taken)]
    return Type("tuple", low=base.low, high=base.high, min_len=lengths[0] or 0, max_len=lengths[1])


@type_of.register
def _lookup(node: Lookup, scope: Scope) -> Type:
    _match(node.key, tuple(key for key, _ in node.table), scope, KEY)
    return _common([value for _, value in node.table], scope, "the values of a table")


@type_of.register
def _star(node: Star, scope: Scope) -> Type:
    return scope.sequence(node.operand, "'*'")


@type_of.register
def _pack(node: Pack, scope: Scope) -> Type:
    ends: list[Interval] = []
    least, most = 0, 0
    unbounded = False
    for item in node.items:
        found = scope.type_of(item)
        if isinstance(item, Star):
            least, most = least + found.min_len, most + (found.max_len or 0)
            unbounded = unbounded or found.max_len is None
        else:
            least, most = least + 1, most + 1
            if found.kind != "int" or found.optional:
                scope.fail(item, f"a tuple holds integers that are never None, got {found}")
        ends.append(found.bounds)
    lows, highs = [low for low, _ in ends if low is not None], [high for _, high in ends if high is not None]
    return Type(
        "tuple",
        low=min(lows) if lows and len(lows) == len(ends) else None,
        high=max(highs) if highs and len(highs) == len(ends) else None,
        min_len=least,
        max_len=None if unbounded else most,
    )


@type_of.register
def _fold(node: Fold, scope: Scope) -> Type:
    bodies: list[Interval] = []
    count = len(node.over)
    if node.variable is None or node.body is None:
        inner, items = scope, list(node.over) if isinstance(node.over, tuple) else []
    else:
        if isinstance(node.over, range):
            item = Type("int", low=min(node.over, default=0), high=max(node.over, default=0))
        else:
            item = _common(list(node.over), scope, "the items of a comprehension")
        inner, items = scope.bind(node, node.variable, item), [node.body]
    for body in items:
        if node.function == "sum":
            bodies.append(inner.integer(body, "sum"))
        else:
            inner.condition(body, node.function)
    if node.function != "sum":
        return Type("bool")
    terms = bodies * count if node.variable is not None else bodies
    low, high = reduce(intervals.add, terms, ZERO)
    return Type("int", low=low, high=high)


def _match(needle: Node, options: tuple[Node, ...], scope: Scope, op: str) -> None:
    """Require that a needle can equal each of the options; a literal tuple is compared item by item."""
    if isinstance(needle, Pack) and not any(isinstance(item, Star) for item in needle.items):
        kinds = [scope.type_of(item) for item in needle.items]
        for option in options:
            if not isinstance(option, Pack) or len(option.items) != len(kinds):
                scope.fail(option, f"an option beside a tuple of {len(kinds)} is a tuple of {len(kinds)}")
            for item, kind, value in zip(needle.items, kinds, option.items, strict=True):
                _match_one(item, kind, value, scope, op)
        return
    kind = scope.type_of(needle)
    for option in options:
        _match_one(needle, kind, option, scope, op)


def _match_one(needle: Node, kind: Type, option: Node, scope: Scope, op: str) -> None:
    found = scope.type_of(option)
    if found.kind == "none":
        return
    scope.agree(needle, kind, option, found, op)


def _common(nodes: list[Node], scope: Scope, what: str) -> Type:
    """Return the one type of several nodes."""
    joined = scope.type_of(nodes[0])
    for node in nodes[1:]:
        found = scope.type_of(node)
        together = joined.join(found)
        if together is None:
            scope.fail(node, f"{what} are of one type: {joined}, then {found}")
        joined = together
    return joined


def _never_none(condition: Node, truth: bool) -> frozenset[str]:
    """Return the names that are not None where a condition is true, or false."""
    match condition:
        case Compare(left=Name(name=name), ops=("is not" | "is" as op,)) if truth == (op == "is not"):
            return frozenset({name})
        case Not(operand=operand):
            return _never_none(operand, not truth)
        case Logic(op=op, operands=operands) if truth == (op == "and"):
            return frozenset().union(*(_never_none(operand, truth) for operand in operands))
    return frozenset()


def _product(sequence: Type) -> Interval:
    if sequence.max_len is None or sequence.low is None or sequence.low < 0 or sequence.max_len > 64:
        nonnegative = sequence.low is not None and sequence.low >= 0
        return (1 if nonnegative and sequence.low else 0, None) if nonnegative else intervals.ANY
    ends = [1 if n == 0 else sequence.low**n for n in (sequence.min_len, sequence.max_len)]
    high = None
    if sequence.high is not None:
        high = max(1, sequence.high) ** sequence.max_len
    return min(ends), high
