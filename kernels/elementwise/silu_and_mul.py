"""SiLU-and-multiply: its call spec and its interface."""

from __future__ import annotations

from typing import ClassVar

import torch

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.facts import choice, dim
from tileops.rules.interface import KernelInterface

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@call_spec()
class SiLUAndMulCall(CallSpec):
    """States y[rows, length] = silu(x[rows, :length]) * x[rows, length:], where silu(g) = g / (1 + exp(-g))."""

    rows: int = dim()
    length: int = dim()
    dtype: torch.dtype = choice(*DTYPES)


class SiLUAndMulInterface(KernelInterface):
    """Gates the second half of each row by the first: one dtype in and out, computed in float32, rounded once.

    x is contiguous, its data on a 16-byte boundary; the pitch of its rows is 2 * length, so the second half of a row is
    on a 16-byte boundary only where length * itemsize(dtype) % 16 == 0.
    """

    request: ClassVar[type[SiLUAndMulCall]] = SiLUAndMulCall

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns a new y [..., length] of x's dtype, on the current stream of its device. x is [..., 2 * length]."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")
