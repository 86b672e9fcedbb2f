"""Functions along one dim: call specs, interfaces and implementations."""

from tileops.kernels.reduction.cumsum import CumsumCall, CumsumInterface
from tileops.kernels.reduction.cumsum_cluster import CumsumClusterKernel, CumsumColumnsKernel
from tileops.kernels.reduction.cumsum_rows import CumsumShortKernel, CumsumSplitKernel, CumsumWalkKernel
from tileops.kernels.reduction.softmax import SoftmaxCall, SoftmaxInterface
from tileops.kernels.reduction.softmax_columns import SoftmaxColumnsKernel
from tileops.kernels.reduction.softmax_rows import (
    SoftmaxBlockKernel,
    SoftmaxClusterKernel,
    SoftmaxLargeClusterKernel,
    SoftmaxSharedKernel,
    SoftmaxWarpKernel,
)
from tileops.kernels.reduction.softmax_stream import SoftmaxStreamKernel

SOFTMAX_IMPLEMENTATIONS: dict[str, type[SoftmaxInterface]] = {
    "softmax_block": SoftmaxBlockKernel,
    "softmax_cluster": SoftmaxClusterKernel,
    "softmax_columns": SoftmaxColumnsKernel,
    "softmax_large_cluster": SoftmaxLargeClusterKernel,
    "softmax_shared": SoftmaxSharedKernel,
    "softmax_stream": SoftmaxStreamKernel,
    "softmax_warp": SoftmaxWarpKernel,
}
"""The implementations of SoftmaxInterface by key."""

CUMSUM_IMPLEMENTATIONS: dict[str, type[CumsumInterface]] = {
    "cumsum_cluster": CumsumClusterKernel,
    "cumsum_columns": CumsumColumnsKernel,
    "cumsum_short": CumsumShortKernel,
    "cumsum_split": CumsumSplitKernel,
    "cumsum_walk": CumsumWalkKernel,
}
"""The implementations of CumsumInterface by key."""

__all__ = [
    "CUMSUM_IMPLEMENTATIONS",
    "SOFTMAX_IMPLEMENTATIONS",
    "CumsumCall",
    "CumsumClusterKernel",
    "CumsumColumnsKernel",
    "CumsumInterface",
    "CumsumShortKernel",
    "CumsumSplitKernel",
    "CumsumWalkKernel",
    "SoftmaxBlockKernel",
    "SoftmaxCall",
    "SoftmaxClusterKernel",
    "SoftmaxColumnsKernel",
    "SoftmaxInterface",
    "SoftmaxLargeClusterKernel",
    "SoftmaxSharedKernel",
    "SoftmaxStreamKernel",
    "SoftmaxWarpKernel",
]
