"""FusedAddRMSNorm: its call spec and its interface."""

from __future__ import annotations

from typing import ClassVar

import torch

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.facts import choice, dim, flag, number
from tileops.rules.interface import KernelInterface

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@call_spec()
class FusedAddRMSNormCall(CallSpec):
    """States residual = x + residual, then y[rows, length] = its RMSNorm; weighted: there is a weight."""

    rows: int = dim()
    length: int = dim()
    dtype: torch.dtype = choice(*DTYPES)
    weighted: bool = flag()
    eps: float = number()


class FusedAddRMSNormInterface(KernelInterface):
    """Adds in place and normalises the sum: one dtype in and out, computed in float32.

    The sum is rounded to the dtype and written; y is the norm of that, rounded once. Tensors are contiguous, on one
    device, their data on a 16-byte boundary; the pitch of a row is its length. x and residual may be one tensor.
    """

    request: ClassVar[type[FusedAddRMSNormCall]] = FusedAddRMSNormCall

    def forward(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Returns a new y of x's shape and dtype and writes residual, on the current stream of their device.

        x and residual are [..., *row], of rows * length elements; weight is [*row], of x's dtype, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")
