"""use_kernel: one named implementation for a block of code, or an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

import torch

from tileops.rules.errors import OpNotAvailableError, nearest

_NAMED: ContextVar[Mapping[str, str]] = ContextVar("tileops.use_kernel", default=MappingProxyType({}))


class Count:
    """Counts the ``use_kernel`` blocks open anywhere in the process.

    The call path reads this one attribute and asks for the block's content only when it is not zero: a context
    variable costs more to read than a call may spend.
    """

    __slots__ = ("_lock", "blocks")

    def __init__(self) -> None:
        """Start at none."""
        self.blocks = 0
        self._lock = threading.Lock()

    def add(self, change: int) -> None:
        """Add ``change`` to the number of open blocks."""
        with self._lock:
            self.blocks += change


COUNT = Count()


def named_kernel(op_name: str) -> str | None:
    """Return the key that the innermost ``use_kernel`` block of this context names for ``op_name``, or None."""
    return _NAMED.get().get(op_name)


@contextmanager
def use_kernel(op_name: str, key: str) -> Iterator[None]:
    """Serve every in-tree call of ``op_name`` made in this block by the implementation ``key``, or fail it.

    Nothing else runs in its place: a call that the implementation refuses raises with its reasons, and so does a call
    that a target serves. The block holds for the current thread or task; blocks nest, the innermost wins.

    Args:
        op_name: the op's class name, such as ``"GemmFwdOp"``.
        key: a key of the op's ``kernel_types``, or of one registered later.

    The block goes around calls of what ``torch.compile`` made, never inside: what it compiled serves any context.

    Raises:
        OpNotAvailableError: there is no such op, or it has no such implementation; names the nearest.
        RuntimeError: opened inside a compiled region.
    """
    if torch.compiler.is_compiling():
        raise RuntimeError(  # no class of ours: Dynamo makes it, and quotes it
            "use_kernel was opened inside a compiled region, which would not see it close: open it around the call "
            "of the compiled function"
        )
    from tileops.catalog import op_class

    keys = op_class(op_name).implementations()
    if key not in keys:
        raise OpNotAvailableError(
            f"{op_name} has no implementation {key!r}{nearest(key, keys)}; it has: {sorted(keys)}",
            op=op_name,
            key=key,
            known=sorted(keys),
        )
    token = _NAMED.set({**_NAMED.get(), op_name: key})
    COUNT.add(1)
    try:
        yield
    finally:
        COUNT.add(-1)
        _NAMED.reset(token)
