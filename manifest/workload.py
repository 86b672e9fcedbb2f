"""Cases of workload rows: the dtypes and shapes of each input, and the params, that a row stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from attrs import frozen

from tileops.manifest.language import presence
from tileops.manifest.paramtype import show_value
from tileops.manifest.schema import TensorShape, Workload
from tileops.manifest.signature import Binding, Checker


class Case(NamedTuple):
    """One call that a workload row stands for."""

    label: str  # the row's label and its dtypes: "square-1k/float16"
    case: Mapping[str, torch.dtype]  # the row's dtype indices
    inputs: Mapping[str, TensorShape | None]  # in call order; None for an optional input left out
    params: Mapping[str, Any]


@frozen
class Described:
    """A tensor's description, as the checker reads it."""

    device: torch.device
    dtype: torch.dtype
    shape: tuple[int, ...]


def cases(checker: Checker, workload: Workload) -> Iterator[Case]:
    """Yield the cases of a row. Raises SignatureError or TypeError for a row that the signature refuses."""
    signature = checker.signature
    given = {name: value for name, value in workload.values.items() if name in signature.params}
    params = checker.bind_params((), given)
    for dtypes in workload.dtypes:
        values = _values(checker, workload, params, dtypes)
        inputs: dict[str, TensorShape | None] = {}
        for name, tensor in signature.inputs.items():
            if name in workload.without:
                inputs[name] = None
                continue
            shape = tensor.shape.choose(values).value(values)
            inputs[name] = TensorShape(tensor.dtype.evaluate(values), shape)
        names = "-".join(show_value(dtype) for dtype in dtypes.values())
        yield Case(f"{workload.label}/{names}" if names else workload.label, dtypes, inputs, params)


def bind(checker: Checker, case: Case, device: torch.device | str = "cpu") -> Binding:
    """Check a case as the call it stands for, on a device, without any tensor. Raises SignatureError."""
    where = torch.device(device)
    cpu = torch.device("cpu")
    tensors = []
    for name, size in case.inputs.items():
        on = cpu if checker.signature.inputs[name].device is not None else where
        tensors.append(None if size is None else Described(on, size.dtype, size.shape))
    return checker.call(case.params, tensors)


def _values(
    checker: Checker, workload: Workload, params: Mapping[str, Any], dtypes: Mapping[str, torch.dtype]
) -> dict[str, Any]:
    values = {**workload.values, **checker.readable(params), **dtypes}
    for name, tensor in checker.signature.inputs.items():
        if tensor.optional:
            values[presence(name)] = name not in workload.without
    return values
