"""Dense matrix products: one interface and its implementations."""

from tileops.kernels.gemm.call import GemmCall
from tileops.kernels.gemm.gemv import GemvKernel
from tileops.kernels.gemm.interface import GemmInterface
from tileops.kernels.gemm.mma import GemmMmaKernel
from tileops.kernels.gemm.padded import GemmPaddedKernel
from tileops.kernels.gemm.persistent import GemmPersistentKernel
from tileops.kernels.gemm.splitk import GemmSplitkKernel
from tileops.kernels.gemm.swapped import GemmSwappedKernel
from tileops.kernels.gemm.wgmma import GemmWgmmaKernel

GEMM_IMPLEMENTATIONS: dict[str, type[GemmInterface]] = {
    "gemm_mma": GemmMmaKernel,
    "gemm_persistent": GemmPersistentKernel,
    "gemm_padded": GemmPaddedKernel,
    "gemm_splitk": GemmSplitkKernel,
    "gemm_swapped": GemmSwappedKernel,
    "gemm_wgmma": GemmWgmmaKernel,
    "gemv": GemvKernel,
}
"""The implementations of GemmInterface by key."""

__all__ = [
    "GEMM_IMPLEMENTATIONS",
    "GemmCall",
    "GemmInterface",
    "GemmMmaKernel",
    "GemmPaddedKernel",
    "GemmPersistentKernel",
    "GemmSplitkKernel",
    "GemmSwappedKernel",
    "GemmWgmmaKernel",
    "GemvKernel",
]
