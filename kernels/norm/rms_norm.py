"""RMSNorm: its call spec and its interface."""

from __future__ import annotations

from typing import ClassVar

import torch

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.facts import choice, dim, flag, number
from tileops.rules.interface import KernelInterface


@call_spec()
class RMSNormCall(CallSpec):
    """States y[rows, length] = x / sqrt(mean(x * x) + eps) * weight, the mean over a row; weighted: weight is there."""

    rows: int = dim()
    length: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16)
    weighted: bool = flag()
    eps: float = number()


class RMSNormInterface(KernelInterface):
    """Divides each row by its root mean square: float16 or bfloat16 in and out, computed in float32, rounded once.

    Tensors are contiguous, on one device, their data on a 16-byte boundary; the pitch of a row is its length. ``eps``
    is a number by now, whatever the caller left out.
    """

    request: ClassVar[type[RMSNormCall]] = RMSNormCall

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Returns a new y of x's shape and dtype, on the current stream of their device.

        x is [..., *row], of rows * length elements; weight is [*row], of length elements and x's dtype, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")
