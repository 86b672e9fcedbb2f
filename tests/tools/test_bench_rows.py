"""Rows: what a benchmark measures of each, on the CPU with the example backend's kernels and a timer that is given."""

import functools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
import torch

from tests.ops import references
from tileops.backend import registered_targets
from tileops.catalog import op_names
from tileops.manifest.workload import cases
from tileops.tools import baselines, benchrun, prebuild, rows, samples
from tileops.tools.baselines import BASELINES, Baseline
from tileops.tools.catalogue import known
from tileops.tools.figures import Reading, Report
from tileops.tools.rows import Bench, Ceilings, Item
from tileops.tools.usage import UsageError

CPU = torch.device("cpu")
TARGET = "torch_cpu"
NOTHING = Baseline("torch", "selected", lambda function: function, lambda device: None)


@attrs.define
class FakeTimer:
    """Calls each contender once and gives the times that it was told."""

    times: Mapping[str, float] = attrs.field(factory=dict)
    timing: str = "events"
    asked: list[tuple[tuple[str, ...], int, bool]] = attrs.field(factory=list)

    def measure(self, contenders: Mapping[str, Sequence[Callable[[], object]]], evict: bool) -> dict[str, Reading]:
        for calls in contenders.values():
            calls[0]()
        self.asked.append((tuple(contenders), len(next(iter(contenders.values()))), evict))
        return {name: Reading(self.times.get(name, 1.0), self.times.get(name, 1.0), 1, 0.0) for name in contenders}


def small(op: str, label: str | None = None) -> Item:
    """A row of an op, its sizes cut down for a CPU."""
    about = known(op)
    workload = about.entry.workload(label) if label else about.entry.workloads[-1]
    values = {
        name: _cut(value) if name in about.entry.signature.forall or name == "normalized_shape" else value
        for name, value in workload.values.items()
    }
    for name in {"C", "D", "R", "num_groups"} & values.keys():
        values[name] = {"C": 8, "D": 8, "R": 2, "num_groups": 2}[name]
    workload = attrs.evolve(workload, values=values, dtypes=workload.dtypes[:1])
    return Item(about, next(cases(about.entry.checker, workload)))


def _cut(value: Any) -> Any:
    if isinstance(value, int):
        return min(value, 12)
    return [_cut(part) for part in value]


def bench(timer: FakeTimer, *chosen: Baseline, device: torch.device = CPU) -> Bench:
    if TARGET not in registered_targets():
        from tileops.backend import discover

        discover()
    if TARGET not in registered_targets():
        pytest.skip("the example backend is not installed: pip install -e examples/torch_cpu")
    return Bench(device, TARGET, timer, lambda: None, chosen or (NOTHING,), Ceilings(1e12, {torch.float16: 1e15}))


@pytest.mark.parametrize("op", sorted(op_names()))
def test_every_op_is_measured_beside_torch(op: str) -> None:
    timer = FakeTimer({"": 2.0, "torch": 3.0})
    row = bench(timer).row(small(op))
    assert row.outcome == "timed", row.why
    assert row.target == TARGET
    assert row.error is not None
    assert row.error <= row.tolerance
    assert row.ratio("torch") == pytest.approx(1.5)
    assert row.host_us is not None
    assert row.host_us > 0
    assert row.roofline == pytest.approx(row.floor_ms / 2.0)
    assert timer.asked == [(("", "torch"), 4, True)]


@pytest.mark.parametrize("op", sorted(op_names()))
def test_the_functions_of_torch_mean_what_the_references_mean(op: str) -> None:
    item = small(op)
    given = samples.make(op, item.known.entry.signature, item.case, CPU)
    params = item.op(TARGET).params
    expected = references.reference(op, params, given)
    wide = samples.wide(given)
    made = samples.outputs(baselines.eager(op)(wide, params))
    for out, right in zip(made, samples.outputs(expected.outputs), strict=True):
        assert rows.relative_error(out, right) < 1e-12
    for name, right in expected.written.items():
        assert rows.relative_error(wide[name], right) < 1e-12


