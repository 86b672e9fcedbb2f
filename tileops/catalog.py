"""The catalog: which ops exist, in which module each lives, and how the tools import one that an import refuses."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from tileops.manifest import loader
from tileops.rules.errors import DeclarationError, OpNotAvailableError, nearest

if TYPE_CHECKING:
    from tileops.op import Op

_COLLECTING: ContextVar[bool] = ContextVar("tileops.collecting", default=False)


def families() -> Mapping[str, str]:
    """Return the family of every op in the manifest, by op name; ``tileops.<family>`` is its module."""
    return loader.families()


def op_names() -> frozenset[str]:
    """Return the names of all ops in the manifest."""
    return frozenset(families())


def op_class(name: str) -> type[Op]:
    """Import the op called ``name`` and return its class.

    Raises:
        OpNotAvailableError: the manifest has no such op; names the nearest.
        DeclarationError: the op's module does not define it, or its declarations have findings.
    """
    known = families()
    family = known.get(name)
    if family is None:
        raise OpNotAvailableError(
            f"there is no op {name!r}{nearest(name, known)}; ops are: {', '.join(sorted(known))}",
            op=name,
            known=sorted(known),
        )
    module = importlib.import_module(f"tileops.{family}")
    found = getattr(module, name, None)
    if found is None:
        raise DeclarationError(f"the manifest's family {family!r} has {name}, but {module.__name__} does not define it")
    op: type[Op] = found
    return op


@contextmanager
def collecting() -> Iterator[None]:
    """Let op classes be made whatever their findings, for the tools; ``cls.findings`` holds what an import would raise.

    Making an instance of such a class raises what its import would have raised.
    """
    token = _COLLECTING.set(True)
    try:
        yield
    finally:
        _COLLECTING.reset(token)


def is_collecting() -> bool:
    """Say whether findings are collected, not raised, in this context."""
    return _COLLECTING.get()
