"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tileops.kernels.gemm.gemv import GemvKernel
from tileops.kernels.gemm.interface import GemmInterface
from tileops.kernels.gemm.mma import GemmMmaKernel
from tileops.kernels.gemm.padded import GemmPaddedKernel
from tileops.kernels.gemm.persistent import GemmPersistentKernel
from tileops.kernels.gemm.splitk import GemmSplitkKernel
from tileops.kernels.gemm.swapped import GemmSwappedKernel
from tileops.kernels.gemm.wgmma import GemmWgmmaKernel
from tileops.op import Op
from tileops.rules.interface import KernelInterface
from tileops.uses import Uses


class GemmFwdOp(Op):
    """Multiplies two matrices, float16 or bfloat16: ``d = a @ b``, summed in float32, rounded once.

    ``GemmFwdOp(trans_a=False, trans_b=True, target=None)``, called with ``a`` of shape [M, K] ([K, M] under
    ``trans_a``) and ``b`` of shape [K, N] ([N, K] under ``trans_b``, the default: a weight as ``torch.nn.Linear``
    keeps it), of one dtype and on one device; returns ``d`` of shape [M, N] in that dtype. K = 0 gives zeros.
    """

    kernel_types: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "gemm_persistent": GemmPersistentKernel,
        "gemm_wgmma": GemmWgmmaKernel,
        "gemm_mma": GemmMmaKernel,
        "gemv": GemvKernel,
        "gemm_splitk": GemmSplitkKernel,
        "gemm_swapped": GemmSwappedKernel,
        "gemm_padded": GemmPaddedKernel,
    }
    interfaces: ClassVar[Mapping[str, Uses]] = {
        "gemm": Uses(GemmInterface, facts={"m": "M", "n": "N", "k": "K", "dtype": "T"}),
    }
