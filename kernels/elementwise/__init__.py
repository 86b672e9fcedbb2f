"""Elementwise functions: call specs, interfaces and implementations."""

from tileops.kernels.elementwise.silu_and_mul import SiLUAndMulCall, SiLUAndMulInterface
from tileops.kernels.elementwise.silu_and_mul_rows import SiLUAndMulWalkKernel, SiLUAndMulWideKernel

SILU_AND_MUL_IMPLEMENTATIONS: dict[str, type[SiLUAndMulInterface]] = {
    "silu_and_mul_walk": SiLUAndMulWalkKernel,
    "silu_and_mul_wide": SiLUAndMulWideKernel,
}
"""The implementations of SiLUAndMulInterface by key."""

__all__ = [
    "SILU_AND_MUL_IMPLEMENTATIONS",
    "SiLUAndMulCall",
    "SiLUAndMulInterface",
    "SiLUAndMulWalkKernel",
    "SiLUAndMulWideKernel",
]
