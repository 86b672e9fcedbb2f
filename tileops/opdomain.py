"""The domain of a proof about an op: every call that its entry admits, with the facts of the call spec over them.

There are two of them. The exact one has each dim of each run as a variable. The wide one has a variable for the
product of a run in place of its dims, which is all that most call specs read: it holds every call and others too, so
that "none" there is "none", in a small part of the solver's time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, reduce
from typing import Any, cast

import attrs

from tileops.admitted import Admitted, dims_and_runs
from tileops.manifest.form import Form, Listing
from tileops.manifest.language import presence
from tileops.manifest.schema import MAX_DIM, Input
from tileops.rules.domain import DEVICE_FACTS, Domain
from tileops.rules.facts import Kind
from tileops.rules.nodes import Call, Name, Node, Slice, free_names
from tileops.rules.smt import Translation, Translator
from tileops.rules.spaces import Spaces
from tileops.rules.symbolic import Unsupported, Value
from tileops.rules.terms import Term
from tileops.rules.types import Type


@attrs.frozen(eq=False, slots=False)
class Wide(Admitted):
    """The calls of an entry with products in place of runs. It makes no calls."""

    @cached_property
    def runs(self) -> frozenset[str]:
        """Name the runs that products stand for."""
        return dims_and_runs(self.entry)[1]

    @cached_property
    def kinds(self) -> dict[str, Type]:
        """Return the types of indices, params, presences and products."""
        types = {name: kind for name, kind in self.exact.items() if name not in self.runs}
        for root in self._roots():
            for name in free_names(self.rewrite(root)):
                if name.name.startswith("len "):
                    types[name.name] = Type("int", low=0, high=self.longest)
                elif name.name.startswith("prod "):
                    types[name.name] = Type("int", low=1, high=MAX_DIM)
        return types

    def _roots(self) -> Iterator[Node]:
        signature = self.entry.signature
        yield from (rule.root for rule in signature.rules)
        yield from (source.root for source in self.use.sources.values())
        if self.use.uses.when is not None:
            yield self.use.uses.when.root
        for item in signature.inputs.values():
            for listing in item.shape.listings():
                yield from factors(listing)
        for run in self.runs:
            yield Call("prod", (Name(run),))
            yield Call("len", (Name(run),))

    def rewrite(self, node: Node) -> Node:
        """Return a node with names for ``prod(S)``, ``prod(S[a:b])`` and ``len(S)``."""
        match node:
            case Call(function="prod" | "len", arguments=(Name(name=name),)) if name in self.runs:
                return Name(f"{node.function} {name}")
            case Call(function="prod", arguments=(Slice(base=Name(name=name)) as part,)) if name in self.runs:
                return Name(f"prod {name} {part!r}")
        return _rebuilt(node, self.rewrite)


def _rebuilt(node: Node, change: Any) -> Node:
    """Return a node whose parts are changed."""

    def changed(value: Any) -> Any:
        if isinstance(value, Node):
            return change(value)
        return tuple(map(changed, value)) if isinstance(value, tuple) else value

    fields = {field.name: getattr(node, field.name) for field in attrs.fields(type(node))}
    return attrs.evolve(node, **{name: changed(value) for name, value in fields.items()})


def factors(listing: Listing) -> Iterator[Node]:
    """Yield what the number of a tensor's elements is a product of."""
    for item in listing.items:
        root = item.expression.root
        yield Call("prod", (root,)) if item.starred else root


