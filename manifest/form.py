"""Forms of shapes: ``[M, K]``, ``[*B, 2 * H]``, ``[K, M] if trans_a else [M, K]``.

A form is a tree of conditions over lists. Each item of a list is an expression; a starred one is a run of dims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from tileops.manifest.language import FormParser, linear_in
from tileops.rules.expr import Expression
from tileops.rules.nodes import Choose, Name, Node, Pack, Star, free_names


@frozen(eq=False)
class Item:
    """One place of a list: a dim, or a run of dims where it is starred."""

    text: str
    expression: Expression  # its text is the whole form's, so that an error points into it
    starred: bool
    name: str | None  # where the item is a name alone
    facts: tuple[str, ...]
    linear: frozenset[str]  # names for which a received dim can be solved
    function: Callable[..., Any] | None  # of the facts; None for a name alone

    @classmethod
    def of(cls, text: str, expression: Expression, starred: bool) -> Item:
        """Make the item of an expression, whose own text is ``text``."""
        root, facts = expression.root, tuple(sorted(expression.facts))
        name = root.name if isinstance(root, Name) else None
        linear = frozenset() if starred else frozenset(fact for fact in facts if linear_in(root, fact))
        return cls(text, expression, starred, name, facts, linear, None if name else expression.compile(facts))

    def unbound(self, values: Mapping[str, Any]) -> list[str]:
        """List the names that have no value yet."""
        return [fact for fact in self.facts if fact not in values]

    def value(self, values: Mapping[str, Any]) -> Any:
        """Compute the item; every fact must have a value."""
        if self.function is None:
            return values[self.facts[0]]
        return self.function(*[values[fact] for fact in self.facts])

    def __str__(self) -> str:
        return f"*{self.text}" if self.starred else self.text


@frozen(eq=False)
class Listing:
    """A list of dims and runs."""

    items: tuple[Item, ...]
    text: str
    stars: int

    def value(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        """Compute the whole shape; every fact must have a value."""
        dims: list[int] = []
        for item in self.items:
            if item.starred:
                dims.extend(item.value(values))
            else:
                dims.append(item.value(values))
        return tuple(dims)


@frozen(eq=False)
class Form:
    """A shape form: a list, or a condition that chooses between two forms."""

    text: str
    listing: Listing | None = None
    condition: Expression | None = None
    then: Form | None = None
    otherwise: Form | None = None
    names: tuple[str, ...] = ()  # that the condition reads
    holds: Callable[..., Any] | None = None

    def choose(self, values: Mapping[str, Any]) -> Listing:
        """Return the list that applies under these params and presences."""
        form = self
        while form.holds is not None:
            chosen = form.then if form.holds(*[values[name] for name in form.names]) else form.otherwise
            assert chosen is not None, "a condition has two branches"
            form = chosen
        assert form.listing is not None, "a form without a condition is a list"
        return form.listing

    def conditions(self) -> Iterator[Expression]:
        """Yield every condition, outermost first."""
        if self.condition is not None and self.then is not None and self.otherwise is not None:
            yield self.condition
            yield from self.then.conditions()
            yield from self.otherwise.conditions()

    def listings(self) -> Iterator[Listing]:
        """Yield every list, whatever the conditions."""
        if self.listing is not None:
            yield self.listing
        elif self.then is not None and self.otherwise is not None:
            yield from self.then.listings()
            yield from self.otherwise.listings()

    def read_conditions(self) -> tuple[str, ...]:
        """Name everything that the conditions read."""
        return tuple(sorted({name for condition in self.conditions() for name in condition.facts}))


def parse_form(text: str) -> Form:
    """Read a shape form. Raises ExpressionError that points at what is wrong."""
    parser = FormParser(text)
    return _form(parser.form(), parser)


def _form(node: Node, parser: FormParser) -> Form:
    text = parser.texts[id(node)]
    if isinstance(node, Choose):
        condition = _expression(node.condition, parser)
        names = tuple(sorted(condition.facts))
        return Form(
            text,
            condition=condition,
            then=_form(node.then, parser),
            otherwise=_form(node.otherwise, parser),
            names=names,
            holds=condition.compile(names),
        )
    assert isinstance(node, Pack), "FormParser.form lets no other node through"
    items = []
    for item in node.items:
        inner = item.operand if isinstance(item, Star) else item
        items.append(Item.of(parser.texts[id(inner)], _expression(inner, parser), isinstance(item, Star)))
    return Form(text, listing=Listing(tuple(items), text, sum(item.starred for item in items)))


def _expression(node: Node, parser: FormParser) -> Expression:
    return Expression(parser.text, node, frozenset(name.name for name in free_names(node)))
