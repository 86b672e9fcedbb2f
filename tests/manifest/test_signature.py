import pickle

import pytest
import torch

from tileops import manifest
from tileops.rules.errors import RuleError, SignatureError
from tileops.rules.types import Type

HALF, FLOAT = torch.float16, torch.float32


def tensor(*shape: int, dtype: torch.dtype = HALF, device: str = "cpu") -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


@pytest.fixture(scope="module")
def gemm():
    return manifest.entry("GemmFwdOp").checker


@pytest.fixture(scope="module")
def rms():
    return manifest.entry("RMSNormFwdOp").checker


def refusal(checker, params, *tensors) -> str:
    with pytest.raises(SignatureError) as caught:
        checker.call(params, tensors)
    return str(caught.value)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_every_form_of_gemm_binds_the_same_indices(gemm, trans_a, trans_b):
    params = gemm.bind_params((trans_a,), {"trans_b": trans_b})
    a = tensor(5, 3) if trans_a else tensor(3, 5)
    b = tensor(7, 5) if trans_b else tensor(5, 7)
    binding = gemm.call(params, (a, b))
    assert binding.indices == {"M": 3, "N": 7, "K": 5, "T": HALF}
    assert gemm.outputs(binding) == (manifest.OutputSpec("d", HALF, (3, 7), None, 0),)
    assert gemm.roofline(binding) == (2 * 3 * 7 * 5, 2 * (3 * 5 + 7 * 5 + 3 * 7))
    assert binding.tensors == ((HALF, tuple(a.shape)), (HALF, tuple(b.shape)))
    assert not binding.empty


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 5), (3, 0, 5), (3, 4, 0), (0, 0, 0)])
def test_empty_dims_are_valid(gemm, m, n, k):
    binding = gemm.call(gemm.bind_params((), {}), (tensor(m, k), tensor(n, k)))
    assert binding.empty
    assert gemm.outputs(binding)[0].shape == (m, n)
    assert gemm.roofline(binding)[0] == 0


def test_a_binding_keeps_no_tensor(gemm):
    binding = gemm.call(gemm.bind_params((), {}), (tensor(3, 5), tensor(7, 5)))
    values = [*binding.values.values(), *binding.tensors]
    assert not any(isinstance(value, torch.Tensor) for value in values)


@pytest.mark.parametrize(
    ("params", "a", "b", "message"),
    [
        (
            {},
            tensor(2, 64),
            tensor(8, 32),
            "input b: expected shape [N, K] with trans_b = True, K = 64 from a, received (8, 32): its dim 1 is "
            "32, not 64",
        ),
        (
            {"trans_a": True, "trans_b": False},
            tensor(64, 2),
            tensor(8, 32),
            "input b: expected shape [K, N] with trans_b = False, K = 64 from a, received (8, 32): its dim 0 is "
            "8, not 64",
        ),
        (
            {},
            tensor(2, 3, 4),
            tensor(8, 4),
            "input a: expected shape [M, K] with trans_a = False (2 dims), received (2, 3, 4) (3 dims)",
        ),
        (
            {},
            tensor(4),
            tensor(8, 4),
            "input a: expected shape [M, K] with trans_a = False (2 dims), received (4,) (1 dim)",
        ),
        (
            {},
            tensor(2, 4, dtype=FLOAT),
            tensor(8, 4),
            "input a: expected dtype float16 or bfloat16 (T), received float32",
        ),
        (
            {},
            tensor(2, 4),
            tensor(8, 4, dtype=torch.bfloat16),
            "input b: expected dtype float16 (T from a), received bfloat16",
        ),
        ({}, tensor(2, 4), tensor(8, 4, device="meta"), "input b: expected device cpu (that of a), received meta"),
        ({}, tensor(2, 4), None, "input b: expected a tensor of shape [N, K], received None"),
        ({}, [[1.0]], tensor(8, 4), "input a: expected a tensor of shape [M, K], received list [[1.0]]"),
        (
            {},
            tensor(1, 1).expand(2**21, 2**20),
            tensor(1, 2**20),
            "input a: expected at most 2**40 elements, received (2097152, 1048576), which is 2199023255552",
        ),
    ],
)
def test_a_call_that_breaks_the_signature_is_told_input_form_and_value(gemm, params, a, b, message):
    assert refusal(gemm, gemm.bind_params((), params), a, b) == f"GemmFwdOp: {message}"


def test_a_signature_error_keeps_its_fields_and_pickles(gemm):
    with pytest.raises(SignatureError) as caught:
        gemm.call(gemm.bind_params((), {}), (tensor(2, 4, dtype=FLOAT), tensor(8, 4)))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.op, again.input) == ("GemmFwdOp", "a")
    assert (again.expected, again.received) == ("dtype float16 or bfloat16 (T)", "float32")


