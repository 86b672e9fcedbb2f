"""Describes the rows that a normalisation works on: the part of the build identity that its programs share."""

from __future__ import annotations

from typing import Protocol

import torch
from attrs import frozen


class NormCall(Protocol):
    """Stands for the facts that every normalisation of rows has."""

    @property
    def length(self) -> int: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def weighted(self) -> bool: ...
    @property
    def eps(self) -> float: ...


@frozen
class NormForm:
    """Holds what is compiled in; the number of rows is read from the tensors at each launch."""

    length: int
    dtype: str
    weighted: bool
    biased: bool
    eps: float

    @classmethod
    def of(cls, call: NormCall, biased: bool = False) -> NormForm:
        """Returns the form of a call."""
        return cls(call.length, str(call.dtype).removeprefix("torch."), call.weighted, biased, call.eps)

    def __str__(self) -> str:
        parts = (" weight" * self.weighted + " bias" * self.biased).split()
        return f"{self.dtype}, rows of {self.length}, {' and '.join(parts) or 'no weight'}, eps {self.eps:g}"
