"""Composites: ops that run other ops. A target that has a builder for one serves it whole; else its parts run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import attrs
import torch

from tileops import backend, catalog
from tileops.coldcall import ColdCall, Prepared, call_of
from tileops.forced import named_kernel
from tileops.launch import Described
from tileops.manifest.composition import follow
from tileops.manifest.record import OpEntry
from tileops.manifest.signature import Binding
from tileops.memo import MemoKey
from tileops.op import Op
from tileops.plan import Plan
from tileops.rules.errors import DeclarationError, OpNotAvailableError
from tileops.tally import PARTS


@attrs.frozen
class Part:
    """Holds one step of a composite's instance: its op, and which values of the call go in.

    ``takes`` gives the place of each input among the call's values, None for one left out; a call's values are the
    composite's inputs, then what the steps made, in order. ``named`` are the op's keyword-only inputs.
    """

    op: Op
    takes: tuple[int | None, ...]
    named: Mapping[str, int]


class CompositeOp(Op, base=True):
    """An op that runs the steps of its entry's ``composition``, each an op of its own with the same ``target=``.

    A subclass is its entry: it declares nothing. A call is served whole where the target that serves its device has a
    builder for it; otherwise each part settles its target for itself.
    """

    def __init_subclass__(cls, entry: OpEntry | None = None, **kwargs: Any) -> None:
        """Put the class together.

        Raises:
            DeclarationError: the entry has no composition, or the class has kernels of its own.
        """
        super().__init_subclass__(entry=entry, **kwargs)
        if not cls.entry.composition:
            raise DeclarationError(f"{cls.__name__} is a CompositeOp, and its manifest entry has no composition")
        if cls.kernel_types or cls.interfaces or hasattr(cls, "forward"):
            raise DeclarationError(
                f"{cls.__name__} runs other ops: it has no kernels, interfaces or forward of its own"
            )

    def __init__(self, *args: Any, target: backend.Target | None = None, **kwargs: Any) -> None:
        """Check the params, and construct an op for each step."""
        super().__init__(*args, target=target, **kwargs)
        entry = type(self).entry
        values = entry.checker.readable(self._params)
        places = {name: place for place, name in enumerate(entry.signature.inputs)}
        parts = []
        for step in entry.composition:
            params = {name: value.evaluate(values) for name, value in step.params.items()}
            op = catalog.op_class(step.op)(**params, target=target)
            inputs = type(op).entry.signature.inputs
            taken = {name: places[value] for name, value in step.inputs.items()}
            parts.append(
                Part(
                    op,
                    tuple(taken.get(name) for name, item in inputs.items() if not item.keyword_only),
                    {name: taken[name] for name, item in inputs.items() if item.keyword_only and name in taken},
                )
            )
            for name in step.outputs:
                places[name] = len(places)
        self._parts = tuple(parts)
        items = enumerate(entry.signature.inputs.values())
        self._placed = tuple(place for place, item in items if item.device is None)
        self._results = tuple(places[name] for name in entry.signature.outputs)

    @property
    def parts(self) -> tuple[Op, ...]:
        """The ops of the steps, in order."""
        return tuple(part.op for part in self._parts)

    def compose(self, *tensors: torch.Tensor | None) -> Any:
        """Run the steps on the call's tensors and return the composite's outputs."""
        values: list[Any] = list(tensors)
        for part in self._parts:
            given = [None if place is None else values[place] for place in part.takes]
            made = part.op(*given, **{name: values[place] for name, place in part.named.items()})
            values.extend(made if isinstance(made, tuple) else () if made is None else (made,))
        results = tuple(values[place] for place in self._results)
        return None if not results else results[0] if len(results) == 1 else results

    def serves_whole(self, target: backend.Target) -> bool:
        """Say whether calls that ``target`` serves run as one kernel of it."""
        return isinstance(target, str) and backend.has_builder(type(self).__name__, target)

    def request_tune(self) -> None:
        """Put the instance and its parts into tuned mode."""
        super().request_tune()
        for part in self._parts:
            part.op.request_tune()

    def kernel_config(self) -> Mapping[str, Any]:
        """Return the ``config`` of the kernel that served the last call, or else of the first part that has one."""
        configs = (super().kernel_config(), *(part.op.kernel_config() for part in self._parts))
        return next((config for config in configs if config), {})

    def _cold_call(self, tensors: tuple[Any, ...]) -> ColdCall:
        return CompositeCall(self, tensors)

    def _call_watched(self, tensors: tuple[Any, ...]) -> Any:
        device = self._device_of(tensors)
        return super()._call_watched(tensors) if self._is_whole_on(device) else self.compose(*tensors)

    def _call_traced(self, *tensors: Any) -> Any:
        if self._is_whole_on(self._device_of(tensors)):
            return super()._call_traced(*tensors)
        return self.compose(*tensors)

    def _device_of(self, tensors: tuple[Any, ...]) -> torch.device:
        """Return the device of a call: that of the first tensor that is not declared to be on the CPU."""
        device: torch.device = next(tensors[place].device for place in self._placed if tensors[place] is not None)
        return device

    def _is_whole_on(self, device: torch.device) -> bool:
        """Say whether calls on ``device`` run as one kernel of a target."""
        settlement = self._settled.get(device) or backend.settle(type(self).__name__, device, self.target)
        return self.serves_whole(settlement.target)

    # Dynamo asks it while it traces, and takes the answer for a constant: the target stage is no code to trace.
    _is_whole_on._dynamo_marked_constant = True  # type: ignore[attr-defined]


class CompositeCall(ColdCall):
    """Serves one call of a composite that found no plan."""

    op: CompositeOp

    def __init__(self, op: CompositeOp, tensors: tuple[Any, ...]) -> None:
        """Take the tensors in the signature's order; remember the implementations that are named for the parts."""
        super().__init__(op, tensors)
        ops = dict.fromkeys(step.op for step in self.blueprint.entry.composition)
        named = [f"{name}: {key}" for name in ops if (key := named_kernel(name)) is not None]
        self.only = ", ".join(named) or None
        self._before: list[tuple[Op, _State]] | None = None

    def prepare(self, binding: Binding, settlement: backend.Settlement) -> Prepared:
        """Make the plan of the call: the target's kernel, or the parts."""
        if self.op.serves_whole(settlement.target):
            return super().prepare(binding, settlement)
        self._before = [(part, _State.of(part)) for part in self.op.parts]
        plan = self.plan(self.op.compose, None, binding, settlement.target, PARTS)
        return Prepared(plan, PARTS, lambda: settlement.text)

    def drop(self, prepared: Prepared) -> None:
        """Leave the parts as the failed call found them."""
        super().drop(prepared)
        for part, state in self._before or ():
            state.restore(part)

    def check_not_named(self, settlement: backend.Settlement) -> None:
        """Raise when ``use_kernel`` names an implementation of a part, and a target serves the composite whole."""
        if self.only is not None:
            raise OpNotAvailableError(
                f"use_kernel names an in-tree implementation ({self.only}), but a target serves {self.name} whole, "
                f"without that op ({settlement.text}); construct it with target=tileops.backend.BUILTIN",
                op=self.name,
                key=self.only,
                target=settlement.target,
            )

    def part_calls(self, binding: Binding) -> list[ColdCall]:
        """Return the calls that the parts would get, without running any."""
        entry = self.blueprint.entry
        values: dict[str, Any] = dict(zip(self.blueprint.inputs, self.tensors, strict=True))
        entries = {type(part).__name__: type(part).entry for part in self.op.parts}
        calls = []
        for part, step in zip(self.op.parts, follow(entry, binding, entries.__getitem__), strict=True):
            inputs = type(part).entry.signature.inputs
            given = tuple(values[step.step.inputs[name]] if name in step.step.inputs else None for name in inputs)
            calls.append(call_of(part, given))
            for name, made in zip(step.step.outputs, step.entry.checker.outputs(step.binding), strict=True):
                written = made.same_as and step.step.inputs[made.same_as]
                values[name] = (
                    values[written] if written else Described(binding.device, made.dtype, torch.Size(made.shape))
                )
        return calls


@attrs.frozen
class _State:
    """Holds what an op had settled, planned and built before a call."""

    settled: frozenset[torch.device]
    plans: frozenset[Hashable]
    kernels: frozenset[MemoKey]
    last: Plan | None
    parts: tuple[_State, ...]

    @classmethod
    def of(cls, op: Op) -> _State:
        inner = op.parts if isinstance(op, CompositeOp) else ()
        kernels = frozenset(key for key, _ in op._kernels.kernels())
        return cls(
            frozenset(op._settled), frozenset(op._plans), kernels, op._last, tuple(cls.of(part) for part in inner)
        )

    def restore(self, op: Op) -> None:
        with type(op).dispatcher.plans:
            for device in [device for device in op._settled if device not in self.settled]:
                del op._settled[device]
            for key in [key for key in op._plans if key not in self.plans]:
                del op._plans[key]
        op._kernels.retain(self.kernels)
        op._last = self.last
        inner: Sequence[Op] = op.parts if isinstance(op, CompositeOp) else ()
        for part, state in zip(inner, self.parts, strict=True):
            state.restore(part)
