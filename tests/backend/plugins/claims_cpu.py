"""Claims cpu, as claims_cpu_too does, and returns a kernel that can be told from the other's."""

import torch

from tileops.backend import register_detector, register_kernel_builder

TARGET = "cpu_one"


def build_gemm(a, b, *, trans_a, trans_b):
    return lambda a, b: torch.full((a.shape[0], b.shape[0]), 1.0, dtype=a.dtype)


register_detector(TARGET, lambda device: device.type == "cpu")
register_kernel_builder("GemmFwdOp", TARGET, build_gemm)
