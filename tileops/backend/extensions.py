"""What a backend adds to selection itself: device facts of its device type, implementations of an op's interface."""

from __future__ import annotations

from collections.abc import Callable

from tileops.backend.registry import FACTS, KERNEL_TYPE, Registry
from tileops.rules.device import Reader, register_reader, unregister_reader
from tileops.rules.errors import BackendError


def register_device_facts(registry: Registry, device_type: str, read: Reader) -> None:
    """Register a reader of device facts, to be taken out again with the backend that brings it.

    Raises BackendError for ``cuda``, for a type that has a reader, and for what cannot be called.
    """
    register_reader(device_type, read)
    _keep(
        registry,
        FACTS,
        (device_type,),
        read,
        f"device type {device_type!r} has a reader",
        unregister_reader,
        device_type,
    )


def register_kernel_type(registry: Registry, op: str, key: str, cls: type) -> None:
    """Add an implementation to an op's dispatcher, which proves it first, to be taken out again with its backend.

    Raises OpNotAvailableError for an op that does not exist, DeclarationError when the interface or the proof refuses.
    """
    from tileops.catalog import op_class  # the op layer stands on this package

    dispatcher = op_class(op).dispatcher
    interface = dispatcher.add_kernel_type(key, cls)
    what = f"{op} has an implementation {key!r}"
    _keep(registry, KERNEL_TYPE, (op, key), cls, what, dispatcher.remove, interface, key)


def _keep(
    registry: Registry,
    kind: str,
    key: tuple[str, ...],
    value: object,
    what: str,
    remove: Callable[..., None],
    *arguments: str,
) -> None:
    """Note what was added, and how to remove it; if the registry has it noted already, remove it at once."""

    def undo() -> None:
        remove(*arguments)

    try:
        registry.add(kind, key, value, what=what, undo=undo)
    except BackendError:
        undo()
        raise
