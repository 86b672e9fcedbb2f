"""The dispatcher: from a call spec to the built kernel that serves it, remembered.

A hit is one dictionary lookup: no lock, no rule, no device property. A miss selects, asks the winner for its build
identity, and builds under a lock of that entry alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from typing import Any, TypeAlias

import attrs
import torch

from tileops.rules.callspec import CallSpec
from tileops.rules.declaration import Declaration
from tileops.rules.errors import BackendError, DeclarationError, FactError, nearest
from tileops.rules.interface import KernelInterface, argument_findings, is_interface, structure_faults
from tileops.rules.report import Finding
from tileops.rules.table import RuleTable

Kernel: TypeAlias = Callable[..., Any]
_MemoKey: TypeAlias = tuple[str, CallSpec, bool, str | None]


@attrs.frozen
class Slot:
    """Names one interface of an op and its implementations by key."""

    name: str
    interface: type[KernelInterface]
    implementations: Mapping[str, type[KernelInterface]]


@attrs.frozen(eq=False)
class Entry:
    """Holds one built kernel and what identifies it."""

    kernel: Kernel
    interface: str
    key: str
    identity: Hashable
    device: torch.device
    tuned: bool


@attrs.frozen
class _Wanted:
    """Identifies an entry: two calls of which all this is equal share one kernel."""

    interface: str
    key: str
    implementation: type[KernelInterface]
    identity: Hashable
    kinds: Hashable
    device: torch.device
    tuned: bool


def _kinds(identity: Hashable) -> Any:
    """Return the types in a build identity: 1, True and 1.0 are equal to Python, and not to a compiler."""
    if isinstance(identity, tuple):
        return type(identity), tuple(map(_kinds, identity))
    if isinstance(identity, frozenset):
        return type(identity), frozenset((item, _kinds(item)) for item in identity)
    made: type[Any] = type(identity)
    if attrs.has(made):
        return made, tuple(_kinds(getattr(identity, item.name)) for item in attrs.fields(made))
    return made


@attrs.frozen(eq=False)
class _Build:
    """Is a build under way: the thread that runs it, and what those who wait for it get."""

    owner: int = attrs.field(factory=threading.get_ident)
    result: Future[Entry | None] = attrs.field(factory=Future)


@attrs.frozen(eq=False)
class _State:
    """Is everything a resolution looks at, swapped whole so that no resolution sees half a change."""

    slots: Mapping[str, Slot]
    tables: Mapping[str, RuleTable]
    entries: dict[_Wanted, Entry] = attrs.field(factory=dict)
    building: dict[_Wanted, _Build] = attrs.field(factory=dict)
    memo: dict[_MemoKey, Entry] = attrs.field(factory=dict)


class Dispatcher:
    """Resolves calls of an op's interfaces to built kernels.

    ``interfaces`` maps the name of each interface to its Slot; ``op`` is the name that errors speak of.
    Raises DeclarationError, with all faults together, where a slot is malformed; what only a check of the tables
    shows is not looked at here.
    """

    def __init__(self, interfaces: Mapping[str, Slot], *, op: str | None = None) -> None:
        """Build one table per interface from the declarations of its implementations."""
        faults = [fault for name, slot in interfaces.items() for fault in _slot_faults(name, slot)]
        if faults:
            raise DeclarationError("\n".join(faults), faults=faults)
        self.op = op
        self.generation = 0
        self._changing = threading.Lock()
        self._lock = threading.Lock()
        self._builds: Counter[tuple[str, str]] = Counter()
        tables = {name: _table(slot) for name, slot in interfaces.items()}
        self._install(_State(dict(interfaces), tables))

    @property
    def tables(self) -> Mapping[str, RuleTable]:
        """Return the rule table of each interface."""
        return self._state.tables

    @property
    def slots(self) -> Mapping[str, Slot]:
        """Return the interfaces and their implementations, those added later included."""
        return self._state.slots

    @property
    def builds(self) -> Mapping[tuple[str, str], int]:
        """Return how many kernels were built, by interface and key."""
        with self._lock:
            return dict(self._builds)

    def resolve(self, interface: str, call: CallSpec, *, tuned: bool = False, only: str | None = None) -> Entry:
        """Return the entry that serves ``call``, built if need be; ``only`` allows that one implementation.

        Raises what `RuleTable.select` raises, FactError for a spec with stated device facts, and what the build raises.
        """
        entry = self._memo.get((interface, call, tuned, only))
        if entry is None or call.stated is not None:
            return self._miss(interface, call, tuned, only)
        return entry

    def built(self, interface: str, call: CallSpec, *, tuned: bool = False, only: str | None = None) -> bool:
        """Say whether `resolve` would find its entry built; builds nothing and raises as it does."""
        state = self._state
        if call.stated is None and (interface, call, tuned, only) in state.memo:
            return True
        wanted, _ = self._select(state, interface, call, tuned, only)
        return wanted in state.entries

    def clear(self) -> None:
        """Forget every decision and entry. Who holds an entry keeps it; later calls build anew."""
        with self._changing:
            self._install(_State(self._state.slots, self._state.tables))

    def add(self, interface: str, key: str, cls: type[KernelInterface]) -> None:
        """Add an implementation, proved together with those that are there, and swap it in whole.

        Raises DeclarationError, with ``findings``, and changes nothing where the joined table has an error or
        cannot be settled.
        """
        with self._changing:
            state = self._state
            slot = self._slot(state, interface)
            if key in slot.implementations:
                there = slot.implementations[key]
                raise DeclarationError(
                    f"{interface} has an implementation {key!r} already: {_place(there)}; {_place(cls)} comes second",
                    key=key,
                )
            faults = structure_faults(slot.interface, key, cls)
            if faults:
                raise DeclarationError("\n".join(faults), faults=faults, key=key)
            table = state.tables[interface].with_declaration(key, cls.declaration)
            findings = (*argument_findings(slot.interface, cls, key), *table.check().findings)
            unsound = [finding for finding in findings if finding.severity == "error" or finding.kind == "undecided"]
            if unsound:
                raise _unsound(interface, key, unsound)
            joined = attrs.evolve(slot, implementations={**slot.implementations, key: cls})
            self._change(state, joined, table)

    def remove(self, interface: str, key: str) -> None:
        """Take an implementation out, as when the package that added it fails; raises DeclarationError for none."""
        with self._changing:
            state = self._state
            slot = self._slot(state, interface)
            table = state.tables[interface].without(key)
            rest = {name: cls for name, cls in slot.implementations.items() if name != key}
            self._change(state, attrs.evolve(slot, implementations=rest), table)

    # Changes ----------------------------------------------------------------------------------------------------

    def _change(self, state: _State, slot: Slot, table: RuleTable) -> None:
        # Entries stay: their implementation is part of what identifies them. Decisions go: any may be another now.
        self._install(
            _State(
                {**state.slots, slot.name: slot},
                {**state.tables, slot.name: table},
                state.entries,
                state.building,
            )
        )

    def _install(self, state: _State) -> None:
        self._state = state
        self._memo = state.memo
        self.generation += 1

    # A miss -----------------------------------------------------------------------------------------------------

    def _slot(self, state: _State, interface: str) -> Slot:
        if interface not in state.slots:
            known = f"{nearest(interface, state.slots)}; it has {', '.join(sorted(state.slots)) or 'none'}"
            raise DeclarationError(
                f"{self.op or 'this op'} has no interface {interface!r}{known}",
                interface=interface,
            )
        return state.slots[interface]

    def _select(
        self, state: _State, interface: str, call: CallSpec, tuned: bool, only: str | None
    ) -> tuple[_Wanted, Callable[[], Kernel]]:
        slot = self._slot(state, interface)
        trace = state.tables[interface].explain(call, only)
        if call.stated is not None:
            raise FactError(
                f"{call!r} states its device facts, so it is for explain and select; a kernel is resolved for the "
                "device as it is: leave stated out",
                call=call,
            )
        if trace.winner is None:
            raise trace.error(self.op)
        cls = slot.implementations[trace.winner]
        answer = cls.entry_for(call)
        if not (isinstance(answer, tuple) and len(answer) == 2 and callable(answer[1])):
            raise DeclarationError(f"{cls.__qualname__}.entry_for returns (identity, build), got {answer!r}")
        identity, build = answer
        try:
            hash(identity)
        except TypeError as error:
            raise DeclarationError(f"the build identity of {cls.__qualname__} cannot be a key: {error}") from error
        return _Wanted(interface, trace.winner, cls, identity, _kinds(identity), call.device, tuned), build

    def _miss(self, interface: str, call: CallSpec, tuned: bool, only: str | None) -> Entry:
        state = self._state
        wanted, build = self._select(state, interface, call, tuned, only)
        entry = state.entries.get(wanted)
        while entry is None:
            entry = self._build_or_wait(state, wanted, build)
        state.memo[interface, call, tuned, only] = entry
        return entry

    def _build_or_wait(self, state: _State, wanted: _Wanted, build: Callable[[], Kernel]) -> Entry | None:
        """Return the entry, or None where the thread that was building it was interrupted: try again then."""
        mine = _Build()
        with self._lock:
            if wanted in state.entries:
                return state.entries[wanted]
            running = state.building.setdefault(wanted, mine)
        if running is not mine:
            if running.owner == mine.owner:
                raise BackendError(f"the build of {wanted.key} for {wanted.identity!r} asks for itself", key=wanted.key)
            return running.result.result()
        outcome: Entry | None = None
        failure: Exception | None = None
        try:
            outcome = self._build(wanted, build)
        except Exception as error:
            failure = error
            raise
        finally:
            with self._lock:
                if outcome is not None:
                    state.entries[wanted] = outcome
                    self._builds[wanted.interface, wanted.key] += 1
                del state.building[wanted]
            # An interrupt is the interrupted thread's own: those who wait get None and build for themselves.
            if failure is not None:
                mine.result.set_exception(failure)
            else:
                mine.result.set_result(outcome)
        return outcome

    def _build(self, wanted: _Wanted, build: Callable[[], Kernel]) -> Entry:
        with device_current(wanted.device):
            kernel = build()
            if not callable(kernel):
                raise DeclarationError(
                    f"the build function of {wanted.implementation.__qualname__} returned what cannot be called: "
                    f"{kernel!r}",
                    key=wanted.key,
                )
            request_tune = getattr(kernel, "request_tune", None) if wanted.tuned else None
            if request_tune is not None:
                request_tune()
        return Entry(kernel, wanted.interface, wanted.key, wanted.identity, wanted.device, wanted.tuned)


def device_current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Make ``device`` the current one inside the block, if it is one of the process's accelerator type."""
    if device.index is not None:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        if accelerator is not None and accelerator.type == device.type:
            return torch.accelerator.device_index(device.index)
    return contextlib.nullcontext()


