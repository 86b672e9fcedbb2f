"""Adds an implementation whose forward does not take what the interface hands it."""

from tileops.backend import register_kernel_type
from tileops.kernels.gemm.interface import GemmInterface
from tileops.rules import Declaration


class WrongForward(GemmInterface):
    declaration = Declaration(devices={"xpu"})

    @classmethod
    def entry_for(cls, call):
        raise AssertionError("never asked")

    def forward(self, a, b, bias):
        raise AssertionError("never built")


register_kernel_type("GemmFwdOp", "xpu_wrong", WrongForward)
