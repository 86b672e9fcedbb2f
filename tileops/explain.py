"""explain: who would serve a call and why, without running it."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs
import torch

from tileops import backend
from tileops.coldcall import ColdCall, call_of
from tileops.composite import CompositeCall
from tileops.operator import is_special
from tileops.rules.callspec import CallSpec
from tileops.rules.errors import BackendError, SignatureError
from tileops.rules.interface import KernelInterface
from tileops.rules.trace import Row, Trace, layout, plain_value

if TYPE_CHECKING:
    from tileops.op import Op


@attrs.frozen(kw_only=True)
class OpTrace:
    """Explains one call of an op: the target stage, then selection among the in-tree implementations.

    Attributes:
        op: the op's name.
        device: the call's device.
        asked: the call in words.
        settlement: who serves the call, a target or the in-tree kernels, and why.
        trace: the selection; None where a target serves the call, or where nothing is left to select.
        identity: the build identity of the entry that would run.
        copies: what is copied before the launch, and why.
        remark: why there is no selection to explain.
        error: why a target that is asked does not serve the call.
        parts: the explanations of a composite's parts, where it is not served whole.
        device_text: the device in words, where more is known of it than its name.
    """

    op: str
    device: torch.device
    asked: str
    settlement: backend.Settlement
    trace: Trace | None = None
    identity: Hashable = None
    copies: tuple[str, ...] = ()
    remark: str | None = None
    error: BackendError | None = None
    parts: tuple[OpTrace, ...] = ()
    device_text: str | None = None

    @property
    def winner(self) -> str | None:
        """The key of the in-tree implementation that would run, or None."""
        return None if self.trace is None else self.trace.winner

    @property
    def served(self) -> bool:
        """Say whether the call would be served."""
        chosen = self.trace is None or self.trace.winner is not None
        return self.error is None and chosen and all(part.served for part in self.parts)

    def text(self, *, rules: bool = False) -> str:
        """Return the explanation for people, a line a fact; with ``rules`` each reason shows its rule and values."""
        before = [Row("target", [self.settlement.text])]
        after = [Row("copies", self.copies)] if self.copies else []
        if self.trace is None:
            why = str(self.error) if self.error is not None else self.remark
            word = "parts" if self.parts else "serves" if self.served else "refused"
            rows = [*before, *([Row(word, [why])] if why else []), *after]
            parts = [line for part in self.parts for line in ("", part.text(rules=rules))]
            return "\n".join([f"{self.op}  {self.asked}   {self.device_text or self.device}", *layout(rows), *parts])
        if self.trace.winner is not None:
            after.insert(0, Row("entry", [f"{self.trace.winner}, {show_identity(self.identity)}"]))
        return self.trace.text(f"{self.op}.{self.trace.table.name}", before=before, after=after, rules=rules)

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        selection: dict[str, Any] = {
            "interface": None,
            "call": None,
            "device": {"device": str(self.device), "kind": self.device.type},
            "implementations": [],
            "winner": None,
        }
        if self.trace is not None:
            selection = self.trace.to_plain()
        target = self.settlement.target
        return {
            "op": self.op,
            **selection,
            "target": {
                "name": None if target is backend.BUILTIN else target,
                "origin": self.settlement.origin,
                "text": self.settlement.text,
            },
            "served": self.served,
            "entry": None if self.winner is None else plain_identity(self.identity),
            "copies": list(self.copies),
            "remark": str(self.error) if self.error is not None else self.remark,
            "parts": [part.to_plain() for part in self.parts],
        }

    def __str__(self) -> str:
        """Return the text."""
        return self.text()


def explain(op: Op, *tensors: torch.Tensor | None, **named: torch.Tensor | None) -> OpTrace:
    """Say who would serve ``op(*tensors, **named)`` and why. Builds and runs nothing, and settles nothing.

    Raises:
        SignatureError: the call does not conform to the manifest's signature.
        UnknownTargetError, AmbiguousTargetError: the target stage has no answer.
    """
    given = type(op).entry.checker.bind_inputs(tensors, named)
    call = call_of(op, given)
    call.check()
    if any(is_special(tensor) for tensor in given if tensor is not None):
        raise SignatureError(
            f"{call.name}: explain reads where tensors lie in memory, so it takes plain ones: pass "
            "torch.empty(shape, dtype=..., device=...) in place of a subclass, a fake tensor or a traced one",
            op=call.name,
        )
    return _explained(call)


def _explained(call: ColdCall) -> OpTrace:
    op, binding = call.op, call.bind()
    settlement = call.settle(binding.device)
    about: dict[str, Any] = {
        "op": call.name,
        "device": binding.device,
        "asked": describe(call),
        "settlement": settlement,
    }
    if isinstance(call, CompositeCall) and not call.op.serves_whole(settlement.target):
        parts = tuple(_explained(part) for part in call.part_calls(binding))
        return OpTrace(**about, remark="a composite: its parts run, each on a target that it settles", parts=parts)
    if settlement.target is not backend.BUILTIN:
        return OpTrace(**about, **_on_target(call, settlement))
    copies = tuple(copy.why for copy in call.copies(aligned=True) if copy.why is not None)
    try:
        if not call.implementations() or binding.empty:
            call.check_available(binding.device)
            return OpTrace(**about, remark="in-tree: an input has no element, so that nothing runs")
    except BackendError as error:
        return OpTrace(**about, error=error)
    if hasattr(op, "forward"):
        return OpTrace(**about, copies=copies, remark="in-tree: the op's forward asks its interfaces itself")
    use = call.use(binding)
    spec = use.call_spec(binding.device, binding.values)
    dispatcher = type(op).dispatcher
    call.check_named(use)
    trace = dispatcher.tables[use.name].explain(spec, call.only)
    identity = None
    if trace.winner is not None:
        identity = entry_identity(dispatcher.slots[use.name].implementations[trace.winner], spec)
    return OpTrace(**about, trace=trace, identity=identity, copies=copies)


def entry_identity(implementation: type[KernelInterface], call: CallSpec) -> Hashable:
    """Return the build identity of the entry that ``implementation`` would serve ``call`` with; builds nothing."""
    identity, _ = implementation.entry_for(call)
    return identity


def describe(call: ColdCall) -> str:
    """Write a call's tensors and params in one line."""
    parts = []
    for name, tensor in zip(call.blueprint.inputs, call.tensors, strict=True):
        shape = "none" if tensor is None else "x".join(map(str, tensor.shape)) or "scalar"
        parts.append(f"{name}={shape}" + ("" if tensor is None else f" {plain_value(tensor.dtype)}"))
    return " ".join([*parts, *(f"{name}={value!r}" for name, value in call.op.params.items())])


