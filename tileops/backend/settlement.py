"""Settling the target of a call: the argument, else the process default, else the detectors."""

from __future__ import annotations

import threading
from typing import Literal, TypeAlias

import attrs
import torch

from tileops.backend.discovery import Discovery
from tileops.backend.protocol import BUILTIN, BuildKernel, Detector, Target
from tileops.backend.registry import Registry
from tileops.backend.words import cause_of, shown
from tileops.rules.device import device_kind
from tileops.rules.errors import AmbiguousTargetError, BackendError, OpNotAvailableError

Origin: TypeAlias = Literal["argument", "default", "detection", "none"]


@attrs.frozen
class Settlement:
    """Says which target serves a call, and why: ``text`` is a line for people, ``origin`` a word for programs.

    ``origin`` is ``argument`` (``target=``), ``default`` (``set_default_target``), ``detection`` (one detector
    claims the device) or ``none`` (no detector does, so the in-tree kernels serve).
    """

    target: Target
    origin: Origin
    text: str


@attrs.frozen
class DetectorFailure:
    """Says what a detector raised when it was asked about a device."""

    target: str
    source: str
    device: torch.device
    cause: str

    def __str__(self) -> str:
        """Write whose detector raised what, on which device."""
        return f"the detector of target {self.target!r} ({self.source}) raised on {self.device}: {self.cause}"


class TargetStage:
    """Settles targets over a registry and words the errors; keeps the process default and what detectors raised."""

    def __init__(self, registry: Registry, discovery: Discovery) -> None:
        """Start with no default and nothing asked."""
        self._registry = registry
        self._discovery = discovery
        self._default: Target | None = None
        self._lock = threading.Lock()
        self._failures: dict[tuple[str, torch.device], DetectorFailure] = {}
        self._warned: set[str] = set()

    @property
    def default(self) -> Target | None:
        """Return the process default, None where none is set."""
        return self._default

    def set_default(self, target: Target | None) -> None:
        """Set the process default; None takes it back.

        Raises:
            UnknownTargetError: no backend registered a target of this name; the default stays as it was.
            BackendError: a backend calls this while it is imported.
        """
        if self._discovery.running_here:
            raise BackendError(
                "set_default_target was called while a backend is being imported; a backend only registers, "
                "the program that uses it picks the default",
                target=target,
            )
        if target is not None and target is not BUILTIN:
            self._discovery.run()
            self._registry.check_target(target, self.notes())
        self._default = target

    def settle(self, op: str, device: torch.device, target: Target | None) -> Settlement:
        """Return the target that serves ``op`` on ``device``.

        Args:
            op: the op's name, for messages.
            device: the device of the call, handed to the detectors as it is.
            target: the op's ``target=`` argument, None where it was not given.

        Raises:
            UnknownTargetError: the named target is not registered.
            AmbiguousTargetError: two or more detectors claim the device.
        """
        if target is not None:
            return self._named(target, device, "argument", "named by target=")
        if self._default is not None:
            return self._named(self._default, device, "default", "the process default, from set_default_target")
        claiming = self.claimants(device)
        if len(claiming) > 1:
            raise self._ambiguity(op, device, claiming)
        if not claiming:
            raised = "; ".join(str(failure) for failure in self.detector_failures(device))
            return Settlement(
                BUILTIN, "none", f"in-tree: no target claims {device}" + (f" ({raised})" if raised else "")
            )
        name = claiming[0]
        return Settlement(name, "detection", f"{name}: its detector claims {device} ({self._registry.source(name)})")

    def _named(self, target: Target, device: torch.device, origin: Origin, reason: str) -> Settlement:
        if target is BUILTIN:
            return Settlement(BUILTIN, origin, f"in-tree: {reason}")
        self._registry.check_target(target, self.notes(device))
        return Settlement(target, origin, f"{target}: {reason} ({self._registry.source(target)})")

    def _ambiguity(self, op: str, device: torch.device, claiming: list[str]) -> AmbiguousTargetError:
        named = " and ".join(f"{name!r} ({self._registry.source(name)})" for name in claiming)
        first = next((name for name in claiming if self._registry.has_builder(op, name)), claiming[0])
        message = (
            f"{op} on {device}: {len(claiming)} targets claim this device: {named}. Pick one: {op}(target={first!r}) "
            f"for one op, tileops.backend.set_default_target({first!r}) for the process"
        )
        return AmbiguousTargetError(_with(message, self.notes(device)), op=op, device=device, targets=claiming)

    def claimants(self, device: torch.device) -> list[str]:
        """Ask every detector once; return the targets that claim ``device``, sorted.

        A detector that raises claims nothing; one warning per target names the cause.
        """
        return [target for target, detect in self._registry.detectors() if self._claims(target, detect, device)]

    def _claims(self, target: str, detect: Detector, device: torch.device) -> bool:
        try:
            claims = _yes_or_no(detect(device))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - kept, warned of and quoted; SystemExit too ends nobody's program
            failure = DetectorFailure(target, self._registry.source(target), device, cause_of(error))
            with self._lock:
                self._failures[target, device] = failure
                first = target not in self._warned
                self._warned.add(target)
            if first:
                self._registry.warn(f"{failure}; it claims no device on which it raises")
            return False
        with self._lock:
            self._failures.pop((target, device), None)
        return claims

    def detector_failures(self, device: torch.device) -> list[DetectorFailure]:
        """Return what detectors raised when last asked about ``device``, sorted by target."""
        with self._lock:
            kept = [failure for failure in self._failures.values() if failure.device == device]
        return sorted(kept, key=lambda failure: failure.target)

    def notes(self, device: torch.device | None = None) -> str:
        """Return what an error has to add: detectors that raised on ``device``, backends that did not load.

        Empty where all is well.
        """
        parts: list[object] = [] if device is None else list(self.detector_failures(device))
        return "; ".join(str(part) for part in [*parts, *self._discovery.failures()])

    def builder_for(self, op: str, target: str, device: torch.device | None = None) -> BuildKernel:
        """Return ``target``'s builder for ``op``, or raise as ``Registry.builder_for`` does, with the notes added."""
        if self._registry.has_builder(op, target):
            return self._registry.builder_for(op, target)
        return self._registry.builder_for(op, target, self.notes(device))

    def in_tree_error(self, op: str, device: torch.device) -> OpNotAvailableError:
        """Return the error of an op whose in-tree kernels cannot run on ``device``."""
        known = self._registry.targets(op)
        message = f"{op}'s in-tree kernels do not run on {device_kind(device)}; known targets for this op: {known}"
        return OpNotAvailableError(_with(message, self.notes(device)), op=op, device=device, targets=known)


def _yes_or_no(answer: object) -> bool:
    """Return a detector's answer; raises TypeError for what is none of True, False, 1 and 0."""
    if isinstance(answer, int) and answer in (0, 1):
        return bool(answer)
    raise TypeError(f"it returned {shown(answer, 60)}, which is neither True nor False")


def _with(message: str, notes: str) -> str:
    return f"{message}. {notes}" if notes else message
