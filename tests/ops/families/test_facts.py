"""The call specs that the ops ask their interfaces with: every workload row has one, with the facts its shapes say."""

from __future__ import annotations

import math

import pytest
import torch

from tileops.catalog import op_class
from tileops.manifest import loader
from tileops.manifest.workload import bind

CASES = [(op, case) for op, entry in loader.load().items() if not entry.composition for case in entry.cases()]
F16, F32 = torch.float16, torch.float32


def ask(op, case):
    """The interface that a case asks, and its call spec."""
    binding = bind(loader.entry(op).checker, case)
    (use,) = [use for use in op_class(op).blueprint.uses if use.applies(binding.values)]
    return use.name, use.call_spec(binding.device, binding.values)


@pytest.mark.parametrize(("op", "case"), CASES, ids=[f"{op}-{case.label}" for op, case in CASES])
def test_every_workload_row_has_a_call_spec_of_its_own_size(op, case):
    _, call = ask(op, case)
    facts = call.values()
    elements = math.prod(next(iter(case.inputs.values())).shape)
    sizes = {
        "GemmFwdOp": ("m", "k"),
        "SoftmaxFwdOp": ("outer", "length", "inner"),
        "CumsumFwdOp": ("outer", "length", "inner"),
        "RoPEFwdOp": ("tokens", "q_heads", "head_dim"),
        "GroupNormFwdOp": ("batch", "channels", "spatial"),
        "BatchNormFwdOp": ("batch", "channels", "spatial"),
    }.get(op, ("rows", "length"))
    halves = 2 if op == "SiLUAndMulFwdOp" else 1
    assert math.prod(facts[name] for name in sizes) * halves == elements
    assert facts["dtype"] == case.case["T"]


@pytest.mark.parametrize(
    ("shape", "dim", "split"),
    [((2, 3, 4), 1, (2, 3, 4)), ((2, 3, 4), -1, (6, 4, 1)), ((2, 3, 4), -3, (1, 2, 12)), ((), 0, (1, 1, 1))],
)
@pytest.mark.parametrize("op", ["SoftmaxFwdOp", "CumsumFwdOp"])
def test_a_dim_splits_the_shape_in_three(op, shape, dim, split):
    (use,) = op_class(op).blueprint.uses
    call = use.call_spec(torch.device("cpu"), {"S": shape, "dim": dim, "T": F32})
    assert (call.outer, call.length, call.inner) == split


def test_batch_norm_asks_the_interface_of_its_mode():
    asked = {}
    for case in loader.entry("BatchNormFwdOp").cases():
        name, call = ask("BatchNormFwdOp", case)
        asked.setdefault(name, []).append(case.params["training"])
        assert call.eps == case.params["eps"]
        assert getattr(call, "momentum", None) == (case.params["momentum"] if case.params["training"] else None)
        assert call.param_dtype == case.case["P"]
    assert set(map(tuple, map(set, asked.values()))) == {(True,), (False,)}
    assert set(asked) == {"batch_norm_fwd_train", "batch_norm_fwd_infer"}


def test_a_left_out_eps_is_that_of_float32():
    for op in ("RMSNormFwdOp", "FusedAddRMSNormFwdOp"):
        (use,) = op_class(op).blueprint.uses
        values = {"B": (2,), "normalized_shape": (8,), "T": F16, "present(weight)": True, "eps": None}
        assert use.call_spec(torch.device("cpu"), values).eps == torch.finfo(F32).eps
        assert use.call_spec(torch.device("cpu"), {**values, "eps": 0.5}).eps == 0.5


def test_group_norm_knows_the_runs_of_one_weight():
    call = ask("GroupNormFwdOp", loader.entry("GroupNormFwdOp").cases("sdxl-attention")[0])[1]
    facts = call.values()
    assert (facts["rows"], facts["length"], facts["group_channels"]) == (64, 20 * 64 * 64, 20)


@pytest.mark.in_tree_kernels
@pytest.mark.parametrize("op", [op for op, entry in loader.load().items() if not entry.composition])
def test_in_tree_kernels_do_not_run_on_the_cpu(op):
    from tileops.backend import BUILTIN, OpNotAvailableError

    case = loader.entry(op).cases()[0]
    made = op_class(op)(**case.params, target=BUILTIN)
    tensors = [size and torch.empty((1,), dtype=size.dtype).expand(size.shape) for size in case.inputs.values()]
    with pytest.raises(OpNotAvailableError, match=rf"^{op}'s in-tree kernels do not run on cpu; known targets for"):
        made(*tensors)
