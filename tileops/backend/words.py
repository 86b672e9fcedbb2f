"""The words of what foreign code raised or handed over, even where it cannot be written. Imports nothing of ours."""

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


def shown(value: object, most: int = 80) -> str:
    """Return the repr of ``value`` on one line, cut after ``most`` characters; that of an array has several."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a foreign object may raise anything, and the error about it is still to be told
        return "(its repr cannot be written)"
    return f"{' '.join(text.split()):.{most}}"
