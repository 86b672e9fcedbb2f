"""The torch operators of ops: what a compiled graph holds, and how it finds the instance again."""

from __future__ import annotations

import gc
import math

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounterWithBackend

from tileops import backend, operator, use_kernel
from tileops.backend import BUILTIN
from tileops.op import Op
from tileops.rules.errors import BackendError, OpNotAvailableError

A = torch.ones(4, 8)


@pytest.fixture(autouse=True)
def _cold():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def graph_calls(counter):
    return [
        str(node.target).split(".")[1]
        for graph in counter.graphs
        for node in graph.graph.nodes
        if str(node.target).startswith("tileops.")
    ]


def test_the_op_itself_can_be_compiled(toy):
    op = toy.op()
    for compiled in (torch.compile(op, backend="eager", fullgraph=True), torch.compile(op.__call__, backend="eager")):
        assert torch.equal(compiled(A, A), A + A)
        assert torch.equal(compiled(A, A, bias=A[0]), A + A + A[0])
    assert op.last_call.key == "wide"


def test_equal_layers_of_a_module_share_a_graph_and_unequal_ones_do_not(toy):
    class Layer(torch.nn.Module):
        def __init__(self, **params):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 8))
            self.op = toy.op(**params)

        def forward(self, x):
            return self.op(x, self.weight) * 2

    counter = CompileCounterWithBackend("aot_eager")
    layers = [Layer(scale=1.0) for _ in range(20)] + [Layer(scale=2.0), Layer(scale=math.inf), Layer(scale=math.nan)]
    with torch.no_grad():
        for layer in layers:
            layer.compile(backend=counter, fullgraph=True)
            assert torch.equal(layer(A), (A + layer.weight) * 2)
    assert counter.frame_count == 4
    assert len(toy.made.builds) == 1


def test_a_model_of_layers_is_one_graph(toy):
    counter = CompileCounterWithBackend("aot_eager")
    ops = [toy.op() for _ in range(5)]

    @torch.compile(backend=counter, fullgraph=True)
    def model(x):
        for op in ops:
            x = op(x, x)
        return x

    assert torch.equal(model(A), A * 32)
    assert len(graph_calls(counter)) == 5
    assert all(op.last_call is not None for op in ops)


def test_tuned_mode_is_the_instances_in_eager_and_compiled_calls(toy):
    tuned = []
    for cls in toy.classes.values():
        cls.request_tune = lambda self: tuned.append(self)
    op = toy.op()
    compiled = torch.compile(lambda a: op(a, a), backend="eager", fullgraph=True)
    compiled(A)
    op.request_tune()
    compiled(A)
    assert (len(toy.made.builds), len(tuned)) == (2, 1)
    op(A, A)
    assert (len(toy.made.builds), len(tuned)) == (2, 1)


def test_use_kernel_around_a_compiled_call(toy):
    op = toy.op()
    compiled = torch.compile(lambda a: op(a, a), backend="aot_eager", fullgraph=True)
    for key in ("plain", "wide"):
        with use_kernel("AddFwdOp", key):
            compiled(A)
        assert toy.made.launches[-1][0] == key
    compiled(A)
    assert toy.made.launches[-1][0] == "wide"
    with use_kernel("AddFwdOp", "wide"), pytest.raises(OpNotAvailableError, match="a row has at least 8 elements"):
        torch.compile(lambda a: op(a, a), backend="eager", fullgraph=True)(torch.ones(4, 2))


def test_use_kernel_inside_a_compiled_region_says_where_it_belongs(toy):
    op = toy.op()

    def inside(a):
        with use_kernel("AddFwdOp", "plain"):
            return op(a, a)

    with pytest.raises(torch._dynamo.exc.Unsupported, match="open it around the call of the compiled function"):
        torch.compile(inside, backend="eager", fullgraph=True)(A)


