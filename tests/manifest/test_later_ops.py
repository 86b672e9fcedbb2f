"""The signature language against ops that use all of it."""

import pytest
import torch

from tileops.manifest.composition import follow
from tileops.manifest.workload import bind
from tileops.rules.errors import DeclarationError, SignatureError

HALF, FLOAT = torch.float16, torch.float32


def tensor(*shape: int, dtype: torch.dtype = HALF, device: str = "cpu") -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


def run(checker, params, *tensors):
    """The outputs' shapes of a call, what it writes, and its indices."""
    bound = checker.bind_params((), params)
    binding = checker.call(bound, tensors)
    return [output.shape for output in checker.outputs(binding)], checker.writes(bound), binding.indices


def refusal(checker, params, *tensors) -> str:
    with pytest.raises(SignatureError) as caught:
        run(checker, params, *tensors)
    return str(caught.value)


def test_every_entry_loads(later):
    assert len(later) == 12


def test_batch_norm_writes_statistics_only_when_training(later):
    checker = later["BatchNormFwdOp"].checker
    inputs = (tensor(2, 3, 5), tensor(3, dtype=FLOAT), tensor(3, dtype=FLOAT), None, None)
    assert run(checker, {"training": True}, *inputs)[:2] == ([(2, 3, 5)], ("running_mean", "running_var"))
    assert run(checker, {}, *inputs)[:2] == ([(2, 3, 5)], ())
    inference, training = (checker.call(checker.bind_params((flag,), {}), inputs) for flag in (False, True))
    assert checker.roofline(training)[1] - checker.roofline(inference)[1] == 2 * 3 * 4
    one = (tensor(1, 3), *inputs[1:])
    assert refusal(checker, {"training": True}, *one) == (
        "BatchNormFwdOp: expected not training or N * prod(S) > 1, received N = 1 from x, S = () from x, "
        "training = True"
    )
    assert refusal(checker, {}, inputs[0], tensor(3), *inputs[2:]) == (
        "BatchNormFwdOp: input running_mean: expected dtype float32, received float16"
    )


def test_group_norm_checks_its_groups(later):
    checker = later["GroupNormFwdOp"].checker
    x = tensor(2, 6, 4, 4)
    assert run(checker, {"num_groups": 3}, x, tensor(6), None)[0] == [(2, 6, 4, 4)]
    assert refusal(checker, {"num_groups": 4}, x, None, None) == (
        "GroupNormFwdOp: expected C % num_groups == 0, received C = 6 from x, num_groups = 4"
    )
    assert refusal(checker, {"num_groups": 0}, x, None, None) == (
        "GroupNormFwdOp: expected num_groups >= 1, received num_groups = 0"
    )
    assert refusal(checker, {"num_groups": 3}, x, tensor(5), None) == (
        "GroupNormFwdOp: input weight: expected shape [C] with C = 6 from x, received (5,): its dim 0 is 5, not 6"
    )


def test_a_fused_norm_writes_its_residual(later):
    checker = later["FusedAddRMSNormFwdOp"].checker
    params = {"normalized_shape": [4]}
    assert run(checker, params, tensor(2, 4), tensor(2, 4), None)[:2] == ([(2, 4)], ("residual",))
    assert refusal(checker, params, tensor(2, 4), tensor(3, 4), None) == (
        "FusedAddRMSNormFwdOp: input residual: expected shape [*B, *normalized_shape] with B = (2,) from x, "
        "received (3, 4): its *B is (3,), not (2,)"
    )


@pytest.mark.parametrize("rank", range(9))
def test_softmax_takes_any_rank(later, rank):
    shape = tuple(range(2, 2 + rank))
    assert run(later["SoftmaxFwdOp"].checker, {}, torch.empty(shape, dtype=HALF, device="meta"))[0] == [shape]


def test_softmax_checks_its_dim(later):
    checker = later["SoftmaxFwdOp"].checker
    assert run(checker, {"dim": 0}, tensor())[0] == [()]
    assert refusal(checker, {"dim": 2}, tensor(2, 3)) == (
        "SoftmaxFwdOp: expected -max(len(S), 1) <= dim < max(len(S), 1), received S = (2, 3) from x, dim = 2"
    )


@pytest.mark.parametrize(
    ("dim", "keepdim", "shape"), [(-1, False, (2, 3)), (0, False, (3, 4)), (1, True, (2, 1, 4)), (-3, True, (1, 3, 4))]
)
def test_a_reduction_drops_or_keeps_its_dim(later, dim, keepdim, shape):
    assert run(later["MaxFwdOp"].checker, {"dim": dim, "keepdim": keepdim}, tensor(2, 3, 4))[0] == [shape]


def test_a_doubled_dim_is_halved(later):
    checker = later["SiLUAndMulFwdOp"].checker
    assert run(checker, {}, tensor(2, 3, 8)) == ([(2, 3, 4)], (), {"B": (2, 3), "H": 4, "T": HALF})
    assert run(checker, {}, tensor(0))[0] == [(0,)]
    assert refusal(checker, {}, tensor(2, 7)) == (
        "SiLUAndMulFwdOp: input x: expected shape [*B, 2 * H], received (2, 7): "
        "its dim 1 is 7, which is 2 * H for no whole H"
    )