def test_a_wrong_row_is_not_timed_and_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = FakeTimer()
    about = bench(timer)
    broken = {**baselines.EAGER, "SoftmaxFwdOp": lambda t, p: t["x"].softmax(p["dim"]) * 1.1}
    monkeypatch.setattr(baselines, "EAGER", broken)
    row = about.row(small("SoftmaxFwdOp"))
    assert row.outcome == "wrong"
    assert re.fullmatch(r"relative error 0\.0\d+ is over \S+", row.why or "")
    assert timer.asked == []
    assert not Report(_about(), (row,)).ok


def _about() -> Any:
    return benchrun.Plan(device=CPU, target=None, baselines=()).about(FakeTimer(), {})


def test_an_op_that_raises_is_told() -> None:
    about = attrs.evolve(bench(FakeTimer()), target="nobody")
    row = about.row(small("SoftmaxFwdOp"))
    assert row.outcome == "failed"
    assert "nobody" in (row.why or "")


NO_LIBRARY = attrs.evolve(NOTHING, name="library", missing=lambda device: f"library is not installed for {device}")


@pytest.mark.parametrize(("device", "outcome"), [("cpu", "skipped"), ("cuda", "failed")])
def test_a_selected_baseline_that_is_missing(device: str, outcome: str) -> None:
    about = bench(FakeTimer(), NOTHING, NO_LIBRARY, device=torch.device(device))
    row = about.row(small("SoftmaxFwdOp"))
    assert (row.outcome, row.why) == (outcome, f"baseline library: library is not installed for {device}")


def test_a_preferred_baseline_that_is_missing_is_left_out_and_said_so() -> None:
    about = bench(FakeTimer(), NOTHING, attrs.evolve(NO_LIBRARY, role="preferred"))
    assert list(about.row(small("SoftmaxFwdOp")).baselines) == ["torch"]
    assert about.missing == {"library": "library is not installed for cpu"}


def _raises(function: Any) -> Any:
    def raising(given: Any, params: Any) -> Any:
        raise RuntimeError("not for this dtype")

    return raising


@pytest.mark.parametrize(("role", "outcome"), [("preferred", "timed"), ("selected", "failed")])
def test_a_baseline_that_raises(role: Any, outcome: str) -> None:
    row = bench(FakeTimer(), NOTHING, Baseline("picky", role, _raises, lambda device: None)).row(small("SoftmaxFwdOp"))
    assert row.outcome == outcome
    told = row.baselines["picky"].why if role == "preferred" else row.why
    assert "RuntimeError: not for this dtype" in (told or "")


def test_the_declared_baselines_know_where_they_run() -> None:
    by_name = {one.name: one for one in BASELINES}
    assert "runs on CUDA only" in (by_name["cublas"].missing("xpu") or "")
    assert by_name["torch"].missing("xpu") is None
    assert by_name["cublas"].serves("GemmFwdOp")
    assert not by_name["torch"].serves("GemmFwdOp")
    assert {one.name: one.role for one in baselines.roles(["compile"])} == {
        "cublas": "preferred",
        "torch": "preferred",
        "compile": "selected",
    }


def test_a_function_that_writes_an_input_can_be_compiled() -> None:
    item = small("FusedAddRMSNormFwdOp")
    given = samples.make("FusedAddRMSNormFwdOp", item.known.entry.signature, item.case, CPU)
    wide = samples.wide(given)
    params = item.op(TARGET).params
    expected = baselines.eager("FusedAddRMSNormFwdOp")(wide, params)
    # Traced only, for no C++ compiler need be here.
    function = torch.compile(baselines.eager("FusedAddRMSNormFwdOp"), backend="eager", fullgraph=True)
    assert rows.relative_error(function(given, params), expected) < 1e-2
    assert rows.relative_error(given["residual"], wide["residual"]) < 1e-2


