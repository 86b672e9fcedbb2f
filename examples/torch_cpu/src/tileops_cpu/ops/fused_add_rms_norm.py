"""FusedAddRMSNormFwdOp: the kernel, and the function that builds it for a call."""

from collections.abc import Sequence

import torch
from tileops.backend import TensorSpec

from tileops_cpu.ops.rms_norm import EPS, CpuRMSNorm


class CpuFusedAddRMSNorm:
    """Adds in place, then normalises the sum with the kernel of RMSNorm.

    Args:
        norm: the kernel of the second step.
    """

    def __init__(self, norm: CpuRMSNorm) -> None:
        """Keep the kernel of the second step."""
        self.norm = norm

    def __call__(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Write ``x + residual`` to ``residual``; return its norm, a fresh tensor of its shape."""
        residual.add_(x)
        return self.norm(residual, weight)


def build_fused_add_rms_norm(
    x: TensorSpec,
    residual: TensorSpec,
    weight: TensorSpec | None,
    *,
    normalized_shape: Sequence[int],
    eps: float | None,
) -> CpuFusedAddRMSNorm:
    """Build the kernel of a call. A left-out ``eps`` arrives as None and means what it means to torch's rms_norm."""
    return CpuFusedAddRMSNorm(CpuRMSNorm(len(normalized_shape), EPS if eps is None else eps, x.dtype))
