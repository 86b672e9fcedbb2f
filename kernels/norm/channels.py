"""Describes BatchNorm by the running statistics: the build identity of its program."""

from __future__ import annotations

from attrs import frozen

from tileops.kernels.norm.batch_norm import BatchNormInferCall
from tileops.kernels.norm.runs import name_of


@frozen
class ChannelForm:
    """Holds what is compiled in of x [batch, channels, spatial]; batch is read from the tensors at each launch."""

    channels: int
    spatial: int
    dtype: str
    param_dtype: str
    weighted: bool
    biased: bool
    eps: float

    @classmethod
    def of(cls, call: BatchNormInferCall) -> ChannelForm:
        """Returns the form of a call."""
        return cls(
            call.channels,
            call.spatial,
            name_of(call.dtype),
            name_of(call.param_dtype),
            call.weighted,
            call.biased,
            call.eps,
        )

    def __str__(self) -> str:
        parts = (" weight" * self.weighted + " bias" * self.biased).split()
        shape = f"{self.channels} channels of {self.spatial}"
        return f"{self.dtype}, {shape}, {' and '.join(parts) or 'no weight'}, eps {self.eps:g}"
