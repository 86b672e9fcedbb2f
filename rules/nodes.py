"""The nodes an expression is made of: frozen, compared without their place in the text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TypeAlias

import attrs
import torch
from attrs import field, frozen

from tileops.rules.errors import ExpressionError

Scalar: TypeAlias = int | float | bool | str | torch.dtype | None


def fault(text: str, column: int, message: str) -> ExpressionError:
    """Return the error that points at ``column`` (from 0, in characters) of ``text``."""
    start = max(0, column - 60)
    line = text[start : column + 60]
    caret = " " * (column - start) + "^"
    return ExpressionError(
        f"{message}, at column {column + 1} of the expression\n    {line}\n    {caret}",
        text=text,
        column=column,
        cause=message,
    )


def _exact(value: object) -> tuple[type, object]:
    return type(value), value


@frozen
class Node:
    """Stands above every node. ``column`` is its place in the text, in characters from 0."""

    column: int = field(default=0, eq=False, repr=False, kw_only=True)


@frozen
class Const(Node):
    """Holds a literal: an integer, float, bool, string, dtype or None. 1, 1.0 and True are three constants."""

    value: Scalar = field(eq=_exact)


@frozen
class Name(Node):
    """Reads a fact, or the variable of an enclosing fold. ``end`` is the column after it."""

    name: str
    end: int = field(default=0, eq=False, repr=False, kw_only=True)


@frozen
class Negate(Node):
    """Is ``-operand``."""

    operand: Node


@frozen
class Arithmetic(Node):
    """Is ``left op right``; ``op`` is one of ``+ - * // %``."""

    op: str
    left: Node
    right: Node


@frozen
class Compare(Node):
    """Is ``left ops[0] rights[0] ops[1] rights[1] ...``; ``is`` and ``is not`` have the constant None on the right."""

    left: Node
    ops: tuple[str, ...]
    rights: tuple[Node, ...]


@frozen
class Logic(Node):
    """Is ``operands[0] op operands[1] ...``; ``op`` is ``and`` or ``or``."""

    op: str
    operands: tuple[Node, ...]


@frozen
class Not(Node):
    """Is ``not operand``."""

    operand: Node


@frozen
class Member(Node):
    """Is ``needle in options``. An option is a Const, or a Pack of Consts where the needle is a tuple."""

    needle: Node
    options: tuple[Node, ...]
    negated: bool = False


@frozen
class Choose(Node):
    """Is ``then if condition else otherwise``."""

    condition: Node
    then: Node
    otherwise: Node


@frozen
class Call(Node):
    """Calls one of the language's functions (``functions.FUNCTIONS``)."""

    function: str
    arguments: tuple[Node, ...]


@frozen
class Index(Node):
    """Is ``base[index]`` of a tuple; a negative index counts from the end."""

    base: Node
    index: Node


@frozen
class Slice(Node):
    """Is ``base[start:stop]`` of a tuple; None is an open end. Out-of-range ends are clamped, as in Python."""

    base: Node
    start: Node | None
    stop: Node | None


@frozen
class Lookup(Node):
    """Is ``{key: value, ...}[key]``. Keys are Consts or Packs of Consts, values Consts."""

    table: tuple[tuple[Node, Const], ...]
    key: Node


@frozen
class Star(Node):
    """Is ``*operand`` within a Pack: the items of a tuple. Only a parser that extends the language makes it."""

    operand: Node


@frozen
class Pack(Node):
    """Is the literal tuple ``(items[0], ...)``."""

    items: tuple[Node, ...]


@frozen
class Fold(Node):
    """Is ``function(body for variable in over)``, function one of ``any all sum``.

    ``over`` is a literal tuple's items or a constant range. ``any((a, b))`` has neither variable nor body: it folds
    the items themselves, all of which are evaluated.
    """

    function: str
    variable: str | None
    over: tuple[Node, ...] | range
    body: Node | None


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes directly under a node, in the order of the text."""
    for name in _parts(type(node)):  # type: ignore[arg-type]  # a class is hashable; mypy 2 says it is not
        yield from _nodes(getattr(node, name))


@cache
def _parts(kind: type[Node]) -> tuple[str, ...]:
    """Return the attributes that can hold nodes, by their annotations."""
    return tuple(attribute.name for attribute in attrs.fields(kind) if "Node" in str(attribute.type))


def _nodes(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)


def free_names(node: Node, bound: frozenset[str] = frozenset()) -> Iterator[Name]:
    """Yield every read of a fact below a node; variables of folds are no facts."""
    match node:
        case Name():
            if node.name not in bound:
                yield node
        case Fold(variable=variable, over=over, body=body):
            for item in over if isinstance(over, tuple) else ():
                yield from free_names(item, bound)
            if body is not None:
                yield from free_names(body, bound | {variable} if variable else bound)
        case _:
            for child in children(node):
                yield from free_names(child, bound)


def constant(node: Node) -> Scalar | tuple[Scalar, ...]:
    """Return the value of a Const, or of a Pack of Consts; raises TypeError for another node."""
    match node:
        case Const(value=value):
            return value
        case Pack(items=items) if all(isinstance(item, Const) for item in items):
            return tuple(item.value for item in items if isinstance(item, Const))
    raise TypeError(f"{node!r} is no constant")
