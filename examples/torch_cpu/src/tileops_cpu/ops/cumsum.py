"""CumsumFwdOp: the kernel, and the function that builds it for a call."""

import torch
from tileops.backend import TensorSpec


class CpuCumsum:
    """Sums up to each element along a dim. Sums are float32 at least, each rounded once to the dtype of ``x``.

    Args:
        dim: along which.
    """

    def __init__(self, dim: int) -> None:
        """Keep the dim; no size is part of the kernel."""
        self.dim = dim

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return a fresh tensor of the shape and dtype of ``x``."""
        return torch.cumsum(x, self.dim, dtype=torch.float32).to(x.dtype)


def build_cumsum(x: TensorSpec, *, dim: int) -> CpuCumsum:
    """Build the kernel of a call."""
    return CpuCumsum(dim)
