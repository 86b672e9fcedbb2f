"""The compiled signature of an op: binds params, unifies a call's tensors, infers its outputs and its work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import torch
from attrs import field, frozen

from tileops.manifest.language import presence
from tileops.manifest.paramtype import REFUSED, show_received, show_value
from tileops.manifest.schema import Input, Output, Param, Roofline, Signature, TensorShape
from tileops.manifest.scope import full_scope
from tileops.manifest.unify import Operand, Unification, elements, input_error
from tileops.rules.errors import RuleError, SignatureError, nearest
from tileops.rules.evaluate import EVALUATION_ERRORS
from tileops.rules.expr import Expression
from tileops.rules.types import Type

_CPU: Final = torch.device("cpu")


class TensorLike(Protocol):
    """What the checker reads of a tensor: a tensor, a fake one, or a description."""

    @property
    def device(self) -> torch.device:
        """The device it is on."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of its elements."""

    @property
    def shape(self) -> Sequence[int]:
        """Its dims."""


@frozen(eq=False)
class Binding:
    """What a call settles: its indices, params and presences, without its tensors."""

    op: str
    device: torch.device  # the device of the tensors that are not declared to be on the CPU
    indices: Mapping[str, Any]
    params: Mapping[str, Any]  # as passed
    present: Mapping[str, bool]  # of each input
    tensors: tuple[TensorShape | None, ...]
    values: Mapping[str, Any]  # everything that expressions read, by name
    empty: bool  # whether some tensor has no elements