def test_a_written_input_is_the_callers(toys):
    def kernel(x):
        x += 1

    backend.register_kernel_builder("BumpFwdOp", "acme", lambda *specs, **params: kernel)
    op = type("BumpFwdOp", (Op,), {}, entry=toys.entries["BumpFwdOp"])(target="acme")
    compiled = torch.compile(lambda x: (op(x), x * 2), backend="aot_eager", fullgraph=True)
    x = torch.zeros(4, 8)
    y, twice = compiled(x)
    assert torch.equal(x, torch.ones(4, 8))
    assert torch.equal(y, x)
    assert torch.equal(twice, x * 2)
    assert y.data_ptr() == x.data_ptr()
    assert torch.library.opcheck(op._operator, (x, op._name, op._about))


def test_several_outputs(toys):
    backend.register_kernel_builder("SplitFwdOp", "acme", lambda *specs, **params: lambda x: (x * 2, x[:, 0] + 1))
    op = type("SplitFwdOp", (Op,), {}, entry=toys.entries["SplitFwdOp"])(target="acme")
    x = torch.randn(8, 8)
    y, z = torch.compile(lambda x: op(x), backend="aot_eager", fullgraph=True)(x)
    assert torch.equal(y, x * 2)
    assert torch.equal(z, x[:, 0] + 1)


def test_an_instance_that_is_gone_is_named(toy):
    op = toy.op(scale=3.0)
    torch_op, name, about = op._operator, op._name, op._about
    assert torch.equal(torch_op(A, A, None, name, about), A + A)
    other = toy.op()
    with pytest.raises(BackendError, match=r"AddFwdOp\w*: a graph calls an instance of this op that this process does"):
        torch_op(A, A, None, other._name, about)
    del op
    gc.collect()
    with pytest.raises(BackendError, match="keep the op alive as long as what was compiled or exported from it"):
        torch_op(A, A, None, name, about)


def test_what_tells_of_an_instance_keeps_types_apart(toy):
    told = {toy.op(scale)._about for scale in (1.0, 1, math.inf, -math.inf, math.nan)}
    assert len(told) == 5
    assert toy.op(sizes=[1])._about != toy.op(sizes=[1, 1])._about
    assert toy.op(target=BUILTIN)._about != toy.op(target="BUILTIN")._about
    for scale in (1, 1.5, math.inf):
        _, params = operator._described(toy.op(scale, sizes=[1, 2])._about)
        assert (params, type(params["scale"])) == ({"scale": scale, "sizes": [1, 2]}, type(scale))


def test_two_classes_of_one_name_are_two_operators(toys):
    first, second = toys.make().op(), toys.make().op()
    assert first._operator is not second._operator
    assert torch.equal(first._operator(A, A, None, first._name, first._about), A + A)


def test_an_op_made_under_a_mode_or_a_device_is_named_by_a_plain_tensor(toy):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = toy.op()
    with torch.device("meta"):
        meta = toy.op()
    with torch.inference_mode():
        inference = toy.op()
    for op in (fake, meta, inference):
        assert (type(op._name), op._name.device.type, op._name.is_inference()) == (torch.Tensor, "cpu", False)
        assert torch.equal(torch.compile(lambda op, a: op(a, a), backend="eager", fullgraph=True)(op, A), A + A)


def test_an_exported_program_runs_as_long_as_the_op_lives(toy):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.op = toy.op()

        def forward(self, a):
            return self.op(a, a)

    model = Model()
    exported = torch.export.export(model, (A,)).module()
    assert torch.equal(exported(A), A + A)
    del model
    gc.collect()
    with pytest.raises(BackendError, match="keep the op alive"):
        exported(A)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method.:DeprecationWarning")  # inductor's own imports use it
def test_inductor_calls_the_operator(toy):
    op = toy.op()
    compiled = torch.compile(lambda a: op(op(a, a), a), fullgraph=True)  # nothing of it takes a C++ compiler
    x = torch.randn(4, 8)
    assert torch.equal(compiled(x), x + x + x)
    assert len(toy.made.launches) == 2
