"""What ``python -m tools.explain --targets`` says: each installed backend, how it loaded, what it serves and claims."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import attrs
import torch

from tileops import backend
from tileops.catalog import op_names
from tileops.tools import words
from tileops.tools.question import device_of

SCHEMA = "tileops.targets/1"


@attrs.frozen
class TargetView:
    """One target of a backend: its ops, its builders for ops that do not exist, and what its detector says here.

    ``devices`` are those it claims of those asked, ``raised`` says what the detector raised about others.
    """

    name: str
    ops: tuple[str, ...]
    unknown: tuple[str, ...]
    devices: tuple[str, ...]
    raised: tuple[str, ...]

    def lines(self, asked: Sequence[str]) -> list[tuple[str, str]]:
        """Write the target as labelled lines."""
        claims = ", ".join(self.devices) or f"none of {', '.join(asked)}"
        found = [("target", self.name), ("serves", ", ".join(self.ops) or "no op"), ("claims", claims)]
        found += [("raised", text) for text in self.raised]
        if self.unknown:
            found.append(("no such op", ", ".join(self.unknown)))
        return found


@attrs.frozen
class BackendView:
    """One entry point: its record, its targets, and what it adds to selection itself."""

    record: backend.LoadRecord
    targets: tuple[TargetView, ...]
    kernel_types: tuple[str, ...]
    device_facts: tuple[str, ...]

    def lines(self, asked: Sequence[str]) -> list[tuple[str, str]]:
        """Write what it registered as labelled lines."""
        found = [line for target in self.targets for line in target.lines(asked)]
        if self.kernel_types:
            found.append(("adds", ", ".join(self.kernel_types)))
        if self.device_facts:
            found.append(("reads facts", f"of {', '.join(self.device_facts)}"))
        if self.record.state == "loaded" and not found:
            found.append(("registers", "nothing"))
        return found

    def plain(self) -> dict[str, Any]:
        """Return the backend as the JSON schema ``targets-1.json`` has it."""
        record = self.record
        return {
            "entry_point": record.entry_point,
            "module": record.module,
            "distribution": record.distribution,
            "version": record.version,
            "state": record.state,
            "cause": record.cause or None,
            "traceback": record.traceback or None,
            "targets": [
                {
                    "name": target.name,
                    "ops": list(target.ops),
                    "unknown_ops": list(target.unknown),
                    "devices": list(target.devices),
                    "raised": list(target.raised),
                }
                for target in self.targets
            ],
            "kernel_types": list(self.kernel_types),
            "device_facts": list(self.device_facts),
        }


@attrs.frozen
class TargetsView:
    """Every installed backend, and the devices that their detectors were asked about."""

    backends: tuple[BackendView, ...]
    devices: tuple[str, ...]

    @classmethod
    def here(cls, device: str | None = None) -> TargetsView:
        """Load the installed backends and ask their detectors about this machine's devices and about ``device``.

        Raises UsageError for what is no torch device.
        """
        asked = devices_here()
        if device is not None:
            asked = list(dict.fromkeys([*asked, device_of(device)]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", backend.BackendWarning)  # the view has what they say, and more
            claims = {one: backend.claimants(one) for one in asked}
            raised = {one: backend.detector_failures(one) for one in asked}
            views = tuple(_view(record, claims, raised) for record in backend.backends())
        return cls(views, tuple(map(str, asked)))

    @property
    def sound(self) -> bool:
        """Say whether no backend failed."""
        return all(view.record.state != "failed" for view in self.backends)

    def text(self) -> str:
        """Write all of it for people."""
        if not self.backends:
            return f"no backend is installed: no distribution has an entry point in the group {backend.GROUP!r}"
        blocks = []
        for view in self.backends:
            record = view.record
            head = f"{record.entry_point}  {record.owner}, module {record.module}: {record.state}"
            lines = [head, *words.columns(view.lines(self.devices), indent="  ")]
            if record.state == "declined":
                lines.append(f"  because: {record.cause}")
            elif record.traceback:
                lines += [f"  {line}".rstrip() for line in record.traceback.splitlines()]
            blocks.append("\n".join(lines))
        return "\n\n".join(blocks)

    def plain(self) -> dict[str, Any]:
        """Return all of it as the JSON schema ``targets-1.json`` has it."""
        return {
            "schema": SCHEMA,
            "ok": self.sound,
            "devices": list(self.devices),
            "backends": [view.plain() for view in self.backends],
        }


def devices_here() -> list[torch.device]:
    """List the devices of this machine: the CPU, and each one of the process's accelerator."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    count = 0 if accelerator is None else torch.accelerator.device_count()
    return [torch.device("cpu"), *(torch.device(accelerator.type, i) for i in range(count) if accelerator is not None)]


def _view(
    record: backend.LoadRecord,
    claims: dict[torch.device, list[str]],
    raised: dict[torch.device, list[backend.DetectorFailure]],
) -> BackendView:
    known = op_names()
    targets = []
    for name in backend.targets_of(record):
        served = backend.served_ops(name)
        targets.append(
            TargetView(
                name,
                tuple(op for op in served if op in known),
                tuple(op for op in served if op not in known),
                tuple(str(device) for device, claiming in claims.items() if name in claiming),
                tuple(
                    f"on {device}: {failure.cause}"
                    for device, failures in raised.items()
                    for failure in failures
                    if failure.target == name
                ),
            )
        )
    kernel_types = tuple(f"{op}.{key}" for op, key in backend.kernel_types_of(record))
    return BackendView(record, tuple(targets), kernel_types, tuple(backend.device_facts_of(record)))
