"""Every implementation of the memory-bound ops by name on a CUDA device, on both sides of its limits."""

import math

import pytest
import torch

from tests.gpu.cases import RAGGED, SPECIAL
from tests.gpu.operations import OPERATIONS
from tileops.kernels.rope import ROPE_IMPLEMENTATIONS
from tileops.rules.table import RuleTable

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, to run kernels"),
    pytest.mark.filterwarnings("default"),
]

# Rounding the result alone costs 1.7e-3, 2.1e-4 and 3e-8 of the norm; the sums are float32.
TOLERANCE = {torch.bfloat16: 4e-3, torch.float16: 5e-4, torch.float32: 1e-5}
KEYS = [(name, key) for name, operation in OPERATIONS.items() for key in sorted(operation.implementations)]


def serving(name, key, cases):
    """Returns the calls among some facts that an implementation serves."""
    operation = OPERATIONS[name]
    table = RuleTable(name, operation.call_class, {k: cls.declaration for k, cls in operation.implementations.items()})
    calls = []
    for facts, change in cases:
        call = operation.call_class(device=torch.device("cuda", torch.cuda.current_device()), **facts)
        (verdict,) = [verdict for verdict in table.explain(call).verdicts if verdict.key == key]
        if verdict.status in ("wins", "serves"):
            calls.append((call, change))
    return calls


def check(name, key, call, change):
    """Asserts that one call is right: shape, dtype, every number, and NaN just where the reference has it."""
    operation = OPERATIONS[name]
    given = operation.inputs(call)
    if change:
        change(given)
    expected = operation.reference(call, given)
    _, build = operation.implementations[key].entry_for(call)
    kernel = build()
    poison = [torch.full(out.shape, math.nan, device="cuda", dtype=given[0].dtype) for out in expected]
    del poison
    outputs = operation.outputs(kernel(*given), given)
    for out, reference in zip(outputs, expected, strict=True):
        assert out.shape == reference.shape
        assert torch.equal(out.isnan(), reference.isnan()), call
        infinite = reference.to(out.dtype).isinf()
        assert torch.equal(out[infinite], reference.to(out.dtype)[infinite]), call
        finite = ~(infinite | reference.isnan())
        # What is too small for a normal number of the dtype is rounded to a multiple of the least one.
        least = torch.finfo(out.dtype).smallest_normal * torch.finfo(out.dtype).eps
        error = ((out.double() - reference)[finite].abs() - least / 2).clamp_min(0).norm()
        assert error <= TOLERANCE[out.dtype] * reference[finite].norm(), call


@pytest.mark.parametrize(("name", "key"), KEYS)
def test_ragged_calls(name, key):
    calls = serving(name, key, [(facts, None) for facts in RAGGED[name]])
    assert calls
    for call, change in calls:
        check(name, key, call, change)


@pytest.mark.parametrize(("name", "key"), [pair for pair in KEYS if pair[0] in SPECIAL])
def test_special_values(name, key):
    for call, change in serving(name, key, SPECIAL[name]):
        check(name, key, call, change)


@pytest.mark.parametrize("key", sorted(ROPE_IMPLEMENTATIONS))
@pytest.mark.parametrize("outside", [-1, 8])
def test_a_position_outside_is_an_error(key, outside):
    facts = {"tokens": 5, "q_heads": 2, "k_heads": 1, "head_dim": 8, "pairs": 4, "known": 8, "dtype": torch.float32}
    more = {"position_dtype": torch.int64, "angle_dtype": torch.float32, "interleaved": False, "check_positions": True}
    ((call, _),) = serving("rope", key, [(facts | more, None)])
    q, k, positions, table = OPERATIONS["rope"].inputs(call)
    positions[3] = outside
    kernel = ROPE_IMPLEMENTATIONS[key].entry_for(call)[1]()
    with pytest.raises(ValueError, match="cos_sin has rows for 0 to 7"):
        kernel(q, k, positions, table)
