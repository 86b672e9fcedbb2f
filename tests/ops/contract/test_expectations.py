"""What users of torch expect of an op, line by line of docs/op-contract.md: for every op of the manifest alike."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import pytest
import torch

import tileops
from tileops import capture
from tileops.rules.errors import ColdCaptureError, SignatureError


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


def same(one, other):
    return all(torch.equal(left, right) for left, right in zip(outputs(one), outputs(other), strict=True))


@pytest.fixture
def expected(sample):
    """What a plain call returns."""
    return sample.op()(*sample.tensors())


def test_parameters(sample, expected):
    op = sample.op()
    params = [
        torch.nn.Parameter(tensor) if tensor is not None and tensor.is_floating_point() else tensor
        for tensor in sample.tensors()
    ]
    for _ in range(2):
        with pytest.raises(SignatureError, match=r"requires a gradient, and this op has no backward; call it under"):
            op(*params)
    assert op.last_call is None
    if not sample.written:
        with torch.no_grad():
            assert same(op(*params), expected)
        assert all(not output.requires_grad for output in outputs(op(*sample.tensors())))


def test_inference_mode(sample, expected):
    op = sample.op()
    with torch.inference_mode():
        for _ in range(2):
            assert same(op(*sample.tensors()), expected)


def test_autocast_changes_nothing(sample, expected):
    op = sample.op()
    with torch.autocast(sample.device.type, dtype=torch.bfloat16):
        made = op(*sample.tensors())
    assert same(made, expected)
    assert [output.dtype for output in outputs(made)] == [output.dtype for output in outputs(expected)]


def test_strides_and_starts(sample, expected):
    op = sample.op()
    for _ in range(2):
        spread = [None if tensor is None else apart(tensor) for tensor in sample.tensors()]
        made = op(*spread)
        for mine, other in zip(outputs(made), outputs(expected), strict=True):
            torch.testing.assert_close(mine, other)  # a kernel for another alignment may sum in another order
            assert mine.is_contiguous()


def apart(tensor):
    """The same values, every second element of a wider tensor that starts off a multiple of 16 bytes."""
    wide = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype, device=tensor.device)
    wide[..., 1] = tensor
    return wide[..., 1]


def test_copies_travel_with_params_and_target(sample, expected):
    op = sample.op()
    op(*sample.tensors())
    for twin in (pickle.loads(pickle.dumps(op)), copy.deepcopy(op), copy.copy(op)):
        assert (repr(twin), twin.last_call, len(twin._plans)) == (repr(op), None, 0)
        assert same(twin(*sample.tensors()), expected)


def test_threads(sample, expected):
    op = sample.op()
    gate, failures = threading.Barrier(4), []
    given = [[sample.tensors() for _ in range(5)] for _ in range(4)]

    def work(mine):
        gate.wait()
        for tensors in mine:
            try:
                if not same(op(*tensors), expected):
                    failures.append("differs")
            except Exception as error:  # noqa: BLE001 - told by the main thread
                failures.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_vmap_runs_each_slice_or_says_that_it_cannot(sample, expected):
    op = sample.op()
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)
    try:
        first, *others = sample.tensors()
        stacked = torch.stack([first, first])
        if sample.written:
            with pytest.raises(RuntimeError, match="Batching rule not implemented"):
                torch.vmap(lambda x: op(x, *others))(stacked)
            return
        made = torch.vmap(lambda x: op(x, *others))(stacked)
        for mine, other in zip(outputs(made), outputs(expected), strict=True):
            assert torch.equal(mine, torch.stack([other, other]))
    finally:
        torch._C._functorch._set_vmap_fallback_warning_enabled(True)


def test_torch_func_derivatives_are_refused(sample):
    op = sample.op()
    first, *others = sample.tensors()
    with pytest.raises(SignatureError, match="requires a gradient, and this op has no backward"):
        torch.func.grad(lambda x: outputs(op(x, *others))[0].sum())(first)
    assert op.last_call is None


def test_versions_of_written_inputs_go_up(sample):
    op, tensors = sample.op(), sample.tensors()
    for _ in range(2):
        before = [None if tensor is None else tensor._version for tensor in tensors]
        op(*tensors)
        for name, tensor, version in zip(sample.case.inputs, tensors, before, strict=True):
            if tensor is not None:
                assert (tensor._version > version) == (name in sample.written), name


def test_no_tensor_is_kept_alive(sample):
    op, tensors = sample.op(), sample.tensors()
    made = op(*tensors)
    op(*tensors)
    kept = [weakref.ref(tensor) for tensor in (*tensors, *outputs(made)) if tensor is not None]
    del tensors, made
    gc.collect()
    assert [ref() for ref in kept] == [None] * len(kept)


def test_a_call_that_fails_leaves_nothing(sample):
    op, tensors = sample.op(), sample.tensors()
    wrong = [tensors[0].double(), *tensors[1:]]
    for _ in range(2):
        with pytest.raises(SignatureError, match=f"{sample.name}: input "):
            op(*wrong)
    assert (op.last_call, op._settled, len(op._plans), len(op._kernels)) == (None, {}, 0, 0)


def test_warm_builds_and_the_calls_do_not(sample, expected):
    op = sample.op()
    made = op.warm(*sample.specs())
    assert made[-1].op in (sample.name, *(type(part).__name__ for part in getattr(op, "parts", ())))
    assert op.last_call is None
    assert all(not again.built for again in op.warm(*sample.specs()))
    before = tileops.stats()
    assert same(op(*sample.tensors()), expected)
    after = tileops.stats()
    assert sum_of(after, "builds") == sum_of(before, "builds")
    assert sum_of(after, "calls", sample.name) == sum_of(before, "calls", sample.name) + 1


def sum_of(stats, field, name=None):
    return sum(getattr(count, field) for op, counts in stats.items() if name in (None, op) for count in counts.values())


def test_a_capture_takes_warm_calls_only(sample, monkeypatch, expected):
    cold, warm, called = sample.op(), sample.op(), sample.op()
    if sample.target == tileops.backend.BUILTIN:
        type(cold).dispatcher.clear()
    warm.warm(*sample.specs())
    called(*sample.tensors())
    monkeypatch.setattr(capture, "is_capturing", lambda device: True)
    if sample.target != tileops.backend.BUILTIN:
        with pytest.raises(ColdCaptureError, match=r"a CUDA graph is being captured") as caught:
            cold(*sample.tensors())
        assert "TensorSpec(" in str(caught.value)
        assert (cold.last_call, len(cold._plans)) == (None, 0)
    assert same(warm(*sample.tensors()), expected)
    assert same(called(*sample.tensors()), expected)
    for refused in (lambda: warm.warm(*sample.specs()), called.request_tune):
        with pytest.raises(ColdCaptureError, match="call it before the capture"):
            refused()


@pytest.mark.cuda_only
def test_a_cuda_graph_replays(sample):
    op, cold = sample.op(), sample.op()
    if sample.written:
        pytest.skip("the replay would write once more")
    op.warm(*sample.specs())
    tensors = sample.tensors()
    expected = sample.op()(*tensors)
    wider = sample.tensors(3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = op(*tensors)
        if sample.target != tileops.backend.BUILTIN:
            with pytest.raises(ColdCaptureError):
                cold(*wider)
    for output in outputs(made):
        output.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert same(made, expected)
