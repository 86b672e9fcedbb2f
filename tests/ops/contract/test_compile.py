"""torch.compile, opcheck and fakes: for every op of the manifest alike."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounterWithBackend
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode

import tileops
from tileops.rules.errors import SignatureError

# Operators are traced and functionalised by this backend; none is compiled, which would take a C++ compiler.
BACKEND = "aot_eager"


@pytest.fixture(autouse=True)
def _cold():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


def operators(graph):
    return [str(node.target) for node in graph.graph.nodes if str(node.target).startswith("tileops.")]


def close(op, one, other):
    for left, right in zip(outputs(one), outputs(other), strict=True):
        assert (left.dtype, left.shape, left.stride(), left.device) == (
            right.dtype,
            right.shape,
            right.stride(),
            right.device,
        )
        assert torch.equal(left, right), op


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiled_whole_from_a_cold_start(sample, dynamic):
    counter = CompileCounterWithBackend(BACKEND)
    compiled_op, eager_op = sample.op(), sample.op()
    compiled = torch.compile(lambda *tensors: compiled_op(*tensors), fullgraph=True, dynamic=dynamic, backend=counter)
    for rows in (3, 5, 7):  # no size is another's at first, or torch takes them for one
        given, twin = sample.tensors(rows), sample.tensors(rows)
        close(sample.name, compiled(*given), eager_op(*twin))
        for name, mine, other in zip(sample.case.inputs, given, twin, strict=True):
            assert mine is None or torch.equal(mine, other), name
    assert counter.frame_count == (1 if dynamic else 3)
    assert [len(operators(graph)) for graph in counter.graphs] == [len(sample.traced())] * len(counter.graphs)
    if sample.traced() == (sample.name,):  # a composite by its parts is no call of its own in a graph
        assert compiled_op.serving_target == eager_op.serving_target == sample.target
        assert compiled_op.last_call == eager_op.last_call


def test_equal_layers_share_a_graph_and_what_it_runs(sample):
    counter = CompileCounterWithBackend(BACKEND)
    layer = torch.compile(lambda op, *tensors: op(*tensors), fullgraph=True, backend=counter)
    ops = [sample.op() for _ in range(20)]
    tensors = sample.tensors()
    for op in ops:
        layer(op, *tensors)
    assert counter.frame_count == 1
    eager = sample.op()
    eager(*tensors)
    before = builds()
    for op in ops:  # eager now, on what the compiled calls built
        op(*tensors)
        assert len(op._plans) == 1
    assert builds() == before


def builds():
    return sum(count.builds for counts in tileops.stats().values() for count in counts.values())


def test_fakes_agree_with_results(sample):
    op = sample.op()
    real, tensors = op(*sample.tensors()), sample.tensors()
    with FakeTensorMode() as mode:
        fake = op(*(None if tensor is None else mode.from_tensor(tensor) for tensor in tensors))
    on_meta = sample.op()
    for mine, other in zip(outputs(fake), outputs(real), strict=True):
        assert (mine.dtype, mine.shape, mine.stride(), mine.device) == (
            other.dtype,
            other.shape,
            other.stride(),
            other.device,
        )
    assert on_meta.last_call is None


def test_opcheck(sample):
    op = sample.op()
    result = torch.library.opcheck(op._operator, (*sample.tensors(), op._name, op._about))
    assert set(result.values()) == {"SUCCESS"}


def test_written_inputs_are_declared(sample):
    arguments = {argument.name: argument for argument in sample.op()._operator._schema.arguments}
    written = {name for name, argument in arguments.items() if argument.is_write}
    assert written == set(sample.written)
    assert set(arguments) == {*sample.case.inputs, "op_instance", "op_about"}


def test_a_gradient_is_refused_in_a_compiled_region_too(sample):
    op, tensors = sample.op(), sample.tensors()
    tensors[0].requires_grad_()
    compiled = torch.compile(lambda *given: op(*given), fullgraph=True, backend=BACKEND)
    with pytest.raises((SignatureError, RuntimeError), match="requires a gradient, and this op has no backward"):
        compiled(*tensors)
    with torch.no_grad():
        close(sample.name, compiled(*tensors), sample.op()(*sample.tensors()))


def test_a_call_outside_the_signature_is_refused_in_a_compiled_region_too(sample):
    op, tensors = sample.op(), sample.tensors()
    tensors[0] = tensors[0].double()
    compiled = torch.compile(lambda *given: op(*given), fullgraph=True, backend=BACKEND)
    with pytest.raises((SignatureError, RuntimeError), match=f"{sample.traced()[0]}: input "):
        compiled(*tensors)


def test_inductor_takes_the_name_of_an_instance_as_it_takes_weights(sample):
    seen = []

    def look(graph, given):
        static = TracingContext.get().fw_metadata.static_input_indices
        seen.append([(tensor.dtype, tensor.dim(), str(tensor.device), at in static) for at, tensor in enumerate(given)])
        return make_boxed_func(graph.forward)

    op = sample.op()
    torch.compile(lambda *tensors: op(*tensors), fullgraph=True, backend=aot_autograd(fw_compiler=look))(
        *sample.tensors()
    )
    static = [(dtype, dim, where) for dtype, dim, where, is_static in seen[0] if is_static]
    assert static == [(torch.int64, 0, "cpu")] * len(sample.traced())


@pytest.mark.cuda_only
def test_a_compiled_region_replays_as_a_cuda_graph(sample):
    op, eager = sample.op(), sample.op()
    compiled = torch.compile(lambda *tensors: op(*tensors), fullgraph=True, mode="reduce-overhead")
    for turn in range(5):  # a run to warm up, one that records, then replays: each on values of its own
        given, twin = (changed(sample.tensors(), turn) for _ in range(2))
        torch.compiler.cudagraph_mark_step_begin()
        made = compiled(*given)
        close(sample.name, made, eager(*twin))
        for mine, other in zip(given, twin, strict=True):
            assert mine is None or torch.equal(mine, other)


def changed(tensors, turn):
    """The tensors with other values each turn; integers and variances stay what an op takes."""
    return [t * (1 + turn / 4) if t is not None and t.is_floating_point() else t for t in tensors]
