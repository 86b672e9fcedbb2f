"""Elementwise ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tileops.kernels.elementwise import SILU_AND_MUL_IMPLEMENTATIONS, SiLUAndMulInterface
from tileops.op import Op
from tileops.rules.interface import KernelInterface
from tileops.uses import Uses


class SiLUAndMulFwdOp(Op):
    """Gates one half of the last dim by the other: ``y = silu(x[..., :H]) * x[..., H:]``.

    ``SiLUAndMulFwdOp(target=None)``, called with ``x`` of shape ``[*B, 2 * H]``, float16, bfloat16 or float32; returns
    ``y`` of shape ``[*B, H]`` in that dtype. Computed in float32, rounded once.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = SILU_AND_MUL_IMPLEMENTATIONS
    interfaces: ClassVar[Mapping[str, Uses]] = {
        "silu_and_mul": Uses(SiLUAndMulInterface, facts={"rows": "prod(B)", "length": "H", "dtype": "T"}),
    }
