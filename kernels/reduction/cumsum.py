"""Cumulative sum: its call spec and its interface."""

from __future__ import annotations

from typing import ClassVar

import torch

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.facts import choice, dim
from tileops.rules.interface import KernelInterface

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@call_spec(derived={"rows": "outer * inner"})
class CumsumCall(CallSpec):
    """States y[i] = x[0] + ... + x[i] along each of outer * inner rows of length elements.

    x is [outer, length, inner]: the elements of a row are inner apart, and where inner is 1 a row is contiguous.
    """

    outer: int = dim()
    length: int = dim()
    inner: int = dim()
    dtype: torch.dtype = choice(*DTYPES)


class CumsumInterface(KernelInterface):
    """Sums each row up to every element: one dtype in and out, summed in float32, each sum rounded once.

    x is contiguous, its data on a 16-byte boundary.
    """

    request: ClassVar[type[CumsumCall]] = CumsumCall

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns a new y of x's shape and dtype, on the current stream of its device.

        x has outer * length * inner elements, in that order of dims.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")
