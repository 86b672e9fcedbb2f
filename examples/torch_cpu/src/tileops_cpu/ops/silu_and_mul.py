"""SiLUAndMulFwdOp: the kernel, and the function that builds it for a call."""

import torch
from tileops.backend import TensorSpec


class CpuSiLUAndMul:
    """Gates the second half of the last dim by the first, in float32."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``silu(gate) * up`` [*B, H] for ``x`` [*B, 2 * H], a fresh tensor of its dtype."""
        gate, up = x.float().chunk(2, dim=-1)
        return (torch.nn.functional.silu(gate) * up).to(x.dtype)


def build_silu_and_mul(x: TensorSpec) -> CpuSiLUAndMul:
    """Build the kernel of a call: there is one form."""
    return CpuSiLUAndMul()
