"""Regret: which calls are sampled, that all serving implementations are timed, what the times say of preferences."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
import torch

from tileops.op import Op
from tileops.rules.device import reference
from tileops.tools import regret
from tileops.tools.baselines import BASELINES
from tileops.tools.catalogue import known
from tileops.tools.figures import Reading, Regret, Sample
from tileops.tools.prebuild import Program
from tileops.tools.regret import LIMIT, NEIGHBOUR, WORKLOAD, Contest
from tileops.tools.rows import Bench, Item
from tileops.tools.usage import UsageError

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def contests() -> list[Contest]:
    return regret.contests(known("GemmFwdOp"), CUDA, reference(90), 80)


def test_the_sample_holds_rows_limits_and_neighbours(contests: list[Contest]) -> None:
    assert len(contests) == 80
    assert {contest.origin for contest in contests} == {WORKLOAD, LIMIT, NEIGHBOUR}
    assert len({contest.call for contest in contests}) == 80
    assert all(len(contest.keys) >= 2 and contest.chosen in contest.keys for contest in contests)


def test_both_sides_of_a_limit_are_sampled(contests: list[Contest]) -> None:
    gemv = {contest.call.m for contest in contests if "gemv" in contest.keys}  # type: ignore[attr-defined]
    beyond = {contest.call.m for contest in contests if "gemv" not in contest.keys}  # type: ignore[attr-defined]
    assert max(gemv) + 1 in beyond


def test_programs_are_those_of_every_serving_implementation(contests: list[Contest]) -> None:
    every = regret.programs(contests)
    assert len({(one.implementation, one.identity) for one in every}) == len(every)
    serving = {contest.asked.implementations[key] for contest in contests for key in contest.keys}
    assert {one.implementation for one in every} == serving
    assert all(isinstance(one, Program) for one in every)


def test_neighbours_differ_from_their_row_in_one_size() -> None:
    gemm = known("GemmFwdOp")
    row = gemm.entry.workload("square-1k")
    labels = [case.label for case in regret.neighbours(gemm, row)]
    assert labels[:4] == [f"square-1k, M={m}/float16" for m in (2048, 512, 1025, 1023)]
    norm = known("LayerNormFwdOp")
    around = list(regret.neighbours(norm, norm.entry.workloads[0]))
    assert {len(case.inputs["x"].shape) for case in around} == {len(norm.entry.cases()[0].inputs["x"].shape)}


def test_an_op_without_a_choice_is_refused() -> None:
    with pytest.raises(UsageError, match="GatedMLPFwdOp has no interface with several implementations"):
        regret.contests(known("GatedMLPFwdOp"), CUDA, reference(90), 80)


@attrs.define
class ByName:
    """Gives each implementation the time that it was told."""

    times: Mapping[str, float]
    timing: str = "cupti"

    def measure(self, contenders: Mapping[str, Sequence[Callable[[], object]]], evict: bool) -> dict[str, Reading]:
        return {name: Reading(self.times[name], self.times[name], 1, 0.0) for name in contenders}


class Trusting(Bench):
    """Finds every implementation right, except those named wrong."""

    wrong: tuple[str, ...] = ()

    def judge(self, item: Item, op: Op, call: Callable[..., Any]) -> tuple[float, float]:
        key = call.__closure__[0].cell_contents if call.__closure__ else None
        return (0.5 if key in self.wrong else 0.0, 0.01)


def small(contests: list[Contest]) -> list[Contest]:
    """Contests whose tensors a CPU holds with ease."""
    return [one for one in contests if one.item.case.inputs["b"].shape[0] * one.item.case.inputs["b"].shape[1] < 2**22]


def test_the_chosen_one_is_held_against_the_best(contests: list[Contest]) -> None:
    chosen = small(contests)[:3]
    times = {"gemv": 2.0, "gemm_mma": 3.0, "gemm_splitk": 1.5, "gemm_wgmma": 1.0}
    table = chosen[0].asked.table
    times = {key: times.get(key, 4.0) for key in table.declarations}
    about = Trusting(CPU, None, ByName(times), lambda: None, BASELINES)
    *_, (found,) = regret.measure(chosen, about, lambda contest: True)
    assert found.interface == "gemm"
    for sample, contest in zip(found.samples, chosen, strict=True):
        assert sample.times_ms.keys() == set(contest.keys)
        assert sample.problems == {}
        assert sample.regret == pytest.approx(times[contest.chosen] / min(times[key] for key in contest.keys))


def test_a_wrong_implementation_is_not_timed(contests: list[Contest]) -> None:
    contest = small(contests)[0]
    other = next(key for key in contest.keys if key != contest.chosen)
    about = Trusting(CPU, None, ByName(dict.fromkeys(contest.keys, 1.0)), lambda: None, BASELINES)
    Trusting.wrong = (other,)
    try:
        ((found,),) = regret.measure([contest], about, lambda contest: True)
    finally:
        Trusting.wrong = ()
    assert found.samples[0].times_ms.keys() == set(contest.keys) - {other}
    assert found.samples[0].problems == {other: "relative error 0.5 is over 0.01"}


def test_a_preference_that_a_measurement_contradicts_is_named_with_the_calls(contests: list[Contest]) -> None:
    table = contests[0].asked.table
    above = {under: sorted(over) for under, over in table.above.items() if over}
    under, (over, *_) = next(iter(above.items()))
    samples = [
        Sample("a", WORKLOAD, "call 1", over, {over: 1.0, under: 2.0}),
        Sample("b", WORKLOAD, "call 2", over, {over: 1.0, under: 0.9}),
        Sample("c", WORKLOAD, "call 3", over, {over: 1.0, under: 0.98}),
        Sample("d", WORKLOAD, "call 4", over, {over: 1.0}),
    ]
    (found,) = regret.preferences("gemm", table, samples)
    assert (found.over, found.under, found.calls) == (over, under, 3)
    assert found.worst_gain == pytest.approx(0.9)
    assert found.contradicted_by == ("call 2",)
    assert found.declared in ("preferred_over", "general", "through others")
    assert Regret("GemmFwdOp", "gemm", tuple(samples), (found,)).regrets == pytest.approx([1.0, 1 / 0.9, 1 / 0.98, 1.0])


def test_a_run_ends_when_its_time_is_up(contests: list[Contest]) -> None:
    about = Trusting(CPU, None, ByName({}), lambda: None, BASELINES)
    assert list(regret.measure(contests, about, lambda contest: False)) == []
