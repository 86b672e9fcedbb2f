"""Calls that nobody wrote down: any rank, empty dims, strides, starts and dtypes, against the float64 reference."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tileops.manifest import loader
from tileops.manifest.schema import Workload
from tileops.manifest.workload import cases
from tileops.rules.errors import SignatureError

DIM = st.one_of(st.integers(0, 9), st.sampled_from([16, 31, 64, 65, 130]))
RUN = st.lists(st.one_of(st.integers(1, 5), st.integers(0, 5)), max_size=4)
ROW = st.lists(st.one_of(DIM, st.integers(1, 5)), min_size=1, max_size=3)
EPS = st.sampled_from([1e-5, 1e-3, 0.1, 1])
MAX_ELEMENTS = 2**16

# What an op's params may be, drawn after its indices.
PARAMS = {
    "GemmFwdOp": lambda draw, v: {"trans_a": draw(st.booleans()), "trans_b": draw(st.booleans())},
    "RMSNormFwdOp": lambda draw, v: {"normalized_shape": _row(draw), "eps": draw(st.one_of(st.none(), EPS))},
    "FusedAddRMSNormFwdOp": lambda draw, v: {"normalized_shape": _row(draw), "eps": draw(st.one_of(st.none(), EPS))},
    "LayerNormFwdOp": lambda draw, v: {"normalized_shape": _row(draw), "eps": draw(EPS)},
    "GroupNormFwdOp": lambda draw, v: {"num_groups": _groups(draw, v), "eps": draw(EPS)},
    "BatchNormFwdOp": lambda draw, v: {
        "training": draw(st.booleans()),
        "momentum": draw(st.sampled_from([0.0, 0.1, 0.5, 1])),
        "eps": draw(EPS),
    },
    "SoftmaxFwdOp": lambda draw, v: {"dim": _dim(draw, v["S"])},
    "CumsumFwdOp": lambda draw, v: {"dim": _dim(draw, v["S"])},
    "SiLUAndMulFwdOp": lambda draw, v: {},
    "RoPEFwdOp": lambda draw, v: {
        "interleaved": draw(st.booleans()),
        "check_positions": draw(st.booleans()),
        **_rope_sizes(draw, v),
    },
    "GatedMLPFwdOp": lambda draw, v: {},
}


def _row(draw):
    row = draw(ROW)
    return tuple(row) if draw(st.booleans()) else row


def _groups(draw, values):
    groups = draw(st.sampled_from([1, 2, 3, 8, 32]))
    values["C"] = groups * draw(st.integers(0, 4))
    return groups


def _dim(draw, shape):
    rank = max(len(shape), 1)
    return draw(st.integers(-rank, rank - 1))


def _rope_sizes(draw, values):
    """Indices, not params: the op wants them above 0, and pairs within a head."""
    for name in ("HQ", "HK", "P"):
        values[name] = draw(st.integers(1, 9))
    values["R"] = draw(st.integers(1, 40))
    values["D"] = 2 * values["R"] + draw(st.sampled_from([0, 0, 1, 16]))
    return {}


def call_of(draw, op):
    """Draw a call that the signature takes."""
    entry = loader.entry(op)
    signature = entry.signature
    values = {
        name: draw(DIM if index.kind == "dim" else RUN)
        for name, index in signature.forall.items()
        if index.kind != "dtype"
    }
    values |= PARAMS[op](draw, values)
    dtypes = {
        name: draw(st.sampled_from(index.members)) for name, index in signature.forall.items() if index.kind == "dtype"
    }
    optional = [name for name, item in signature.inputs.items() if item.optional]
    without = draw(st.sets(st.sampled_from(optional))) if optional else set()
    row = Workload("generated", values, (dtypes,), frozenset(without))
    try:
        (case,) = cases(entry.checker, row)
        entry.checker.call(case.params, [size and _described(size) for size in case.inputs.values()])
    except SignatureError:
        assume(False)
    assume(sum(math.prod(size.shape) for size in case.inputs.values() if size) <= MAX_ELEMENTS)
    return case


def _described(size):
    import torch

    return torch.empty(size.shape, dtype=size.dtype, device="meta")


@pytest.mark.parametrize("op", loader.families())
def test_generated_calls(op, calls):
    signature = loader.entry(op).signature

    @settings(
        max_examples=80,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.data())
    def run(data):
        case = call_of(data.draw, op)
        layouts = {
            name: data.draw(
                st.sampled_from(
                    ["packed", "transposed", "sliced", "misaligned", *([] if item.mutated else ["expanded"])]
                ),
                label=name,
            )
            for name, item in signature.inputs.items()
        }
        calls.run(op, case.params, calls.inputs(op, case, data.draw(st.integers(0, 2**16)), layouts))

    run()
