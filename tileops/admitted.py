"""The calls that a manifest entry admits through one use: the names and types of their values, and calls of values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import attrs
import torch

from tileops.manifest.paramtype import REFUSED
from tileops.manifest.record import OpEntry
from tileops.manifest.schema import MAX_DIM, Input, Param, TensorShape
from tileops.manifest.scope import full_scope
from tileops.manifest.signature import Binding
from tileops.manifest.workload import Described
from tileops.rules.callspec import CallSpec
from tileops.rules.device import DeviceFacts
from tileops.rules.domain import DEVICE_FACTS, Unstatable
from tileops.rules.errors import BackendError, FactError
from tileops.rules.evaluate import EVALUATION_ERRORS
from tileops.rules.nodes import Name
from tileops.rules.types import Type
from tileops.uses import LinkedUse

DEVICE_TYPES: Final = {name: CallSpec.scope[name] for name in DEVICE_FACTS}


@attrs.frozen(eq=False)
class OpCall:
    """Is one call of an op: its tensors without data, its params, the device that it asks about.

    ``spec`` is the call spec that the op makes of it; None where it makes none, and ``unfit`` says why.
    """

    op: str
    values: Mapping[str, Any]
    device: torch.device
    stated: DeviceFacts
    tensors: Mapping[str, TensorShape | None]
    params: Mapping[str, Any]
    binding: Binding
    spec: CallSpec | None
    unfit: str | None

    def __getattr__(self, name: str) -> Any:
        """Return the value of an index, a param or ``present(x)``."""
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def meta(self) -> dict[str, torch.Tensor | None]:
        """Return the call's tensors on the meta device, by input."""
        return {
            name: None if size is None else torch.empty(size.shape, dtype=size.dtype, device="meta")
            for name, size in self.tensors.items()
        }


@attrs.frozen(eq=False, slots=False)
class Admitted:
    """Stands where a call spec class stands in a proof: for the calls of an op that ask one interface.

    ``longest`` bounds the runs of dims. The facts are indices, params and presences. With ``asking`` they are all calls
    of the op, whichever interface they ask.
    """

    entry: OpEntry
    use: LinkedUse
    longest: int
    derived: Mapping[str, Any] = attrs.field(factory=dict)
    invariants: tuple[Any, ...] = ()
    asking: tuple[LinkedUse, ...] = ()

    @property
    def __name__(self) -> str:
        """The name that messages give the domain."""
        return self.entry.name

    @cached_property
    def kinds(self) -> dict[str, Type]:
        """Return the type of everything that a call states."""
        return self.exact

    @cached_property
    def exact(self) -> dict[str, Type]:
        """Return the type of each index, param and presence, dims of tensors being at least 1."""
        signature = self.entry.signature
        types = full_scope(signature)
        dims, runs = dims_and_runs(self.entry)
        for name in dims:
            types[name] = attrs.evolve(types[name], low=1, high=MAX_DIM)
        for name, kind in types.items():
            if kind.kind == "tuple":
                low, high = (1, MAX_DIM) if name in runs else (kind.low, kind.high)
                longest = max(kind.min_len, min(self.longest, kind.max_len or self.longest))
                types[name] = attrs.evolve(kind, low=low, high=high, max_len=longest)
        return types

    @property
    def scope(self) -> dict[str, Type]:
        """Return the types of everything that a proof reads, device facts too."""
        return {**self.kinds, **DEVICE_TYPES}

    def __call__(self, *, device: torch.device, stated: DeviceFacts, **values: Any) -> OpCall:
        """Make the call of these values; raises Unstatable where the entry does not admit it, or the use asks not."""
        checker, signature = self.entry.checker, self.entry.signature
        given = {name: _as_param(item, values[name]) for name, item in signature.params.items() if name in values}
        try:
            params = checker.bind_params((), given)
            readable = {**values, **checker.readable(params)}
            tensors = {name: _size(item, readable) for name, item in signature.inputs.items()}
            placed = [
                None if size is None else Described(_place(signature.inputs[name], device), size.dtype, size.shape)
                for name, size in tensors.items()
            ]
            binding = checker.call(params, placed)
            if binding.empty:
                raise Unstatable("a tensor has no element")
            if not self.asking and not self.use.applies(binding.values):
                raise Unstatable(f"the call does not ask {self.use.name}")
        except (BackendError, TypeError, *EVALUATION_ERRORS) as error:
            raise Unstatable(str(error)) from error
        spec, unfit = None, None
        try:
            facts = {fact: read(binding.values) for fact, read in self.use.facts.items()}
            spec = self.use.uses.interface.request(device=device, stated=stated, **facts)
        except (FactError, BackendError, *EVALUATION_ERRORS) as error:
            unfit = f"{type(error).__name__}: {error}"
        return OpCall(self.entry.name, values, device, stated, tensors, params, binding, spec, unfit)


def dims_and_runs(entry: OpEntry) -> tuple[frozenset[str], frozenset[str]]:
    """Name the indices and params that are a dim, or a run of dims, of a tensor that every call has."""
    dims: set[str] = set()
    runs: set[str] = set()
    for item in entry.signature.inputs.values():
        if item.optional:
            continue
        listings = list(item.shape.listings())
        dims |= set.intersection(*({_named(part) for part in each.items if not part.starred} for each in listings))
        runs |= set.intersection(*({_named(part) for part in each.items if part.starred} for each in listings))
    scope = full_scope(entry.signature)
    certain = {name for name, kind in scope.items() if not kind.optional}
    return frozenset(dims & certain), frozenset(runs & certain)


def _as_param(param: Param, value: Any) -> Any:
    """Return a tuple as the list that a param takes, if it takes no tuple."""
    return list(value) if isinstance(value, tuple) and param.type.accept(value) is REFUSED else value


def _named(item: Any) -> str:
    root = item.expression.root
    return root.name if isinstance(root, Name) else ""


def _size(item: Input, values: Mapping[str, Any]) -> TensorShape | None:
    if item.optional and not values[f"present({item.name})"]:
        return None
    return TensorShape(item.dtype.evaluate(values), item.shape.choose(values).value(values))


def _place(item: Input, device: torch.device) -> torch.device:
    return device if item.device is None else torch.device("cpu")
