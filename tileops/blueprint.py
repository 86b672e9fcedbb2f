"""Blueprints: an op class put together from its manifest entry and its declarations, with what is wrong with them."""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

import tileops.kernels
from tileops import operator, tally
from tileops.caller import CallInput, GeneratedCall, generate_call
from tileops.manifest.record import OpEntry
from tileops.rules.callspec import CallSpec
from tileops.rules.dispatcher import Dispatcher, Entry, Slot
from tileops.rules.errors import DeclarationError, nearest
from tileops.rules.interface import (
    KernelInterface,
    argument_findings,
    interface_of,
    is_interface,
    structure_faults,
)
from tileops.rules.report import Finding
from tileops.rules.verdicts import verdict
from tileops.uses import LinkedUse, Uses

if TYPE_CHECKING:
    from tileops.op import Op

#: The verdicts that ship with the kernels.
SHIPPED = Path(tileops.kernels.__file__).with_name("verdicts.json")


_DISPATCHERS: weakref.WeakSet[OpDispatcher] = weakref.WeakSet()


def _after_fork() -> None:
    """Make the op layer usable in a forked child: the threads that held its locks do not exist there."""
    tally.after_fork()
    operator.after_fork()
    for dispatcher in tuple(_DISPATCHERS):
        dispatcher.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class OpDispatcher(Dispatcher):
    """Dispatches one op's in-tree calls; tells the op's instances to forget their plans when the tables change."""

    def __init__(self, op: str, slots: Mapping[str, Slot]) -> None:
        """Build the tables of the op's interfaces."""
        super().__init__(slots, op=op)
        #: Held while plans are kept or dropped, so that a plan made before a change is not kept after it.
        self.plans = threading.RLock()
        self.instances: weakref.WeakSet[Op] = weakref.WeakSet()
        self._proven: set[Entry] = set()
        self._ran: set[Entry] = set()
        _DISPATCHERS.add(self)

    def add_kernel_type(self, key: str, cls: type[KernelInterface]) -> str:
        """Add an implementation to the interface that it inherits, proved first; return the interface's name.

        Raises:
            DeclarationError: the op has no such interface or has the key, or the joined table has a finding.
        """
        name = self.op or ""
        interface = _slot_of(name, key, cls, self.slots)
        taken = self.implementations()
        if key in taken:
            raise DeclarationError(f"{name} has an implementation {key!r} already: {_where(taken[key])}", key=key)
        self.add(interface, key, cls)
        return interface

    def add(self, interface: str, key: str, cls: type[KernelInterface]) -> None:
        """Add an implementation, proved first, then swapped in whole."""
        super().add(interface, key, cls)
        self._changed()

    def remove(self, interface: str, key: str) -> None:
        """Take an implementation out again."""
        super().remove(interface, key)
        self._changed()

    def implementations(self) -> dict[str, type[KernelInterface]]:
        """Return every implementation of the op by key, those registered later too."""
        return {key: cls for slot in self.slots.values() for key, cls in slot.implementations.items()}

    def clear(self) -> None:
        """Forget every decision, entry and plan. Who holds an entry keeps it; later calls build anew."""
        super().clear()
        self._proven.clear()
        self._ran.clear()
        self._changed()

    def succeed(self, entry: Entry, *, ran: bool = True) -> None:
        """Keep an entry for good: a call with it has succeeded, or it was built ahead of calls (``ran`` false)."""
        self._proven.add(entry)
        if ran:
            self._ran.add(entry)

    def awaits_tuning(self, interface: str, call: CallSpec, only: str | None) -> bool:
        """Say whether the tuned entry of a call, which is built, has not run yet: it may tune on its first launch."""
        entry = self.resolve(interface, call, tuned=True, only=only)
        return hasattr(entry.kernel, "request_tune") and entry not in self._ran

    def expect_tuning(self, kernels: Sequence[Any]) -> None:
        """Note that these kernels were asked to tune, which they may put off to their next launch."""
        asked = {id(kernel) for kernel in kernels}
        self._ran = {entry for entry in self._ran if id(entry.kernel) not in asked}

    def after_fork(self) -> None:
        """Replace the locks in a forked child, and forget what another thread was building."""
        self._lock = threading.Lock()
        self._changing = threading.Lock()
        self.plans = threading.RLock()
        self._state.building.clear()
        for op in tuple(self.instances):
            op._kernels.after_fork()

    def fail(self, entry: Entry) -> None:
        """Forget an entry that no call has succeeded with, so that the next call builds it again."""
        with self._lock:
            if entry in self._proven:
                return
            _forget(self._state.entries, entry)
            _forget(self._state.memo, entry)

    def _build(self, wanted: Any, build: Any) -> Entry:
        entry = super()._build(wanted, build)
        tally.count_build(self.op or "", wanted.key)
        return entry

    def _changed(self) -> None:
        with self.plans:
            for op in tuple(self.instances):
                op.forget_plans()


