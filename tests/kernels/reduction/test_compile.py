"""Compiles the device programs of softmax and of the cumulative sum for sm_80 and sm_90a."""

import re

import pytest
import torch

from tests.kernels.compiling import A100, H200, access_bytes, compiled, copy_bytes, why_not
from tileops.kernels.reduction import CUMSUM_IMPLEMENTATIONS, SOFTMAX_IMPLEMENTATIONS

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    # TileLang and TVM warn while they trace; what counts here is what they emit.
    pytest.mark.filterwarnings("default"),
]

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32

# key, device, outer, length, inner, dtype, bytes of the widest access
CASES = [
    ("softmax_warp", A100, 32, 128, 1, BF16, 16),
    ("softmax_warp", H200, 4096, 256, 1, FP32, 16),
    ("softmax_block", H200, 65536, 2048, 1, BF16, 16),
    ("softmax_shared", H200, 64, 128256, 1, FP32, 16),
    ("softmax_shared", A100, 3, 50257, 1, FP16, 0),
    ("softmax_cluster", H200, 256, 151936, 1, FP32, 16),
    ("softmax_cluster", H200, 64, 50257, 1, FP32, 0),
    ("softmax_large_cluster", H200, 64, 128256, 1, BF16, 16),
    ("softmax_columns", A100, 4, 19, 4096, FP16, 8),
    ("softmax_columns", H200, 4, 40, 4096, BF16, 16),
    ("softmax_columns", H200, 4, 300, 6, FP32, 8),
    ("softmax_stream", H200, 1, 2**31 + 8, 1, BF16, 16),
    ("softmax_stream", A100, 2, 1000, 7, FP32, 0),
    ("cumsum_cluster", H200, 64, 128256, 1, FP32, 16),
    ("cumsum_cluster", H200, 3, 50257, 1, BF16, 0),
    ("cumsum_columns", H200, 2, 4096, 2048, BF16, 16),
    ("cumsum_columns", H200, 3, 100000, 36, FP32, 16),
    ("cumsum_short", A100, 65536, 64, 1, BF16, 16),
    ("cumsum_split", H200, 1, 128256, 1, FP32, 16),
    ("cumsum_split", A100, 1, 4096, 256, FP16, 16),
    ("cumsum_walk", A100, 1, 2**31 + 8, 1, FP16, 16),
    ("cumsum_walk", H200, 2**31, 40, 6, FP32, 8),
]


@pytest.mark.parametrize(("key", "facts", "outer", "length", "inner", "dtype", "widest"), CASES)
def test_program_compiles(key, facts, outer, length, inner, dtype, widest):
    cls = (SOFTMAX_IMPLEMENTATIONS | CUMSUM_IMPLEMENTATIONS)[key]
    call = cls.request(device="cuda:0", stated=facts, outer=outer, length=length, inner=inner, dtype=dtype)
    _, source = compiled(cls, call)
    assert max(access_bytes(source, "x") | copy_bytes(source), default=0) == widest
    assert max(access_bytes(source, "y"), default=0) == widest
    assert ("AtomicLoad" in source) == (key == "softmax_shared")
    assert ("send(&" in source or "send((" in source) == (key in ("softmax_cluster", "softmax_large_cluster"))
    assert ("tell_block(" in source) == (key in ("cumsum_cluster", "cumsum_columns"))


@pytest.mark.parametrize(("key", "outer"), [("softmax_large_cluster", 64), ("softmax_cluster", 256)])
def test_a_cluster_waits_on_both_sides_of_what_its_blocks_tell_each_other(key, outer):
    cls = SOFTMAX_IMPLEMENTATIONS[key]
    call = cls.request(device="cuda:0", stated=H200, outer=outer, length=128256, inner=1, dtype=FP32)
    _, source = compiled(cls, call)
    body = source[source.index("main_kernel") :]
    steps = ("cluster_arrive()", "cluster_wait()", "send((&", "].wait(", "__syncwarp();\n", "(float*)told)[")
    places = [body.index(steps[0])]
    for text in steps[1:]:
        places.append(body.index(text, places[-1] + 1))
    # What a block is told lies apart from all that it writes itself, for nothing says when the others tell it.
    offsets = re.findall(r"void\* \w+ = \(\(void\*\)\(\(char\*\)buf_dyn_shmem \+ (\d+)\)\)", body)
    assert len(set(offsets)) == len(offsets) >= 2


@pytest.mark.parametrize(("key", "length", "inner"), [("cumsum_cluster", 128256, 1), ("cumsum_columns", 20000, 2048)])
def test_a_cluster_is_there_before_its_blocks_tell_each_other_sums(key, length, inner):
    cls = CUMSUM_IMPLEMENTATIONS[key]
    call = cls.request(device="cuda:0", stated=H200, outer=2, length=length, inner=inner, dtype=BF16)
    _, source = compiled(cls, call)
    body = source[source.index("main_kernel") :]
    texts = ("open_barrier(", "cluster_arrive_relaxed()", "cluster_wait()", "tell_block(", "hear_blocks(", "told)[")
    order = [body.index(text, body.index("hear_blocks(") if text == "told)[" else 0) for text in texts]
    assert order == sorted(order)
    # A barrier counts again once it has been heard, for the step after the next.
    assert ("expect_bytes(" in body) == (key == "cumsum_columns")


CUTS = [(151936, 4, 8), (40001, 4, 8), (66004, 4, 8), (8200, 2, 16)]


def holds(condition):
    """Says whether a condition on numbers holds, of which TileLang may have made an expression."""
    if isinstance(condition, bool):
        return condition
    return bool(condition.value) if hasattr(condition, "value") else holds(condition.a) and holds(condition.b)


@pytest.mark.parametrize(("length", "itemsize", "blocks"), CUTS)
def test_each_access_of_a_row_has_one_thread_of_a_cluster(length, itemsize, blocks):
    from tileops.kernels.reduction.form import AlongForm
    from tileops.kernels.reduction.programs.softmax_cluster import Cut
    from tileops.kernels.rows import cluster_row

    share = cluster_row(length, itemsize, blocks, lanes=512)
    cut = Cut(AlongForm(length, 1, "-"), share, blocks)
    threads = [(part, lane, t) for part in range(blocks) for t in range(share.turns) for lane in range(share.lanes)]
    found = [cut.place(part, lane, t) for part, lane, t in threads if holds(cut.has(part, lane, t))]
    assert found == list(range(length // share.width))
