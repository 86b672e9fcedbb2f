"""Uses: which kernel interface an op asks, when, and where each fact of its call spec comes from. Data, not code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import torch

from tileops.manifest.language import expression
from tileops.rules.callspec import CallSpec
from tileops.rules.errors import DeclarationError, ExpressionError, nearest
from tileops.rules.expr import Expression
from tileops.rules.facts import MISSING
from tileops.rules.interface import KernelInterface, is_interface
from tileops.rules.types import Type


def _expressions(facts: Mapping[str, str]) -> Mapping[str, Expression]:
    return MappingProxyType({name: expression(text) for name, text in facts.items()})


def _condition(text: str | None) -> Expression | None:
    return None if text is None else expression(text)


@attrs.frozen
class Uses:
    """Says that an op asks ``interface`` for the calls on which ``when`` holds, and how it fills the call spec.

    ``Uses(BatchNormTrain, when="training", facts={"channels": "C", "spatial": "prod(S)"})``. The expressions read the
    manifest signature's indices, the op's params and ``present(x)``. A fact of the same name needs no line.

    Raises:
        ExpressionError: a text does not parse.
    """

    interface: type[KernelInterface]
    when: Expression | None = attrs.field(default=None, converter=_condition)
    facts: Mapping[str, Expression] = attrs.field(factory=dict, converter=_expressions)

    def link(self, name: str, scope: Mapping[str, Type]) -> LinkedUse:
        """Check the expressions against ``scope`` and compile them.

        Raises:
            DeclarationError: lists everything wrong: a name that is not in scope, a fact that nothing fills, a type
                that the fact does not take.
        """
        if not is_interface(self.interface) or not hasattr(self.interface, "request"):
            raise DeclarationError(
                f"{self.interface!r} is no kernel interface: a direct subclass of KernelInterface with a request"
            )
        problems: list[str] = []
        if self.when is not None:
            kind = _type(self.when, scope, "when", problems)
            if kind is not None and kind.kind != "bool":
                problems.append(f"when={self.when.text!r} is {kind}, not a bool")
        kinds = self.interface.request.kinds
        for fact in self.facts:
            if fact not in kinds:
                problems.append(f"facts: {self.interface.request.__name__} has no fact {fact!r}{nearest(fact, kinds)}")
        sources: dict[str, Expression] = {}
        for fact, kind_of_fact in kinds.items():
            source = self.facts.get(fact)
            if source is None and fact in scope:
                source = expression(fact)
            if source is None:
                if kind_of_fact.default is MISSING:
                    problems.append(
                        f"nothing fills the fact {fact!r}: add facts={{{fact!r}: ...}}, an expression over "
                        f"{', '.join(sorted(scope))}"
                    )
                continue
            given = _type(source, scope, f"facts[{fact!r}]", problems)
            if given is not None and not _fits(given, kind_of_fact.type):
                problems.append(f"fact {fact!r} takes {kind_of_fact.type}, but {source.text!r} is {given}")
            sources[fact] = source
        if problems:
            raise DeclarationError("; ".join(problems), problems=tuple(problems))
        facts = {fact: _compile(text) for fact, text in sources.items()}
        return LinkedUse(name, self, _compile(self.when), facts, sources)


Read = Callable[[Mapping[str, Any]], Any]


@attrs.frozen
class LinkedUse:
    """Holds a use with its expressions compiled: functions of the values of one call.

    ``sources`` are the expressions of ``facts``, those of the same name included, for the prover.
    """

    name: str
    uses: Uses
    when: Read | None
    facts: Mapping[str, Read]
    sources: Mapping[str, Expression]

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Say whether a call with these values asks this interface."""
        return self.when is None or bool(self.when(values))

    def call_spec(self, device: torch.device, values: Mapping[str, Any]) -> CallSpec:
        """Make the call spec of a call with these values.

        Raises:
            FactError: a value that the fact does not take, or an invariant that does not hold.
        """
        return self.uses.interface.request(device=device, **{fact: read(values) for fact, read in self.facts.items()})


def _compile(text: Expression | None) -> Any:
    if text is None:
        return None
    names = tuple(sorted(text.facts))
    function = text.compile(names)
    return lambda values: function(*[values[name] for name in names])


def _type(text: Expression, scope: Mapping[str, Type], where: str, problems: list[str]) -> Type | None:
    try:
        return text.type_in(scope)
    except ExpressionError as error:
        problems.append(f"{where}={text.text!r}: {error}")
        return None


def _fits(given: Type, taken: Type) -> bool:
    """Say whether values of one type may be values of the other, bounds and choices left to the call."""
    if given.kind == "none":
        return taken.optional
    return given.kind == taken.kind or (taken.kind == "float" and given.kind == "int")
