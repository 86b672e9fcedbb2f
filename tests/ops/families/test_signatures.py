"""For every op, and every rule and type in its signature: one call that breaks only that, and the error it gets."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
import torch

from tileops.catalog import op_class
from tileops.manifest import loader
from tileops.rules.errors import SignatureError

OPS = sorted(loader.families())
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32

# A call that each op takes: its params, and the shape of each input. float16; positions are int64, as is said below.
CALLS: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "GemmFwdOp": ({}, {"a": (4, 16), "b": (8, 16)}),
    "RMSNormFwdOp": ({"normalized_shape": [16]}, {"x": (4, 16), "weight": (16,)}),
    "LayerNormFwdOp": ({"normalized_shape": [16]}, {"x": (4, 16), "weight": (16,), "bias": (16,)}),
    "GroupNormFwdOp": ({"num_groups": 3}, {"x": (2, 6, 5), "weight": (6,), "bias": (6,)}),
    "BatchNormFwdOp": (
        {"training": True},
        {"x": (2, 6, 5), "running_mean": (6,), "running_var": (6,), "weight": (6,), "bias": (6,)},
    ),
    "FusedAddRMSNormFwdOp": ({"normalized_shape": [16]}, {"x": (4, 16), "residual": (4, 16), "weight": (16,)}),
    "SoftmaxFwdOp": ({}, {"x": (4, 16)}),
    "CumsumFwdOp": ({}, {"x": (4, 16)}),
    "SiLUAndMulFwdOp": ({}, {"x": (4, 16)}),
    "RoPEFwdOp": ({}, {"q": (4, 3, 16), "k": (4, 2, 16), "positions": (4,), "cos_sin": (9, 8)}),
    "GatedMLPFwdOp": ({}, {"x": (4, 16), "w_gate_up": (24, 16), "w_down": (8, 12)}),
}

# Shapes that break only the form of one input: (op, input, its shape, what the error says after the form).
SHAPES = [
    ("GemmFwdOp", "a", (4,), "received (4,) (1 dim)"),
    ("GemmFwdOp", "b", (8, 15), "its dim 1 is 15, not 16"),
    ("RMSNormFwdOp", "x", (4, 15), "its *normalized_shape is (15,), not (16,)"),
    ("RMSNormFwdOp", "weight", (15,), "its *normalized_shape is (15,), not (16,)"),
    ("LayerNormFwdOp", "x", (), "received () (0 dims)"),
    ("LayerNormFwdOp", "weight", (1, 16), "received (1, 16) (2 dims)"),
    ("LayerNormFwdOp", "bias", (17,), "its *normalized_shape is (17,), not (16,)"),
    ("GroupNormFwdOp", "x", (6,), "received (6,) (1 dim)"),
    ("GroupNormFwdOp", "weight", (5,), "its dim 0 is 5, not 6"),
    ("GroupNormFwdOp", "bias", (6, 1), "received (6, 1) (2 dims)"),
    ("BatchNormFwdOp", "x", (6,), "received (6,) (1 dim)"),
    ("BatchNormFwdOp", "running_mean", (5,), "its dim 0 is 5, not 6"),
    ("BatchNormFwdOp", "running_var", (7,), "its dim 0 is 7, not 6"),
    ("BatchNormFwdOp", "weight", (5,), "its dim 0 is 5, not 6"),
    ("BatchNormFwdOp", "bias", (), "received () (0 dims)"),
    ("FusedAddRMSNormFwdOp", "x", (4, 15), "its *normalized_shape is (15,), not (16,)"),
    ("FusedAddRMSNormFwdOp", "residual", (3, 16), "its *B is (3,), not (4,)"),
    ("FusedAddRMSNormFwdOp", "weight", (1,), "its *normalized_shape is (1,), not (16,)"),
    ("SoftmaxFwdOp", "x", (1,) * 9, "which has 9"),
    ("CumsumFwdOp", "x", (1,) * 9, "which has 9"),
    ("SiLUAndMulFwdOp", "x", (4, 15), "its dim 1 is 15, which is 2 * H for no whole H"),
    ("RoPEFwdOp", "q", (16,), "received (16,) (1 dim)"),
    ("RoPEFwdOp", "k", (4, 2, 15), "its dim 2 is 15, not 16"),
    ("RoPEFwdOp", "positions", (5,), "its *B is (5,), not (4,)"),
    ("RoPEFwdOp", "cos_sin", (9, 7), "its dim 1 is 7, which is 2 * R for no whole R"),
    ("GatedMLPFwdOp", "x", (16,), "received (16,) (1 dim)"),
    ("GatedMLPFwdOp", "w_gate_up", (23, 16), "its dim 0 is 23, which is 2 * H for no whole H"),
    ("GatedMLPFwdOp", "w_down", (8, 13), "its dim 1 is 13, not 12"),
]

# Calls that break only one rule: (op, rule, params, shapes, dtypes) instead of those of CALLS.
RULES: list[tuple[str, str, dict[str, Any], dict[str, tuple[int, ...]], dict[str, torch.dtype]]] = [
    *(
        (op, "len(normalized_shape) >= 1", {"normalized_shape": []}, {"weight": ()}, {})
        for op in ("RMSNormFwdOp", "LayerNormFwdOp", "FusedAddRMSNormFwdOp")
    ),
    ("GroupNormFwdOp", "num_groups >= 1", {"num_groups": 0}, {}, {}),
    ("GroupNormFwdOp", "C % num_groups == 0", {"num_groups": 4}, {}, {}),
    (
        "BatchNormFwdOp",
        "P == T or P == float32",
        {},
        {},
        dict.fromkeys(("running_mean", "running_var", "weight", "bias"), BF16),
    ),
    ("BatchNormFwdOp", "not training or N * prod(S) != 1", {}, {"x": (1, 6, 1)}, {}),
    *(
        (op, "-max(len(S), 1) <= dim < max(len(S), 1)", {"dim": dim}, {"x": shape}, {})
        for op in ("SoftmaxFwdOp", "CumsumFwdOp")
        for dim, shape in ((2, (4, 16)), (-3, (4, 16)), (1, ()), (-2, ()))
    ),
    ("RoPEFwdOp", "HQ >= 1 and HK >= 1", {}, {"q": (4, 0, 16)}, {}),
    ("RoPEFwdOp", "HQ >= 1 and HK >= 1", {}, {"k": (4, 0, 16)}, {}),
    ("RoPEFwdOp", "P >= 1 and R >= 1", {}, {"cos_sin": (0, 8)}, {}),
    ("RoPEFwdOp", "P >= 1 and R >= 1", {}, {"cos_sin": (9, 0)}, {}),
    ("RoPEFwdOp", "2 * R <= D", {}, {"cos_sin": (9, 18)}, {}),
    ("RoPEFwdOp", "A == T or A == float32", {}, {}, {"cos_sin": BF16}),
]

# For each type of param: values that it does not take, all but the last of another type; the last is no such value.
WRONG: dict[str, tuple[Any, ...]] = {
    "bool": (1, "yes", None),
    "int": (True, 1.0, "1", None),
    "float": (True, "1e-5", None, 2**60),
    "float | None": (True, "1e-5", [1e-5]),
    "list[int] | tuple[int, ...]": (16, None, "16", [1.5], [True], (4, "4"), [[4]], [1] * 9),
}


@attrs.frozen
class Maker:
    """Makes one op and its call, with parts of it replaced."""

    target: Any
    device: torch.device

    def op(self, name: str, **params: Any) -> Any:
        return op_class(name)(**{**CALLS[name][0], **params}, target=self.target)

    def tensors(self, name: str, shapes: Any = (), dtypes: Any = ()) -> dict[str, Any]:
        sizes = {**CALLS[name][1], **dict(shapes)}
        types = {**dict.fromkeys(sizes, F16), **({"positions": torch.int64} if "positions" in sizes else {})}
        types |= dict(dtypes)
        return {one: torch.zeros(size, dtype=types[one], device=self.device) for one, size in sizes.items()}


@pytest.fixture
def maker(target, device) -> Maker:
    return Maker(target, device)


def refused(op, error, *tensors, **named) -> str:
    """The message of a call that is refused; nothing of it is kept."""
    with pytest.raises(error) as caught:
        op(*tensors, **named)
    assert op.serving_target is None
    assert op.last_call is None
    return str(caught.value)


def test_the_tables_cover_every_rule_and_shape_and_type():
    assert set(CALLS) == set(OPS)
    rules = {(op, rule.text) for op in OPS for rule in loader.entry(op).signature.rules}
    assert {(op, rule) for op, rule, *_ in RULES} == rules
    inputs = {(op, name) for op in OPS for name in loader.entry(op).signature.inputs}
    assert {(op, name) for op, name, *_ in SHAPES} == inputs
    types = {str(param.type) for op in OPS for param in loader.entry(op).signature.params.values()}
    assert set(WRONG) == types


@pytest.mark.parametrize("op", OPS)
def test_the_call_that_the_others_break_is_within_the_signature(op, maker):
    checker = loader.entry(op).checker
    checker.call(maker.op(op).params, tuple(maker.tensors(op).values()))


@pytest.mark.parametrize(("op", "name", "shape", "received"), SHAPES, ids=[f"{one[0]}-{one[1]}" for one in SHAPES])
def test_a_shape_that_does_not_fit(op, name, shape, received, maker):
    message = refused(maker.op(op), SignatureError, *maker.tensors(op, {name: shape}).values())
    form = loader.entry(op).signature.inputs[name].shape
    expected = form.choose({"trans_a": False, "trans_b": True}).text
    assert message.startswith(f"{op}: input {name}: expected shape {expected}")
    assert message.endswith(received)


@pytest.mark.parametrize(
    ("op", "rule", "params", "shapes", "dtypes"),
    RULES,
    ids=[f"{one[0]}-{one[1]}-{at}".replace(" ", "") for at, one in enumerate(RULES)],
)
def test_a_rule_that_does_not_hold(op, rule, params, shapes, dtypes, maker):
    named = {name for parsed in loader.entry(op).signature.rules if parsed.text == rule for name in parsed.facts}
    known = loader.entry(op).signature.params
    if named <= set(known):  # the constructor has all that it reads
        with pytest.raises(SignatureError) as caught:
            maker.op(op, **params)
        message = str(caught.value)
    else:
        message = refused(maker.op(op, **params), SignatureError, *maker.tensors(op, shapes, dtypes).values())
    assert message.startswith(f"{op}: expected {rule}, received ")
    assert all(re.search(rf"\b{name} = ", message) for name in named - {"float32"})


@pytest.mark.parametrize("op", OPS)
def test_a_dtype_that_an_input_does_not_take(op, maker):
    made = maker.op(op)
    for name, item in loader.entry(op).signature.inputs.items():
        members = loader.entry(op).signature.forall[item.dtype_name].members
        for dtype in (torch.complex64, torch.int16, torch.bool, torch.float64):
            assert dtype not in members
            message = refused(made, SignatureError, *maker.tensors(op, (), {name: dtype}).values())
            assert message.startswith(f"{op}: input {name}: expected dtype "), message
            assert message.endswith(f"received {str(dtype).removeprefix('torch.')}")


@pytest.mark.parametrize("op", OPS)
def test_inputs_that_share_a_dtype_and_do_not_have_it(op, maker):
    """Each input that shares an index of dtypes with an earlier one is refused another member of that index."""
    made, first = maker.op(op), {}
    signature = loader.entry(op).signature
    for name, item in signature.inputs.items():
        index = item.dtype_name
        if first.setdefault(index, name) == name:
            continue
        message = refused(made, SignatureError, *maker.tensors(op, (), {name: BF16}).values())
        assert message == (
            f"{op}: input {name}: expected dtype float16 ({index} from {first[index]}), received bfloat16"
        )


@pytest.mark.parametrize("op", OPS)
def test_an_input_on_another_device(op, maker):
    made, tensors = maker.op(op), maker.tensors(op)
    for name in list(tensors)[1:]:
        message = refused(made, SignatureError, *{**tensors, name: tensors[name].to("meta")}.values())
        assert message.startswith(f"{op}: input {name}: expected device {maker.device.type}")
        assert message.endswith("received meta")


@pytest.mark.parametrize("op", OPS)
def test_an_input_that_is_no_tensor(op, maker):
    made, tensors = maker.op(op), maker.tensors(op)
    for name, item in loader.entry(op).signature.inputs.items():
        for wrong in ([1.0], 1, *(() if item.optional else (None,))):
            message = refused(made, SignatureError, *{**tensors, name: wrong}.values())
            takes = "a torch.Tensor or None" if item.optional else "a torch.Tensor"
            assert message.startswith(f"{op}: input {name!r} takes {takes}, got {type(wrong).__name__}")


@pytest.mark.parametrize("op", OPS)
def test_inputs_missing_unknown_and_too_many(op, maker):
    made, tensors = maker.op(op), maker.tensors(op)
    required = [name for name, item in loader.entry(op).signature.inputs.items() if not item.optional]
    for name in required:
        refused(made, (TypeError, SignatureError), **{one: tensors[one] for one in tensors if one != name})
    assert "unknown" in refused(made, TypeError, **tensors, unknown=tensors[required[0]])
    refused(made, TypeError, *tensors.values(), tensors[required[0]])


@pytest.mark.parametrize("op", OPS)
def test_a_param_of_another_type(op):
    cls, valid = op_class(op), CALLS[op][0]
    for name, param in loader.entry(op).signature.params.items():
        for wrong in WRONG[str(param.type)]:
            with pytest.raises(SignatureError) as caught:
                cls(**{**valid, name: wrong})
            assert str(caught.value).startswith(f"{op}: param {name}: expected {param.type}"), str(caught.value)


@pytest.mark.parametrize("op", OPS)
def test_params_missing_unknown_and_too_many(op):
    cls, valid = op_class(op), CALLS[op][0]
    params = loader.entry(op).signature.params
    for name in [name for name, param in params.items() if param.required]:
        with pytest.raises(TypeError, match=f"{op}: param {name} is missing"):
            cls(**{one: value for one, value in valid.items() if one != name})
    with pytest.raises(TypeError, match=f"{op} has no param 'unknown'"):
        cls(**valid, unknown=1)
    with pytest.raises(TypeError, match=op):
        cls(*(None for _ in params), None)


@pytest.mark.parametrize("op", OPS)
def test_params_are_kept_as_passed_and_defaults_are_those_of_the_entry(op):
    valid = CALLS[op][0]
    made = op_class(op)(**valid)
    for name, param in loader.entry(op).signature.params.items():
        expected = valid.get(name, param.default)
        assert made.params[name] == expected
        assert type(made.params[name]) is type(expected)
        if isinstance(expected, list):
            assert made.params[name] is not expected
