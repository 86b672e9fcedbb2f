"""warm, stats, the log of decisions, and captures: what is built before a call, counted, and told."""

from __future__ import annotations

import logging

import pytest
import torch

import tileops
from tileops import backend, capture
from tileops.backend import BUILTIN, TensorSpec
from tileops.plan import PlanTable
from tileops.rules.errors import ColdCaptureError, KernelResultError, OpNotAvailableError, SignatureError

A = torch.ones(4, 8)
SPEC = TensorSpec(torch.device("cpu"), torch.float32, (4, 8))


@pytest.fixture
def capturing(monkeypatch):
    """Let the probe say that a capture is under way, from when this is called."""
    return lambda: monkeypatch.setattr(capture, "is_capturing", lambda device: True)


def counts(name="AddFwdOp"):
    return {key: (count.calls, count.builds) for key, count in tileops.stats().get(name, {}).items()}


def gained(before):
    now = counts()
    return {
        key: (calls - before.get(key, (0, 0))[0], builds - before.get(key, (0, 0))[1])
        for key, (calls, builds) in now.items()
        if (calls, builds) != before.get(key, (0, 0))
    }


def test_warm_builds_without_data_and_says_what(toy):
    op = toy.op(scale=2.0)
    (made,) = op.warm(SPEC, SPEC)
    assert (made.op, made.implementation, made.built) == ("AddFwdOp", "wide", True)
    assert str(made) == ("AddFwdOp: wide built for a=4x8 float32 cpu b=4x8 float32 cpu bias=none scale=2.0 sizes=[]")
    assert (len(toy.made.builds), toy.made.launches, op.last_call, op.serving_target) == (1, [], None, None)
    assert not op.warm(SPEC, SPEC)[0].built
    assert torch.equal(op(A, A), A + A)
    assert (len(toy.made.builds), op.last_call.key, len(op._plans)) == (1, "wide", 1)


def test_warm_takes_what_a_call_takes(toy):
    op = toy.op()
    op.warm(SPEC, SPEC, bias=TensorSpec("cpu", torch.float32, [8]))
    assert torch.equal(op(A, A, A[0]), A + A + A[0])
    assert len(toy.made.builds) == 1
    for wrong in (A, (4, 8), "4x8"):
        with pytest.raises(SignatureError, match=r"warm takes a tileops.backend.TensorSpec\(device, dtype, shape\)"):
            op.warm(SPEC, wrong)
    with pytest.raises(SignatureError, match="input b"):
        op.warm(SPEC, TensorSpec(torch.device("cpu"), torch.float32, (4, 9)))
    with pytest.raises(TypeError, match="input b is missing"):
        op.warm(SPEC)
    with pytest.raises(OpNotAvailableError, match="do not run on xpu"):
        toy.op(target=BUILTIN).warm(*[TensorSpec("xpu:0", torch.float32, (4, 8))] * 2)


def test_the_first_result_after_warm_is_checked(toy):
    op = toy.op()
    op.warm(SPEC, SPEC)
    toy.made.launch_hook = lambda result, *tensors: result.half()
    for _ in range(2):
        with pytest.raises(KernelResultError):
            op(A, A)
    toy.made.launch_hook = lambda result, *tensors: result
    assert torch.equal(op(A, A), A + A)
    assert len(toy.made.builds) == 1, "what warm built stays"


def test_warm_settles_the_target(toy):
    op = toy.op()
    op.warm(SPEC, SPEC)
    backend.register_kernel_builder("AddFwdOp", "late", lambda *specs, **params: None)
    backend.set_default_target("late")
    op(A, A)
    assert op.serving_target is BUILTIN


def test_stats_count_calls_and_builds(toy):
    before = counts()
    ops = [toy.op(), toy.op()]
    ops[0]._plans = PlanTable(limit=1)
    for op in ops:
        for _ in range(3):
            op(A, A)
            op(torch.ones(4, 2), torch.ones(4, 2))
            op(torch.ones(0, 8), torch.ones(0, 8))
    with pytest.raises(SignatureError):
        ops[0](A, A[0])
    assert gained(before) == {"wide": (6, 1), "plain": (6, 1), "nothing to compute": (6, 0)}
    backend.register_kernel_builder("AddFwdOp", "acme", lambda *specs, **params: lambda a, b, bias: a + b)
    for op in (toy.op(target="acme"), toy.op(target="acme")):
        op(A, A)
        op(A, A)
    assert gained(before)["target acme"] == (4, 2)