def test_an_empty_tensor_may_have_any_other_dims(gemm):
    binding = gemm.call(gemm.bind_params((), {}), (tensor(0, 2**30), tensor(0, 2**30)))
    assert binding.indices["K"] == 2**30


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((1,), {}, SignatureError, "param trans_a: expected bool, received int 1"),
        ((), {"trans_b": None}, SignatureError, "param trans_b: expected bool, received None"),
        (
            (),
            {"transb": True},
            TypeError,
            "has no param 'transb' (did you mean 'trans_b'?); its params are: trans_a, trans_b",
        ),
        ((True, True, True), {}, TypeError, "takes 2 positional params (trans_a, trans_b), received 3"),
        ((True,), {"trans_a": True}, TypeError, "param trans_a is given twice, by position and by name"),
    ],
)
def test_a_wrong_param_is_told(gemm, args, kwargs, error, message):
    with pytest.raises(error) as caught:
        gemm.bind_params(args, kwargs)
    assert str(caught.value) == f"GemmFwdOp: {message}"


def test_params_are_kept_as_passed_and_copied(rms):
    shape = [4, 8]
    params = rms.bind_params((shape,), {})
    shape.append(1)
    assert params == {"normalized_shape": [4, 8], "eps": None}
    params = rms.bind_params(((4, 8), 1), {})
    assert (params["eps"], type(params["eps"])) == (1, int)
    assert type(rms.call(params, (tensor(4, 8), None)).values["eps"]) is float


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((), TypeError, "param normalized_shape is missing: expected list[int] | tuple[int, ...]"),
        ((64,), SignatureError, "param normalized_shape: expected list[int] | tuple[int, ...], received int 64"),
        (
            ((True,),),
            SignatureError,
            "param normalized_shape: expected list[int] | tuple[int, ...], received tuple (True,)",
        ),
        (((64,), "1e-5"), SignatureError, "param eps: expected float | None, received str '1e-5'"),
        (((),), SignatureError, "expected len(normalized_shape) >= 1, received normalized_shape = ()"),
    ],
)
def test_a_norm_with_wrong_params_is_refused_at_construction(rms, args, error, message):
    with pytest.raises(error) as caught:
        rms.bind_params(args, {})
    assert str(caught.value) == f"RMSNormFwdOp: {message}"


@pytest.mark.parametrize("shape", [[4, 8], (4, 8)])
def test_a_norm_binds_the_run_before_its_normalized_dims(rms, shape):
    params = rms.bind_params((shape,), {})
    binding = rms.call(params, (tensor(2, 3, 4, 8), None))
    assert binding.indices == {"B": (2, 3), "T": HALF}
    assert binding.present == {"x": True, "weight": False}
    assert binding.values["present(weight)"] is False
    assert binding.values["normalized_shape"] == (4, 8)
    assert rms.roofline(binding) == (4 * 192, 2 * 2 * 192)
    weighted = rms.call(params, (tensor(2, 3, 4, 8), tensor(4, 8)))
    assert rms.roofline(weighted) == (4 * 192, 2 * (2 * 192 + 32))


@pytest.mark.parametrize(
    ("shape", "x", "weight", "message"),
    [
        (
            (64,),
            tensor(2, 32),
            None,
            "input x: expected shape [*B, *normalized_shape] with normalized_shape = (64,), received (2, 32): "
            "its *normalized_shape is (32,), not (64,)",
        ),
        (
            (4, 8),
            tensor(8),
            None,
            "input x: expected shape [*B, *normalized_shape] with normalized_shape = (4, 8) (at least 2 dims), "
            "received (8,) (1 dim)",
        ),
        (
            (8,),
            tensor(2, 8),
            tensor(2, 8),
            "input weight: expected shape [*normalized_shape] with normalized_shape = (8,) (1 dim), "
            "received (2, 8) (2 dims)",
        ),
        (
            (8,),
            tensor(*[1] * 9, 8),
            None,
            "input x: expected shape [*B, *normalized_shape] with at most 8 dims in *B, "
            "received (1, 1, 1, 1, 1, 1, 1, 1, 1, 8), which has 9",
        ),
    ],
)
def test_a_norm_that_breaks_its_shape_is_told(rms, shape, x, weight, message):
    assert refusal(rms, rms.bind_params((shape,), {}), x, weight) == f"RMSNormFwdOp: {message}"


