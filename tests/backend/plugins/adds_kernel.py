"""Adds an implementation to GemmFwdOp's interface, for a device type that has facts because this package reads them."""

import torch

from tileops.backend import DeviceFacts, register_device_facts, register_kernel_type
from tileops.kernels.gemm.interface import GemmInterface
from tileops.rules import Declaration, Refusal


class MetaGemm(GemmInterface):
    declaration = Declaration(
        devices={"meta"},
        supported_archs={7},
        refusal=(Refusal("m > 64", "serves at most 64 rows, got m={m}"),),
    )

    @classmethod
    def entry_for(cls, call):
        return (call.dtype, call.trans_a, call.trans_b), lambda: cls(call.trans_a, call.trans_b)

    def __init__(self, trans_a, trans_b):
        self.trans_a, self.trans_b = trans_a, trans_b

    def forward(self, a, b):
        return torch.matmul(a.mT if self.trans_a else a, b.mT if self.trans_b else b)


register_device_facts("meta", lambda device: DeviceFacts(arch=7, calibration=None, sm_count=1, smem_budget=1024))
register_kernel_type("GemmFwdOp", "gemm_meta", MetaGemm)
