"""Tuning requests: handed to the kernels that take them, with their device current."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from tileops.rules.dispatcher import device_current

if TYPE_CHECKING:
    from tileops.op import Op


class TuningWarning(UserWarning):
    """Names an op that was asked to tune and has a kernel that does not tune."""


def request_tune(op: Op, kernel: Any, device: torch.device) -> None:
    """Ask one kernel to tune on ``device``; raises what it raises. Warns once an op of a kernel that does not tune."""
    request = getattr(kernel, "request_tune", None)
    if request is None:
        if not op._told_untuned:
            op._told_untuned = True
            name = type(op).__name__
            warnings.warn(
                f"{name} was asked to tune, but a kernel of it ({type(kernel).__qualname__}) has no request_tune() and "
                "stays as it is",
                TuningWarning,
                stacklevel=4,
            )
        return
    with device_current(device):
        request()
