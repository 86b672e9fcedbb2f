"""RMSNormFwdOp: the kernel, and the function that builds it for a call."""

from collections.abc import Sequence

import torch
from tileops.backend import TensorSpec


class CpuRMSNorm:
    """Divides each row by its root mean square, in float32, then scales it by the weight.

    ``y = x / sqrt(mean(x * x) + eps) * weight``, the mean over the last ``len(normalized_shape)`` dims. The
    operations and their order are those of ``torch.nn.functional.rms_norm``, so the results are the same bits.

    Args:
        normalized_shape: the dims of one row. Every argument is something that a compiler would bake in; the number
            of rows is none of them, so the kernel serves any.
        eps: added to the mean square.
        dtype: of the input and the output.
    """

    def __init__(self, normalized_shape: Sequence[int], eps: float, dtype: torch.dtype) -> None:
        """Prepare what every launch shares. A backend for real hardware compiles here."""
        self.dims = tuple(range(-len(normalized_shape), 0))
        self.eps = eps
        self.dtype = dtype

    def __call__(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Return the normalised ``x``, a fresh tensor of its shape."""
        wide = x.float()
        y = wide * torch.rsqrt(wide.pow(2).mean(self.dims, keepdim=True) + self.eps)
        if weight is not None:
            y = y * weight
        return y.to(self.dtype)


def build_rms_norm(
    x: TensorSpec, weight: TensorSpec | None, *, normalized_shape: Sequence[int], eps: float | None
) -> CpuRMSNorm:
    """Build the kernel of a call. A left-out ``eps`` arrives as None and means what it means to torch."""
    if eps is None:
        eps = torch.finfo(torch.float32).eps  # torch computes 16-bit inputs in float32, and takes that one's
    return CpuRMSNorm(normalized_shape, eps, x.dtype)