def show_identity(identity: Hashable) -> str:
    """Write a build identity in words: the items of a tuple by commas, dtypes by name."""
    items = identity if isinstance(identity, tuple) else (identity,)
    return ", ".join(show_identity(item) if isinstance(item, tuple) else str(plain_value(item)) for item in items)


def plain_identity(identity: Hashable) -> Any:
    """Return a build identity as JSON can hold it."""
    return plain_value(identity)


def _on_target(call: ColdCall, settlement: backend.Settlement) -> dict[str, Any]:
    target = settlement.target
    assert isinstance(target, str), "the in-tree kernels are no target"
    copies = tuple(copy.why for copy in call.copies(aligned=False) if copy.why is not None)
    try:
        backend.builder_for(call.name, target)
        call.check_not_named(settlement)
    except BackendError as error:
        return {"error": error, "copies": copies}
    return {"remark": f"target {target} serves the whole op, with a kernel that it chooses itself", "copies": copies}


class _Callable(ModuleType):
    """Is this module, which can be called: importing it puts it where ``tileops.explain`` is the function."""

    def __call__(self, op: Op, *tensors: torch.Tensor | None, **named: torch.Tensor | None) -> OpTrace:
        return explain(op, *tensors, **named)


sys.modules[__name__].__class__ = _Callable
