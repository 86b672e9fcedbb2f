"""Discovery: loads every installed backend once, in an order that no installation changes, and keeps how each went."""

from __future__ import annotations

import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from tileops.backend.registry import Owner, Registry
from tileops.backend.words import cause_of, message_of
from tileops.rules.errors import Declined

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

State: TypeAlias = Literal["loaded", "failed", "declined"]


@attrs.frozen
class LoadRecord:
    """Says how loading one entry point went.

    ``exception`` is what the import raised, without frames, so that it keeps nothing alive; ``cause`` is its message
    (after its type, unless the backend declined) and ``traceback`` the whole of it as text. All three are empty for a
    backend that loaded.
    """

    entry_point: str
    module: str
    distribution: str | None
    version: str | None
    state: State
    exception: BaseException | None = None
    cause: str = ""
    traceback: str = attrs.field(default="", repr=False)

    @property
    def owner(self) -> Owner:
        """Return the name under which the registry keeps what this entry point registered."""
        return Owner(self.entry_point, self.module, self.distribution, self.version)

    def __str__(self) -> str:
        """Write one line: which backend, where it comes from, how it went and why."""
        who = f"backend {self.entry_point!r} ({self.owner}, module {self.module})"
        if self.state == "declined":
            return f"{who} is installed and declined: {self.cause}"
        if self.state == "failed":
            return f"{who} failed to load: {self.cause}"
        return f"{who} is loaded"


class Discovery:
    """Loads the backends that ``find`` lists into ``registry``, once, whichever thread asks first.

    Args:
        registry: where the backends' modules register.
        find: gives the entry points to load, in any order; those of the installed distributions by default.
    """

    def __init__(self, registry: Registry, find: Callable[[], Collection[EntryPoint]] | None = None) -> None:
        """Load nothing yet."""
        self._registry = registry
        self._find = find or _installed
        self._lock = threading.RLock()
        self._running = False
        self._done = False
        self._records: dict[Owner, LoadRecord] = {}

    def run(self) -> None:
        """Load what is not loaded yet, then warn of each backend that failed.

        A thread that comes while another one loads waits for it. A backend that comes back here during its own
        import (it makes an op, say) finds what is registered so far.
        """
        if not self._done:
            with self._lock:
                if self._running:
                    return
                if not self._done:
                    self._load_all()
        self._registry.flush_warnings()

    @property
    def running_here(self) -> bool:
        """Say whether this thread is in the middle of loading a backend."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._running
        finally:
            self._lock.release()

    def records(self) -> list[LoadRecord]:
        """Return one record per entry point looked at so far, in the order of loading."""
        return list(self._records.values())

    def failures(self) -> list[LoadRecord]:
        """Return the records of the backends that failed or declined."""
        return [record for record in self.records() if record.state != "loaded"]

    def hold_over_forks(self) -> None:
        """Let no fork happen in the middle of a discovery: the child would wait for a thread it does not have."""
        os.register_at_fork(
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._lock.release
        )

    def _load_all(self) -> None:
        self._running = True
        try:
            owners = {_owner(point): point for point in self._find()}
            self._registry.set_owners(owners)
            for owner in sorted(owners, key=_order):
                if owner not in self._records:  # else an interrupted discovery loaded it
                    self._load(owner, owners[owner], [one for one in owners if one.module == owner.module])
            # Another backend may have imported a failed one once more, or it left a thread behind that registers.
            self._registry.close(record.owner for record in self.failures())
            self._done = True
        finally:
            self._running = False

    def _load(self, owner: Owner, point: EntryPoint, of_module: Collection[Owner]) -> None:
        """Import one backend's module, ``of_module`` the entry points of it; if it raises, nothing of it stays."""
        if owner.module not in sys.modules:
            # What is there already was left by an import that failed before, outside discovery.
            for one in of_module:
                if one not in self._records:
                    self._registry.forget(one)
        try:
            with self._registry.loading(owner):
                point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything, SystemExit too, and stops nobody
            self._keep(record_of(owner, error))
        else:
            self._keep(LoadRecord(owner.entry_point, owner.module, owner.distribution, owner.version, "loaded"))

    def _keep(self, record: LoadRecord) -> None:
        self._records[record.owner] = record
        if record.state == "failed":
            self._registry.warn(
                f"{record}; nothing of it is registered, see tileops.backend.load_failures()", hold=True
            )


def record_of(owner: Owner, error: BaseException) -> LoadRecord:
    """Return the record of a backend whose loading raised ``error``."""
    text = "".join(traceback.format_exception(error))
    state: State = "declined" if isinstance(error, Declined) else "failed"
    cause = message_of(error) or "no reason given" if state == "declined" else cause_of(error)
    _drop_frames(error)
    return LoadRecord(owner.entry_point, owner.module, owner.distribution, owner.version, state, error, cause, text)


def _installed() -> Collection[EntryPoint]:
    from tileops.backend.entrypoints import installed  # 15 ms that `import tileops.gemm` does not need

    return installed()


def _owner(point: EntryPoint) -> Owner:
    from tileops.backend.entrypoints import packages_of  # as above

    name, version = _named(point)
    module = re.match(r"[\w.]*", point.value.strip())  # the point's own pattern fails on a malformed value
    return Owner(point.name, module.group() if module else "", name, version, packages_of(point.dist))


def _named(point: EntryPoint) -> tuple[str | None, str | None]:
    """Return the name and version of the distribution that declares ``point``, None where its metadata is broken."""
    distribution = point.dist
    if distribution is None:
        return None, None
    name = _name_or_none(distribution)
    return name, distribution.version if name is not None else None


def _name_or_none(distribution: object) -> str | None:
    try:
        name = distribution.metadata["Name"]  # type: ignore[attr-defined]  # any object with metadata
    except Exception:  # noqa: BLE001 - metadata that cannot be read has no name
        return None
    return name if isinstance(name, str) else None


def _order(owner: Owner) -> tuple[str, str, str]:
    return owner.entry_point, owner.distribution or "", owner.module


def _drop_frames(error: BaseException) -> None:
    """Clear the tracebacks of ``error`` and of what it came from."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
