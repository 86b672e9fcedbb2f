"""Composites: run whole by a target that has a builder for them, else part by part; what a failed call leaves."""

from __future__ import annotations

import copy
import json
import pickle

import attrs
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops import explain, use_kernel
from tileops.backend import (
    BUILTIN,
    OpNotAvailableError,
    TensorSpec,
    process,
    register_kernel_builder,
    set_default_target,
)
from tileops.backend.discovery import Discovery
from tileops.backend.registry import Registry
from tileops.backend.settlement import TargetStage
from tileops.composite import CompositeOp
from tileops.elementwise import SiLUAndMulFwdOp
from tileops.gemm import GemmFwdOp
from tileops.manifest import loader
from tileops.mlp import GatedMLPFwdOp
from tileops.rules.errors import DeclarationError, SignatureError

PARTS = ("GemmFwdOp", "SiLUAndMulFwdOp", "GemmFwdOp")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """A registry of the test's own that knows the manifest's ops."""
    fresh = Registry(lambda: set(loader.families()))
    discovery = Discovery(fresh, lambda: ())
    monkeypatch.setattr(process, "_registry", fresh)
    monkeypatch.setattr(process, "_discovery", discovery)
    monkeypatch.setattr(process, "_stage", TargetStage(fresh, discovery))
    return fresh


class Gemm:
    config: dict[str, int]

    def __init__(self) -> None:
        self.config = {}

    def __call__(self, a, b):
        return a @ b.mT

    def request_tune(self) -> None:
        self.config = {"tuned": 1}


def silu_and_mul(x):
    gate, up = x.float().chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(x.dtype)


@attrs.define
class Target:
    """Registers builders of one target and counts what they built."""

    built: list[str] = attrs.field(factory=list)
    kernel: object = silu_and_mul

    def serve(self, *ops):
        kernels = {
            "GemmFwdOp": lambda: Gemm(),
            "SiLUAndMulFwdOp": lambda: lambda x: self.kernel(x),
            "GatedMLPFwdOp": lambda: whole,
        }
        for op in ops:

            def build(*specs, op=op, **params):
                self.built.append(op)
                return kernels[op]()

            register_kernel_builder(op, "acme", build)


def whole(x, w_gate_up, w_down):
    return silu_and_mul(x @ w_gate_up.mT) @ w_down.mT


@pytest.fixture
def acme():
    return Target()


def call(m=3, k=16, h=12, n=8):
    make = torch.Generator().manual_seed(m)
    sizes = (m, k), (2 * h, k), (n, h)
    return tuple(torch.randn(size, generator=make).to(torch.float16) / 4 for size in sizes)


def test_the_parts_run_where_the_target_has_no_builder_for_the_whole(acme):
    acme.serve("GemmFwdOp", "SiLUAndMulFwdOp")
    op = GatedMLPFwdOp(target="acme")
    tensors = call()
    for _ in range(3):
        assert torch.equal(op(*tensors), whole(*tensors))
    assert acme.built == list(PARTS)
    assert op.serving_target == "acme"
    assert [type(part).__name__ for part in op.parts] == list(PARTS)
    assert [part.target for part in op.parts] == ["acme"] * 3
    assert [part.serving_target for part in op.parts] == ["acme"] * 3
    assert op.last_call.indices["H"] == 12
    assert op.eval_roofline()[0] == 4 * 3 * 12 * 16 + 5 * 3 * 12 + 2 * 3 * 12 * 8


def test_a_builder_for_the_whole_makes_it_one_operator(acme):
    acme.serve("GemmFwdOp", "SiLUAndMulFwdOp", "GatedMLPFwdOp")
    op = GatedMLPFwdOp(target="acme")
    tensors = call()
    for _ in range(3):
        assert torch.equal(op(*tensors), whole(*tensors))
    assert acme.built == ["GatedMLPFwdOp"]
    assert op.serving_target == "acme"
    assert [part.serving_target for part in op.parts] == [None] * 3


def test_each_part_settles_for_itself_by_the_process_default(acme):
    acme.serve("GemmFwdOp", "SiLUAndMulFwdOp")
    set_default_target("acme")
    op = GatedMLPFwdOp()
    tensors = call()
    assert torch.equal(op(*tensors), whole(*tensors))
    set_default_target(None)
    op(*tensors)  # settled: stays where it was
    assert [part.serving_target for part in op.parts] == ["acme"] * 3


