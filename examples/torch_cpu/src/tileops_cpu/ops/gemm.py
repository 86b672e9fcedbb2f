"""GemmFwdOp: the kernel, and the function that builds it for a call."""

import torch
from tileops.backend import TensorSpec

DTYPES = (torch.float16, torch.bfloat16)


class CpuGemm:
    """Multiplies two matrices, ``d = a @ b``, each transposed first where its flag says so.

    Args:
        trans_a: ``a`` arrives as [K, M] instead of [M, K].
        trans_b: ``b`` arrives as [N, K] instead of [K, N].
    """

    def __init__(self, trans_a: bool, trans_b: bool) -> None:
        """Keep the form. M, N and K are no part of it: one kernel serves all sizes."""
        self.trans_a = trans_a
        self.trans_b = trans_b

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return d [M, N], a fresh tensor of the inputs' dtype."""
        return torch.matmul(a.mT if self.trans_a else a, b.mT if self.trans_b else b)


def build_gemm(a: TensorSpec, b: TensorSpec, *, trans_a: bool, trans_b: bool) -> CpuGemm:
    """Build the kernel of a call; raise for what the kernel does not do, with the value that came."""
    if a.dtype not in DTYPES:
        raise ValueError(f"torch_cpu's GEMM takes {' or '.join(map(str, DTYPES))}, got a of {a.dtype}")
    return CpuGemm(trans_a, trans_b)
