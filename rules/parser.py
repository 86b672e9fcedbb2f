"""From text to nodes. A part that extends the language subclasses Parser and overrides ``call`` or ``list``."""

from __future__ import annotations

import ast
import io
import math
import tokenize
from collections.abc import Sequence
from typing import NoReturn

from tileops.rules.errors import nearest
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
    constant,
    fault,
)
from tileops.rules.types import DTYPES, show

# Generated code nests at most two brackets a level, and CPython takes no more than 200 nested brackets.
MAX_DEPTH = 80
MAX_RANGE = 4096
MAX_BITS = 256
RESERVED = frozenset(DTYPES) | frozenset(FUNCTIONS) | frozenset(FOLDS) | {"range", "True", "False", "None"}

_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_NO_SUCH = {
    "Div": "the language has no '/': write '//' or ceildiv(a, b)",
    "Pow": "the language has no '**': multiply, or write the number out",
    "Attribute": "the language has no attribute access: name a fact",
    "Lambda": "the language has no lambda",
    "NamedExpr": "the language has no ':='",
    "JoinedStr": "the language has no f-strings: write a plain string",
    "ListComp": "a comprehension stands only inside any(...), all(...) or sum(...)",
    "SetComp": "a comprehension stands only inside any(...), all(...) or sum(...)",
    "DictComp": "a comprehension stands only inside any(...), all(...) or sum(...)",
    "GeneratorExp": "a comprehension stands only inside any(...), all(...) or sum(...)",
    "Dict": "a literal table needs a key: {80: 1, 90: 2}[arch]",
    "Set": "a literal set stands only after 'in' and 'not in'",
    "Starred": "a starred item has no place here",
    "UAdd": "the language has no unary '+': leave it out",
    "BitAnd": "the language has no '&': write 'and' for conditions, '%' for low bits",
    "BitOr": "the language has no '|': write 'or'",
    "Invert": "the language has no '~': write 'not'",
    "LShift": "the language has no '<<': multiply",
    "RShift": "the language has no '>>': write '//'",
}


