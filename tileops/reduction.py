"""Functions along one dim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tileops.kernels.reduction import (
    CUMSUM_IMPLEMENTATIONS,
    SOFTMAX_IMPLEMENTATIONS,
    CumsumInterface,
    SoftmaxInterface,
)
from tileops.op import Op
from tileops.rules.interface import KernelInterface
from tileops.uses import Uses

# The dim splits the shape in three. A slice, for a scalar has no dim to index and is a row of one element.
_ROWS = {
    "outer": "prod(S[:dim % max(len(S), 1)])",
    "length": "prod(S[dim % max(len(S), 1):dim % max(len(S), 1) + 1])",
    "inner": "prod(S[dim % max(len(S), 1) + 1:])",
    "dtype": "T",
}


class SoftmaxFwdOp(Op):
    """Exponentiates and divides by the sum along a dim: ``y = exp(x) / sum(exp(x))``.

    ``SoftmaxFwdOp(dim=-1, target=None)``, called with ``x`` of any rank, float16, bfloat16 or float32; returns ``y``
    like ``x``. As ``torch.softmax``.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = SOFTMAX_IMPLEMENTATIONS
    interfaces: ClassVar[Mapping[str, Uses]] = {"softmax": Uses(SoftmaxInterface, facts=_ROWS)}


class CumsumFwdOp(Op):
    """Sums along a dim up to each element: ``y[i] = x[0] + ... + x[i]``, summed in float32 at least.

    ``CumsumFwdOp(dim=-1, target=None)``, called with ``x`` of any rank, float16, bfloat16 or float32; returns ``y``
    like ``x``. As ``torch.cumsum``.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = CUMSUM_IMPLEMENTATIONS
    interfaces: ClassVar[Mapping[str, Uses]] = {"cumsum": Uses(CumsumInterface, facts=_ROWS)}
