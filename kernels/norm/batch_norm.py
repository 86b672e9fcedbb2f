"""BatchNorm: the call specs and the interfaces of training and of inference."""

from __future__ import annotations

from typing import ClassVar

import torch

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.facts import choice, dim, flag, number
from tileops.rules.interface import KernelInterface

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@call_spec(
    invariants=("batch * spatial > 1", "param_dtype == dtype or param_dtype == float32"),
    derived={"count": "batch * spatial"},
)
class BatchNormTrainCall(CallSpec):
    """States y = (x - mean) / sqrt(var + eps) * weight + bias, the statistics over batch and spatial of each channel.

    x is [batch, channels, spatial]: a channel's count elements are batch runs of spatial, channels * spatial apart. The
    running statistics move by momentum towards the batch's, the running variance towards the one over count - 1.
    param_dtype is that of statistics, weight and bias.
    """

    batch: int = dim()
    channels: int = dim()
    spatial: int = dim()
    dtype: torch.dtype = choice(*DTYPES)
    param_dtype: torch.dtype = choice(*DTYPES)
    weighted: bool = flag()
    biased: bool = flag()
    momentum: float = number()
    eps: float = number()


@call_spec(invariants=("param_dtype == dtype or param_dtype == float32",))
class BatchNormInferCall(CallSpec):
    """States y = (x - running_mean) / sqrt(running_var + eps) * weight + bias, x being [batch, channels, spatial]."""

    batch: int = dim()
    channels: int = dim()
    spatial: int = dim()
    dtype: torch.dtype = choice(*DTYPES)
    param_dtype: torch.dtype = choice(*DTYPES)
    weighted: bool = flag()
    biased: bool = flag()
    eps: float = number()


class BatchNormTrainInterface(KernelInterface):
    """Normalises each channel by the batch's statistics and moves the running ones: computed in float32.

    Tensors are contiguous, on one device, their data on a 16-byte boundary.
    """

    request: ClassVar[type[BatchNormTrainCall]] = BatchNormTrainCall

    def forward(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns a new y of x's shape and dtype and writes the running statistics, on the current stream.

        x is [batch, channels, *spatial]; all others are [channels], of param_dtype; weight and bias may be None.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")


class BatchNormInferInterface(KernelInterface):
    """Normalises each channel by the running statistics: computed in float32, rounded once.

    Tensors are contiguous, on one device, their data on a 16-byte boundary.
    """

    request: ClassVar[type[BatchNormInferCall]] = BatchNormInferCall

    def forward(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns a new y of x's shape and dtype, on the current stream; writes nothing else.

        x is [batch, channels, *spatial]; all others are [channels], of param_dtype; weight and bias may be None.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")
