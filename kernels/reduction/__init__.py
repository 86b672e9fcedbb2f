"""Functions along one dim: call specs and interfaces."""

from tileops.kernels.reduction.cumsum import CumsumCall, CumsumInterface
from tileops.kernels.reduction.softmax import SoftmaxCall, SoftmaxInterface

__all__ = [
    "CumsumCall",
    "CumsumInterface",
    "SoftmaxCall",
    "SoftmaxInterface",
]
