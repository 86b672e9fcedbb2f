"""Compiles one device program an implementation and dtype for sm_80 and sm_90a, and looks at what came out."""

import importlib.util
import os
import re
import shutil

import pytest
import torch

from tileops.kernels.gemm import GEMM_IMPLEMENTATIONS, GemmCall
from tileops.rules.device import DeviceFacts


def why_not():
    """Returns why programs cannot be compiled here, or an empty string."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found = shutil.which("nvcc") or any(os.path.exists(os.path.join(home, "bin", "nvcc")) for home in homes)
    if not found:
        return "needs nvcc on PATH or in CUDA_HOME, to compile device programs"
    return "" if importlib.util.find_spec("tilelang") else "needs tilelang, to compile device programs"


pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    # TileLang and TVM warn while they trace; what counts here is what they emit.
    pytest.mark.filterwarnings("default"),
]

H200 = DeviceFacts(90, "h200", 132, 232448)
A100 = DeviceFacts(80, "a100_sxm4", 108, 166912)
BF16, FP16 = torch.bfloat16, torch.float16

# key, device, m, n, k, trans_a, trans_b; both dtypes: shapes off every tile, forms spread over the cases
CASES = [
    ("gemm_mma", A100, 100, 1000, 264, False, True, BF16),
    ("gemm_mma", H200, 16, 2112, 2055, False, False, FP16),
    ("gemm_mma", H200, 2**31 + 8, 1, 1, True, True, BF16),
    ("gemm_splitk", A100, 17, 2112, 4104, True, True, FP16),
    ("gemm_splitk", H200, 96, 2112, 7168, False, True, BF16),
    ("gemm_swapped", H200, 8, 1000, 1032, False, True, BF16),
    ("gemm_swapped", H200, 8, 1000, 1032, True, False, FP16),
    ("gemm_swapped", H200, 96, 8190, 8192, False, True, FP16),
    ("gemm_swapped", H200, 128, 24576, 1536, False, False, BF16),
    ("gemm_padded", H200, 333, 777, 1029, False, True, BF16),
    ("gemm_padded", H200, 333, 777, 1032, True, False, FP16),
    ("gemm_swapped", H200, 8, 5120, 8192, False, True, FP16),
    ("gemm_padded", H200, 100, 200, 7169, False, True, FP16),
    ("gemm_persistent", H200, 1024, 50257, 768, False, True, BF16),
    ("gemm_persistent", H200, 4096, 4096, 4096, True, False, FP16),
    ("gemm_persistent", H200, 4096, 14336, 4096, False, False, BF16),
    ("gemm_persistent", H200, 4096, 2112, 7168, True, True, FP16),
    ("gemm_persistent", H200, 2048, 2304, 2048, False, True, FP16),
    ("gemm_persistent", H200, 1024, 2304, 2048, False, True, BF16),
    ("gemm_persistent", H200, 128, 24576, 1536, False, True, BF16),
    ("gemm_persistent", H200, 256, 1001, 1032, False, True, FP16),
    ("gemm_wgmma", H200, 256, 21843, 1024, False, True, BF16),
    ("gemm_wgmma", H200, 1000, 1024, 1024, True, False, FP16),
    ("gemv", A100, 1, 2112, 7168, False, True, BF16),
    ("gemv", H200, 2, 1000, 1003, True, False, FP16),
]


@pytest.mark.parametrize(("key", "facts", "m", "n", "k", "trans_a", "trans_b", "dtype"), CASES)
def test_program_compiles(key, facts, m, n, k, trans_a, trans_b, dtype):
    call = GemmCall(device="cuda:0", m=m, n=n, k=k, dtype=dtype, trans_a=trans_a, trans_b=trans_b, stated=facts)
    cls = GEMM_IMPLEMENTATIONS[key]
    identity, _ = cls.entry_for(call)
    kernel = cls.compile(identity)
    source = kernel.get_kernel_source()
    hopper = ("gemm_padded", "gemm_persistent", "gemm_swapped", "gemm_wgmma")
    copy_engine = key in hopper or getattr(identity, "tma", False)
    assert ("wgmma_ss<" in source) == copy_engine
    assert ("tma_load(" in source) == copy_engine
    assert ("mma_sync<" in source) == (key in ("gemm_mma", "gemm_splitk") and not copy_engine)
    pitches = (m if trans_a else k, k if trans_b else n)
    if key in ("gemm_mma", "gemm_splitk") and not copy_engine and any(pitch % 8 for pitch in pitches):
        # No access may be wider than the pitch keeps aligned.
        for pitch, name in zip(pitches, "ab", strict=True):
            widths = [int(w) for w in re.findall(rf"cp_async_gs\w*<(\d+)>\([^;]*&\({name}\[", source)]
            assert all((pitch * 2) % width == 0 for width in widths)
    if key == "gemm_persistent":
        # Warpgroups that run at the same time share no buffer by chance; swizzles want 1 KiB.
        offsets = re.findall(r"buf_dyn_shmem \+ (\d+)\)", source)
        assert len(offsets) == len(set(offsets)) >= 4
        assert all(int(offset) % 1024 == 0 for offset in offsets)
    executable = kernel.adapter.get_exportable_executable()
    # Fresh from the compiler it is an executable to be loaded; from TileLang's disk cache, a loaded module.
    module = executable.jit() if hasattr(executable, "jit") else executable
    assert module.implements_function("main")