def test_sixteen_dims_are_two_runs_of_eight(rms):
    params = rms.bind_params(((1,) * 8,), {})
    assert rms.call(params, (tensor(*[1] * 16), None)).indices["B"] == (1,) * 8


def test_the_scope_types_what_an_op_may_read(rms):
    assert rms.value_names == ("B", "T", "normalized_shape", "eps", "present(weight)")
    assert rms.scope["B"] == Type("tuple", low=0, high=2**40, min_len=0, max_len=8)
    assert rms.scope["eps"] == Type("float", optional=True)
    assert rms.scope["present(weight)"] == Type("bool")


def test_inputs_are_placed_by_position_and_name(rms):
    x, weight = tensor(2, 8), tensor(8)
    assert rms.bind_inputs((x,), {}) == (x, None)
    placed = rms.bind_inputs((x,), {"weight": weight})
    assert placed[0] is x
    assert placed[1] is weight
    for args, kwargs, message in (
        ((), {}, "input x is missing: the inputs are x, weight"),
        ((x,), {"wieght": weight}, "has no input 'wieght' (did you mean 'weight'?); its inputs are: x, weight"),
        ((x, weight, x), {}, "takes 2 positional inputs (x, weight), received 3"),
    ):
        with pytest.raises(TypeError) as caught:
            rms.bind_inputs(args, kwargs)
        assert str(caught.value) == f"RMSNormFwdOp: {message}"
    with pytest.raises(TypeError) as caught:
        rms.call(rms.bind_params(((8,),), {}), (x,))
    assert str(caught.value) == "RMSNormFwdOp: expected 2 inputs (x, weight), received 1"


def unguarded(shape: str, rules: str = "[]", flops: str = "0"):
    text = f"""
UnguardedFwdOp:
  ref_api: torch.relu
  signature:
    forall: {{M: Dim, T: DType}}
    params: {{groups: {{type: int, default: 1}}}}
    inputs: {{x: {{dtype: T, shape: "[M]"}}, w: {{dtype: T, shape: "{shape}"}}}}
    outputs: {{y: {{dtype: T, shape: "[M]"}}}}
    rules: {rules}
  roofline: {{flops: "{flops}"}}
"""
    return manifest.read_entries(text, "unguarded.yaml")["UnguardedFwdOp"].checker


def test_a_form_that_raises_is_a_fault_of_the_manifest():
    checker = unguarded("[M // groups]")
    with pytest.raises(RuleError) as caught:
        checker.call(checker.bind_params((0,), {}), (tensor(4), tensor(4)))
    assert str(caught.value) == (
        "UnguardedFwdOp: a shape or dtype of the signature raised ZeroDivisionError: integer division or modulo "
        "by zero; "
        "it needs a rule over params that excludes this call"
    )


def test_a_rule_that_raises_is_a_fault_of_the_manifest():
    checker = unguarded("[M]", rules='["M % groups == 0"]')
    with pytest.raises(RuleError) as caught:
        checker.call(checker.bind_params((0,), {}), (tensor(4), tensor(4)))
    assert str(caught.value) == (
        "UnguardedFwdOp: the signature's rule 'M % groups == 0' raised ZeroDivisionError: "
        "integer modulo by zero, with M = 4 from x, groups = 0; it needs a rule before it that excludes this call"
    )


def test_a_roofline_that_raises_is_a_fault_of_the_manifest():
    checker = unguarded("[M]", flops="M // groups")
    binding = checker.call(checker.bind_params((0,), {}), (tensor(4), tensor(4)))
    with pytest.raises(RuleError, match=r"^UnguardedFwdOp: the roofline of the signature raised ZeroDivisionError"):
        checker.roofline(binding)


def test_a_dim_that_nothing_determines_is_refused():
    checker = manifest.read_entries(
        """
ZeroFwdOp:
  ref_api: torch.relu
  signature:
    forall: {M: Dim, T: DType}
    params: {slope: {type: int, default: 0}}
    inputs: {x: {dtype: T, shape: "[slope * M]"}}
    outputs: {y: {dtype: T, shape: "[M]"}}
  roofline: {flops: 0}
""",
        "zero.yaml",
    )["ZeroFwdOp"].checker
    params = checker.bind_params((), {})
    assert refusal(checker, params, tensor(3)) == (
        "ZeroFwdOp: input x: expected shape [slope * M] with slope = 0, received (3,): its dim 0 is 3, not 0"
    )
    assert refusal(checker, params, tensor(0)) == (
        "ZeroFwdOp: input x: expected shape [slope * M], "
        "received (0,): more than one shape fits, these inputs do not say which"
    )
    assert checker.call(checker.bind_params((3,), {}), (tensor(12),)).indices["M"] == 4
