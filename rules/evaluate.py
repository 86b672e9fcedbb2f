"""Code generation: nodes become the source of a plain Python function, compiled once."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any

from attrs import evolve, field, frozen

from tileops.rules.functions import FOLDS, FUNCTIONS
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
)

# What a compiled expression may raise: None in arithmetic, a division by zero, an index or key that is not there.
EVALUATION_ERRORS = (TypeError, ArithmeticError, LookupError)
_UNROLL = 64


@frozen
class Writer:
    """Writes nodes as Python source. ``names`` says how each fact is read; ``environment`` collects the constants.

    One writer can write several expressions, to put them into one generated function.
    """

    names: Mapping[str, str]
    environment: dict[str, Any] = field(factory=dict)

    def write(self, node: Node) -> str:
        """Return the source of a node, bracketed where it needs to be."""
        return source(node, self)

    def constant(self, value: object) -> str:
        """Return the name under which the generated code finds a value."""
        name = f"_c{len(self.environment)}"
        self.environment[name] = value
        return name

    def function(self, name: str, compute: Callable[..., Any]) -> str:
        """Return the name under which the generated code finds a function."""
        self.environment[f"_{name}"] = compute
        return f"_{name}"

    def binding(self, variable: str, code: str) -> Writer:
        """Return a writer that reads a variable as ``code``; it shares the constants."""
        return evolve(self, names={**self.names, variable: code})


def parameters(names: Sequence[str]) -> dict[str, str]:
    """Return, for each fact, an identifier that generated code can use as a parameter."""
    plain = (name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_") for name in names)
    return {name: name if good else f"_a{i}" for i, (name, good) in enumerate(zip(names, plain, strict=True))}


def compile_node(node: Node, names: tuple[str, ...]) -> Callable[..., Any]:
    """Compile a node to a function of the named facts, by position."""
    arguments = parameters(names)
    writer = Writer(arguments)
    return build(f"lambda {', '.join(arguments.values())}: {writer.write(node)}", writer.environment)


def build(text: str, environment: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function that an expression of Python source makes, with no builtins but the environment."""
    function: Callable[..., Any] = eval(compile(text, "<expression>", "eval"), {"__builtins__": {}, **environment})
    return function


@singledispatch
def source(node: Node, writer: Writer) -> str:
    """Return the Python source of a node; a part that adds nodes registers its own here."""
    raise TypeError(f"no code for {type(node).__name__}")


@source.register
def _const(node: Const, writer: Writer) -> str:
    value = node.value
    if value is None or type(value) in (bool, int):
        return repr(value) if value is None or value is True or value is False or value >= 0 else f"({value})"  # type: ignore[operator]  # an int here
    return writer.constant(value)


@source.register
def _name(node: Name, writer: Writer) -> str:
    return writer.names[node.name]


@source.register
def _negate(node: Negate, writer: Writer) -> str:
    return f"(-{writer.write(node.operand)})"


@source.register
def _arithmetic(node: Arithmetic, writer: Writer) -> str:
    return f"({writer.write(node.left)} {node.op} {writer.write(node.right)})"


@source.register
def _compare(node: Compare, writer: Writer) -> str:
    parts: list[str] = []
    for operand, op in zip((node.left, *node.rights), (*node.ops, ""), strict=True):
        text = writer.write(operand)
        # The compiler warns of a literal before `is`, also of one that it folds itself.
        if op in ("is", "is not") and not isinstance(operand, Name):
            text = f"{writer.function('itself', _itself)}({text})"
        parts += [text, op]
    return f"({' '.join(parts).rstrip()})"


def _itself(value: object) -> object:
    return value


@source.register
def _logic(node: Logic, writer: Writer) -> str:
    return "(" + f" {node.op} ".join(map(writer.write, node.operands)) + ")"


@source.register
def _not(node: Not, writer: Writer) -> str:
    return f"(not {writer.write(node.operand)})"


@source.register
def _member(node: Member, writer: Writer) -> str:
    options = writer.constant(frozenset(map(constant, node.options)))
    return f"({writer.write(node.needle)} {'not in' if node.negated else 'in'} {options})"


@source.register
def _choose(node: Choose, writer: Writer) -> str:
    return f"({writer.write(node.then)} if {writer.write(node.condition)} else {writer.write(node.otherwise)})"


@source.register
def _call(node: Call, writer: Writer) -> str:
    arguments = list(map(writer.write, node.arguments))
    if node.function == "ceildiv":  # inline: twice as fast as a call
        return f"(-(-{arguments[0]} // {arguments[1]}))"
    name = writer.function(node.function, FUNCTIONS[node.function].compute)
    return f"{name}({', '.join(arguments)})"


@source.register
def _index(node: Index, writer: Writer) -> str:
    return f"{writer.write(node.base)}[{writer.write(node.index)}]"


@source.register
def _slice(node: Slice, writer: Writer) -> str:
    ends = ["" if end is None else writer.write(end) for end in (node.start, node.stop)]
    return f"{writer.write(node.base)}[{':'.join(ends)}]"


@source.register
def _lookup(node: Lookup, writer: Writer) -> str:
    table = writer.constant({constant(key): value.value for key, value in node.table})
    return f"{table}[{writer.write(node.key)}]"


@source.register
def _star(node: Star, writer: Writer) -> str:
    return f"*{writer.write(node.operand)}"


@source.register
def _pack(node: Pack, writer: Writer) -> str:
    return "(" + "".join(f"{writer.write(item)}, " for item in node.items) + ")"


@source.register
def _fold(node: Fold, writer: Writer) -> str:
    function = writer.function(node.function, FOLDS[node.function])
    if node.variable is None or node.body is None:
        assert isinstance(node.over, tuple), "a fold without a variable has items"
        return f"{function}({writer.write(Pack(node.over))})"
    if isinstance(node.over, range):
        items = [f"({i})" if i < 0 else str(i) for i in node.over]
        plain = True
    else:
        items = [writer.write(item) for item in node.over]
        plain = all(isinstance(item, Const | Name) for item in node.over)
    plain = plain and not any(isinstance(child, Fold) for child in _below(node.body))
    # Unrolling is right where reading an item cannot raise; it saves a generator (0.4 us). Nested folds would multiply.
    if plain and 0 < len(items) <= _UNROLL:
        bodies = [writer.binding(node.variable, item).write(node.body) for item in items]
        return "(" + {"any": " or ", "all": " and ", "sum": " + "}[node.function].join(bodies) + ")"
    variable = f"_v{len(writer.names)}"
    over = writer.constant(node.over) if isinstance(node.over, range) else writer.write(Pack(node.over))
    body = writer.binding(node.variable, variable).write(node.body)
    return f"{function}({body} for {variable} in {over})"


def _below(node: Node) -> Iterator[Node]:
    yield node
    for child in children(node):
        yield from _below(child)
