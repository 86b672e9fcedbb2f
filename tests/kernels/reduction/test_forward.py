"""How the cumulative sums launch their programs: by addresses, so that a tensor of any rank is handed over as it is."""

import ctypes

import pytest
import torch

from tests.kernels.tables import H200
from tileops.kernels.reduction import CUMSUM_IMPLEMENTATIONS

FP32 = torch.float32


def at(address, *shape):
    """Returns float32 on the CPU as a tensor."""
    count = torch.Size(shape).numel()
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=FP32).view(shape)


# key, shape, outer, length, inner, parts of a row
CASES = [
    ("cumsum_short", (6, 64), 6, 64, 1, 0),
    ("cumsum_short", (2, 3, 64), 6, 64, 1, 0),
    ("cumsum_walk", (5,), 1, 5, 1, 0),
    ("cumsum_walk", (5, 1), 1, 5, 1, 0),
    ("cumsum_walk", (7, 5, 2, 2), 7, 5, 4, 0),
    ("cumsum_cluster", (3, 2, 4096), 6, 4096, 1, 0),
    ("cumsum_columns", (2, 600, 2, 4), 2, 600, 8, 0),
    ("cumsum_split", (2, 8192), 2, 8192, 1, 2),
    ("cumsum_split", (2, 1500, 3, 3), 2, 1500, 9, 12),
]


@pytest.mark.parametrize(("key", "shape", "outer", "length", "inner", "parts"), CASES)
def test_a_program_gets_addresses_and_how_many_slices(key, shape, outer, length, inner, parts, monkeypatch):
    workspaces = []

    def launch(device, x_at, *given):
        *partial_at, y_at, count = given
        workspaces.extend(at(one, count, parts, inner).fill_(1.0) for one in partial_at)
        assert device is x
        at(y_at, count, length, inner).copy_(at(x_at, count, length, inner).cumsum(1))

    monkeypatch.setattr("tileops.kernels.built.compile_program", lambda *given, **more: None)
    monkeypatch.setattr("tileops.kernels.built.launcher", lambda kernel: launch)
    cls = CUMSUM_IMPLEMENTATIONS[key]
    call = cls.request(device="cuda:0", stated=H200, outer=outer, length=length, inner=inner, dtype=FP32)
    _, build = cls.entry_for(call)
    x = torch.randn(shape)
    y = build()(x)
    assert y.shape == x.shape
    assert torch.equal(y, x.view(outer, length, inner).cumsum(1).view(shape))
    assert len(workspaces) == (parts > 0)