class Parser:
    """Turns one text into nodes. Raises ExpressionError with the column and what is allowed there."""

    def __init__(self, text: str) -> None:
        """Hold the text; ``parse`` reads it."""
        self.text = text
        self._bytes = text.encode(errors="surrogatepass")
        self._ascii = text.isascii()
        self._depth = 0
        self._variables: list[str] = []

    def parse(self) -> Node:
        """Return the root node of the text."""
        if not self.text.strip():
            self.fail(0, "an expression is empty")
        if "\\" in self.text:
            self.fail(self.text.index("\\"), "the language has no backslashes")
        try:
            tree = ast.parse(self.text, mode="eval")
        except SyntaxError as error:
            self._refuse_syntax(error)
        except (MemoryError, RecursionError):
            self.fail(0, f"nested deeper than {MAX_DEPTH} levels: split it into derived facts")
        except ValueError as error:
            self.fail(0, f"not an expression: {error}")
        if "#" in self.text:
            self._refuse_comment()
        return self.node(tree.body)

    def fail(self, place: ast.expr | int, message: str) -> NoReturn:
        """Raise the error that points at a tree's place, or at a column."""
        column = place if isinstance(place, int) else self.column(place)
        raise fault(self.text, column, message)

    def column(self, tree: ast.expr) -> int:
        """Return a tree's first column, in characters (ast counts bytes)."""
        return tree.col_offset if self._ascii else len(self._bytes[: tree.col_offset].decode())

    def node(self, tree: ast.expr) -> Node:
        """Return the node of a tree."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(tree, f"nested deeper than {MAX_DEPTH} levels: split it into derived facts")
        node = self._node(tree)
        self._depth -= 1
        return node

    def call(self, name: str, tree: ast.Call) -> Node:
        """Return the node of a call; a subclass adds functions here and hands on the rest."""
        if name in FOLDS:
            return self._fold(name, tree)
        if name not in FUNCTIONS:
            known = [*FUNCTIONS, *FOLDS]
            self.fail(tree, f"unknown function {name!r}{nearest(name, known)}; the language has {', '.join(known)}")
        function, count = FUNCTIONS[name], len(tree.args)
        if count < function.least or (function.most is not None and count > function.most):
            self.fail(tree, f"{name} got {count} argument{'s' * (count != 1)}: write {function.usage}")
        return Call(name, tuple(map(self.node, tree.args)), column=self.column(tree))

    def list(self, tree: ast.List) -> Node:
        """Return the node of a list literal; the language itself has none."""
        self.fail(tree, "the language has no lists: write a tuple (a, b), or a set after 'in'")

    def pack(self, items: Sequence[ast.expr], tree: ast.expr, *, stars: bool = False) -> Pack:
        """Return the literal tuple of some items, starred ones too where ``stars`` allows them."""
        nodes = [
            Star(self.node(item.value), column=self.column(item))
            if stars and isinstance(item, ast.Starred)
            else self.node(item)
            for item in items
        ]
        return Pack(tuple(nodes), column=self.column(tree))

    def name(self, name: str, tree: ast.expr) -> Name:
        """Return the read of a fact whose text is the tree's."""
        end = len(self._bytes[: tree.end_col_offset].decode())
        return Name(name, column=self.column(tree), end=end)

    def _node(self, tree: ast.expr) -> Node:
        column = self.column(tree)
        match tree:
            case ast.Constant():
                return self._constant(tree)
            case ast.Name(id=name):
                return self._name(name, tree)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                node = self.node(operand)
                if isinstance(node, Const) and type(node.value) in (int, float):
                    return Const(-node.value, column=column)  # type: ignore[operator]  # the line above rules the rest out
                return Negate(node, column=column)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Not(self.node(operand), column=column)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
                return Arithmetic(_ARITHMETIC[type(operator)], self.node(left), self.node(right), column=column)
            case ast.BoolOp(op=ast.And(), values=values):
                return Logic("and", tuple(map(self.node, values)), column=column)
            case ast.BoolOp(values=values):
                return Logic("or", tuple(map(self.node, values)), column=column)
            case ast.Compare():
                return self._compare(tree)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return Choose(self.node(test), self.node(body), self.node(orelse), column=column)
            case ast.Call(func=ast.Name(id=name)):
                if tree.keywords:
                    self.fail(tree.keywords[0].value, f"{name} takes no keywords")
                return self.call(name, tree)
            case ast.Call():
                self.fail(tree, f"only the language's functions can be called: {', '.join([*FUNCTIONS, *FOLDS])}")
            case ast.Subscript():
                return self._subscript(tree)
            case ast.Tuple(elts=items):
                return self.pack(items, tree)
            case ast.List():
                return self.list(tree)
        what = type(tree.op).__name__ if isinstance(tree, ast.BinOp | ast.UnaryOp) else type(tree).__name__
        raise fault(self.text, column, _NO_SUCH.get(what, f"the language has no {what}"))

    def _constant(self, tree: ast.Constant) -> Const:
        value = tree.value
        if isinstance(value, bytes | complex) or value is Ellipsis:
            self.fail(tree, f"the language has no constant like {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            self.fail(tree, "a float literal is finite")
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            self.fail(tree, f"an integer literal has at most {MAX_BITS} bits")
        return Const(value, column=self.column(tree))

    def _name(self, name: str, tree: ast.expr) -> Node:
        if name in DTYPES:
            return Const(DTYPES[name], column=self.column(tree))
        if name in RESERVED:
            usage = FUNCTIONS[name].usage if name in FUNCTIONS else f"{name}(...)"
            self.fail(tree, f"{name} is a function: write {usage}")
        return self.name(name, tree)

    def _compare(self, tree: ast.Compare) -> Node:
        column = self.column(tree)
        if isinstance(tree.ops[0], ast.In | ast.NotIn):
            if len(tree.ops) > 1:
                self.fail(tree.comparators[0], "'in' does not chain: join two conditions with 'and'")
            options = self._options(tree.comparators[0])
            return Member(self.node(tree.left), options, isinstance(tree.ops[0], ast.NotIn), column=column)
        left = self.node(tree.left)
        ops: list[str] = []
        rights: list[Node] = []
        for operator, comparator in zip(tree.ops, tree.comparators, strict=True):
            if isinstance(operator, ast.In | ast.NotIn):
                self.fail(comparator, "'in' does not chain: join two conditions with 'and'")
            op, right = _COMPARE[type(operator)], self.node(comparator)
            last = rights[-1] if rights else left
            if op in ("is", "is not") and right != Const(None):
                self.fail(comparator, f"'{op}' compares with None only: write '{'==' if op == 'is' else '!='}'")
            if op not in ("is", "is not") and Const(None) in (last, right):
                wanted = {"==": "is None", "!=": "is not None"}.get(op)
                hint = f"write '{wanted}'" if wanted else f"None has no place beside '{op}'"
                self.fail(comparator, f"None is not compared with '{op}': {hint}")
            ops.append(op)
            rights.append(right)
        return Compare(left, tuple(ops), tuple(rights), column=column)

    def _options(self, tree: ast.expr) -> tuple[Node, ...]:
        if not isinstance(tree, ast.Tuple | ast.Set):
            self.fail(tree, "'in' needs a literal tuple or set: m in (1, 2), (m, n) in {(128, 7168)}")
        if not tree.elts:
            self.fail(tree, "'in' needs at least one option")
        options = tuple(self._literal(item, "an option of 'in'") for item in tree.elts)
        if len({isinstance(option, Pack) for option in options if option != Const(None)}) > 1:
            self.fail(tree, "the options of 'in' are all tuples or none is, None aside")
        return options

    def _literal(self, tree: ast.expr, what: str) -> Node:
        node = self.node(tree)
        try:
            constant(node)
        except TypeError:
            self.fail(tree, f"{what} is a constant, or a tuple of constants")
        return node

    def _subscript(self, tree: ast.Subscript) -> Node:
        column = self.column(tree)
        if isinstance(tree.value, ast.Dict):
            return self._lookup(tree, tree.value)
        base = self.node(tree.value)
        if not isinstance(base, Name | Pack | Slice | Choose):
            self.fail(tree.value, "only a tuple or a literal table can be indexed: shape[0], {80: 1, 90: 2}[arch]")
        if isinstance(tree.slice, ast.Slice):
            part = tree.slice
            if part.step is not None:
                self.fail(part.step, "a slice has no step")
            ends = [None if end is None else self._place(end) for end in (part.lower, part.upper)]
            return Slice(base, ends[0], ends[1], column=column)
        return Index(base, self._place(tree.slice), column=column)

    def _place(self, tree: ast.expr) -> Node:
        node = self.node(tree)
        if isinstance(node, Pack | Const) and not (isinstance(node, Const) and type(node.value) is int):
            self.fail(tree, "an index is one integer")
        return node

    def _lookup(self, tree: ast.Subscript, table: ast.Dict) -> Lookup:
        rows: dict[object, tuple[Node, Const]] = {}
        for key_tree, value_tree in zip(table.keys, table.values, strict=True):
            if key_tree is None:
                self.fail(value_tree, "a literal table has no '**'")
            key, value = self._literal(key_tree, "a key of a table"), self.node(value_tree)
            if not isinstance(value, Const):
                self.fail(value_tree, "a value of a table is a constant")
            if constant(key) in rows:
                self.fail(key_tree, f"the table has the key {show(constant(key))} twice")
            rows[constant(key)] = key, value
        if not rows:
            self.fail(table, "a literal table has at least one row")
        if isinstance(tree.slice, ast.Slice):
            self.fail(tree, "a literal table takes one key, no slice")
        return Lookup(tuple(rows.values()), self.node(tree.slice), column=self.column(tree))

    def _fold(self, function: str, tree: ast.Call) -> Fold:
        column = self.column(tree)
        usage = f"write {function}((a, b)), {function}(... for x in (a, b)) or {function}(... for i in range(4))"
        if len(tree.args) != 1:
            self.fail(tree, f"{function} takes one literal tuple or comprehension: {usage}")
        argument = tree.args[0]
        if isinstance(argument, ast.Tuple):
            return Fold(function, None, self.pack(argument.elts, argument).items, None, column=column)
        if not isinstance(argument, ast.GeneratorExp):
            self.fail(argument, f"{function} takes a literal tuple or a comprehension: {usage}")
        loop = argument.generators[0]
        if len(argument.generators) > 1:
            self.fail(argument.generators[1].target, f"a comprehension has one 'for': nest {function}(...) instead")
        if loop.ifs:
            joined = (
                "make it part of the body, as '... if c else 0'" if function == "sum" else "make it part of the body"
            )
            self.fail(loop.ifs[0], f"a comprehension has no 'if': {joined}")
        if not isinstance(loop.target, ast.Name):
            self.fail(loop.target, "a comprehension has one plain variable")
        variable = loop.target.id
        if variable in RESERVED or variable in self._variables:
            self.fail(loop.target, f"{variable!r} is taken: name the variable otherwise")
        over = self._over(loop.iter, usage)
        self._variables.append(variable)
        body = self.node(argument.elt)
        self._variables.pop()
        return Fold(function, variable, over, body, column=column)

    def _over(self, tree: ast.expr, usage: str) -> tuple[Node, ...] | range:
        if isinstance(tree, ast.Tuple):
            if not tree.elts:
                self.fail(tree, "a comprehension runs over at least one item")
            return self.pack(tree.elts, tree).items
        if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "range"):
            self.fail(tree, f"a comprehension runs over a literal tuple or a constant range: {usage}")
        ends = []
        for argument in tree.args:
            node = self.node(argument)
            if not (isinstance(node, Const) and type(node.value) is int):
                self.fail(argument, "a range has constant integers: to stop at a fact, test it in the body")
            ends.append(node.value)
        if not 1 <= len(ends) <= 3 or tree.keywords:
            self.fail(tree, "write range(stop), range(start, stop) or range(start, stop, step)")
        if len(ends) == 3 and ends[2] == 0:
            self.fail(tree, "a range's step is not 0")
        over = range(*ends)
        if len(over) > MAX_RANGE:
            self.fail(tree, f"a range has at most {MAX_RANGE} steps")
        return over

    def _refuse_syntax(self, error: SyntaxError) -> NoReturn:
        if error.msg.startswith("Exceeds the limit"):
            self.fail(0, f"an integer literal has at most {MAX_BITS} bits")
        if error.offset is not None and error.offset < 1:  # so Python says that more should follow
            self.fail(len(self.text), "not an expression: it ends where more should follow")
        self.fail(max(0, min(len(self.text), (error.offset or 1) - 1)), f"not an expression: {error.msg}")

    def _refuse_comment(self) -> None:
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                self.fail(token.start[1], "an expression has no comment")