class OpDomain(Domain):
    """Holds the calls that an entry admits and that ask one interface; ``translator`` reads the interface's facts."""

    def __init__(self, admitted: Admitted, over: Spaces) -> None:
        self.admitted = admitted
        super().__init__(cast("Any", admitted), over.keys(), over)
        reader = Translator(self.numbers, self.values)
        self._reader = reader
        parts = [*self._tensors(), *self._rules(), *self._presences(), *self._products()]
        self._ties += [(self.facts_in([part]), part) for part in parts if part is not True]
        self._facts: dict[str, Value] = {}
        self._defined: dict[str, Term] = {}
        kinds = self.admitted.use.uses.interface.request.kinds
        for fact, kind in kinds.items():
            source = self.admitted.use.sources.get(fact)
            value, defined = self._fact(fact, kind, None if source is None else source.root)
            self._facts[fact] = value
            if defined is not True:
                self._defined[fact] = defined
        self.fits = self._fits(kinds)

    @property
    def translator(self) -> Translator:
        """Return the translator of the interface's rules."""
        device = {name: self.values[name] for name in DEVICE_FACTS}
        return Translator(self.numbers, {**self._facts, **device}, self._defined)

    # -- what the entry admits

    def _translate(self, node: Node) -> Translation | None:
        """Return the translation of an entry's expression; None where this domain has no words for it."""
        rewritten = self.admitted.rewrite(node) if isinstance(self.admitted, Wide) else node
        if not {name.name for name in free_names(rewritten)} <= self.values.keys():
            return None
        try:
            return self._reader.translate(rewritten)
        except Unsupported:
            return None

    def condition(self, node: Node) -> Term:
        """Return whether a condition holds and is defined; True where there are no words for it."""
        found = self._translate(node)
        return True if found is None else self.terms.conjunction((self._reader.truth(found[0]), found[1]))

    def _rules(self) -> Iterator[Term]:
        for rule in self.admitted.entry.signature.rules:
            yield self.condition(rule.root)
        if self.admitted.use.uses.when is not None and not self.admitted.asking:
            yield self.condition(self.admitted.use.uses.when.root)

    def _present(self, item: Input) -> Term:
        return self.values[presence(item.name)].term if item.optional else True

    def _tensors(self) -> Iterator[Term]:
        """Yield that each tensor has 1 to 2**40 elements."""
        for item in self.admitted.entry.signature.inputs.values():
            for guard, listing in self._branches(item.shape):
                here = self.terms.conjunction((self._present(item), guard))
                if here is not False:
                    yield self.terms.implies(here, self._size(listing))

    def _branches(self, form: Form) -> Iterator[tuple[Term, Listing]]:
        if form.listing is not None:
            yield True, form.listing
        elif form.condition is not None and form.then is not None and form.otherwise is not None:
            if self._translate(form.condition.root) is None:
                return  # nobody knows which list applies: neither keeps a call out
            holds = self.condition(form.condition.root)
            for guard, branch in ((holds, form.then), (self.terms.negation(holds), form.otherwise)):
                for inner, listing in self._branches(branch):
                    yield self.terms.conjunction((guard, inner)), listing

    def _size(self, listing: Listing) -> Term:
        numbers, terms = self.numbers, self.terms
        found = [self._translate(node) for node in factors(listing)]
        sizes = [value.present() for value, _ in filter(None, found)]
        parts = [defined for _, defined in filter(None, found)]
        parts += [terms.at_most(1, value.term) for value in sizes]
        total = reduce(numbers.multiply, sizes, numbers.constant(1))
        return terms.conjunction((*parts, terms.at_most(total.term, MAX_DIM)))

    def _presences(self) -> Iterator[Term]:
        """Yield when an index that only optional inputs bind is None."""
        signature, terms = self.admitted.entry.signature, self.terms
        for name in signature.forall:
            value = self.values.get(name)
            if value is None or value.none is False:
                continue
            binds = [self._present(item) for item in signature.inputs.values() if _binds(item, name, every=True)]
            may = [self._present(item) for item in signature.inputs.values() if _binds(item, name, every=False)]
            yield terms.implies(terms.disjunction(binds), terms.negation(value.none))
            yield terms.implies(terms.negation(terms.disjunction(may)), value.none)

    def _products(self) -> Iterator[Term]:
        """Yield what ties the products of a wide domain to each other."""
        if not isinstance(self.admitted, Wide):
            return
        for run in self.admitted.runs:
            whole, length = self.values[f"prod {run}"].term, self.values[f"len {run}"].term
            yield self.terms.implies(self.terms.equal(length, 0), self.terms.equal(whole, 1))
            for name, value in self.values.items():
                if name.startswith(f"prod {run} "):
                    yield self.terms.at_most(value.term, whole)

    # -- the facts of the call spec

    def _fact(self, name: str, kind: Kind, source: Node | None) -> Translation:
        if source is None:
            return self.numbers.constant(kind.default), True
        found = self._translate(source)
        # No words for it: anything of its type, which only widens the domain.
        return (self._variable(f"fact {name}", kind.type), True) if found is None else found

    def _fits(self, kinds: Mapping[str, Kind]) -> Term:
        """Return whether the call spec takes the facts: each within its kind, the invariants met."""
        request, terms = self.admitted.use.uses.interface.request, self.terms
        parts: list[Term] = [*self._defined.values()]
        for name, kind in kinds.items():
            parts.append(self._within(self._facts[name], kind.type))
        for invariant in request.invariants:
            try:
                parts += self.translator.condition(invariant.root)
            except Unsupported:
                continue
        for name, expression in request.derived.items():
            try:
                value, defined = self.translator.translate(expression.root)
            except Unsupported:
                value, defined = self._variable(f"fact {name}", request.scope[name]), True
            self._facts[name] = value
            if defined is not True:
                self._defined[name] = defined
                parts.append(defined)
        return terms.conjunction(parts)

    def _within(self, value: Value, kind: Type) -> Term:
        terms = self.terms
        if kind.optional:
            inside = self._within(attrs.evolve(value, none=False), attrs.evolve(kind, optional=False))
            return terms.disjunction((value.none, inside)) if value.kind != "none" else True
        present = terms.negation(value.none)
        if kind.kind == "int":
            low, high = kind.low, kind.high
            inside = terms.conjunction(
                (
                    True if low is None else terms.at_most(low, value.term),
                    True if high is None else terms.at_most(value.term, high),
                )
            )
        elif kind.members:
            members = [self.numbers.codes.code(member) for member in kind.members]
            inside = terms.disjunction(terms.equal(value.term, code) for code in members)
        elif kind.kind == "tuple":
            item = Type("int", low=kind.low, high=kind.high)
            longest = 64 if kind.max_len is None else kind.max_len
            inside = terms.disjunction(
                terms.conjunction((guard, *(self._within(each, item) for each in items)))
                for guard, items in value.cases
                if kind.min_len <= len(items) <= longest
            )
        else:
            inside = True
        return terms.conjunction((present, inside))


def _binds(item: Input, name: str, *, every: bool) -> bool:
    if item.dtype_name == name:
        return True
    found = [
        any(part.name == name if every else name in part.facts for part in listing.items)
        for listing in item.shape.listings()
    ]
    return (all if every else any)(found)
