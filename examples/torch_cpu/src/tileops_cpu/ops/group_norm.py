"""GroupNormFwdOp: the kernel, and the function that builds it for a call."""

import torch
from tileops.backend import TensorSpec


class CpuGroupNorm:
    """Centres and scales each group of channels, then weighs and shifts each channel.

    Args:
        num_groups: into how many groups the channels are split.
        eps: added to the variance.
    """

    def __init__(self, num_groups: int, eps: float) -> None:
        """Keep the form; no size is part of it."""
        self.num_groups = num_groups
        self.eps = eps

    def __call__(self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        """Return the normalised ``x`` [N, C, *S], a fresh tensor of its shape."""
        return torch.nn.functional.group_norm(x, self.num_groups, weight, bias, self.eps)


def build_group_norm(
    x: TensorSpec, weight: TensorSpec | None, bias: TensorSpec | None, *, num_groups: int, eps: float
) -> CpuGroupNorm:
    """Build the kernel of a call."""
    return CpuGroupNorm(num_groups, eps)
