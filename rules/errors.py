"""Every error of the project. Imports nothing of ours.

Each class keeps the fields it was made from, so that a caller can act on them, and pickles whole.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class BackendError(Exception):
    """Stands above every error that choosing, building or taking over a kernel raises.

    Keyword fields become attributes: ``BackendError("...", op="GemmFwdOp").op``.
    """

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.fields)


def _rebuild(cls: type[BackendError], message: str, fields: dict[str, Any]) -> BackendError:
    return cls(message, **fields)


class UnknownTargetError(BackendError):
    """Names a target that no backend registered."""


class AmbiguousTargetError(BackendError):
    """Names the targets whose detectors claim one device."""


class OpNotAvailableError(BackendError, ValueError):
    """Says why an op cannot run: no device, no builder, or no implementation that serves the call."""


class AmbiguousDispatchError(BackendError):
    """Names the maximal implementations between which no precedence decides ("dispatch is ambiguous")."""


class DeclarationError(BackendError):
    """Says what is wrong with a declaration, a table, an op class or a registration."""


class ExpressionError(DeclarationError):
    """Points at the place in an expression that does not parse or does not type."""


class ManifestError(DeclarationError):
    """Lists everything wrong with a manifest file: file, line, field path and cause of each."""


class RuleError(DeclarationError):
    """Says which rule raised on which call: a bug in the rule, never a refusal."""


class FactError(BackendError, ValueError):
    """Says which fact of a call spec got a value it does not take, and what it takes."""


class SignatureError(BackendError, ValueError):
    """Says which input or param of a call breaks the op's manifest signature: expected form, received value."""


class KernelResultError(BackendError):
    """Says how what a kernel returned differs from the outputs the manifest declares."""


class ColdCaptureError(BackendError):
    """Says what to run before a capture that met a call with no built kernel."""


class Declined(Exception):  # noqa: N818 - a statement, not a fault: a backend raises it to stay out
    """Raised by a backend on import to say that it has nothing to serve here, and why."""


_LONG = 512  # bits of an integer beyond which its digits tell a reader nothing


def shown(value: object) -> str:
    """Return ``repr(value)``, but an integer of hundreds of digits as ``about 10**k``: Python refuses to print it."""
    if type(value) is int and value.bit_length() > _LONG:
        return f"about {'-' * (value < 0)}10**{int(value.bit_length() * 0.30103)}"
    try:
        return repr(value)
    except ValueError:
        return f"a {type(value).__name__} with an integer too long to print"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the known name closest to ``name``, or an empty string."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
