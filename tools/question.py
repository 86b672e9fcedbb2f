"""What a command line asks: words such as ``m=1``, ``a=1x4096``, ``--arch 90`` read into calls and devices."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import torch

from tileops.manifest.paramtype import REFUSED
from tileops.manifest.schema import Param
from tileops.rules.callspec import CallSpec
from tileops.rules.device import (
    CUDA,
    NO_FACTS,
    ROCM,
    DeviceFacts,
    boards,
    calibrations,
    device_kind,
    ranges,
    read_facts,
    reference,
)
from tileops.rules.errors import FactError, nearest
from tileops.rules.expr import DTYPES
from tileops.rules.facts import MISSING, read_pairs
from tileops.rules.spaces import holds, spaces
from tileops.tools.usage import Parser, UsageError


@attrs.frozen
class Place:
    """The device a question is about: torch's device, and its facts as stated or read."""

    device: torch.device
    facts: DeviceFacts

    @property
    def kind(self) -> str:
        """Return the device kind that declarations name."""
        return device_kind(self.device)

    def beyond_proofs(self) -> str | None:
        """Say which devices of its arch the proofs cover where this is none of them; None where it is one."""
        kind, facts = self.kind, self.facts
        if holds(spaces([kind])[kind], facts):
            return None
        within = ranges(kind, facts.arch)
        covered = f"{_span(within.sm_count)} SMs and {_span(within.smem_budget)} bytes of shared memory a block"
        return f"no proof covers this device: of {kind}, arch {facts.arch}, they cover {covered}" + "".join(
            f", {entry.calibration} with {entry.sm_count} SMs only"
            for board in [boards(kind).get(facts.arch)]
            for entry in (board.calibrated if board is not None else ())
        )