def test_a_part_that_nobody_serves_is_named_and_nothing_is_kept(acme):
    acme.serve("GemmFwdOp")
    op = GatedMLPFwdOp(target="acme")
    with pytest.raises(OpNotAvailableError, match="SiLUAndMulFwdOp"):
        op(*call())
    first = op.parts[0]
    assert op.last_call is None
    assert first.last_call is None
    assert not first._settled
    assert not first._plans
    assert len(first._kernels) == 0
    acme.serve("SiLUAndMulFwdOp")
    assert torch.equal(op(*call()), whole(*call()))


def test_a_failed_call_leaves_what_earlier_ones_made(acme):
    acme.serve("GemmFwdOp", "SiLUAndMulFwdOp")
    op = GatedMLPFwdOp(target="acme")
    op(*call(m=3))
    kept = [(dict(part._settled), dict(part._plans), part.last_call) for part in op.parts]
    acme.built.clear()

    def fail(x):
        raise ValueError("no gate today")

    acme.kernel = fail
    with pytest.raises(ValueError, match="no gate today"):
        op(*call(m=5))
    assert [(part._settled, part._plans, part.last_call) for part in op.parts] == kept
    acme.kernel = silu_and_mul
    op(*call(m=3))
    assert acme.built == ["GemmFwdOp", "SiLUAndMulFwdOp"]  # those of the call that failed
    op(*call(m=5))
    assert acme.built[2:] == list(PARTS)


def test_in_tree_parts_say_that_they_do_not_run_on_the_cpu():
    op = GatedMLPFwdOp(target=BUILTIN)
    with pytest.raises(OpNotAvailableError, match=r"^GemmFwdOp's in-tree kernels do not run on cpu; known targets"):
        op(*call())


def test_a_call_that_breaks_the_composites_signature_reaches_no_part(acme):
    acme.serve("GemmFwdOp", "SiLUAndMulFwdOp")
    x, w_gate_up, w_down = call()
    with pytest.raises(SignatureError, match=r"^GatedMLPFwdOp: input w_down: expected shape \[N, H\]"):
        GatedMLPFwdOp(target="acme")(x, w_gate_up, w_down[:, 1:])
    assert acme.built == []


@pytest.mark.parametrize("served_whole", [False, True])
@pytest.mark.parametrize("empty", ["m", "k", "h", "n"])
def test_empty_dims_give_what_a_sum_of_nothing_gives(acme, empty, served_whole):
    acme.serve("GemmFwdOp", "SiLUAndMulFwdOp", *(["GatedMLPFwdOp"] if served_whole else []))
    tensors = call(**{empty: 0})
    y = GatedMLPFwdOp(target="acme")(*tensors)
    assert torch.equal(y, torch.zeros(tensors[0].shape[0], tensors[2].shape[0], dtype=torch.float16))


def test_explain_gives_the_trace_of_each_part(acme):
    acme.serve("GemmFwdOp", "SiLUAndMulFwdOp")
    x, w_gate_up, w_down = call()
    trace = explain(GatedMLPFwdOp(target="acme"), x[:, ::2], w_gate_up[:, ::2], w_down)
    assert trace.served
    assert [part.op for part in trace.parts] == list(PARTS)
    assert [part.settlement.target for part in trace.parts] == ["acme"] * 3
    assert [bool(part.copies) for part in trace.parts] == [True, False, False]
    assert "x=3x24 float16" in trace.parts[1].asked
    assert trace.text().count("target   ") == 4
    plain = json.loads(json.dumps(trace.to_plain()))
    assert [part["op"] for part in plain["parts"]] == list(PARTS)
    assert acme.built == []


def test_explain_of_in_tree_parts_names_what_each_lacks():
    trace = explain(GatedMLPFwdOp(target=BUILTIN), *call())
    assert not trace.served
    gate_up, _, down = trace.parts
    assert [(part.trace.call.m, part.trace.call.n, part.trace.call.k) for part in (gate_up, down)] == [
        (3, 24, 16),
        (3, 8, 12),
    ]
    assert not any(part.served for part in trace.parts)


