"""The one registry of this process, and the functions over it that `tileops.backend` hands out.

Nothing is loaded by importing this: the first op that is constructed runs the discovery, and so does whoever asks
what is registered.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

from tileops.backend import extensions, registry
from tileops.backend.discovery import Discovery, LoadRecord
from tileops.backend.protocol import BuildKernel, Detector, Target
from tileops.backend.registry import Registry
from tileops.backend.settlement import DetectorFailure, Settlement, TargetStage
from tileops.rules.device import Reader
from tileops.rules.errors import OpNotAvailableError


def _known_ops() -> Collection[str]:
    from tileops.catalog import op_names  # the op layer stands on this module

    return op_names()


_registry = Registry(_known_ops)
_discovery = Discovery(_registry)
_stage = TargetStage(_registry, _discovery)
_discovery.hold_over_forks()


# For backends.


def register_detector(target: str, detect: Detector) -> None:
    """Register the function that says which devices are for ``target``'s kernels.

    Args:
        target: the name of the backend's set of kernels.
        detect: takes a ``torch.device``, returns a bool, does not raise for a device that is not its own.

    Raises:
        BackendError: the target has a detector, belongs to another distribution, or an argument is of the wrong kind.
    """
    _registry.register_detector(target, detect)


def register_kernel_builder(op: str, target: str, build_kernel: BuildKernel) -> None:
    """Register the function that builds ``target``'s kernels for ``op``.

    Args:
        op: the op's name in the manifest. A name that no op has is warned of once, and its builder never called.
        target: the name of the backend's set of kernels.
        build_kernel: written to the op's manifest signature, see ``BuildKernel``.

    Raises:
        BackendError: the pair is registered, the target belongs to another distribution, or an argument is of the
            wrong kind.
    """
    _registry.register_kernel_builder(op, target, build_kernel)


def register_device_facts(device_type: str, read: Reader) -> None:
    """Register the function that reads the device facts of ``device_type``.

    Args:
        device_type: torch's name of the type, any but ``cuda``.
        read: takes the ``torch.device`` of the call, returns ``DeviceFacts``.

    Raises:
        BackendError: the type is ``cuda`` or has a reader, or ``read`` cannot be called.
    """
    extensions.register_device_facts(_registry, device_type, read)


def register_kernel_type(op: str, key: str, cls: type) -> None:
    """Add the implementation ``cls`` to the interface of ``op`` that it inherits, under ``key``.

    It is proved first together with the table that it joins.

    Raises:
        OpNotAvailableError: there is no such op.
        DeclarationError: the op does not ask the interface or has the key, or the joined table has a finding (a call
            would be ambiguous, a rule can raise, ...); the message holds the witness.
    """
    extensions.register_kernel_type(_registry, op, key, cls)


# For callers.


def registered_targets(op: str | None = None) -> list[str]:
    """Return the names of the registered targets, or of those with a builder for ``op``, sorted; loads the backends."""
    _discovery.run()
    return _registry.targets(op)


def set_default_target(target: Target | None) -> None:
    """Let ``target`` serve every op of the process that names none; ``BUILTIN``: no backend; None: the device decides.

    Takes effect where an op instance has not settled yet. A name is looked up at once: the backends are loaded.

    Raises:
        UnknownTargetError: no backend registered the name; the default stays as it was.
        BackendError: called by a backend that is being imported.
    """
    _stage.set_default(target)


def default_target() -> Target | None:
    """Return the process default: a name, ``BUILTIN``, or None where devices decide."""
    return _stage.default


def load_failures() -> list[LoadRecord]:
    """Return a record for each backend that failed or declined; loads the backends."""
    _discovery.run()
    return _discovery.failures()


def backends() -> list[LoadRecord]:
    """Return a record for each installed backend, in the order of loading; loads the backends."""
    _discovery.run()
    return _discovery.records()


def served_ops(target: str) -> list[str]:
    """Return the names of the ops that ``target`` has a builder for, sorted; loads the backends."""
    _discovery.run()
    return _registry.ops(target)


def targets_of(record: LoadRecord) -> list[str]:
    """Return the targets that the backend of ``record`` registered, sorted."""
    return sorted(
        {entry.key[-1] for entry in _registered(record) if entry.kind in (registry.DETECTOR, registry.BUILDER)}
    )


def kernel_types_of(record: LoadRecord) -> list[tuple[str, str]]:
    """Return op and key of each implementation that the backend of ``record`` added, sorted."""
    return [(entry.key[0], entry.key[1]) for entry in _registered(record) if entry.kind == registry.KERNEL_TYPE]


def device_facts_of(record: LoadRecord) -> list[str]:
    """Return the device types whose facts the backend of ``record`` reads, sorted."""
    return [entry.key[0] for entry in _registered(record) if entry.kind == registry.FACTS]


def _registered(record: LoadRecord) -> list[registry.Registration]:
    return _registry.registered_by(record.owner)


def claimants(device: torch.device | str) -> list[str]:
    """Return the targets whose detectors claim ``device``, sorted; loads the backends."""
    _discovery.run()
    return _stage.claimants(torch.device(device))


def detector_failures(device: torch.device | str) -> list[DetectorFailure]:
    """Return what detectors raised when they were last asked about ``device``."""
    return _stage.detector_failures(torch.device(device))


# For the op layer.


def discover() -> None:
    """Load the installed backends, once in a process."""
    _discovery.run()


def settle(op: str, device: torch.device, target: Target | None = None) -> Settlement:
    """Return which target serves ``op`` on ``device``, with the reason: the argument, the default, or a detector.

    Raises:
        UnknownTargetError: the named target is not registered.
        AmbiguousTargetError: two or more detectors claim the device.
    """
    _discovery.run()
    return _stage.settle(op, device, target)


def has_builder(op: str, target: str) -> bool:
    """Say whether ``target`` has a builder for ``op``: what decides how a composite op runs."""
    return _registry.has_builder(op, target)


def builder_for(op: str, target: str, device: torch.device | None = None) -> BuildKernel:
    """Return ``target``'s builder for ``op``.

    Raises:
        UnknownTargetError: the target is not registered.
        OpNotAvailableError: it has no builder for the op. ``device`` adds what is known to be wrong about it.
    """
    return _stage.builder_for(op, target, device)


def in_tree_error(op: str, device: torch.device) -> OpNotAvailableError:
    """Return the error of an op whose in-tree kernels cannot run on ``device``: targets that could, what went wrong."""
    return _stage.in_tree_error(op, device)


def notes(device: torch.device | None = None) -> str:
    """Return what an error about ``device`` should quote: detectors that raised, backends that did not load."""
    return _stage.notes(device)
