"""Adds an implementation with a rule that divides by zero on some call."""

from tileops.backend import register_kernel_type
from tileops.kernels.gemm.interface import GemmInterface
from tileops.rules import Declaration, Refusal


class Careless(GemmInterface):
    declaration = Declaration(devices={"xpu"}, refusal=(Refusal("n // (k - 1) > 8", "is for long rows"),))

    @classmethod
    def entry_for(cls, call):
        raise AssertionError("never asked")

    def forward(self, a, b):
        raise AssertionError("never built")


register_kernel_type("GemmFwdOp", "xpu_careless", Careless)