@attrs.frozen
class Blueprint:
    """Holds what all instances of an op class share."""

    name: str
    entry: OpEntry
    inputs: tuple[str, ...]
    optional: tuple[bool, ...]
    uses: tuple[LinkedUse, ...]
    dispatcher: OpDispatcher
    generated: GeneratedCall
    findings: tuple[Finding, ...]

    def handed_back(self, params: Mapping[str, Any]) -> tuple[int | None, ...] | None:
        """Return, per output of a call, which input it is handed back as, None for one that is made.

        None in all where every output is made.
        """
        written = self.entry.checker.writes(params)
        places = tuple(
            self.inputs.index(output.same_as) if output.same_as in written else None
            for output in self.entry.signature.outputs.values()
        )
        return None if all(place is None for place in places) else places


def draw(
    name: str, entry: OpEntry, kernel_types: Mapping[str, type[KernelInterface]], interfaces: Mapping[str, Uses]
) -> Blueprint:
    """Put an op class together. Nothing is raised for a bad declaration: it is a finding of the blueprint.

    Args:
        name: the op's name.
        entry: its manifest entry.
        kernel_types: the in-tree implementations by key; each belongs to the interface that it inherits.
        interfaces: the kernel interfaces that the op asks, by name.
    """
    signature = entry.signature
    inputs = [CallInput(item.name, item.optional, item.keyword_only) for item in signature.inputs.values()]
    findings: list[Finding] = []
    uses: list[LinkedUse] = []
    slots: dict[str, Slot] = {}
    for interface, use in interfaces.items():
        try:
            uses.append(use.link(interface, entry.checker.scope))
            _check_arguments(use.interface, [item.name for item in inputs])
        except DeclarationError as error:
            findings.append(Finding("bad expression", (interface,), f"{name}: interfaces[{interface!r}]: {error}"))
        if is_interface(use.interface) and hasattr(use.interface, "request"):
            slots[interface] = Slot(interface, use.interface, {})
    for key, cls in kernel_types.items():
        try:
            interface = _slot_of(name, key, cls, slots)
        except DeclarationError as error:
            findings.append(Finding("arguments", (key,), str(error)))
            continue
        slot = slots[interface]
        faults = structure_faults(slot.interface, key, cls)
        if faults:
            findings += [Finding("arguments", (key,), fault) for fault in faults]
            continue
        findings += argument_findings(slot.interface, cls, key)
        slots[interface] = Slot(interface, slot.interface, {**slot.implementations, key: cls})
    dispatcher = OpDispatcher(name, slots)
    for table in dispatcher.tables.values():
        findings += verdict(table, SHIPPED).findings
    return Blueprint(
        name,
        entry,
        tuple(item.name for item in inputs),
        tuple(item.optional for item in inputs),
        tuple(uses),
        dispatcher,
        generate_call(name, inputs),
        tuple(findings),
    )


def findings_error(name: str, findings: Sequence[Finding]) -> DeclarationError | None:
    """Return the error that lists every finding which is one; None when there is none."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return None
    lines = "\n".join(f"- {finding.kind}: {finding.message}" for finding in errors)
    return DeclarationError(f"the declarations of {name} do not hold:\n{lines}", op=name, findings=tuple(findings))


def _slot_of(op: str, key: str, cls: Any, slots: Mapping[str, Slot]) -> str:
    """Return the name of the interface that an implementation inherits."""
    if not (isinstance(cls, type) and issubclass(cls, KernelInterface)):
        raise DeclarationError(f"{op}: implementation {key!r} is {cls!r}, no class that inherits a kernel interface")
    interface = interface_of(cls)
    for name, slot in slots.items():
        if slot.interface is interface:
            return name
    asked = {slot.interface.__name__: name for name, slot in slots.items()}
    raise DeclarationError(
        f"{op}: implementation {key!r} ({_where(cls)}) inherits {interface.__name__}, an interface that the op "
        f"does not ask{nearest(interface.__name__, asked)}; it asks: {sorted(asked)}",
        key=key,
    )


def _where(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _forget(kept: dict[Any, Entry], entry: Entry) -> None:
    for key in [key for key, value in tuple(kept.items()) if value is entry]:
        del kept[key]


def _check_arguments(interface: type[KernelInterface], inputs: Sequence[str]) -> None:
    """Raise DeclarationError when the interface cannot be called with the op's inputs, which are passed by position."""
    try:
        inspect.signature(interface.forward).bind(None, *inputs)
    except TypeError as error:
        raise DeclarationError(
            f"{interface.__name__}.forward{inspect.signature(interface.forward)} cannot be called with the op's "
            f"inputs {', '.join(inputs)}: {error}"
        ) from error
