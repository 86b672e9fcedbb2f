"""The words of what a backend's code raised, even where it cannot be written. Imports nothing of ours."""

from __future__ import annotations


def message_of(error: BaseException) -> str:
    """Return the message of ``error``, which may be an exception whose ``__str__`` raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a plugin's exception may raise anything, and its failure is still to be told
        return "(its message cannot be written)"


def cause_of(error: BaseException) -> str:
    """Return type and message of ``error``."""
    message = message_of(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
