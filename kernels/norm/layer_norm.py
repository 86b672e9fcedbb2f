"""LayerNorm: its call spec and its interface."""

from __future__ import annotations

from typing import ClassVar

import torch

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.facts import choice, dim, flag, number
from tileops.rules.interface import KernelInterface

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@call_spec()
class LayerNormCall(CallSpec):
    """States y[rows, length] = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, both statistics over a row.

    The variance divides by the length. weighted, biased: there is a weight, a bias.
    """

    rows: int = dim()
    length: int = dim()
    dtype: torch.dtype = choice(*DTYPES)
    weighted: bool = flag()
    biased: bool = flag()
    eps: float = number()


class LayerNormInterface(KernelInterface):
    """Centres and scales each row: one dtype in and out, computed in float32, rounded once.

    Tensors are contiguous, on one device, their data on a 16-byte boundary; the pitch of a row is its length. The
    variance is that of the centred values: a mean of squares loses it where the mean is large.
    """

    request: ClassVar[type[LayerNormCall]] = LayerNormCall

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        """Returns a new y of x's shape and dtype, on the current stream of their device.

        x is [..., *row], of rows * length elements; weight and bias are [*row], of x's dtype, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")