# -- which rows


def test_rows_are_chosen_by_label_case_and_dtype() -> None:
    gemm = known("GemmFwdOp")
    assert len(rows.items([gemm])) == len(gemm.entry.cases())
    assert [item.case.label for item in rows.items([gemm], ["square-1k"], ["bfloat16"])] == ["square-1k/bfloat16"]
    assert [item.label for item in rows.items([gemm], ["square-1k/float16", "square-2k"])] == [
        "square-1k",
        "square-2k",
        "square-2k",
    ]
    with pytest.raises(UsageError, match="no row is left"):
        rows.items([gemm], ["square-1k"], ["float32"])


def test_the_floor_is_the_larger_of_two_times() -> None:
    found = Ceilings(1e12, {torch.float16: 1e15})
    assert found.floor(10**12, 10**6, torch.float16) == (pytest.approx(1.0), "matrix")
    assert found.floor(10**9, 10**9, torch.float16) == (pytest.approx(1.0), "memory")
    assert found.floor(10**12, 10**6, torch.int8) == (pytest.approx(1e-3), "memory")
    assert Ceilings().floor(1, 1, torch.float16) == (None, None)


def test_ceilings_follow_from_the_times_of_a_copy_and_a_product() -> None:
    found = rows.ceilings(FakeTimer({"": 2.0}), CPU, [torch.float32], copied=1000, side=64)
    assert found.copy == pytest.approx(2 * 1000 / 2e-3)
    assert found.matrix == {torch.float32: pytest.approx(2 * 32**3 / 2e-3)}


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_nan_or_inf_that_torch_has_not_is_wrong(strange: float) -> None:
    right = torch.ones(4, dtype=torch.float64)
    out = torch.tensor([1.0, 1.0, strange, 1.0])
    assert math.isnan(rows.relative_error(out, right))
    assert rows.relative_error(out, out.double()) == 0
    assert math.isnan(rows.relative_error(out[:2], right))


def test_an_inf_of_the_other_sign_is_wrong() -> None:
    right = torch.tensor([1.0, math.inf, -math.inf], dtype=torch.float64)
    assert rows.relative_error(right.float(), right) == 0
    assert math.isnan(rows.relative_error(-right.float(), right))


def test_a_nan_in_the_first_of_two_outputs_is_not_forgotten() -> None:
    item = small("RoPEFwdOp")
    op = item.op(TARGET)

    def spoilt(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, second = op(*tensors)
        return first.fill_(math.nan), second

    run = bench(FakeTimer())
    assert run.judge(item, op, op)[0] < 1e-2
    assert math.isnan(run.judge(item, op, spoilt)[0])


# -- compiling ahead


@attrs.frozen
class Double:
    """Stands for an implementation whose programs compile, or do not."""

    @staticmethod
    def compile(identity: int) -> None:
        if identity < 0:
            raise ValueError(f"cannot compile {identity}")


def test_compiling_ahead_says_what_failed() -> None:
    steps: list[tuple[int, int]] = []
    task = prebuild.Compiled("NoSuchOp", "square", "cpu")
    assert prebuild.run([task], 0, lambda done, of: steps.append((done, of))) == []
    assert steps == []
    (failure,) = prebuild.run([task], 1, lambda done, of: steps.append((done, of)))
    assert "UsageError: there is no op 'NoSuchOp'" in failure
    assert steps == [(1, 1)]
    assert prebuild._attempt(prebuild.Program(Double, 1)) is None
    assert prebuild._attempt(prebuild.Program(Double, -1)) == "ValueError: cannot compile -1"


def test_a_compiling_process_that_dies_takes_nobody_along() -> None:
    with prebuild.Pool(1) as pool:
        begun = pool.begin([functools.partial(os._exit, 3)])  # type: ignore[list-item]
        (failure,) = pool.end(begun, lambda done, of: None)
    assert "BrokenProcessPool" in failure