@frozen
class OutputSpec:
    """What a call must return for one output."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    same_as: str | None
    empty: bool | int | float | None


@frozen(eq=False)
class Checker:
    """Checks calls of one op against its signature. Immutable, so threads share it."""

    op: str
    signature: Signature
    work: Roofline
    scope: Mapping[str, Type] = field(init=False)
    value_names: tuple[str, ...] = field(init=False)
    _inputs: tuple[Input, ...] = field(init=False)
    _floats: tuple[str, ...] = field(init=False)
    _param_rules: tuple[Expression, ...] = field(init=False)
    _call_rules: tuple[Expression, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        scope = full_scope(self.signature)
        rules = self.signature.rules
        params = self.signature.params.keys()
        settle = object.__setattr__
        settle(self, "scope", scope)
        settle(self, "value_names", tuple(scope))
        settle(self, "_floats", tuple(name for name in params if name in scope and scope[name].kind == "float"))
        settle(self, "_inputs", tuple(self.signature.inputs.values()))
        settle(self, "_param_rules", tuple(rule for rule in rules if params >= rule.facts))
        settle(self, "_call_rules", tuple(rule for rule in rules if not params >= rule.facts))

    def bind_params(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Check the constructor's arguments and return every param, lists copied, as passed.

        Raises TypeError for arguments that do not fit the params, SignatureError for a value that a param does not
        take or that breaks a rule over params.
        """
        params = self.signature.params
        given = self._place(args, kwargs, params, tuple(params), "param")
        bound = {}
        for name, param in params.items():
            if name not in given:
                if param.required:
                    raise TypeError(f"{self.op}: param {name} is missing: expected {param.type}")
                given[name] = param.default
            bound[name] = self._accept(param, given[name])
        values = self.readable(bound)
        self._check(self._param_rules, values, {})
        return bound

    def bind_inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Put a call's tensors in the signature's order, None for an optional one left out. Raises TypeError."""
        inputs = self.signature.inputs
        positional = tuple(name for name, tensor in inputs.items() if not tensor.keyword_only)
        given = self._place(args, kwargs, inputs, positional, "input")
        for name, tensor in inputs.items():
            if name not in given and not tensor.optional:
                raise TypeError(f"{self.op}: input {name} is missing: the inputs are {self._names(inputs)}")
        return tuple(given.get(name) for name in inputs)

    def readable(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the params as expressions read them: lists as tuples, and an int given for a float as a float."""
        values: dict[str, Any] = {
            name: tuple(value) if type(value) is list else value for name, value in params.items()
        }
        for name in self._floats:
            if type(values[name]) is int:
                values[name] = float(values[name])
        return values

    def writes(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        """Name the inputs that a call of an op with these params writes in place."""
        values: dict[str, Any] | None = None
        written = []
        for tensor in self._inputs:
            mutated = tensor.mutated
            if isinstance(mutated, Expression):
                values = self.readable(params) if values is None else values
                mutated = bool(mutated.evaluate(values))
            if mutated:
                written.append(tensor.name)
        return tuple(written)

    def call(self, params: Mapping[str, Any], tensors: Sequence[TensorLike | None]) -> Binding:
        """Unify the tensors of a call, in the signature's order, with the op's forms.

        ``params`` are those that ``bind_params`` returned. Raises SignatureError with the input's name, the expected
        form and the value received; RuleError for a rule or form of the signature that itself raises.
        """
        if len(tensors) != len(self._inputs):
            names = self._names(self.signature.inputs)
            raise TypeError(f"{self.op}: expected {len(self._inputs)} inputs ({names}), received {len(tensors)}")
        try:
            return self._call(params, tensors)
        except EVALUATION_ERRORS as error:
            raise self._fault("a shape or dtype", error) from error

    def _call(self, params: Mapping[str, Any], tensors: Sequence[TensorLike | None]) -> Binding:
        inputs = self._inputs
        values = self.readable(params)
        present = {}
        for tensor, came in zip(inputs, tensors, strict=True):
            present[tensor.name] = came is not None
            if tensor.optional:
                values[presence(tensor.name)] = came is not None
        operands: list[Operand] = []
        described: list[TensorShape | None] = []
        device, first, empty = None, "", False
        for tensor, came in zip(inputs, tensors, strict=True):
            listing = tensor.shape.choose(values)
            if came is None:
                if not tensor.optional:
                    raise input_error(self.op, tensor.name, f"a tensor of shape {listing.text}", "None")
                described.append(None)
                continue
            shape, dtype = _look(self.op, tensor, listing.text, came)
            if tensor.device is not None:
                if came.device.type != _CPU.type:
                    raise input_error(self.op, tensor.name, "device cpu", str(came.device))
            elif device is None:
                device, first = came.device, tensor.name
            elif came.device != device:
                raise input_error(self.op, tensor.name, f"device {device} (that of {first})", str(came.device))
            if elements(self.op, tensor.name, shape) == 0:
                empty = True
            described.append(TensorShape(dtype, shape))
            operands.append(Operand(tensor, dtype, shape, listing))
        unification = Unification(self.op, self.signature.forall, values)
        unification.dtypes(operands)
        unification.shapes(operands)
        indices = {name: values[name] for name in self.signature.forall if name in values}
        for name in self.signature.forall:
            values.setdefault(name, None)
        self._check(self._call_rules, values, unification.sources)
        return Binding(self.op, device or _CPU, indices, params, present, tuple(described), values, empty)

    def outputs(self, binding: Binding) -> tuple[OutputSpec, ...]:
        """Infer what a call returns. Raises SignatureError where a dim would be negative, RuleError."""
        try:
            return self._outputs(binding)
        except EVALUATION_ERRORS as error:
            raise self._fault("an output's shape or dtype", error) from error

    def _outputs(self, binding: Binding) -> tuple[OutputSpec, ...]:
        written: tuple[str, ...] | None = None
        specs = []
        for output in self.signature.outputs.values():
            same_as = output.same_as
            if same_as is not None:
                written = self.writes(binding.params) if written is None else written
                same_as = same_as if same_as in written else None
            dtype = output.dtype.evaluate(binding.values)
            specs.append(OutputSpec(output.name, dtype, self._shape(output, binding), same_as, output.empty))
        return tuple(specs)

    def roofline(self, binding: Binding) -> tuple[int, int]:
        """Compute the floating-point operations and the bytes of a call.

        Unless the entry states the bytes: each input is read once, each output and each written input written once.
        Raises RuleError for a roofline that itself raises.
        """
        try:
            return self._roofline(binding)
        except EVALUATION_ERRORS as error:
            raise self._fault("the roofline", error) from error

    def _roofline(self, binding: Binding) -> tuple[int, int]:
        flops = int(self.work.flops.evaluate(binding.values))
        if self.work.bytes is not None:
            return flops, int(self.work.bytes.evaluate(binding.values))
        moved = sum(_bytes(tensor) for tensor in binding.tensors if tensor is not None)
        sizes = zip(self._inputs, binding.tensors, strict=True)
        written = self.writes(binding.params)
        moved += sum(_bytes(size) for tensor, size in sizes if size is not None and tensor.name in written)
        fresh = (TensorShape(out.dtype, out.shape) for out in self.outputs(binding) if out.same_as is None)
        return flops, moved + sum(_bytes(size) for size in fresh)

    def _place(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        known: Mapping[str, Any],
        positional: tuple[str, ...],
        what: str,
    ) -> dict[str, Any]:
        if len(args) > len(positional):
            named = f" ({', '.join(positional)})" if positional else ""
            raise TypeError(f"{self.op}: takes {len(positional)} positional {what}s{named}, received {len(args)}")
        given = dict(zip(positional, args, strict=False))
        for name, value in kwargs.items():
            if name not in known:
                names = self._names(known) or "none"
                raise TypeError(f"{self.op}: has no {what} {name!r}{nearest(name, known)}; its {what}s are: {names}")
            if name in given:
                raise TypeError(f"{self.op}: {what} {name} is given twice, by position and by name")
            given[name] = value
        return given

    def _accept(self, param: Param, value: Any) -> Any:
        taken = param.type.accept(value)
        if taken is REFUSED:
            received = show_received(value)
            raise SignatureError(
                f"{self.op}: param {param.name}: expected {param.type}, received {received}",
                op=self.op,
                param=param.name,
                expected=str(param.type),
                received=received,
            )
        return taken

    def _check(self, rules: tuple[Expression, ...], values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        for rule in rules:
            try:
                if rule.evaluate(values):
                    continue
            except EVALUATION_ERRORS as error:
                facts = _facts(rule, values, sources)
                raise RuleError(
                    f"{self.op}: the signature's rule {rule.text!r} raised "
                    f"{type(error).__name__}: {error}, with {facts}; it needs a rule before it that excludes this call",
                    op=self.op,
                    rule=rule.text,
                ) from error
            received = _facts(rule, values, sources)
            raise SignatureError(
                f"{self.op}: expected {rule.text}, received {received}",
                op=self.op,
                expected=rule.text,
                received=received,
            )

    def _fault(self, what: str, error: Exception) -> RuleError:
        return RuleError(
            f"{self.op}: {what} of the signature raised {type(error).__name__}: {error}; "
            f"it needs a rule over params that excludes this call",
            op=self.op,
        )

    def _shape(self, output: Output, binding: Binding) -> tuple[int, ...]:
        listing = output.shape.choose(binding.values)
        shape = listing.value(binding.values)
        if any(dim < 0 for dim in shape):
            received = f"a call that makes it {shape}"
            raise SignatureError(
                f"{self.op}: output {output.name}: expected shape {listing.text} of dims of 0 and more, "
                f"received {received}",
                op=self.op,
                output=output.name,
                expected=listing.text,
                received=received,
            )
        return shape

    @staticmethod
    def _names(known: Mapping[str, Any]) -> str:
        return ", ".join(known)


def _look(op: str, tensor: Input, form: str, came: TensorLike) -> tuple[tuple[int, ...], torch.dtype]:
    """Read a tensor's shape and dtype. Raises SignatureError for what is no tensor."""
    dtype = getattr(came, "dtype", None)
    if not isinstance(dtype, torch.dtype) or not hasattr(came, "shape"):
        raise input_error(op, tensor.name, f"a tensor of shape {form}", show_received(came))
    return tuple(came.shape), dtype


def _facts(rule: Expression, values: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """Write the values that a rule read, and where they are from: ``C = 6 from x, num_groups = 4``."""
    shown = []
    for name in sorted(rule.facts):
        source = f" from {sources[name]}" if name in sources else ""
        shown.append(f"{name} = {show_value(values[name])}{source}")
    return ", ".join(shown) or "nothing"


def _bytes(tensor: TensorShape) -> int:
    return math.prod(tensor.shape) * tensor.dtype.itemsize
