"""Describes the rows of an RMSNorm: the part of the build identity that its programs share."""

from __future__ import annotations

from attrs import frozen

from tileops.kernels.norm.fused_add_rms_norm import FusedAddRMSNormCall
from tileops.kernels.norm.rms_norm import RMSNormCall
from tileops.kernels.norm.runs import name_of


@frozen
class NormForm:
    """Holds what is compiled in; the number of rows is read from the tensors at each launch."""

    length: int
    dtype: str
    weighted: bool
    eps: float

    @classmethod
    def of(cls, call: RMSNormCall | FusedAddRMSNormCall) -> NormForm:
        """Returns the form of a call."""
        return cls(call.length, name_of(call.dtype), call.weighted, call.eps)

    def __str__(self) -> str:
        return f"{self.dtype}, rows of {self.length}, {'weight' if self.weighted else 'no weight'}, eps {self.eps:g}"
