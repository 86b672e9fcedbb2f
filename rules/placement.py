"""Devices as call specs keep them: one form for each, so that equal devices compare equal."""

from __future__ import annotations

import torch

from tileops.rules.errors import FactError

# What torch.device and str arguments were settled to, where the answer cannot change.
SETTLED: dict[object, torch.device] = {}


def settle_device(device: object) -> torch.device:
    """Return a device as a call spec keeps it; raises FactError for what is no device.

    A device without an index gets the current one where torch can say it without initialising a driver; CPU devices
    have no index, as on tensors.
    """
    if not isinstance(device, str | torch.device):
        raise FactError(
            f"device takes a torch.device or its name; got {device!r}", fact="device", received=repr(device)
        )
    try:
        found = torch.device(device)
    except RuntimeError as error:
        cause = str(error).splitlines()[0]
        raise FactError(
            f"device takes a torch.device or its name; got {device!r}: {cause}", fact="device", received=repr(device)
        ) from error
    if found.type == "cpu":
        found = torch.device("cpu")
    elif found.index is None:
        index = _current_index(found.type)
        # The current index can change, and the driver can become available: such an answer is not kept.
        return found if index is None else torch.device(found.type, index)
    SETTLED[device] = found
    return found


def _current_index(kind: str) -> int | None:
    module = getattr(torch, kind, None)
    if module is None or not hasattr(module, "is_available"):
        return None
    if hasattr(module, "is_initialized") and module.is_initialized():
        return int(module.current_device())
    # Before the driver is initialised nobody has chosen a device: it is the first.
    return 0 if module.is_available() else None
