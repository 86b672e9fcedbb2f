"""Recorded runs: what cannot be in one is refused with its row, what follows is found anew, and which may be joined."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest

from tests.tools.reports import ABOUT, FAILED, REGRET, REPORT, timed
from tileops.tools import recording, tables
from tileops.tools.cli import main
from tileops.tools.figures import Measured, Report, write
from tileops.tools.usage import UsageError

Plain = dict[str, Any]
SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "tools/schema/bench-1.json").read_text())


def written(path: Path, change: Callable[[Plain], object] = lambda plain: None, report: Report = REPORT) -> Path:
    """Write a report with a change to its plain data."""
    plain = report.plain()
    change(plain)
    path.write_text(json.dumps(plain))
    return path


def row(plain: Plain) -> Plain:
    return plain["rows"][0]  # type: ignore[no-any-return]


def sample(plain: Plain) -> Plain:
    return plain["regret"][0]["samples"][0]  # type: ignore[no-any-return]


def put(place: Callable[[Plain], Plain], **values: object) -> Callable[[Plain], object]:
    return lambda plain: place(plain).update(values)


def reading(plain: Plain) -> Plain:
    return row(plain)["reading"]  # type: ignore[no-any-return]


def cublas(plain: Plain) -> Plain:
    return row(plain)["baselines"]["cublas"]  # type: ignore[no-any-return]


ROW = "row GemmFwdOp won bfloat16: "
CALL = "regret of GemmFwdOp gemm: m=1: "


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put(reading, device_busy_ms=float("nan")), f"{ROW}device_busy_ms is nan, no finite number above 0"),
        (put(reading, device_busy_ms=0), f"{ROW}device_busy_ms is 0.0, no"),
        (put(reading, latency_ms=float("inf")), f"{ROW}latency_ms is inf, no"),
        (put(reading, calls=0), f"{ROW}calls is 0, no"),
        (put(reading, spread=-1.0), f"{ROW}spread is -1.0, no finite number from 0 on"),
        (put(reading, device_busy_ms="1"), "expected float @ $.rows[0].reading.device_busy_ms"),
        (put(row, label=None), "$.rows[0].label"),
        (put(row, bytes=-5), f"{ROW}bytes is -5, no"),
        (put(row, floor_ms=0.0), f"{ROW}floor_ms is 0.0, no"),
        (put(row, host_us=0.0), f"{ROW}host_us is 0.0, no"),
        (put(row, error=float("nan")), f"{ROW}error is nan, no"),
        (put(cublas, host_us=-1.0), f"{ROW}baseline cublas: host_us is -1.0, no"),
        (lambda plain: cublas(plain)["reading"].update(device_busy_ms=0.0), f"{ROW}baseline cublas: device_busy_ms"),
        (put(lambda plain: plain["about"], copy_gb_s=0.0), "copy_gb_s is 0.0, no"),
        (lambda plain: plain["about"]["matrix_tflops"].update(half=-1.0), "matrix_tflops: half is -1.0, no"),
        (lambda plain: sample(plain)["times_ms"].update(gemm_mma=0.0), f"{CALL}gemm_mma is 0.0, no"),
        (lambda plain: sample(plain)["times_ms"].update(gemv=float("nan")), f"{CALL}gemv is nan, no"),
        (put(row, outcome="wrong", why="off"), f"{ROW}it is wrong, with a reading"),
        (put(row, outcome="banana"), f"{ROW}outcome is 'banana', not one of timed, wrong, failed, skipped"),
        (put(row, reading=None), f"{ROW}it is timed, without a reading"),
        (put(row, outcome="failed", reading=None), f"{ROW}it is failed, and why does not say why"),
        (put(row, error=0.5), f"{ROW}it is timed, with an error of 0.5 over 0.01"),
        (put(row, timing="cuda-events"), f"{ROW}it was timed by cuda-events, the run by cupti"),
        (put(row, bound="luck"), f"{ROW}bound is 'luck', not one of memory, matrix, None"),
        (put(cublas, role="favourite"), f"{ROW}baseline cublas: role is 'favourite'"),
        (put(cublas, reading=None), f"{ROW}baseline cublas: it has no reading, and why does not say why"),
        (put(cublas, why="gone"), f"{ROW}baseline cublas: it has both a reading and a reason why not"),
        (put(lambda plain: plain["about"], timing="hand"), "timing is 'hand'"),
        (put(sample, origin="dream"), f"{CALL}origin is 'dream'"),
        (put(sample, chosen="gemx"), f"{CALL}the chosen gemx has neither a time nor a problem"),
        (lambda plain: plain["regret"][0]["samples"].clear(), "gemv over gemm_mma: no call has times of both"),
        (lambda plain: plain["rows"].append(row(plain)), "row GemmFwdOp won bfloat16 occurs 2 times"),
        (lambda plain: plain["regret"].append(plain["regret"][0]), "regret of GemmFwdOp gemm occurs 2 times"),
        (lambda plain: plain["regret"][0]["samples"].append(sample(plain)), "GemmFwdOp gemm: m=1 occurs 2 times"),
        (put(lambda plain: plain, ok=False), "says ok: False, and nothing in it says what went wrong"),
        (put(row, tolerance=None), f"{ROW}it has an error, and no tolerance"),
        (put(row, label="\ud800"), "expected str @ $.rows[0].label"),
        (lambda plain: plain["regret"][0]["preferences"].clear(), "and no preference between them is told"),
        (lambda plain: (plain["rows"].clear(), plain["regret"].clear()), "holds no figures: no row and no regret"),
    ],
)
def test_what_no_run_says_is_refused_with_its_row(
    change: Callable[[Plain], object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "bench.json", change)
    assert main(["bench", "--from", str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert str(path) in told.err
    assert said in told.err


def test_every_fault_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    def change(plain: Plain) -> None:
        plain["rows"][0]["host_us"] = 0.0
        plain["rows"][1]["outcome"] = "banana"

    with pytest.raises(UsageError) as refused:
        recording.read(written(tmp_path / "bench.json", change))
    assert "won bfloat16: host_us is 0.0" in str(refused.value)
    assert "lost bfloat16: outcome is 'banana'" in str(refused.value)


def test_preferences_are_what_the_samples_say_whatever_was_written_of_them(tmp_path: Path) -> None:
    kind = put(lambda plain: plain["regret"][0]["preferences"][0], contradicted_by=[], mean_gain=9.0, worst_gain=5.0)
    found = recording.read(written(tmp_path / "bench.json", kind))
    assert found.regret == (REGRET,)
    assert REGRET.preferences[0].contradicted_by == ("m=2",)
    assert "gemv over gemm_mma: `m=2`" in (tables.sections(found)["contradicted"] or "")


def test_a_file_from_before_there_were_notes_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "bench.json", lambda plain: plain["about"].pop("notes"))
    assert recording.read(path) == REPORT
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)


# -- joined


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"device_name": "NVIDIA A100"}, "device_name 'NVIDIA A100' is not 'NVIDIA H200'"),
        ({"arch": 80}, "arch 80 is not 90"),
        ({"target": "mine"}, "target 'mine' is not 'builtin'"),
        ({"versions": {"torch": "2.12.0", "tilelang": "0.1.15"}}, "torch 2.12.0 is not 2.11.0"),
        ({"versions": {**ABOUT.versions, "CUDA": "13.0"}}, "CUDA 13.0 is not None"),
        ({"timing": "cuda-events"}, "timing 'cuda-events' is not 'cupti'"),
    ],
)
def test_runs_under_other_circumstances_are_not_joined(about: Plain, said: str, tmp_path: Path) -> None:
    one, other = written(tmp_path / "one.json"), tmp_path / "other.json"
    write(Report(attrs.evolve(ABOUT, **about), ()), other)
    with pytest.raises(UsageError) as refused:
        recording.joined([one, other])
    assert str(refused.value).startswith(f"{other} and {one} are no one run: {said}; ")


def test_the_later_file_s_rows_and_regret_are_told_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = written(tmp_path / "one.json"), tmp_path / "other.json"
    again = attrs.evolve(REGRET, samples=(attrs.evolve(REGRET.samples[0], times_ms={"gemv": 1.0, "gemm_mma": 4.0}),))
    write(Report(attrs.evolve(ABOUT, date="2026-11-30"), (timed("won", 0.010, 0.020),), (again,)), other)
    assert main(["bench", "--from", str(one), str(other), "--json", str(tmp_path / "both.json")]) == 0
    said = "1 row and 1 interface measured by several of the runs: the last file's figures are told"
    assert capsys.readouterr().out.count(said) == 1
    found = recording.read(tmp_path / "both.json")
    assert [(row.label, row.ratio("cublas")) for row in found.rows] == [("won", 2.0), ("lost", pytest.approx(0.8))]
    assert [regret.samples for regret in found.regret] == [again.samples]
    assert found.about.date == "2026-11-29 and 2026-11-30"
    assert found.about.notes == (said,)
    jsonschema.validate(json.loads((tmp_path / "both.json").read_text()), SCHEMA)


@pytest.mark.parametrize("order", [("one", "late"), ("late", "one")])
def test_what_a_run_did_not_reach_takes_no_other_run_s_time_away(order: tuple[str, str], tmp_path: Path) -> None:
    late = attrs.evolve(FAILED, op="GemmFwdOp", label="won", dtypes="bfloat16", outcome="skipped", why="not reached")
    reports = {"one": REPORT, "late": Report(ABOUT, (late,))}
    found = recording.joined([written(tmp_path / f"{name}.json", report=reports[name]) for name in order])
    assert {row.label: row.outcome for row in found.rows} == {"won": "timed", "lost": "timed"}
    assert found.about.notes == ()


def test_a_file_of_endless_brackets_is_no_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    assert main(["bench", "--from", str(path)]) == 2
    assert f"{path} is no JSON" in capsys.readouterr().err


def test_a_joined_report_says_the_ceilings_and_problems_of_all_and_what_no_row_has(tmp_path: Path) -> None:
    one, other = tmp_path / "regret.json", tmp_path / "rows.json"
    blank = attrs.evolve(ABOUT, copy_gb_s=None, matrix_tflops={}, problems=("1 call not reached",))
    write(Report(blank, (), (REGRET,)), one)
    compiled = attrs.evolve(timed("won", 0.01, 0.02), baselines={"compile": timed("", 1, 1).baselines["cublas"]})
    write(Report(attrs.evolve(ABOUT, missing={}), (compiled, FAILED)), other)
    found = recording.joined([one, other])
    assert found.about.copy_gb_s == ABOUT.copy_gb_s
    assert found.about.matrix_tflops == ABOUT.matrix_tflops
    assert found.about.missing == {}
    assert found.about.problems == ("1 call not reached",)
    assert found.about.notes == ()


# -- the peer's


@pytest.mark.parametrize("ms", [0, -1.0, float("nan"), "1", None, True])
def test_an_impossible_time_of_a_baseline_is_refused(ms: object) -> None:
    times = {"latency_ms": 1.0, "device_busy_ms": ms, "calls": 30, "spread": 0.0}
    with pytest.raises(ValueError, match="device_busy_ms"):
        recording.measured({"role": "preferred", "reading": times, "host_us": 1.0})


def test_a_possible_one_is_taken() -> None:
    assert recording.measured({"role": "preferred", "why": "no luck"}) == Measured("preferred", why="no luck")