def test_explain_of_a_whole_one_has_no_parts(acme):
    acme.serve("GatedMLPFwdOp")
    trace = explain(GatedMLPFwdOp(target="acme"), *call())
    assert trace.served
    assert trace.parts == ()


def test_tuning_reaches_the_parts(acme):
    acme.serve("GemmFwdOp", "SiLUAndMulFwdOp")
    op = GatedMLPFwdOp(target="acme")
    op(*call())
    assert op.kernel_config() == {}
    with pytest.warns(UserWarning, match="SiLUAndMulFwdOp"):
        op.request_tune()
    assert op.kernel_config() == {"tuned": 1}


def test_a_named_kernel_of_a_part_is_not_passed_over(acme):
    acme.serve("GatedMLPFwdOp")
    op = GatedMLPFwdOp(target="acme")
    op(*call())
    with use_kernel("GemmFwdOp", "gemv"), pytest.raises(OpNotAvailableError, match=r"GemmFwdOp: gemv.*whole"):
        op(*call())
    op(*call())


def test_a_named_kernel_reaches_the_part_that_has_it(acme):
    acme.serve("GemmFwdOp", "SiLUAndMulFwdOp")
    op = GatedMLPFwdOp(target="acme")
    op(*call())
    with use_kernel("GemmFwdOp", "gemv"), pytest.raises(OpNotAvailableError, match=r"names 'gemv'.*of GemmFwdOp"):
        op(*call())
    op(*call())


def test_copies_have_parts_of_their_own():
    op = GatedMLPFwdOp(target=BUILTIN)
    for made in (copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        assert repr(made) == "GatedMLPFwdOp(target=BUILTIN)"
        assert [part.target for part in made.parts] == [BUILTIN] * 3
        assert not {id(part) for part in made.parts} & {id(part) for part in op.parts}


def test_declarations_that_make_no_composite():
    with pytest.raises(DeclarationError, match="no composition"):
        type("GemmFwdOp", (CompositeOp,), {})
    body = {"interfaces": SiLUAndMulFwdOp.interfaces, "__module__": __name__}
    with pytest.raises(DeclarationError):
        type("GatedMLPFwdOp", (CompositeOp,), body)
    body = {"forward": lambda self, *tensors: None, "__module__": __name__}
    with pytest.raises(DeclarationError, match="no kernels, interfaces or forward of its own"):
        type("GatedMLPFwdOp", (CompositeOp,), body)
    with pytest.raises(TypeError, match="CompositeOp is a base of ops"):
        CompositeOp()
    assert GemmFwdOp.entry.composition == ()


@pytest.mark.parametrize("served_whole", [False, True])
def test_a_compiled_composite_is_its_parts_unless_it_is_served_whole(served_whole):
    torch._dynamo.reset()
    Target().serve(*PARTS[:2], *(["GatedMLPFwdOp"] if served_whole else []))
    op, counter = GatedMLPFwdOp(target="acme"), CompileCounterWithBackend("aot_eager")
    tensors = [torch.randn(*shape, dtype=torch.bfloat16) for shape in ((4, 16), (32, 16), (8, 16))]
    made = torch.compile(lambda *given: op(*given), backend=counter, fullgraph=True)(*tensors)
    assert torch.equal(made, op(*tensors))
    (graph,) = counter.graphs
    calls = [str(node.target).split(".")[1] for node in graph.graph.nodes if str(node.target).startswith("tileops.")]
    assert calls == (["GatedMLPFwdOp"] if served_whole else list(PARTS))
    with FakeTensorMode() as mode:
        fake = op(*(mode.from_tensor(tensor) for tensor in tensors))
    assert (fake.shape, fake.dtype, fake.stride()) == (made.shape, made.dtype, made.stride())


def test_warm_reaches_the_parts():
    target = Target()
    target.serve(*PARTS[:2])
    op = GatedMLPFwdOp(target="acme")
    specs = [TensorSpec(torch.device("cpu"), torch.bfloat16, shape) for shape in ((4, 16), (32, 16), (8, 16))]
    made = op.warm(*specs)
    assert [(one.op, one.implementation, one.built) for one in made] == [(part, "target acme", True) for part in PARTS]
    built = list(target.built)
    op(*(torch.randn(*spec.shape, dtype=spec.dtype) for spec in specs))
    assert target.built == built