def _span(ends: tuple[int, int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def add_device_options(parser: Parser) -> None:
    """Give a parser the options that say which device a question is about."""
    parser.add_argument("--arch", help="ask about the reference board of this arch, such as 90")
    parser.add_argument("--device", help="the device type, or a device of this machine (default: cuda)")
    parser.add_argument("--sm-count", type=int, help="number of SMs, in place of the reference board's")
    parser.add_argument("--smem", type=int, help="shared memory that one block may use, in bytes")
    parser.add_argument("--calibration", help="the board whose measurements apply, such as H200; or none")


def device_options(device: torch.device, facts: DeviceFacts) -> list[str]:
    """Return the options that say a device and every fact of it."""
    options = [] if device.type == CUDA else [f"--device {device.type}"]
    if facts != NO_FACTS:
        options += [f"--arch {facts.arch}", f"--sm-count {facts.sm_count}", f"--smem {facts.smem_budget}"]
        options += [f"--calibration {shlex.quote(facts.calibration or 'none')}"]
    return options


def place(options: argparse.Namespace) -> Place:
    """Return the device that the options name; raises UsageError for an unknown one, or none to ask about."""
    device = device_of(options.device or CUDA)
    kind = device_kind(device)
    said = {"calibration": options.calibration, "sm_count": options.sm_count, "smem_budget": options.smem}
    given: dict[str, Any] = {
        name: None if value == "none" else value for name, value in said.items() if value is not None
    }
    try:
        known = _facts(device, kind, options.arch, given)
        facts = attrs.evolve(known, **given)
    except (FactError, ValueError) as error:
        raise UsageError(str(error)) from error
    if "calibration" in given:
        _check_calibration(kind, facts.calibration)
    elif (facts.sm_count, facts.smem_budget) != (known.sm_count, known.smem_budget):
        facts = attrs.evolve(facts, calibration=None)  # the measurements are of a board, and this is another one
    return Place(device, facts)


def device_of(text: str) -> torch.device:
    """Read a device; raises UsageError for what torch has none of."""
    kind, colon, index = text.partition(":")
    if kind == ROCM:
        if torch.version.hip is None:
            raise UsageError(
                f"--device {text!r}: only a ROCm build of torch can be asked about rocm, whose devices it calls cuda; "
                "this is none"
            )
        text = f"{CUDA}{colon}{index}"
    try:
        return torch.device(text)
    except RuntimeError as error:
        raise UsageError(f"--device {text!r} is no torch device: {str(error).splitlines()[0]}") from error


def _check_calibration(kind: str, name: str | None) -> None:
    known = calibrations(kind)
    if name is not None and boards(kind) and name not in known:
        raise UsageError(
            f"no measurements of a board {name!r} are kept{nearest(name, known)}; --calibration takes: "
            f"{', '.join([*known, 'none'])}"
        )


def _facts(device: torch.device, kind: str, arch: str | None, given: Mapping[str, Any]) -> DeviceFacts:
    if arch is not None:
        return _stated_arch(kind, arch, given)
    if kind != CUDA:
        return read_facts(device)
    if torch.cuda.is_available():
        return read_facts(device)
    raise UsageError(
        f"there is no CUDA device here to ask about: say --arch N, one of {_listed(boards(kind))}, or --device cpu"
    )


def _stated_arch(kind: str, arch: str, given: Mapping[str, Any]) -> DeviceFacts:
    known = boards(kind)
    if not arch.isdecimal():
        raise UsageError(f"--arch takes a number such as 90, got {arch!r}{nearest(arch, map(str, known))}")
    number = int(arch)
    if number in known:
        return reference(number, kind)
    if {"sm_count", "smem_budget"} <= given.keys():
        return attrs.evolve(NO_FACTS, arch=number)
    if not known:
        raise UsageError(
            f"no board of {kind} is known, so --arch {arch} says too little: leave it out, or say --sm-count and "
            "--smem too"
        )
    close = min(known, key=lambda other: (abs(other - number), other))
    hint = f" (did you mean {close}?)" if abs(close - number) <= 5 else ""
    raise UsageError(
        f"no {kind} board of arch {number} is known{hint}; known: {_listed(known)}; "
        "for another chip say --sm-count and --smem too"
    )


def _listed(archs: Iterable[int]) -> str:
    return ", ".join(str(arch) for arch in sorted(archs)) or "none"


def pairs(words: Sequence[str]) -> dict[str, str]:
    """Read ``name=value`` words; raises UsageError for another form and for a name given twice."""
    read: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UsageError(f"expected a fact as name=value, such as m=1, got {word!r}")
        if name in read:
            raise UsageError(f"{name} is given twice: {read[name]} and {text}")
        read[name] = text
    return read


def call_of(request: type[CallSpec], params: Mapping[str, Param], said: Sequence[str], where: Place) -> CallSpec:
    """Make the call spec that facts such as ``m=1`` describe.

    A fact that is not given takes its own default, or that of the manifest param of its name. Raises UsageError that
    names all of: the unknown facts, each with the nearest one, the facts that are missing, the wrong values.
    """
    kinds = request.kinds
    facts: dict[str, Any] = {}
    named, faults = set(), []
    for word in said:
        name = word.partition("=")[0].strip()
        if name in named:
            faults.append(f"the fact {name!r} is given twice")
            continue
        named.add(name)
        try:
            facts |= read_pairs([word], kinds)
        except FactError as error:
            faults.append(str(error))
    missing = []
    for name, kind in kinds.items():
        if name in named or kind.default is not MISSING:
            continue
        if name in params and not params[name].required:
            facts[name] = params[name].default
        else:
            missing.append(f"{name} ({kind.describe()})")
    if missing:
        faults.append(f"these facts of {request.__name__} are missing: {', '.join(missing)}")
    UsageError.check(faults)
    try:
        return request(device=where.device, stated=where.facts, **facts)
    except FactError as error:
        raise UsageError(str(error)) from error


def shape_of(name: str, text: str) -> tuple[int, ...]:
    """Read a shape such as ``1x4096``; ``scalar`` is the shape of rank 0."""
    if text == "scalar":
        return ()
    sizes = text.split("x")
    if not all(size.isdecimal() for size in sizes):
        raise UsageError(f"{name} takes a shape such as 1x4096, or scalar, got {text!r}")
    return tuple(int(size) for size in sizes)


def dtype_of(name: str, text: str, members: Sequence[torch.dtype]) -> torch.dtype:
    """Read a dtype by its torch name, one of ``members`` if there are any; raises UsageError with the nearest."""
    valid = {known: dtype for known, dtype in DTYPES.items() if not members or dtype in members}
    if text not in valid:
        raise UsageError(f"{name} takes {' or '.join(valid)}, got {text!r}{nearest(text, valid)}")
    return valid[text]


def param_of(param: Param, text: str) -> Any:
    """Read the value of an op's param: ``false``, ``none``, ``1e-5``, ``2x3``, ``bfloat16``, a word."""
    words = {"true": True, "false": False, "none": None}
    candidates: list[Any] = [words[text.lower()]] if text.lower() in words else []
    for read in (int, float):
        try:
            candidates.append(read(text))
        except ValueError:
            continue
    if text and all(size.isdecimal() for size in text.split("x")):
        candidates.append([int(size) for size in text.split("x")])
    for candidate in (*candidates, text):
        taken = param.type.from_plain(candidate)
        if taken is not REFUSED:
            return taken
    raise UsageError(f"param {param.name} takes {param.type}, got {text!r}")
