"""GatedMLPFwdOp: the kernel, and the function that builds it for a call.

The op is a composition: without a builder of ours its parts would run, each a kernel of ours. With one, the target
serves it whole.
"""

import torch
from tileops.backend import TensorSpec

from tileops_cpu.ops.gemm import CpuGemm
from tileops_cpu.ops.silu_and_mul import CpuSiLUAndMul


class CpuGatedMLP:
    """Projects to gate and up, gates one by the other, projects back: rounded after each step, as the parts would.

    Args:
        project: multiplies by a weight as it lies, [out, in].
        gate: gates the second half of a row by the first.
    """

    def __init__(self, project: CpuGemm, gate: CpuSiLUAndMul) -> None:
        """Keep the kernels of the steps."""
        self.project = project
        self.gate = gate

    def __call__(self, x: torch.Tensor, w_gate_up: torch.Tensor, w_down: torch.Tensor) -> torch.Tensor:
        """Return y [M, N], a fresh tensor of the inputs' dtype."""
        return self.project(self.gate(self.project(x, w_gate_up)), w_down)


def build_gated_mlp(x: TensorSpec, w_gate_up: TensorSpec, w_down: TensorSpec) -> CpuGatedMLP:
    """Build the kernel of a call."""
    return CpuGatedMLP(CpuGemm(trans_a=False, trans_b=True), CpuSiLUAndMul())
