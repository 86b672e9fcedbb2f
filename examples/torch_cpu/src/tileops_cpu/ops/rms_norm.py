"""RMSNormFwdOp: the kernel, and the function that builds it for a call."""

from collections.abc import Sequence

import torch
from tileops.backend import TensorSpec

#: What torch takes where no eps is given: it computes 16-bit inputs in float32, so it is that type's.
EPS = torch.finfo(torch.float32).eps


class CpuRMSNorm:
    """Divides each row by its root mean square, in float32, then scales it by the weight.

    ``y = x / sqrt(mean(x * x) + eps) * weight``, the mean over the last ``row_dims`` dims. The operations and their
    order are those of ``torch.nn.functional.rms_norm``, so the results are the same bits.

    Args:
        row_dims: how many dims make a row. Every argument is something that a compiler would bake in; the number of
            rows is none of them, so the kernel serves any.
        eps: added to the mean square.
        dtype: of the input and the output.
    """

    def __init__(self, row_dims: int, eps: float, dtype: torch.dtype) -> None:
        """Prepare what every launch shares. A backend for real hardware compiles here."""
        self.dims = tuple(range(-row_dims, 0))
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
    return CpuRMSNorm(len(normalized_shape), EPS if eps is None else eps, x.dtype)
