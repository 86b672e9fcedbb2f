"""The expression language: parse a text once, then type, compile or render it.

``docs/rules.md`` describes the language. The nodes are in ``nodes``, types in ``inference``, code in ``evaluate``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from attrs import field, frozen

from tileops.rules.errors import ExpressionError, nearest
from tileops.rules.evaluate import EVALUATION_ERRORS, Writer, compile_node
from tileops.rules.inference import Scope
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
    children,
    constant,
    fault,
    free_names,
)
from tileops.rules.parser import RESERVED, Parser
from tileops.rules.types import DTYPES, KindName, Type, dtype_name, show

__all__ = [
    "DTYPES",
    "EVALUATION_ERRORS",
    "RESERVED",
    "Arithmetic",
    "Call",
    "Choose",
    "Compare",
    "Const",
    "Expression",
    "Fold",
    "Index",
    "Logic",
    "Lookup",
    "Member",
    "Name",
    "Negate",
    "Node",
    "Not",
    "Pack",
    "Parser",
    "Slice",
    "Star",
    "Template",
    "Type",
    "Writer",
    "children",
    "constant",
    "dtype_name",
    "free_names",
    "parse",
    "show",
]


@frozen
class Expression:
    """Holds a parsed text. Two are equal when their nodes are, whatever their spacing."""

    text: str = field(eq=False)
    root: Node
    facts: frozenset[str] = field(eq=False, repr=False)
    _compiled: dict[tuple[str, ...], Callable[..., Any]] = field(factory=dict, eq=False, repr=False, init=False)

    def type_in(self, scope: Mapping[str, Type]) -> Type:
        """Return the type in a scope; raises ExpressionError for an unknown name or a mismatch of types."""
        return Scope(self.text, scope).type_of(self.root)

    def require(self, kind: KindName, scope: Mapping[str, Type]) -> None:
        """Raise ExpressionError unless the expression has this kind of value in the scope, and is never None."""
        found = self.type_in(scope)
        if found.kind != kind or found.optional:
            raise fault(self.text, self.root.column, f"wanted {Type(kind)}, got {found}")

    def compile(self, names: tuple[str, ...]) -> Callable[..., Any]:
        """Return a function of the named facts, by position; compiled once for each order of names.

        The function means what Python means. It raises one of ``EVALUATION_ERRORS``: TypeError for None in arithmetic
        or an ordering, ZeroDivisionError, IndexError, or KeyError for a key that a literal table lacks.
        """
        function = self._compiled.get(names)
        if function is None:
            for name in () if self.facts.issubset(names) else free_names(self.root):
                if name.name not in names:
                    raise fault(self.text, name.column, f"unknown fact {name.name!r}{nearest(name.name, names)}")
            function = self._compiled[names] = compile_node(self.root, names)
        return function

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the value for these facts; others do no harm.

        Raises ExpressionError for a fact that is missing, else what ``compile`` says.
        """
        names = tuple(sorted(self.facts))
        missing = [name for name in names if name not in values]
        if missing:
            raise ExpressionError(f"no value for {', '.join(missing)} in {self.text!r}", text=self.text, column=0)
        return self.compile(names)(*[values[name] for name in names])

    def render(self, values: Mapping[str, Any]) -> str:
        """Return the text with the values filled in: ``m > 2`` for m = 5 is ``5 > 2``. Names without a value stay."""
        text = self.text
        for name in sorted(free_names(self.root), key=lambda name: name.column, reverse=True):
            if name.name in values:
                text = text[: name.column] + show(values[name.name]) + text[name.end :]
        return text

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the compiled functions."""
        return Expression, (self.text, self.root, self.facts)


def parse(text: str, parser: type[Parser] = Parser) -> Expression:
    """Parse a text; raises ExpressionError with a caret at the column and what is allowed there.

    A part that extends the language hands its own subclass of Parser. Line breaks count as spaces.
    """
    if not isinstance(text, str):
        raise ExpressionError(f"an expression is a string, got {text!r}", text=text, column=0)
    return _parse(text, parser)  # type: ignore[arg-type]  # a class is hashable; mypy 2 says it is not


@lru_cache(maxsize=8192)
def _parse(text: str, parser: type[Parser]) -> Expression:
    flat = text.translate({ord(space): " " for space in "\r\n\t\f"}).strip()
    root = parser(flat).parse()
    return Expression(flat, root, frozenset(name.name for name in free_names(root)))


@frozen
class Template:
    """Holds a message with expressions in braces: ``"got m={m}, {k * itemsize(dtype)} bytes"``.

    ``{{`` and ``}}`` are plain braces. Raises ExpressionError for a field that does not parse. A part that extends the
    language hands its own subclass of Parser.
    """

    text: str
    parser: type[Parser] = field(default=Parser, repr=False)
    _parts: tuple[str | Expression, ...] = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Parse the fields."""
        if not isinstance(self.text, str):
            raise ExpressionError(f"a message is a string, got {self.text!r}", text=self.text, column=0)
        object.__setattr__(self, "_parts", _split(self.text, self.parser))

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Return the fields, in the order of the text."""
        return tuple(part for part in self._parts if isinstance(part, Expression))

    @property
    def facts(self) -> frozenset[str]:
        """Return the facts that the fields read."""
        return frozenset().union(*(expression.facts for expression in self.expressions))

    def check(self, scope: Mapping[str, Type]) -> None:
        """Raise ExpressionError for a field that has no type in the scope."""
        for expression in self.expressions:
            expression.type_in(scope)

    def fill(self, values: Mapping[str, Any]) -> str:
        """Return the message for these facts. A field that cannot be computed says so in its place."""
        return "".join(part if isinstance(part, str) else _shown(part, values) for part in self._parts)

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the text; the fields are parsed again."""
        return Template, (self.text, self.parser)


def _shown(expression: Expression, values: Mapping[str, Any]) -> str:
    missing = sorted(expression.facts - set(values))
    if missing:
        return f"<{expression.text}: no {', '.join(missing)}>"
    try:
        value = expression.evaluate(values)
    except EVALUATION_ERRORS as error:
        return f"<{expression.render(values)}: {type(error).__name__}>"
    return value if isinstance(value, str) else show(value)


def _split(text: str, parser: type[Parser]) -> tuple[str | Expression, ...]:
    parts: list[str | Expression] = []
    plain, at = "", 0
    while at < len(text):
        char = text[at]
        if text[at : at + 2] in ("{{", "}}"):
            plain, at = plain + char, at + 2
        elif char == "}":
            raise fault(text, at, "a '}' without its '{': write '}}' for a plain brace")
        elif char == "{":
            end = _field_end(text, at)
            if plain:
                parts.append(plain)
            try:
                parts.append(parse(text[at + 1 : end], parser))
            except ExpressionError as error:
                raise ExpressionError(f"{error}\n    in the message {text!r}", **error.fields) from error
            plain, at = "", end + 1
        else:
            plain, at = plain + char, at + 1
    return (*parts, plain) if plain else tuple(parts)


def _field_end(text: str, start: int) -> int:
    """Return where the field that opens at ``start`` closes; braces of tables and within strings are its own."""
    depth, quote = 0, ""
    for at in range(start, len(text)):
        char = text[at]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "{}":
            depth += 1 if char == "{" else -1
            if depth == 0:
                return at
    raise fault(text, start, "a '{' without its '}': write '{{' for a plain brace")
