"""explain: the target stage and the selection, without running anything."""

from __future__ import annotations

import json

import pytest
import torch

from tileops import backend, explain
from tileops.rules.errors import SignatureError

A = torch.ones(4, 8)


def test_an_in_tree_call(toy):
    op = toy.op()
    trace = explain(op, A, torch.ones(8, 4).mT)
    assert (trace.winner, trace.served, trace.identity) == ("wide", True, ("wide", 8, torch.float32))
    assert trace.text().splitlines() == [
        "AddFwdOp.add  m=4 n=8 dtype=float32 biased=False   cpu, no device facts",
        "target   in-tree: no target claims cpu",
        "plain    serves general, below all others",
        "wide   > wins   above plain, the general one",
        "entry    wide, wide, 8, float32",
        "copies   b copied: strides (1, 4)",
    ]
    assert (toy.made.builds, op._plans, op._settled, op.last_call) == ([], {}, {}, None)


def test_plain_data(toy):
    plain = json.loads(json.dumps(explain(toy.op(), A, b=A).to_plain()))
    assert {"op", "interface", "call", "device", "target", "implementations", "winner"} <= set(plain)
    assert (plain["op"], plain["interface"], plain["winner"]) == ("AddFwdOp", "add", "wide")
    assert plain["call"] == {"m": 4, "n": 8, "dtype": "float32", "biased": False}
    assert plain["target"] == {"name": None, "origin": "none", "text": "in-tree: no target claims cpu"}
    assert plain["entry"] == ["wide", 8, "float32"]


def test_a_call_that_nobody_serves(toys):
    from tileops.rules.declaration import Declaration, Refusal

    declaration = Declaration(devices={"cpu"}, refusal=(Refusal("m < 8", "m={m}: at least 8 rows"),))
    op = toys.make({"tall": declaration}).op()
    trace = explain(op, A, A)
    assert (trace.winner, trace.served) == (None, False)
    assert "tall     refuses m=4: at least 8 rows" in trace.text()


def test_a_call_that_a_target_serves(toy):
    backend.register_detector("acme", lambda device: device.type == "cpu")
    op = toy.op()
    without = explain(op, A, A)
    assert not without.served
    assert "target 'acme' registers no kernel builder for AddFwdOp" in without.text()
    backend.register_kernel_builder("AddFwdOp", "acme", lambda *specs, **params: lambda a, b, bias: a + b)
    trace = explain(op, A, A)
    assert (trace.served, trace.winner, trace.trace) == (True, None, None)
    assert trace.text().splitlines()[0] == "AddFwdOp  a=4x8 float32 b=4x8 float32 bias=none scale=1.0 sizes=[]   cpu"
    assert trace.to_plain()["target"]["name"] == "acme"
    assert trace.to_plain()["winner"] is None


def test_nothing_to_compute(toy):
    trace = explain(toy.op(), torch.ones(0, 8), torch.ones(0, 8))
    assert trace.served
    assert "an input has no element" in trace.text()


def test_a_device_that_nothing_runs_on(toy):
    meta = A.to("meta")
    trace = explain(toy.op(), meta, meta)
    assert not trace.served
    assert "wide     unavailable runs on cpu, not on meta" in trace.text()


def test_a_call_outside_the_signature_has_no_explanation(toy):
    with pytest.raises(SignatureError, match="input b"):
        explain(toy.op(), A, torch.ones(4, 9))
    with pytest.raises(SignatureError, match=r"takes a torch.Tensor, got int"):
        explain(toy.op(), A, 3)
    with pytest.raises(TypeError, match="input b is missing"):
        explain(toy.op(), A)
