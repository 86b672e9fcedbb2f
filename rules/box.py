"""Boxes: what a condition says of single facts. Two boxes that share nothing need no solver.

`m > 2` being false leaves m up to 2; `dtype not in (float16, bfloat16)` being false leaves two dtypes. What relates
several facts is left out, so a box holds every call that meets the condition, and others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from tileops.rules.nodes import Compare, Const, Logic, Member, Name, Node, Not, constant
from tileops.rules.span import EVERYTHING, INFINITY, Span
from tileops.rules.types import Type

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "==", "is": "is not", "is not": "is"}


@attrs.frozen
class Allowed:
    """Holds values of one fact: those of ``options`` if given, else the numbers of ``span``."""

    span: Span = EVERYTHING
    options: frozenset[Any] | None = None

    def meet(self, other: Allowed) -> Allowed:
        """Return what both allow."""
        span = self.span.meet(other.span)
        options = self.options
        if options is None:
            options = other.options
        elif other.options is not None:
            options = options & other.options
        if options is not None and span != EVERYTHING:
            options = frozenset(value for value in options if isinstance(value, int | float) and value in span)
        return Allowed(span, options)

    @property
    def empty(self) -> bool:
        """Tell whether no value is left."""
        return not self.options if self.options is not None else self.span.empty


Box: TypeAlias = Mapping[str, Allowed]


def meet(boxes: Iterable[Box]) -> Box:
    """Return the box of what all boxes allow."""
    result: dict[str, Allowed] = {}
    for box in boxes:
        for name, allowed in box.items():
            result[name] = result[name].meet(allowed) if name in result else allowed
    return result


def empty(box: Box) -> bool:
    """Tell whether some fact has no value left."""
    return any(allowed.empty for allowed in box.values())


def disjoint(a: Box, b: Box) -> bool:
    """Tell whether some fact has no value that both boxes allow."""
    # A plain loop over spans first: a table of a thousand asks this half a million times.
    for name, allowed in a.items():
        other = b.get(name)
        if other is None:
            continue
        if allowed.options is None and other.options is None:
            if allowed.span.high < other.span.low or other.span.high < allowed.span.low:
                return True
        elif allowed.meet(other).empty:
            return True
    return False


def narrow(node: Node, truth: bool, scope: Mapping[str, Type]) -> Box:
    """Return the box of the calls on which a condition is defined and has this truth."""
    match node:
        case Not(operand=operand):
            return narrow(operand, not truth, scope)
        case Logic(op=op, operands=operands) if (op == "and") == truth:
            return meet(narrow(operand, truth, scope) for operand in operands)
        case Name(name=name):
            return {name: Allowed(options=frozenset({truth}))}
        case Member(needle=Name(name=name), options=options, negated=negated):
            values = {constant(option) for option in options}
            if truth != negated:
                return {name: Allowed(options=frozenset(values))}
            return _others(name, values, scope)
        case Compare(left=left, ops=ops, rights=rights) if truth or len(ops) == 1:
            lefts = (left, *rights[:-1])
            return meet(
                _link(a, op if truth else _OPPOSITE[op], b, scope) for a, op, b in zip(lefts, ops, rights, strict=True)
            )
    return {}


def _link(left: Node, op: str, right: Node, scope: Mapping[str, Type]) -> Box:
    match left, right:
        case Name(name=name), Const(value=value):
            return _compared(name, op, value, scope)
        case Const(value=value), Name(name=name):
            return _compared(name, _FLIPPED[op], value, scope)
    return {}


def _compared(name: str, op: str, value: Any, scope: Mapping[str, Type]) -> Box:
    match op:
        case "==" | "is":
            return {name: Allowed(options=frozenset({value}))}
        case "!=" | "is not":
            return _others(name, {value}, scope)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return {}
    step = 1 if op in ("<", ">") and isinstance(value, int) and scope[name].kind == "int" else 0
    return {name: Allowed(Span(-INFINITY, value - step) if op in ("<", "<=") else Span(value + step, INFINITY))}


def _others(name: str, values: set[Any], scope: Mapping[str, Type]) -> Box:
    """Return the box of a fact that is none of some values, where the others can be listed."""
    kind = scope[name]
    members: tuple[Any, ...] = (True, False) if kind.kind == "bool" else kind.members
    if not members:
        return {}
    every = {*members, None} if kind.optional else {*members}
    return {name: Allowed(options=frozenset(every - values))}
