"""Device facts: what selection may know of the device of a call, and where it is read.

Holds the readers that packages register for their own device types, and the boards of `boards.yaml`. Imports
nothing of ours but the errors.
"""

from __future__ import annotations

import functools
import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs
import cattrs
import torch
import yaml

from tileops.rules.errors import BackendError, FactError, nearest, shown

CUDA = "cuda"
ROCM = "rocm"
_BOARDS_FILE = Path(__file__).with_name("boards.yaml")


# Least and greatest value of each numeric device fact: what proofs quantify over for a device that nobody lists.
LIMITS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"arch": (-1, 1 << 20), "sm_count": (0, 1 << 16), "smem_budget": (0, 1 << 30)}
)


def _within(instance: Any, attribute: Any, value: Any) -> None:
    low, high = LIMITS[attribute.name]
    if type(value) is not int or not low <= value <= high:
        message = f"device fact {attribute.name} takes an integer from {low} to {high}, got {shown(value)}"
        raise FactError(message, fact=attribute.name)


def _text_or_none(instance: Any, attribute: Any, value: Any) -> None:
    if value is not None and (type(value) is not str or not value):
        raise FactError(f"device fact {attribute.name} takes a board name or None, got {value!r}", fact=attribute.name)


@attrs.frozen
class DeviceFacts:
    """Holds the four facts of a device that rules may read.

    ``arch`` is comparable within one device kind only (-1: unknown); ``calibration`` names the board whose
    measurements apply, or None; ``sm_count`` counts SMs; ``smem_budget`` is in bytes, for one block that opts in.
    Raises FactError for a value of the wrong type or outside `LIMITS`.
    """

    arch: int = attrs.field(validator=_within)
    calibration: str | None = attrs.field(validator=_text_or_none)
    sm_count: int = attrs.field(validator=_within)
    smem_budget: int = attrs.field(validator=_within)


NO_FACTS = DeviceFacts(-1, None, 0, 0)

Reader: TypeAlias = Callable[[torch.device], DeviceFacts]

_readers: dict[str, Reader] = {}
_readers_lock = threading.Lock()


def device_kind(device: torch.device | str) -> str:
    """Return torch's device type, or ``"rocm"`` for the devices that a ROCm build of torch calls ``cuda``.

    Two makers share the word ``cuda``; their arch numbers mean different things, so selection tells them apart.
    """
    kind = torch.device(device).type
    return ROCM if kind == CUDA and torch.version.hip is not None else kind


def unknown_device_type(kind: str) -> str | None:
    """Return why ``kind`` is no device type in this process, with the nearest that torch knows; None where it is one.

    A backend that is not imported yet may still name a type of its own (torch's PrivateUse1).
    """
    if kind == ROCM or kind in _readers:
        return None
    try:
        torch.device(kind)
    except RuntimeError as error:
        listed = re.search(r"one of (.+?) device type", str(error))
        known = [*(listed.group(1).split(", ") if listed is not None else ()), ROCM]
        return f"{kind!r} is no device type that torch knows{nearest(kind, known)}"
    return None


def register_reader(kind: str, read: Reader) -> None:
    """Register ``read`` as the source of device facts for one device kind.

    Raises BackendError for ``cuda`` (read here), for a kind that has a reader, and for what cannot be called.
    """
    if type(kind) is not str or not kind:
        raise BackendError(f"a device type is a word such as 'xpu', got {kind!r}", device_type=kind)
    if not callable(read):
        raise BackendError(f"the reader of device facts for {kind!r} cannot be called: {read!r}", device_type=kind)
    if kind == CUDA:
        raise BackendError("the facts of 'cuda' devices are read by TileOPs itself; no reader for it", device_type=kind)
    with _readers_lock:
        if kind in _readers:
            raise BackendError(
                f"device type {kind!r} has a reader of device facts already, {_name(_readers[kind])}; "
                f"{_name(read)} comes second, and only one package may register it",
                device_type=kind,
            )
        _readers[kind] = read


def unregister_reader(kind: str) -> None:
    """Take a registered reader back, as when the package that registered it fails. Unknown kinds are no error."""
    with _readers_lock:
        _readers.pop(kind, None)


def registered_readers() -> Mapping[str, Reader]:
    """Return the readers by device kind, as they are now."""
    with _readers_lock:
        return dict(_readers)


def read_facts(device: torch.device | str) -> DeviceFacts:
    """Read the facts of ``device``: cuda from the driver, a registered kind from its reader, else ``NO_FACTS``.

    Raises BackendError naming the reader that raised or returned something invalid.
    """
    device = torch.device(device)
    kind = device_kind(device)
    if kind == CUDA:
        return _call_reader(_read_cuda, device, kind)
    read = _readers.get(kind)
    return NO_FACTS if read is None else _call_reader(read, with_index(device), kind)


def with_index(device: torch.device) -> torch.device:
    """Return ``device`` with the current index filled in if it has none and is of the process's accelerator type."""
    if device.index is not None:
        return device
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type != device.type:
        return device
    return torch.device(device.type, torch.accelerator.current_device_index())


def _call_reader(read: Reader, device: torch.device, kind: str) -> DeviceFacts:
    asked = f"the facts of {device} from {_name(read)}"
    try:
        facts = read(device)
    except Exception as error:
        raise BackendError(
            f"could not read {asked}: {type(error).__name__}: {error}; a call spec for a device that is not here "
            "states its facts: stated=DeviceFacts(...)",
            device=device,
            device_type=kind,
        ) from error
    if not isinstance(facts, DeviceFacts):
        raise BackendError(f"{asked}: expected DeviceFacts, got {facts!r}", device=device, device_type=kind)
    try:
        attrs.validate(facts)
    except FactError as error:
        raise BackendError(f"{asked}: {error}", device=device, device_type=kind) from error
    return facts


