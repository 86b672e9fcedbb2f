"""Describes a tensor worked on along one dim: the part of the build identity that all programs share."""

from __future__ import annotations

from attrs import frozen

from tileops.kernels.reduction.cumsum import CumsumCall
from tileops.kernels.reduction.softmax import SoftmaxCall


@frozen
class AlongForm:
    """Holds what is compiled in; how many slices [length, inner] there are is read from the tensors at each launch."""

    length: int
    inner: int
    dtype: str

    @classmethod
    def of(cls, call: SoftmaxCall | CumsumCall) -> AlongForm:
        """Returns the form of a call."""
        return cls(call.length, call.inner, str(call.dtype).removeprefix("torch."))

    def __str__(self) -> str:
        return f"{self.dtype}, rows of {self.length}" + (f", {self.inner} apart" if self.inner > 1 else "")
