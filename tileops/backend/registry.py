"""The registry: who serves which op, who claims which device, and how to take a backend's entries out again."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from tileops.backend.protocol import BuildKernel, Detector
from tileops.rules.errors import BackendError, OpNotAvailableError, UnknownTargetError, nearest

#: The kinds of thing that a backend registers.
DETECTOR, BUILDER, FACTS, KERNEL_TYPE = "detector", "kernel builder", "device facts", "kernel type"


class BackendWarning(UserWarning):
    """Names a backend that did not load, a detector that raised, or a builder for an op that does not exist."""


@attrs.frozen
class Owner:
    """Names the entry point that a registration came from, and the distribution that declares it."""

    entry_point: str
    module: str
    distribution: str | None
    version: str | None
    #: The top-level modules of the distribution, None where its metadata does not say.
    packages: frozenset[str] | None = attrs.field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        """Write the distribution with its version, or the entry point where its metadata is unreadable."""
        if self.distribution is None:
            return f"entry point {self.entry_point!r}"
        return f"{self.distribution} {self.version or '(no version)'}"

    def covers(self, module: str) -> bool:
        """Say whether ``module`` is the entry point's module or lies inside it."""
        return module == self.module or module.startswith(self.module + ".")

    def claim_on(self, module: str) -> tuple[int, int]:
        """Rank the claim on code in ``module``: first whether the distribution holds it, then how exactly it is named.

        Anybody may declare an entry point into somebody else's package.
        """
        holds = 0 if self.packages is None else 1 if module.partition(".")[0] in self.packages else -1
        return holds, len(self.module)


@attrs.frozen
class Registration:
    """One thing that was registered: what it is, who did it and where, and how to undo it."""

    kind: str
    key: tuple[str, ...]
    value: Any
    module: str
    place: str
    owner: Owner | None
    undo: Callable[[], None] | None = None

    @property
    def source(self) -> str:
        """Name the distribution, or the module where no distribution is known."""
        return str(self.owner) if self.owner else f"module {self.module}" if self.module else self.place


