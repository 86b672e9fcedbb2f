"""What the manifest adds to the expression language: ``present(input)`` and lists of dims with starred runs."""

from __future__ import annotations

import ast
from typing import Final

from tileops.rules.expr import Expression, parse
from tileops.rules.nodes import Arithmetic, Choose, Name, Negate, Node, Pack, free_names
from tileops.rules.parser import RESERVED, Parser

RESERVED_NAMES: Final = RESERVED | {"present", "for", "if", "else", "in", "is", "not", "and", "or"}


def presence(name: str) -> str:
    """Return the name of the boolean fact that says whether an optional input came: ``present(weight)``."""
    return f"present({name})"


class EntryParser(Parser):
    """Parses the expressions of an entry: those of rules, and ``present(x)``."""

    def call(self, name: str, tree: ast.Call) -> Node:
        """Return a read of the fact ``present(x)``, or what rules make of the call."""
        if name != "present":
            return super().call(name, tree)
        if len(tree.args) != 1 or not isinstance(tree.args[0], ast.Name):
            self.fail(tree, "present takes the name of one optional input: write present(weight)")
        return self.name(presence(tree.args[0].id), tree)


class FormParser(EntryParser):
    """Parses shape forms, whose lists become packs; remembers the text of each node."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))
        self.texts: dict[int, str] = {}
        self.lists: set[int] = set()
        self._source = self.text.encode()

    def node(self, tree: ast.expr) -> Node:
        """Return the node of a tree, and remember the tree's text."""
        node = super().node(tree)
        self.texts[id(node)] = self._source[tree.col_offset : tree.end_col_offset].decode()
        return node

    def list(self, tree: ast.List) -> Node:
        """Return the pack of a list of dims and starred runs."""
        pack = self.pack(tree.elts, tree, stars=True)
        self.lists.add(id(pack))
        return pack

    def form(self) -> Node:
        """Return the root of a form: a list, or a choice between forms. Raises ExpressionError for anything else."""
        root = self.parse()
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Choose):
                waiting += [node.then, node.otherwise]
            elif not isinstance(node, Pack) or id(node) not in self.lists:
                self.fail(node.column, "a shape is a list such as [M, K] or [*B, K], or 'one list if ... else another'")
        return root


def expression(text: str) -> Expression:
    """Parse an expression of an entry. Raises ExpressionError."""
    return parse(text, EntryParser)


def linear_in(node: Node, name: str) -> bool:
    """Say whether a node is ``c * name + d`` with c and d free of the name, so that a dim solves it."""
    return _degree(node, name) == 1


def _degree(node: Node, name: str) -> int | None:
    """Return the degree of a node in a name, or None where it is no polynomial of degree 0 or 1."""
    match node:
        case Name():
            return int(node.name == name)
        case Negate():
            return _degree(node.operand, name)
        case Arithmetic(op="+" | "-" | "*"):
            left, right = _degree(node.left, name), _degree(node.right, name)
            if left is None or right is None:
                return None
            degree = left + right if node.op == "*" else max(left, right)
            return degree if degree <= 1 else None
    return None if any(read.name == name for read in free_names(node)) else 0