def _read_cuda(device: torch.device) -> DeviceFacts:
    properties = torch.cuda.get_device_properties(device)
    arch = properties.major * 10 + properties.minor
    count = properties.multi_processor_count
    board = boards(CUDA).get(arch)
    calibration = None if board is None else board.calibration_of(properties.name, count)
    smem_budget: int = properties.shared_memory_per_block_optin  # type: ignore[attr-defined]  # torch's stub lacks it
    return DeviceFacts(arch, calibration, count, smem_budget)


def _name(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"


# Boards -------------------------------------------------------------------------------------------------------------


def _ordered(instance: Any, attribute: Any, value: tuple[int, int]) -> None:
    if not 0 <= value[0] <= value[1]:
        raise FactError(f"{_BOARDS_FILE}: {attribute.name} is no range: {list(value)}")


@attrs.frozen
class Ranges:
    """Bounds a device's SM count and shared memory in bytes, both ends included."""

    sm_count: tuple[int, int] = attrs.field(validator=_ordered)
    smem_budget: tuple[int, int] = attrs.field(validator=_ordered)


@attrs.frozen
class ReferenceBoard:
    """Describes the board that stands for an arch."""

    name: str
    calibration: str | None
    sm_count: int
    smem_budget: int


@attrs.frozen
class Calibrated:
    """Says which devices a calibration name is for: driver names and SM count."""

    calibration: str
    names: tuple[str, ...]
    sm_count: int


@attrs.frozen
class Board:
    """Holds what is known of one arch: the ranges over which proofs quantify, and its reference board."""

    name: str
    sm_count: tuple[int, int] = attrs.field(validator=_ordered)
    smem_budget: tuple[int, int] = attrs.field(validator=_ordered)
    reference: ReferenceBoard
    calibrated: tuple[Calibrated, ...] = ()

    @property
    def ranges(self) -> Ranges:
        """Return the ranges of SM count and shared memory."""
        return Ranges(self.sm_count, self.smem_budget)

    @property
    def facts_without_arch(self) -> tuple[str | None, int, int]:
        """Return calibration, SM count and shared memory of the reference board."""
        return self.reference.calibration, self.reference.sm_count, self.reference.smem_budget

    def calibration_of(self, device_name: str, sm_count: int) -> str | None:
        """Return the calibration whose names and SM count fit a device, or None."""
        for entry in self.calibrated:
            if device_name in entry.names and sm_count == entry.sm_count:
                return entry.calibration
        return None


@attrs.frozen
class _Kind:
    others: Ranges
    boards: dict[int, Board] = attrs.field(factory=dict)


@functools.cache
def _kinds() -> dict[str, _Kind]:
    data = yaml.load(_boards_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return cattrs.Converter(forbid_extra_keys=True).structure(data, dict[str, _Kind])


@functools.cache
def _boards_bytes() -> bytes:
    return _BOARDS_FILE.read_bytes()


@functools.cache
def boards_digest() -> str:
    """Return the SHA-256 of `boards.yaml`, for content hashes: it changes when the domain of proofs may change."""
    return hashlib.sha256(_boards_bytes()).hexdigest()


def boards(kind: str = CUDA) -> Mapping[int, Board]:
    """Return the boards of a device kind by arch; none for a kind that `boards.yaml` does not list."""
    entry = _kinds().get(kind)
    return MappingProxyType({} if entry is None else entry.boards)


def ranges(kind: str, arch: int | None = None) -> Ranges:
    """Return the ranges of SM count and shared memory of an arch; None or an arch not listed: the catch-all ranges."""
    board = None if arch is None else boards(kind).get(arch)
    return board.ranges if board is not None else _kinds().get(kind, _kinds()["any"]).others


def calibrations(kind: str = CUDA) -> tuple[str, ...]:
    """Return every calibration name that a device of ``kind`` may report, sorted."""
    return tuple(sorted({entry.calibration for board in boards(kind).values() for entry in board.calibrated}))


def reference(arch: int, kind: str = CUDA) -> DeviceFacts:
    """Return the facts of the reference board of ``arch``; raises FactError for an arch without one, or no number."""
    known = boards(kind)
    if type(arch) is not int:
        raise FactError(f"an arch is a number such as 90 (compute capability 9.0), got {arch!r}", fact="arch")
    if arch not in known:
        raise FactError(
            f"no reference board for {kind} arch {arch}; {_known_archs(arch, known)}; or state all four device facts",
            fact="arch",
        )
    return DeviceFacts(arch, *known[arch].facts_without_arch)


def _known_archs(arch: int, known: Iterable[int]) -> str:
    archs = sorted(known)
    if not archs:
        return "boards of this kind are not listed"
    close = min(archs, key=lambda other: (abs(other - arch), other))
    return f"archs with one: {', '.join(map(str, archs))} (nearest: {close})"


def describe(kind: str, facts: DeviceFacts) -> str:
    """Return the facts for people: ``cuda, arch 90, 132 SMs, 227 KiB (H200)``, or ``(like A40)``."""
    if facts == NO_FACTS:
        return f"{kind}, no device facts"
    size = facts.smem_budget
    memory = f"{size // 1024} KiB" if size % 1024 == 0 else f"{size} bytes"
    board = boards(kind).get(facts.arch)
    known = board is not None and (facts.sm_count, facts.smem_budget) == board.facts_without_arch[1:]
    # An A40 and an RTX A6000 report equal facts: a name that no calibration gives is only a likeness.
    name = facts.calibration or (f"like {board.reference.name}" if known and board is not None else None)
    return f"{kind}, arch {facts.arch}, {facts.sm_count} SMs, {memory}" + (f" ({name})" if name else "")
