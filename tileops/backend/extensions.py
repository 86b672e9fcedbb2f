"""What a backend adds to selection itself: device facts of its device type, implementations of an op's interface."""

from __future__ import annotations

from tileops.backend.registry import FACTS, KERNEL_TYPE, Registry
from tileops.rules.device import Reader, register_reader, unregister_reader


def register_device_facts(registry: Registry, device_type: str, read: Reader) -> None:
    """Register a reader of device facts, to be taken out again with the backend that brings it.

    Raises BackendError for ``cuda``, for a type that has a reader, and for what cannot be called.
    """
    register_reader(device_type, read)
    registry.add(
        FACTS,
        (device_type,),
        read,
        what=f"device type {device_type!r} has a reader",
        undo=lambda: unregister_reader(device_type),
    )


def register_kernel_type(registry: Registry, op: str, key: str, cls: type) -> None:
    """Add an implementation to an op's dispatcher, which proves it first, to be taken out again with its backend.

    Raises DeclarationError when the op, the interface or the proof refuses it.
    """
    from tileops.catalog import op_class  # the op layer stands on this package

    dispatcher = op_class(op).dispatcher
    interface = dispatcher.add_kernel_type(key, cls)
    registry.add(
        KERNEL_TYPE,
        (op, key),
        cls,
        what=f"{op} has an implementation {key!r}",
        undo=lambda: dispatcher.remove(interface, key),
    )
