"""Compositions: an op that runs other ops. Follows a call through its steps without running anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import frozen

from tileops.manifest.record import OpEntry
from tileops.manifest.schema import Step, TensorShape
from tileops.manifest.signature import Binding
from tileops.manifest.workload import Described
from tileops.rules.errors import BackendError, DeclarationError, nearest


@frozen
class StepCall:
    """What one step of a composition calls: the sub-op's entry, its params and what its call settles."""

    step: Step
    entry: OpEntry
    params: Mapping[str, Any]
    binding: Binding


def follow(entry: OpEntry, binding: Binding, find: Callable[[str], OpEntry]) -> tuple[StepCall, ...]:
    """List the calls that a call of a composite makes, in order.

    ``find`` gives the entry of a sub-op. Raises DeclarationError where a step is no call of its op, or where an
    output is not what the composite's signature says.
    """
    inputs = entry.signature.inputs
    values: dict[str, TensorShape | None] = dict(zip(inputs, binding.tensors, strict=True))
    calls = []
    for at, step in enumerate(entry.composition):
        made = _call(f"{entry.name}: composition[{at}]", step, find(step.op), binding, values)
        for name, output in zip(step.outputs, made.entry.checker.outputs(made.binding), strict=True):
            values[name] = TensorShape(output.dtype, output.shape)
        calls.append(made)
    for output in entry.checker.outputs(binding) if entry.composition else ():
        if values[output.name] != (output.dtype, output.shape):
            raise DeclarationError(
                f"{entry.name}: output {output.name}: expected {TensorShape(output.dtype, output.shape)}, "
                f"its steps make {values[output.name]}",
                op=entry.name,
            )
    return tuple(calls)


def _call(where: str, step: Step, sub: OpEntry, binding: Binding, values: Mapping[str, TensorShape | None]) -> StepCall:
    known = sub.signature.inputs
    for name in step.inputs:
        if name not in known:
            raise DeclarationError(f"{where}: {sub.name} has no input {name!r}{nearest(name, known)}", op=sub.name)
    if len(step.outputs) != len(sub.signature.outputs):
        made = ", ".join(sub.signature.outputs)
        raise DeclarationError(
            f"{where}: {sub.name} returns {len(sub.signature.outputs)} outputs ({made}), {len(step.outputs)} are named",
            op=sub.name,
        )
    given = {name: value.evaluate(binding.values) for name, value in step.params.items()}
    tensors = []
    for name, tensor in known.items():
        size = values[step.inputs[name]] if name in step.inputs else None
        device = binding.device if tensor.device is None else torch.device("cpu")
        tensors.append(None if size is None else Described(device, size.dtype, size.shape))
    try:
        params = sub.checker.bind_params((), given)
        return StepCall(step, sub, params, sub.checker.call(params, tensors))
    except (BackendError, TypeError) as error:
        raise DeclarationError(f"{where} is no call of {sub.name}: {error}", op=sub.name) from error
