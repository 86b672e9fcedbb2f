"""LayerNormFwdOp: the kernel, and the function that builds it for a call."""

from collections.abc import Sequence

import torch
from tileops.backend import TensorSpec


class CpuLayerNorm:
    """Centres and scales each row, then weighs and shifts its elements.

    Args:
        normalized_shape: the dims that make a row.
        eps: added to the variance.
    """

    def __init__(self, normalized_shape: Sequence[int], eps: float) -> None:
        """Keep the form. The number of rows is no part of it: one kernel serves any."""
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps

    def __call__(self, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        """Return the normalised ``x``, a fresh tensor of its shape."""
        return torch.nn.functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


def build_layer_norm(
    x: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    *,
    normalized_shape: Sequence[int],
    eps: float,
) -> CpuLayerNorm:
    """Build the kernel of a call."""
    return CpuLayerNorm(normalized_shape, eps)
