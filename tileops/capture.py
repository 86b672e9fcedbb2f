"""CUDA graph captures: whether one is under way, asked only where a call would build something."""

from __future__ import annotations

import torch

from tileops.rules.errors import ColdCaptureError


def is_capturing(device: torch.device) -> bool:
    """Say whether work for ``device`` is being captured into a CUDA graph now. Starts no driver, waits for nothing."""
    if device.type != "cuda":
        return False
    if torch.cuda.is_current_stream_capturing():
        return True
    if device.index is None or device.index == torch.cuda.current_device():
        return False
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def busy_error(op: str, asked: str) -> ColdCaptureError:
    """Return the error of what builds by its nature, asked for in a capture."""
    return ColdCaptureError(
        f"{op}: {asked} builds, times and waits, and a CUDA graph is being captured, which can hold none of it: "
        "call it before the capture",
        op=op,
    )


def cold_error(op: str, instance: str, facts: str, specs: str, what: str) -> ColdCaptureError:
    """Return the error of a call that met a capture before its kernel was ready.

    Args:
        op: the op's name.
        instance: the constructor call of the instance.
        facts: the call in words.
        specs: the arguments of ``warm`` for such a call.
        what: what the capture would have had to do.
    """
    return ColdCaptureError(
        f"{op}: a CUDA graph is being captured, and this call {what}, which no capture can hold: {facts}. Before the "
        f"capture, run one call with tensors like these, or warm({specs}) of the instance {instance}",
        op=op,
        call=facts,
    )
