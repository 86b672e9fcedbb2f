"""Building ahead of calls: ``op.warm`` on descriptions of tensors, which need no data and no launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import torch

from tileops import backend, capture, decisions
from tileops.coldcall import ColdCall, call_of, outside_modes
from tileops.composite import CompositeCall
from tileops.launch import Described
from tileops.rules.errors import SignatureError
from tileops.rules.placement import settle_device

if TYPE_CHECKING:
    from tileops.op import Op


@attrs.frozen
class Warmed:
    """Says what ``warm`` made ready for one call of an op.

    Attributes:
        op: the op's name.
        implementation: what serves the call, as ``tileops.stats()`` names it.
        asked: the call in words.
        built: whether it was built now; False where it was there already, or where there is nothing to build.
    """

    op: str
    implementation: str
    asked: str
    built: bool

    def __str__(self) -> str:
        """Write it in one line."""
        return f"{self.op}: {self.implementation} {'built' if self.built else 'ready'} for {self.asked}"


def warm(op: Op, specs: Sequence[Any], named: dict[str, Any]) -> tuple[Warmed, ...]:
    """Build what a call of ``op`` with tensors like ``specs`` needs; see ``Op.warm``."""
    name = type(op).__name__
    given = type(op).entry.checker.bind_inputs(tuple(specs), named)
    inputs = type(op).blueprint.inputs
    tensors = tuple(_described(name, *pair) for pair in zip(inputs, given, strict=True))
    for tensor in tensors:
        if tensor is not None and capture.is_capturing(tensor.device):
            raise capture.busy_error(name, "warm()")
    return tuple(_warm(call_of(op, tensors)))


def _warm(call: ColdCall) -> list[Warmed]:
    op, dispatcher = call.op, call.blueprint.dispatcher
    before = (dispatcher.generation, op._tuned)
    binding = call.bind()
    settlement = call.settle(binding.device)
    asked = call.text()
    if isinstance(call, CompositeCall) and not call.op.serves_whole(settlement.target):
        done = [made for part in call.part_calls(binding) for made in _warm(part)]
        with dispatcher.plans:
            op._settled.setdefault(binding.device, settlement)
        return done
    with outside_modes():
        prepared = call.prepare(binding, settlement)
    call.keep(prepared, ran=False)
    if prepared.first is not None:
        prepared.plan.run = _first(prepared.plan, prepared.first)
    if op._tuned:
        # No plan: a kernel may put its tuning off to the first launch, and that call has to come before a capture.
        with dispatcher.plans:
            op._settled.setdefault(binding.device, settlement)
    else:
        call.keep_plan(prepared, call.key(), settlement, before)
    decisions.tell(prepared.plan.facts, prepared.served_by, prepared.why)
    return [Warmed(call.name, prepared.served_by, asked, prepared.built)]


def _first(plan: Any, first: Any) -> Any:
    """Return what a plan runs until a call has succeeded: its result is checked."""
    later = plan.run

    def run(*tensors: Any) -> Any:
        result = first(*tensors)
        plan.run = later
        return result

    return run


def _described(op: str, name: str, spec: Any) -> Described | None:
    if spec is None:
        return None
    if not isinstance(spec, backend.TensorSpec):
        raise SignatureError(
            f"{op}: warm takes a tileops.backend.TensorSpec(device, dtype, shape) for each input, or None for one "
            f"that calls leave out; got {type(spec).__name__} for {name!r}",
            op=op,
            input=name,
        )
    return Described(settle_device(spec.device), spec.dtype, torch.Size(spec.shape))