def test_rope_has_two_outputs(later):
    checker = later["RoPEFwdOp"].checker
    inputs = (tensor(5, 8, 64), tensor(5, 2, 64), tensor(5, dtype=torch.int64), tensor(100, 64, dtype=FLOAT))
    assert run(checker, {}, *inputs)[0] == [(5, 8, 64), (5, 2, 64)]
    wide = (*inputs[:3], tensor(100, 66, dtype=FLOAT))
    assert refusal(checker, {}, *wide) == "RoPEFwdOp: expected 2 * R <= D, received D = 64 from q, R = 33 from cos_sin"
    late = (*inputs[:2], tensor(5, dtype=torch.uint8), inputs[3])
    assert refusal(checker, {}, *late) == (
        "RoPEFwdOp: input positions: expected dtype int32 or int64 (I), received uint8"
    )


def test_a_conv_computes_dims_and_refuses_a_filter_that_does_not_fit(later):
    checker = later["ConvFwdOp"].checker
    params = {"stride": (2, 1), "groups": 2}
    assert run(checker, params, tensor(1, 4, 9, 9), tensor(6, 2, 3, 3), None)[0] == [(1, 6, 4, 7)]
    assert refusal(checker, params, tensor(1, 4, 9, 9), tensor(6, 4, 3, 3), None) == (
        "ConvFwdOp: input weight: expected shape [O, C // groups, R, Q] with C = 4 from x, groups = 2, "
        "received (6, 4, 3, 3): its dim 1 is 4, not 2"
    )
    assert refusal(checker, {}, tensor(1, 4, 2, 9), tensor(6, 4, 5, 3), None) == (
        "ConvFwdOp: output y: expected shape [N, O, (H - R) // stride[0] + 1, (W - Q) // stride[1] + 1] of dims of 0 "
        "and more, received a call that makes it (1, 6, -2, 7)"
    )


def test_an_output_in_place_is_the_input_it_writes(later):
    checker = later["ScaleFwdOp"].checker
    inputs = (tensor(2, 3, device="meta"), tensor(dtype=FLOAT), None)
    for inplace, same, moved in ((True, "x", 2 * 12), (False, None, 2 * 12)):
        params = checker.bind_params((inplace,), {})
        binding = checker.call(params, inputs)
        (output,) = checker.outputs(binding)
        assert (output.same_as, output.shape) == (same, (2, 3))
        assert checker.roofline(binding)[1] == moved + 4
        assert binding.device.type == "meta"


def test_inputs_on_the_cpu_and_by_keyword(later):
    checker = later["ScaleFwdOp"].checker
    x, scale, mask = tensor(2, 3), tensor(dtype=FLOAT), tensor(2, 3, dtype=torch.bool)
    assert checker.bind_inputs((x, scale), {"mask": mask})[2] is mask
    with pytest.raises(TypeError, match=r"^ScaleFwdOp: takes 2 positional inputs \(x, scale\), received 3$"):
        checker.bind_inputs((x, scale, mask), {})
    assert refusal(checker, {}, x, tensor(dtype=FLOAT, device="meta"), None) == (
        "ScaleFwdOp: input scale: expected device cpu, received meta"
    )


def test_a_pure_write_has_no_outputs(later):
    assert run(later["FillFwdOp"].checker, {}, tensor(2, 3, dtype=torch.int8)) == (
        [],
        ("x",),
        {"S": (2, 3), "T": torch.int8},
    )


def test_a_composition_is_followed_step_by_step(later, find):
    entry = later["GatedMLPFwdOp"]
    (case,) = entry.cases()
    calls = follow(entry, bind(entry.checker, case, "cuda:0"), find)
    assert [(call.entry.name, call.binding.device.type) for call in calls] == [
        ("GemmFwdOp", "cuda"),
        ("SiLUAndMulFwdOp", "cuda"),
        ("GemmFwdOp", "cuda"),
    ]
    assert [call.binding.indices.get("N", call.binding.indices.get("H")) for call in calls] == [28672, 14336, 4096]
    flops = sum(call.entry.checker.roofline(call.binding)[0] for call in calls)
    assert flops == entry.checker.roofline(bind(entry.checker, case))[0]


def test_a_step_that_is_no_call_is_told(later, find):
    entry = later["GatedMLPFwdOp"]
    (case,) = entry.cases()
    binding = bind(entry.checker, case)
    with pytest.raises(DeclarationError) as caught:
        follow(entry, binding, lambda name: find("SoftmaxFwdOp" if name == "SiLUAndMulFwdOp" else name))
    assert str(caught.value) == (
        "GatedMLPFwdOp: composition[2] is no call of GemmFwdOp: GemmFwdOp: input b: expected shape [N, K] with "
        "trans_b = True, K = 28672 from a, received (4096, 14336): its dim 1 is 14336, not 28672"
    )
    with pytest.raises(DeclarationError) as caught:
        follow(entry, binding, lambda name: find("RMSNormFwdOp"))
    assert str(caught.value) == "GatedMLPFwdOp: composition[0]: RMSNormFwdOp has no input 'a'"