def test_each_new_decision_is_told_once_with_its_reasons(toy, caplog):
    caplog.set_level(logging.INFO, logger="tileops.dispatch")
    for op in (toy.op(), toy.op()):
        for _ in range(2):
            op(A, A)
            op(torch.ones(4, 2), torch.ones(4, 2))
    told = [record.getMessage() for record in caplog.records if record.name == "tileops.dispatch"]
    assert told == [
        "AddFwdOp.add m=4 n=8 dtype=float32 biased=False on cpu: wide: above plain, the general one; "
        "plain serves: general, below all others",
        "AddFwdOp.add m=4 n=2 dtype=float32 biased=False on cpu: plain: the only one that serves this call; "
        "wide refuses: n=2: a row has at least 8 elements",
    ]
    backend.register_kernel_builder("AddFwdOp", "acme", lambda *specs, **params: lambda a, b, bias: a + b)
    for _ in range(2):
        toy.op(target="acme")(torch.ones(8, 4).mT, A)
    (told,) = [record.getMessage() for record in caplog.records[2:] if record.name == "tileops.dispatch"]
    assert told.startswith("AddFwdOp M=4 N=8 T=float32 scale=1.0 sizes=[] on cpu: target acme: ")
    assert told.endswith("; a copied: strides (1, 4)")


def test_a_cold_call_in_a_capture_says_what_to_run_first(toy, capturing):
    op = toy.op(scale=2.0)
    capturing()
    with pytest.raises(ColdCaptureError) as caught:
        op(A, A)
    assert str(caught.value) == (
        "AddFwdOp: a CUDA graph is being captured, and this call would build its kernel, which no capture can hold: "
        "a=4x8 float32 cpu b=4x8 float32 cpu bias=none scale=2.0 sizes=[]. Before the capture, run one call with "
        "tensors like these, or warm(TensorSpec(torch.device('cpu'), torch.float32, (4, 8)), "
        "TensorSpec(torch.device('cpu'), torch.float32, (4, 8)), None) of the instance AddFwdOp(scale=2.0, sizes=[])"
    )
    assert (toy.made.builds, len(op._plans), op._settled) == ([], 0, {})


def test_a_capture_takes_a_plan_miss_over_a_built_kernel(toy, capturing):
    op, other = toy.op(), toy.op()
    op(A, A)
    capturing()
    assert torch.equal(op(torch.ones(5, 8), torch.ones(5, 8)), torch.full((5, 8), 2.0))
    assert torch.equal(op(torch.ones(8, 4).mT, A), A + A)
    assert torch.equal(other(A, A), A + A), "in-tree kernels are shared"
    assert len(toy.made.builds) == 1
    with pytest.raises(ColdCaptureError):
        op(torch.ones(4, 9), torch.ones(4, 9))


def test_target_kernels_are_the_instances_own_in_a_capture_too(toy, capturing):
    backend.register_kernel_builder("AddFwdOp", "acme", lambda *specs, **params: lambda a, b, bias: a + b)
    op, other = toy.op(target="acme"), toy.op(target="acme")
    op.warm(SPEC, SPEC)
    capturing()
    assert torch.equal(op(A, A), A + A)
    with pytest.raises(ColdCaptureError, match="would build its kernel"):
        other(A, A)


@pytest.mark.parametrize("target", [BUILTIN, "acme"])
def test_a_tuned_instance_needs_one_more_call_before_a_capture(toy, monkeypatch, target):
    class Kernel:
        def __call__(self, a, b, bias):
            return a + b

        def request_tune(self):
            pass

    for cls in toy.classes.values():
        cls.request_tune = lambda self: None
    backend.register_kernel_builder("AddFwdOp", "acme", lambda *specs, **params: Kernel())
    op = toy.op(target=target)
    op(A, A)
    op.request_tune()
    op.warm(SPEC, SPEC)
    monkeypatch.setattr(capture, "is_capturing", lambda device: True)
    with pytest.raises(ColdCaptureError, match="would be the first since its kernel was asked to tune"):
        op(A, A)
    with pytest.raises(ColdCaptureError, match=r"request_tune\(\) builds, times and waits"):
        op.request_tune()
    with pytest.raises(ColdCaptureError, match=r"warm\(\) builds, times and waits"):
        op.warm(SPEC, SPEC)
    monkeypatch.setattr(capture, "is_capturing", lambda device: False)
    op(A, A)
    monkeypatch.setattr(capture, "is_capturing", lambda device: True)
    assert torch.equal(op(A, A), A + A)


def test_the_probe_asks_cuda_about_cuda_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(asked.append(1)))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert not capture.is_capturing(torch.device("cpu"))
    assert asked == []
    assert not capture.is_capturing(torch.device("cuda:0"))
    assert asked == [1]
