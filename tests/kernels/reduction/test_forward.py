"""How the cumulative sums hand tensors to their programs: in the program's dims, without a view where they fit."""

import pytest
import torch

from tests.kernels.tables import H200
from tileops.kernels.reduction import CUMSUM_IMPLEMENTATIONS

FP32 = torch.float32


@pytest.fixture
def launched(monkeypatch):
    """Puts a sum on the CPU in the place of each compiled program; collects what it was given."""
    given = []

    def launch(*tensors):
        given.append(tensors)
        tensors[-1].copy_(tensors[0].cumsum(1))

    monkeypatch.setattr("tileops.kernels.built.compile_program", lambda *given, **more: None)
    monkeypatch.setattr("tileops.kernels.built.launcher", lambda kernel: launch)
    return given


# key, shape, outer, length, inner, shape of the workspace
CASES = [
    ("cumsum_short", (6, 64), 6, 64, 1, None),
    ("cumsum_short", (2, 3, 64), 6, 64, 1, None),
    ("cumsum_walk", (5,), 1, 5, 1, None),
    ("cumsum_walk", (1, 5), 1, 5, 1, None),
    ("cumsum_walk", (5, 1), 1, 5, 1, None),
    ("cumsum_walk", (7, 5, 2, 2), 7, 5, 4, None),
    ("cumsum_walk", (7, 5, 4), 7, 5, 4, None),
    ("cumsum_split", (2, 8192), 2, 8192, 1, (2, 2)),
    ("cumsum_split", (1500, 3, 3), 1, 1500, 9, (1, 12, 9)),
]


@pytest.mark.parametrize(("key", "shape", "outer", "length", "inner", "workspace"), CASES)
def test_tensors_are_handed_over_in_the_dims_of_the_program(key, shape, outer, length, inner, workspace, launched):
    cls = CUMSUM_IMPLEMENTATIONS[key]
    call = cls.request(device="cuda:0", stated=H200, outer=outer, length=length, inner=inner, dtype=FP32)
    _, build = cls.entry_for(call)
    x = torch.randn(shape)
    y = build()(x)
    assert torch.equal(y, x.view(outer, length, inner).cumsum(1).view(shape))
    ((rows, *sums, out),) = launched
    seen = (outer, length) if inner == 1 else (outer, length, inner)
    assert rows.shape == out.shape == seen
    assert [tuple(one.shape) for one in sums] == ([workspace] if workspace else [])
    assert (rows is x) == (shape == seen)
