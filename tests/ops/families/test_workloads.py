"""Every workload row of every op, scaled down where the run's device is a CPU, against the float64 reference."""

import pytest

from tileops.manifest import loader

CASES = [(op, case.label) for op, entry in loader.load().items() for case in entry.cases()]


@pytest.mark.parametrize(("op", "label"), CASES, ids=[f"{op}-{label}" for op, label in CASES])
def test_workload_row(op, label, calls):
    case = calls.small(op, label)
    calls.run(op, case.params, calls.inputs(op, case))


@pytest.mark.parametrize("op", loader.families())
def test_calls_of_one_instance_with_and_without_optional_inputs(op, calls):
    """Equal shapes with other inputs left out, and back: each gets its own kernel."""
    case = calls.small(op, loader.entry(op).cases()[0].label)
    inputs = calls.inputs(op, case)
    made = calls.run(op, case.params, inputs)
    for name, item in loader.entry(op).signature.inputs.items():
        if item.optional:
            calls.run(op, case.params, {**inputs, name: None}, made)
    calls.run(op, case.params, calls.inputs(op, case, seed=1), made)
