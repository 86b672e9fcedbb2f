"""SoftmaxFwdOp: the kernel, and the function that builds it for a call."""

import torch
from tileops.backend import TensorSpec


class CpuSoftmax:
    """Exponentiates and divides by the sum along a dim, in float32.

    Args:
        dim: along which.
    """

    def __init__(self, dim: int) -> None:
        """Keep the dim; no size is part of the kernel."""
        self.dim = dim

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return a fresh tensor of the shape and dtype of ``x``."""
        return torch.softmax(x, self.dim, dtype=torch.float32).to(x.dtype)


def build_softmax(x: TensorSpec, *, dim: int) -> CpuSoftmax:
    """Build the kernel of a call."""
    return CpuSoftmax(dim)