def _slot_faults(name: str, slot: Slot) -> list[str]:
    if slot.name != name:
        return [f"interface {name!r} has a slot of another name, {slot.name!r}"]
    if not is_interface(slot.interface):
        return [f"{name}: {slot.interface!r} is no interface (a direct subclass of KernelInterface)"]
    request = getattr(slot.interface, "request", None)
    if not (isinstance(request, type) and issubclass(request, CallSpec)):
        return [f"{name}: {slot.interface.__qualname__}.request is no call spec class: {request!r}"]
    if slot.interface.forward is KernelInterface.forward:
        return [f"{name}: {slot.interface.__qualname__} defines no forward, so its callers have no contract"]
    return [
        f"{name}: {fault}"
        for key, cls in slot.implementations.items()
        for fault in structure_faults(slot.interface, key, cls)
    ]


def _table(slot: Slot) -> RuleTable:
    declarations: dict[str, Declaration] = {key: cls.declaration for key, cls in slot.implementations.items()}
    return RuleTable(slot.name, slot.interface.request, declarations)


def _place(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _unsound(interface: str, key: str, findings: list[Finding]) -> DeclarationError:
    told = "\n".join(f"  {finding.text()}" for finding in findings)
    witness = next((finding.witness for finding in findings if finding.witness is not None), None)
    return DeclarationError(
        f"{key} is not added to {interface}: with it the table is unsound\n{told}",
        key=key,
        findings=tuple(findings),
        witness=witness,
    )
