"""Compiles the device programs of the norms for sm_80 and sm_90a, and looks at what came out."""

import pytest
import torch

from tests.kernels.compiling import A100, H200, access_bytes, compiled, copy_bytes, why_not
from tileops.kernels import norm

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    # TileLang and TVM warn while they trace; what counts here is what they emit.
    pytest.mark.filterwarnings("default"),
]

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32

# key, device, rows, length, dtype, weighted, biased (None: no such fact)
ROWS = [
    ("rms_norm_warp", H200, 5, 128, BF16, True, None),
    ("rms_norm_warp", A100, 5, 1024, FP16, False, None),
    ("rms_norm_block", H200, 8192, 4096, BF16, True, None),
    ("rms_norm_stream", A100, 2**31, 100001, FP16, True, None),
    ("fused_add_rms_norm_warp", A100, 5, 256, FP32, True, None),
    ("fused_add_rms_norm_block", H200, 8192, 7168, BF16, True, None),
    ("fused_add_rms_norm_stream", H200, 7, 70000, FP16, False, None),
    ("layer_norm_warp", A100, 5, 64, BF16, True, True),
    ("layer_norm_warp", H200, 5, 768, FP16, True, True),
    ("layer_norm_block", A100, 5, 3072, FP32, True, False),
    ("layer_norm_stream", H200, 3, 2**31 + 16, BF16, False, False),
]
IMPLEMENTATIONS = (
    norm.RMS_NORM_IMPLEMENTATIONS | norm.FUSED_ADD_RMS_NORM_IMPLEMENTATIONS | norm.LAYER_NORM_IMPLEMENTATIONS
)


@pytest.mark.parametrize(("key", "facts", "rows", "length", "dtype", "weighted", "biased"), ROWS)
def test_rows_compile(key, facts, rows, length, dtype, weighted, biased):
    cls = IMPLEMENTATIONS[key]
    more = {} if biased is None else {"biased": biased}
    call = cls.request(
        device="cuda:0", stated=facts, rows=rows, length=length, dtype=dtype, weighted=weighted, eps=1e-5, **more
    )
    _, source = compiled(cls, call)
    widest = {16} if length * dtype.itemsize % 16 == 0 else set()
    assert access_bytes(source, "x") == widest
    assert access_bytes(source, "y") == widest


# key, device, batch, channels, groups, spatial, dtype
GROUPS = [
    ("group_norm_warp", A100, 3, 32, 8, 49, BF16),
    ("group_norm_block", H200, 8, 512, 512, 3199, FP16),
    ("group_norm_shared", H200, 2, 320, 32, 16384, BF16),
    ("group_norm_shared", A100, 1, 96, 32, 40001, FP32),
    ("group_norm_stream", A100, 1, 6, 3, 2**30, FP32),
]


@pytest.mark.parametrize(("key", "facts", "batch", "channels", "groups", "spatial", "dtype"), GROUPS)
def test_groups_compile(key, facts, batch, channels, groups, spatial, dtype):
    cls = norm.GROUP_NORM_IMPLEMENTATIONS[key]
    shape = {"batch": batch, "channels": channels, "groups": groups, "spatial": spatial}
    call = cls.request(device="cuda:0", stated=facts, dtype=dtype, weighted=True, biased=True, eps=1e-5, **shape)
    _, source = compiled(cls, call)
    assert ("AtomicLoad" in source) == ("cp_async" in source) == (key == "group_norm_shared")
    assert ("cudaGridDependencySynchronize" in source) == (key == "group_norm_shared" and facts is H200)


# key, device, batch, channels, spatial, dtype, param_dtype
BATCHES = [
    ("batch_norm_train_block", H200, 256, 2048, 49, FP16, FP32),
    ("batch_norm_train_shared", H200, 64, 64, 12544, BF16, BF16),
    ("batch_norm_train_shared", A100, 8, 3, 2**18, FP32, FP32),
    ("batch_norm_train_columns", A100, 4096, 1024, 1, BF16, FP32),
    ("batch_norm_train_spans", H200, 256, 2048, 49, FP16, FP32),
    ("batch_norm_train_spans", A100, 4096, 40, 1, FP32, FP32),
    ("batch_norm_train_stream", A100, 5, 3, 2**30 + 1, FP32, FP32),
    ("batch_norm_infer_wide", A100, 32, 64, 12544, FP16, FP32),
    ("batch_norm_infer_wide", H200, 32, 64, 1, BF16, FP32),
    ("batch_norm_infer_walk", H200, 2, 33, 2**30 + 1, BF16, BF16),
]


@pytest.mark.parametrize(("key", "facts", "batch", "channels", "spatial", "dtype", "param_dtype"), BATCHES)
def test_batches_compile(key, facts, batch, channels, spatial, dtype, param_dtype):
    cls = (norm.BATCH_NORM_TRAIN_IMPLEMENTATIONS | norm.BATCH_NORM_INFER_IMPLEMENTATIONS)[key]
    more = {"momentum": 0.1} if "train" in key else {}
    shape = {"batch": batch, "channels": channels, "spatial": spatial, "dtype": dtype, "param_dtype": param_dtype}
    call = cls.request(device="cuda:0", stated=facts, weighted=True, biased=True, eps=1e-5, **shape, **more)
    _, source = compiled(cls, call)
    # Where a run's pieces do not start on 16 bytes, no access may be that wide.
    assert (16 in access_bytes(source, "x") | copy_bytes(source)) == (
        key.endswith(("_shared", "_columns", "_spans", "infer_wide"))
    )
