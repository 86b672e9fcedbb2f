"""Adds an implementation, and then one that ties with it for some calls: both have to go again."""

from tileops.backend import register_kernel_type
from tileops.kernels.gemm.interface import GemmInterface
from tileops.rules import Declaration, Refusal


class Wide(GemmInterface):
    declaration = Declaration(devices={"xpu"}, refusal=(Refusal("n < 64", "needs 64 columns, got n={n}"),))

    @classmethod
    def entry_for(cls, call):
        raise AssertionError("never asked")

    def forward(self, a, b):
        raise AssertionError("never built")


class Tall(GemmInterface):
    declaration = Declaration(devices={"xpu"}, refusal=(Refusal("m < 64", "needs 64 rows, got m={m}"),))

    @classmethod
    def entry_for(cls, call):
        raise AssertionError("never asked")

    def forward(self, a, b):
        raise AssertionError("never built")


register_kernel_type("GemmFwdOp", "xpu_wide", Wide)
register_kernel_type("GemmFwdOp", "xpu_tall", Tall)
