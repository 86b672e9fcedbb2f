"""When the op layer calls a builder again: for a new device, dtype or shape, and for an input that comes or goes."""

from __future__ import annotations

import pytest
import torch
from tileops.gemm import GemmFwdOp
from tileops.norm import RMSNormFwdOp

from tileops_cpu.ops.gemm import CpuGemm
from tileops_cpu.ops.rms_norm import CpuRMSNorm


def rows(count: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(count, 8, dtype=dtype)


@pytest.fixture
def norm(recording):
    recording.serve("RMSNormFwdOp")
    return RMSNormFwdOp([8], target=recording.target)


def test_the_same_signature_builds_once(norm, recording):
    for _ in range(3):
        norm(rows(4))
    assert len(recording.kernels) == 1


def test_a_new_shape_dtype_or_presence_builds_and_an_old_one_does_not(norm, recording):
    weight = torch.ones(8, dtype=torch.float16)
    signatures = [
        (rows(4),),
        (rows(5),),
        (rows(4, torch.bfloat16),),
        (rows(4), weight),
        (rows(4).reshape(2, 2, 8),),
    ]
    for times in (1, 2):
        for number, inputs in enumerate(signatures):
            norm(*inputs)
            assert len(recording.kernels) == (number + 1 if times == 1 else len(signatures))


def test_strides_are_no_part_of_it(norm, recording):
    norm(rows(4))
    norm(rows(8)[::2])
    norm(torch.randn(8, 4, dtype=torch.float16).mT)
    assert len(recording.kernels) == 1


def test_another_device_builds_again():
    # No tensor can be computed on meta, and the CPU is one device: the kernel here only makes outputs where its
    # inputs are.
    built = []

    def build(a, b, *, trans_a, trans_b):
        built.append(a.device)
        return lambda a, b: torch.empty(a.shape[0], b.shape[0], dtype=a.dtype, device=a.device)

    from tileops.backend import register_kernel_builder

    register_kernel_builder("GemmFwdOp", "two_devices", build)
    op = GemmFwdOp(target="two_devices")
    a, b = torch.ones(4, 8, dtype=torch.float16), torch.ones(6, 8, dtype=torch.float16)
    for _ in range(2):
        assert op(a, b).device.type == "cpu"
        assert op(a.to("meta"), b.to("meta")).device.type == "meta"
    assert built == [torch.device("cpu"), torch.device("meta")]


def test_instances_have_kernels_of_their_own(recording):
    recording.serve("GemmFwdOp")
    a, b = torch.ones(4, 8, dtype=torch.float16), torch.ones(8, 8, dtype=torch.float16)
    GemmFwdOp(target=recording.target)(a, b)
    GemmFwdOp(trans_b=False, target=recording.target)(a, b)
    assert [kernel.trans_b for kernel in recording.kernels] == [True, False]


def test_constructors_take_compile_time_parameters_only():
    """One kernel serves any number of rows and any M, N and K: nothing that changes between calls is in it."""
    kernel = CpuRMSNorm(1, 1e-6, torch.float16)
    for count in (1, 2, 33):
        x = rows(count)
        assert torch.equal(kernel(x, None), torch.nn.functional.rms_norm(x, [8], None, 1e-6))
    gemm = CpuGemm(trans_a=False, trans_b=True)
    for m, n, k in ((1, 2, 3), (16, 8, 32)):
        assert gemm(torch.ones(m, k), torch.ones(n, k)).shape == (m, n)
