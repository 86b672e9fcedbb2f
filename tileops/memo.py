"""The memo of one op instance's target kernels: each built once, and dropped again if the call that built it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeAlias

#: Target, device, then (dtype, shape) an input, or None for one that the call leaves out.
MemoKey: TypeAlias = tuple[Any, ...]


class Held:
    """Holds one target kernel: while it is built, and after it.

    ``proven``: it stays, as a call with it has succeeded or it was built ahead of calls. ``ran``: a call with it has
    succeeded since it was last asked to tune.
    """

    __slots__ = ("error", "kernel", "lock", "proven", "ran")

    def __init__(self) -> None:
        """Start unbuilt."""
        self.lock = threading.RLock()
        self.kernel: Callable[..., Any] | None = None
        self.error: BaseException | None = None
        self.proven = False
        self.ran = False


class KernelMemo:
    """Maps keys to target kernels. Kernels are not evicted: a captured graph may hold them.

    Callers of one key build once and wait for each other; other keys do not wait. A failed build reaches the callers
    that waited for it and is forgotten, so that the next call builds again.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._held: dict[MemoKey, Held] = {}

    def obtain(self, key: MemoKey, build: Callable[[], Callable[..., Any]]) -> Held:
        """Return what is held under ``key``, built by ``build`` if nothing is; raises what ``build`` raises."""
        with self._lock:
            held = self._held.setdefault(key, Held())
        with held.lock:
            if held.kernel is None:
                if held.error is not None:
                    raise held.error
                try:
                    held.kernel = build()
                except BaseException as error:
                    held.error = error
                    self._drop(key, held)
                    raise
        return held

    def succeed(self, key: MemoKey, held: Held, *, ran: bool = True) -> None:
        """Keep a kernel for good: a call with it has succeeded, or it was built ahead of calls (``ran`` false)."""
        with self._lock:
            held.ran = held.ran or ran
            held.proven = True
            self._held.setdefault(key, held)

    def has(self, key: MemoKey) -> bool:
        """Say whether a kernel is built."""
        held = self._held.get(key)
        return held is not None and held.kernel is not None

    def is_ready(self, key: MemoKey, *, tuned: bool) -> bool:
        """Say whether a kernel can be launched in a capture: built and, when asked to tune, launched since."""
        held = self._held.get(key)
        return held is not None and held.kernel is not None and (held.ran or not tuned)

    def expect_tuning(self) -> None:
        """Note that every kernel held was asked to tune, which it may put off to its next launch."""
        with self._lock:
            for held in self._held.values():
                held.ran = False

    def after_fork(self) -> None:
        """Replace the locks in a forked child, and forget what another thread was building."""
        self._lock = threading.Lock()
        self._held = {key: held for key, held in self._held.items() if held.kernel is not None}
        for held in self._held.values():
            held.lock = threading.RLock()

    def fail(self, key: MemoKey, held: Held) -> None:
        """Drop a kernel that no call has succeeded with."""
        with self._lock:
            if not held.proven and self._held.get(key) is held:
                del self._held[key]

    def retain(self, keys: Collection[MemoKey]) -> None:
        """Drop the kernels under all other keys, those under construction too."""
        with self._lock:
            self._held = {key: held for key, held in self._held.items() if key in keys}

    def kernels(self) -> Iterator[tuple[MemoKey, Callable[..., Any]]]:
        """Yield the kernels held now with their keys, oldest first."""
        with self._lock:
            kernels = [(key, held.kernel) for key, held in self._held.items() if held.kernel is not None]
        yield from kernels

    def clear(self) -> None:
        """Drop every kernel."""
        with self._lock:
            self._held.clear()

    def __len__(self) -> int:
        """Count the kernels held, those under construction too."""
        return len(self._held)

    def _drop(self, key: MemoKey, held: Held) -> None:
        with self._lock:
            if self._held.get(key) is held:
                del self._held[key]
