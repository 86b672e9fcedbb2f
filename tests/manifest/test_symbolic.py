"""The checker under torch.compile's symbolic sizes: outputs follow them, and no size is fixed."""

import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from tileops import manifest


@pytest.fixture
def shapes():
    return ShapeEnv()


@pytest.fixture
def fake(shapes):
    mode = FakeTensorMode(shape_env=shapes)

    def make(name: str, *shape: int) -> torch.Tensor:
        context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * len(shape))
        tensor = torch.empty(shape, dtype=torch.float16)
        return mode.from_tensor(tensor, source=ConstantSource(name), symbolic_context=context)

    return make


def test_gemm_equates_the_two_k_and_fixes_nothing(shapes, fake):
    checker = manifest.entry("GemmFwdOp").checker
    a, b = fake("a", 6, 8), fake("b", 5, 8)
    binding = checker.call(checker.bind_params((), {}), (a, b))
    m, n = checker.outputs(binding)[0].shape
    assert (m.node.expr, n.node.expr) == (a.shape[0].node.expr, b.shape[0].node.expr)
    assert all(isinstance(size, torch.SymInt) for size in (m, n))
    replaced = {str(guard.expr) for guard in shapes.guards if "Eq" in str(guard.expr)}
    assert len(replaced) == 1


def test_a_halved_dim_stays_symbolic(fake, later):
    checker = later["SiLUAndMulFwdOp"].checker
    x = fake("x", 6, 8)
    shape = checker.outputs(checker.call({}, (x,)))[0].shape
    assert [int(size) for size in shape] == [6, 4]
    assert isinstance(shape[1], torch.SymInt)
    assert not shape[1].node.expr.is_number
