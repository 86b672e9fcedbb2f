"""Elementwise functions: call specs and interfaces."""

from tileops.kernels.elementwise.silu_and_mul import SiLUAndMulCall, SiLUAndMulInterface

__all__ = [
    "SiLUAndMulCall",
    "SiLUAndMulInterface",
]
