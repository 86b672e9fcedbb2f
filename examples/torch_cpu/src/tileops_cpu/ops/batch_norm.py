"""BatchNormFwdOp: the kernel, and the function that builds it for a call."""

import torch
from tileops.backend import TensorSpec


class CpuBatchNorm:
    """Normalises each channel; when training it moves the running statistics, in place.

    Args:
        training: by the batch's statistics, else by the running ones.
        momentum: how far the running statistics move towards the batch's.
        eps: added to the variance.
    """

    def __init__(self, training: bool, momentum: float, eps: float) -> None:
        """Keep the form; no size is part of it."""
        self.training = training
        self.momentum = momentum
        self.eps = eps

    def __call__(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the normalised ``x`` [N, C, *S], a fresh tensor of its shape."""
        return torch.nn.functional.batch_norm(
            x, running_mean, running_var, weight, bias, self.training, self.momentum, self.eps
        )


def build_batch_norm(
    x: TensorSpec,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    *,
    training: bool,
    momentum: float,
    eps: float,
) -> CpuBatchNorm:
    """Build the kernel of a call."""
    return CpuBatchNorm(training, momentum, eps)
