"""What an exception that a kernel or its build raised says besides its own words: whose kernel it was, of which op."""

from __future__ import annotations

import torch

from tileops.plan import CallFacts
from tileops.rules.errors import BackendError


def tell(error: BaseException, facts: CallFacts) -> None:
    """Add a note to what a kernel raised: the op, the kernel, the device. An error of ours names them already."""
    by = f" by the implementation {facts.key!r}" if facts.key is not None else ""
    by = f" by the kernel of target {facts.target!r}" if isinstance(facts.target, str) else by
    note(error, f"{facts.op}: raised{by} on {facts.device}")


def tell_build(error: BaseException, op: str, whose: str, device: torch.device) -> None:
    """Add a note to what a build raised: the op, whose build, the device."""
    note(error, f"{op}: raised as {whose} built a kernel on {device}")


def note(error: BaseException, text: str) -> None:
    """Add a note once: what a build raised reaches every caller that waited for it. An interrupt is no kernel's."""
    if isinstance(error, BackendError) or not isinstance(error, Exception):
        return
    if text not in getattr(error, "__notes__", ()):
        error.add_note(text)
