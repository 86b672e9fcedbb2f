"""From a question to calls: facts of a call spec, shapes of tensors, or a workload row of the manifest."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

from tileops.backend import TensorSpec
from tileops.manifest.schema import Input
from tileops.manifest.signature import Binding
from tileops.manifest.workload import Case, bind
from tileops.rules.callspec import CallSpec
from tileops.rules.errors import DeclarationError, FactError, SignatureError, nearest
from tileops.tools import words
from tileops.tools.catalogue import Asked, Known
from tileops.tools.question import Place, call_of, device_options, dtype_of, param_of, shape_of
from tileops.tools.usage import UsageError


@attrs.frozen(kw_only=True)
class Posed:
    """One call to be explained.

    ``given`` is how it was described, for the heading; ``interface`` and ``call`` are None where the op asks no
    interface: it has none, or a tensor has no element, which ``empty`` says. ``binding`` is there where the call was
    described by its tensors.
    """

    given: Mapping[str, Any]
    interface: Asked | None = None
    call: CallSpec | None = None
    binding: Binding | None = None
    empty: bool = False

    def text(self) -> str:
        """Write the call for a heading: the facts of its call spec, or else its shapes, dtypes and params."""
        if self.call is not None:
            return self.call.text()
        return " ".join(words.fact(name, value) for name, value in self.given.items())


def from_facts(known: Known, interface: str | None, said: Sequence[str], where: Place) -> Posed:
    """Read the facts of a call spec; raises UsageError for an unknown, missing or wrong one."""
    if not known.interfaces:
        raise UsageError(f"{known.name} has no in-tree implementation, so no facts of its own: ask with --shapes")
    asked = known.interface(interface)
    call = call_of(asked.table.request, known.entry.signature.params, said, where)
    return Posed(given=call.facts(), interface=asked, call=call)


def from_shapes(known: Known, interface: str | None, given: Mapping[str, str], where: Place) -> Posed:
    """Read shapes, dtypes and params of a call of the op, and hold them against its signature."""
    signature = known.entry.signature
    dtype_indices = [name for name, index in signature.forall.items() if index.kind == "dtype"]
    valid = [*signature.inputs, *signature.params, *dtype_indices, "dtype"]
    faults = [
        f"{known.name} has no input or param {name!r}{nearest(name, valid)}; "
        f"inputs: {', '.join(signature.inputs)}; params: {', '.join(signature.params) or 'none'}; "
        f"dtypes: {', '.join(dtype_indices)}, or dtype for all of them"
        for name in given
        if name not in valid
    ]
    dtypes: dict[str, Any] = {}
    missing = [name for name, tensor in signature.inputs.items() if not tensor.optional and name not in given]
    for name in dtype_indices:
        text = given.get(name, given.get("dtype"))
        members = signature.forall[name].members
        if text is not None:
            dtypes[name] = _read(faults, dtype_of, name, text, members)
        elif len(members) == 1:
            dtypes[name] = members[0]
        else:
            missing.append(f"dtype ({' or '.join(words.value(member) for member in members) or 'any'})")
    if missing:
        faults.append(f"missing of {known.name}: {', '.join(dict.fromkeys(missing))}")
    given_params = {name: param for name, param in signature.params.items() if name in given}
    params = {name: _read(faults, param_of, param, given[name]) for name, param in given_params.items()}
    shapes = {name: _read(faults, shape_of, name, given[name]) for name in signature.inputs if name in given}
    UsageError.check(faults)
    tensors = {
        name: _tensor(tensor, shapes[name], dtypes, where) if name in given else None
        for name, tensor in signature.inputs.items()
    }
    try:
        binding = known.entry.checker.call(known.entry.checker.bind_params((), params), list(tensors.values()))
    except (SignatureError, TypeError) as error:
        raise UsageError(str(error)) from error
    return pose(known, interface, binding, where)


def _read(faults: list[str], read: Callable[..., Any], *words: Any) -> Any:
    """Return what ``read`` makes of some words; keep what it says of a mistake, and return None then."""
    try:
        return read(*words)
    except UsageError as error:
        faults.append(str(error))
        return None


def _tensor(tensor: Input, shape: tuple[int, ...], dtypes: Mapping[str, Any], where: Place) -> TensorSpec:
    device = torch.device("cpu") if tensor.device is not None else where.device
    return TensorSpec(device, tensor.dtype.evaluate(dtypes), shape)


def rows(known: Known) -> Iterator[Case]:
    """Yield every case of every workload row of an op."""
    yield from known.entry.cases()


def from_workload(known: Known, interface: str | None, label: str, where: Place) -> list[Posed]:
    """Return the calls of a workload row, or of one dtype case of it (``square-1k/bfloat16``)."""
    every = list(rows(known))
    chosen = [case for case in every if label in {case.label, case.label.rpartition("/")[0]}]
    if not chosen:
        labels = sorted({case.label for case in every} | {workload.label for workload in known.entry.workloads})
        listed = ", ".join(workload.label for workload in known.entry.workloads) or "none"
        raise UsageError(f"{known.name} has no workload {label!r}{nearest(label, labels)}; rows: {listed}")
    return [pose(known, interface, bind(known.entry.checker, case, where.device), where) for case in chosen]


def pose(known: Known, interface: str | None, binding: Binding, where: Place) -> Posed:
    """Return the call that a bound signature stands for: the interface it asks, and its call spec."""
    asked = [use for use in known.op.blueprint.uses if use.applies(binding.values)]
    if binding.empty or not asked:
        shapes = zip(known.entry.signature.inputs, binding.tensors, strict=True)
        given = {name: tensor.shape for name, tensor in shapes if tensor is not None}
        dtypes = {name: value for name, value in binding.indices.items() if isinstance(value, torch.dtype)}
        return Posed(given={**given, **dtypes, **binding.params}, binding=binding, empty=binding.empty)
    if len(asked) > 1:
        raise DeclarationError(
            f"{known.name}: this call asks {[use.name for use in asked]}, and must ask one interface"
        )
    use = asked[0]
    if interface is not None and known.interface(interface).name != use.name:
        raise UsageError(f"this call of {known.name} asks the interface {use.name!r}, not {interface!r}")
    facts = {name: read(binding.values) for name, read in use.facts.items()}
    try:
        call = use.uses.interface.request(device=where.device, stated=where.facts, **facts)
    except FactError as error:
        raise UsageError(str(error)) from error
    return Posed(given=call.facts(), interface=known.interfaces[use.name], call=call, binding=binding)


def command_of(op: str, interface: Asked, call: CallSpec) -> str:
    """Return the command line that asks about ``call`` again, with every device fact said."""
    options = device_options(call.device, call.device_facts)
    said = " ".join([shlex.quote(f"{name}={words.value(value)}") for name, value in call.facts().items()] + options)
    return f"python -m tools.explain {op} {said} --interface {interface.name} --target builtin"
