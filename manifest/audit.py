"""Checks of an entry as a whole: types of its expressions, and that a call settles every index they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import frozen

from tileops.manifest.form import Form
from tileops.manifest.schema import Input, Roofline, Signature, Step
from tileops.manifest.scope import bound_indices, full_scope, param_scope, presence_scope
from tileops.rules.errors import ExpressionError, nearest
from tileops.rules.expr import Expression
from tileops.rules.types import KindName, Type

Complain = Callable[[str, str], object]  # field path under the entry, cause


@frozen
class Audit:
    """Audits one entry. ``broken`` are names whose declaration was reported already: what reads them is let be.

    ``rules_at`` and ``steps_at`` say where in the file's lists each rule and step stands: broken ones are left out.
    """

    signature: Signature
    broken: frozenset[str]
    complain: Complain
    rules_at: Sequence[int]
    steps_at: Sequence[int]

    def run(self, work: Roofline | None, steps: Sequence[Step]) -> None:
        """Report everything wrong with the entry."""
        signature = self.signature
        decided = {**param_scope(signature), **presence_scope(signature)}
        inside = {**{name: index.static() for name, index in signature.forall.items()}, **decided}
        for name, tensor in signature.inputs.items():
            path = f"signature.inputs.{name}"
            self._shape(f"{path}.shape", tensor.shape, inside, decided)
            self._typed(f"{path}.dtype", tensor.dtype, "dtype", inside)
            if isinstance(tensor.mutated, Expression):
                self._typed(f"{path}.mutated", tensor.mutated, "bool", param_scope(signature))
        if not self.broken:
            self._bound()
        scope = full_scope(signature)
        for name, output in signature.outputs.items():
            path = f"signature.outputs.{name}"
            if output.same_as is not None:
                continue  # its dtype and shape are those of an input, audited above
            self._shape(f"{path}.shape", output.shape, scope, decided)
            self._typed(f"{path}.dtype", output.dtype, "dtype", scope)
        for at, rule in zip(self.rules_at, signature.rules, strict=True):
            self._typed(f"signature.rules[{at}]", rule, "bool", scope)
        if work is not None:
            self._typed("roofline.flops", work.flops, "int", scope)
            if work.bytes is not None:
                self._typed("roofline.bytes", work.bytes, "int", scope)
        for at, step in zip(self.steps_at, steps, strict=True):
            for name, value in step.params.items():
                self._read(f"composition[{at}].params.{name}", value, param_scope(signature))

    def _shape(self, path: str, form: Form, scope: Mapping[str, Type], decided: Mapping[str, Type]) -> None:
        for condition in form.conditions():
            late = sorted(condition.facts & self.signature.forall.keys())
            if late:
                cause = f"a condition reads params and present(...) only, and {late[0]} is an index of the call"
                self.complain(path, f"{cause}, in {condition.text!r}")
            else:
                self._typed(path, condition, "bool", decided)
        for listing in form.listings():
            for item in listing.items:
                self._typed(path, item.expression, "tuple" if item.starred else "int", scope)

    def _typed(self, path: str, expression: Expression, kind: KindName, scope: Mapping[str, Type]) -> None:
        if not self._read(path, expression, scope):
            return
        try:
            expression.require(kind, scope)
        except ExpressionError as error:
            self.complain(path, cause_of(error))

    def _read(self, path: str, expression: Expression, scope: Mapping[str, Type]) -> bool:
        """Say whether all names are known and can be read, after reporting those that are not."""
        if expression.facts & self.broken:
            return False
        for name in sorted(expression.facts - scope.keys()):
            param = self.signature.params.get(name)
            if param is not None and param.type.static is None:
                self.complain(path, f"no expression can read the param {name} of type {param.type}")
            elif name in self.signature.params or name in self.signature.forall:
                self.complain(path, f"{name} cannot be read here: only {_names(scope)} can")
            else:
                self.complain(path, f"unknown name {name!r}{nearest(name, scope)}, in {expression.text!r}")
        return expression.facts <= scope.keys()

    def _bound(self) -> None:
        """Report indices that no input binds, and dims that a call could leave open."""
        signature = self.signature
        known = signature.params.keys() | presence_scope(signature).keys()
        ever = bound_indices(signature, optional=True)
        for name in signature.forall:
            if name not in ever:
                self.complain(f"signature.forall.{name}", "no input binds it: name it in some input's dtype or shape")
        always = bound_indices(signature, optional=False)
        for name, tensor in signature.inputs.items():
            settled = known | (ever if tensor.optional else always)
            for fact in sorted(_reads(tensor)):
                if fact in ever and fact not in settled:
                    cause = f"it reads {fact}, which only optional inputs bind"
                    self.complain(f"signature.inputs.{name}.shape", cause)


def cause_of(error: ExpressionError) -> str:
    """Write an expression's error on one line."""
    fields = error.fields
    if "cause" not in fields:
        return str(error).splitlines()[0]
    return f"{fields['cause']}, at column {fields['column'] + 1} of {fields['text']!r}"


def _reads(tensor: Input) -> set[str]:
    return {fact for listing in tensor.shape.listings() for item in listing.items for fact in item.facts}


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