class Registry:
    """Holds detectors, kernel builders and what else backends register; says for each who registered it.

    The process uses one (``tileops.backend`` speaks to it); a test makes its own. Order of registration decides
    nothing. Every method may be called from any thread.

    Args:
        known_ops: gives the names of the ops that exist, to tell a builder for one that does not.
    """

    def __init__(self, known_ops: Callable[[], Collection[str]]) -> None:
        """Start empty."""
        self._known_ops = known_ops
        self._lock = threading.RLock()
        self._entries: dict[tuple[str, tuple[str, ...]], Registration] = {}
        self._owners: tuple[Owner, ...] = ()
        self._closed: frozenset[Owner] = frozenset()
        self._failed: frozenset[Owner] = frozenset()
        self._loading: tuple[Owner, int] | None = None
        self._warnings: deque[tuple[Owner | None, str]] = deque()

    # Registering.

    def register_detector(self, target: str, detect: Detector) -> None:
        """Register the function that says which devices are ``target``'s; a second one raises BackendError."""
        _check_name("target", target)
        _check_callable(f"the detector of target {target!r}", detect)
        self.add(DETECTOR, (target,), detect, what=f"target {target!r} has a detector")

    def register_kernel_builder(self, op: str, target: str, build_kernel: BuildKernel) -> None:
        """Register ``target``'s builder for ``op``; a second one for the pair raises BackendError.

        A builder for an op that does not exist is kept, never called, and named in one warning.
        """
        _check_name("op", op)
        _check_name("target", target)
        _check_callable(f"the kernel builder of target {target!r} for {op}", build_kernel)
        entry = self.add(BUILDER, (op, target), build_kernel, what=f"target {target!r} has a kernel builder for {op}")
        known = self._known_ops()
        if op not in known:
            self.warn(
                f"target {target!r} ({entry.source}, {entry.place}) registers a kernel builder for {op!r}, "
                f"but there is no such op{nearest(op, known)}; it will never be called",
                entry.owner,
            )

    def add(
        self, kind: str, key: tuple[str, ...], value: object, *, what: str, undo: Callable[[], None] | None = None
    ) -> Registration:
        """Keep one registration, attributed to the backend whose code made it.

        Args:
            kind: one of this module's four kinds.
            key: what may be registered once within the kind.
            value: what is registered.
            what: the statement that a second registration of the key contradicts, for its error.
            undo: called when the registration is taken out again.

        Raises:
            BackendError: the key is taken, or another distribution owns the target.
        """
        module, place = _caller(self._loading_here() is not None)
        with self._lock:
            entry = Registration(kind, key, value, module, place, self._owner_of(module), undo)
            if entry.owner in self._closed:
                raise BackendError(
                    f"{entry.owner} registers a {kind} at {place}, but as a backend it did not load, so nothing of it "
                    "is registered; see tileops.backend.load_failures()",
                    kind=kind,
                    key=key,
                )
            earlier = self._entries.get((kind, key))
            if earlier is not None:
                raise BackendError(
                    f"{what} already: it was registered by {earlier.source} at {earlier.place}, "
                    f"and again by {entry.source} at {entry.place}; one of the two has to go",
                    kind=kind,
                    key=key,
                )
            self._check_one_provider(entry)
            self._entries = {**self._entries, (kind, key): entry}
        return entry

    def _check_one_provider(self, entry: Registration) -> None:
        """Raise BackendError when another distribution provides the target: a target has one provider."""
        if entry.kind not in (DETECTOR, BUILDER) or entry.owner is None:
            return
        target = entry.key[-1]
        for other in self._of_target(target):
            if other.owner is not None and other.owner.distribution != entry.owner.distribution:
                raise BackendError(
                    f"target {target!r} belongs to {other.owner} ({other.place}), so {entry.owner} cannot register "
                    f"a {entry.kind} for it at {entry.place}; give one of the two targets another name",
                    target=target,
                )

    # Loading backends, and taking them out.

    def set_owners(self, owners: Collection[Owner]) -> None:
        """Learn which entry points exist, and attribute to them what their modules registered already."""
        with self._lock:
            self._owners = tuple(owners)
            self._entries = {
                name: entry if entry.owner else attrs.evolve(entry, owner=self._owner_of(entry.module))
                for name, entry in self._entries.items()
            }

    @contextmanager
    def loading(self, owner: Owner) -> Iterator[None]:
        """Attribute registrations of this thread to ``owner``; take out all of them if the block raises.

        What a module registered that was imported well stays if another entry point names it too.
        """
        with self._lock:
            self._loading = (owner, threading.get_ident())
            self._failed -= {owner}
        try:
            yield
        except BaseException:
            self._failed |= {owner}
            self._hand_over(owner)
            self.forget(owner)
            raise
        finally:
            with self._lock:
                self._loading = None

    def _hand_over(self, owner: Owner) -> None:
        """Give the registrations of a module that is there to another of its entry points that has not failed.

        A module whose own import raised is not there: it is imported again for the other one.
        """
        with self._lock:
            heir = self._owner_of(owner.module) if owner.module in sys.modules else None
            if heir is None or heir in self._failed or heir.claim_on(owner.module) != owner.claim_on(owner.module):
                return
            self._entries = {
                name: attrs.evolve(entry, owner=heir) if entry.owner == owner else entry
                for name, entry in self._entries.items()
            }

    def close(self, owners: Iterable[Owner]) -> None:
        """Take out what these owners registered, and refuse what they try to register from now on."""
        for owner in owners:
            self._closed |= {owner}
            self.forget(owner)

    def forget(self, owner: Owner) -> None:
        """Take out everything that ``owner`` registered, last first."""
        with self._lock:
            gone = [entry for entry in self._entries.values() if entry.owner == owner]
            self._entries = {name: entry for name, entry in self._entries.items() if entry.owner != owner}
            self._warnings = deque(warning for warning in self._warnings if warning[0] != owner)
        for entry in reversed(gone):
            if entry.undo is not None:
                entry.undo()

    def _owner_of(self, module: str) -> Owner | None:
        """Return the owner of code in ``module``: the entry point it lies in, or else the one loading in this thread.

        The module comes first: when one backend imports another, each keeps its own registrations. Of several entry
        points into one module, the one that is loading has what the module registers, and none that failed.
        """
        loading = self._loading_here()
        inside = [owner for owner in self._owners if owner.covers(module)]
        if not inside:
            return loading

        def rank(owner: Owner) -> tuple[object, ...]:
            whose = owner.claim_on(module), owner not in self._failed, owner == loading
            return *whose, owner.entry_point, owner.distribution or ""

        return max(inside, key=rank)

    def _loading_here(self) -> Owner | None:
        """Return the owner that this thread is loading."""
        loading = self._loading
        return loading[0] if loading is not None and loading[1] == threading.get_ident() else None

    # Warnings: collected while backends load, so that a filter that turns them into errors breaks no load.

    def warn(self, message: str, owner: Owner | None = None, *, hold: bool = False) -> None:
        """Issue ``message`` as a BackendWarning: at once, or at the next flush with ``hold`` or while a backend loads.

        A warning about what ``owner`` registered is dropped if that is taken out before.
        """
        with self._lock:
            self._warnings.append((owner, message))
            wait = hold or self._loading is not None
        if not wait:
            self.flush_warnings()

    def flush_warnings(self) -> None:
        """Issue the warnings collected so far, each once, at the user's line."""
        while True:
            with self._lock:
                if not self._warnings:
                    return
                _, message = self._warnings.popleft()
            warnings.warn(message, BackendWarning, stacklevel=_user_level())

    # Asking.

    def targets(self, op: str | None = None) -> list[str]:
        """Return the names of the targets, or of those with a builder for ``op``, sorted."""
        if op is not None:
            return sorted(e.key[1] for e in self._entries.values() if e.kind == BUILDER and e.key[0] == op)
        return sorted({e.key[-1] for e in self._entries.values() if e.kind in (DETECTOR, BUILDER)})

    def ops(self, target: str) -> list[str]:
        """Return the names of the ops that ``target`` has a builder for, sorted."""
        return sorted(e.key[0] for e in self._entries.values() if e.kind == BUILDER and e.key[1] == target)

    def detectors(self) -> list[tuple[str, Detector]]:
        """Return each target with its detector, sorted by target."""
        return sorted((e.key[0], e.value) for e in self._entries.values() if e.kind == DETECTOR)

    def registered_by(self, owner: Owner) -> list[Registration]:
        """Return what ``owner`` registered, sorted by kind and key."""
        return sorted((e for e in self._entries.values() if e.owner == owner), key=lambda e: (e.kind, e.key))

    def source(self, target: str) -> str:
        """Name who provides ``target``: a distribution with its version, or a module."""
        return min((e.source for e in self._of_target(target)), default="nobody")

    def has_builder(self, op: str, target: str) -> bool:
        """Say whether ``target`` registered a builder for ``op``."""
        return (BUILDER, (op, target)) in self._entries

    def builder_for(self, op: str, target: str, notes: str = "") -> BuildKernel:
        """Return ``target``'s builder for ``op``.

        Raises:
            UnknownTargetError: no backend registered the target.
            OpNotAvailableError: the target has no builder for the op. In-tree kernels never stand in.
        """
        entry = self._entries.get((BUILDER, (op, target)))
        if entry is not None:
            builder: BuildKernel = entry.value
            return builder
        self.check_target(target, notes)
        raise OpNotAvailableError(
            f"target {target!r} registers no kernel builder for {op}; targets that do: {self.targets(op)}. "
            "There is no fall back to the in-tree implementation: those kernels do not run on this target's devices."
            + (f" {notes}" if notes else ""),
            op=op,
            target=target,
        )

    def check_target(self, target: object, notes: str = "") -> None:
        """Raise UnknownTargetError unless a backend registered ``target``."""
        known = self.targets()
        if target in known:
            return
        message = f"no backend registered target {target!r}; known targets: {known}"
        if target == "builtin":
            message += "; the in-tree kernels are asked for by tileops.backend.BUILTIN, not by a name"
        elif isinstance(target, str):
            message += nearest(target, known)
        raise UnknownTargetError(message + (f". {notes}" if notes else ""), target=target, known=known)

    def _of_target(self, target: str) -> list[Registration]:
        return [e for e in self._entries.values() if e.kind in (DETECTOR, BUILDER) and e.key[-1] == target]


def _check_name(role: str, name: object) -> None:
    if type(name) is not str or not name.strip():
        raise BackendError(f"the name of the {role} is a non-empty string, got {name!r}", role=role, received=name)
    if name != name.strip():
        raise BackendError(f"the name of the {role} has blanks around it: {name!r}", role=role, received=name)
    if role == "target" and name == "builtin":
        raise BackendError("'builtin' means the in-tree kernels; give the target another name", role=role)


def _check_callable(what: str, value: object) -> None:
    if not callable(value):
        raise BackendError(f"{what} has to be callable, got {type(value).__name__}: {value!r}", received=value)


def _caller(loading: bool) -> tuple[str, str]:
    """Return the module and the place, file:line, of the code that called into this package.

    The module is empty for code that only says it is a module's: ``exec`` with a ``__name__`` of somebody else. A name
    that no module has is believed outside of loading only: a module that failed is no longer there, its threads are.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", ""), "tileops.backend"):
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "")
    genuine = vars(sys.modules[name]) is frame.f_globals if name in sys.modules else not loading
    return name if genuine else "", f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _user_level() -> int:
    """Return the stack level, as ``warnings.warn`` in the caller counts it, of the first frame outside tileops."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", ""), "tileops"):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")
