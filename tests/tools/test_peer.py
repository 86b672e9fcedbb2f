"""The peer's records: which are refused, which are problems, and what a report says of those that do not meet."""

import json
import math
from pathlib import Path

import pytest

from tileops.tools import peer
from tileops.tools.figures import About, Reading, Report, Row
from tileops.tools.usage import UsageError

ABOUT = About(
    date="2026-11-29",
    device="cuda:0",
    device_name="NVIDIA H200",
    arch=90,
    target="builtin",
    timing="cupti",
    versions={"torch": "2.11.0"},
)
READING = {"latency_ms": 0.02, "device_busy_ms": 0.015, "calls": 30, "spread": 0.0}
THEIRS = {
    "op": "GemmFwdOp",
    "label": "one",
    "dtypes": "bfloat16",
    "device": "NVIDIA H200",
    "error": 2e-3,
    "tolerance": 1e-2,
    "timing": "cupti",
    "reading": READING,
    "host_us": 70.0,
}


def timed(label: str, op: str = "GemmFwdOp") -> Row:
    reading = Reading(0.01, 0.01, 30, 0.0)
    return Row(op=op, label=label, dtypes="bfloat16", shapes="", outcome="timed", timing="cupti", reading=reading)


def recorded(folder: Path, *lines: dict[str, object], name: str = "peer.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_right_result_s_times_are_joined_without_a_note(tmp_path: Path) -> None:
    report = peer.joined(Report(ABOUT, (timed("one"),)), peer.read([recorded(tmp_path, THEIRS)]))
    assert report.rows[0].ratio("peer") == pytest.approx(1.5)
    assert report.rows[0].baselines["peer"].host_us == 70.0
    assert report.about.notes == ()
    assert report.ok


@pytest.mark.parametrize("late_is_last", [True, False])
def test_a_row_that_a_file_did_not_reach_keeps_the_time_of_another(late_is_last: bool, tmp_path: Path) -> None:
    late = {"op": "GemmFwdOp", "label": "one", "dtypes": "bfloat16", "problem": "not reached"}
    files = [recorded(tmp_path, THEIRS), recorded(tmp_path, late, name="late.jsonl")]
    report = peer.joined(Report(ABOUT, (timed("one"),)), peer.read(files if late_is_last else files[::-1]))
    assert report.rows[0].ratio("peer") == pytest.approx(1.5)
    assert report.about.notes == ()


def test_a_peer_that_is_joined_again_is_told_of_as_it_is_now(tmp_path: Path) -> None:
    rows = (timed("one"), timed("two", "SoftmaxFwdOp"))
    once = peer.joined(Report(ABOUT, rows), peer.read([recorded(tmp_path, THEIRS)]))
    assert once.about.notes == ("the peer was not measured on: SoftmaxFwdOp",)
    softmax = {**THEIRS, "op": "SoftmaxFwdOp", "label": "two"}
    twice = peer.joined(once, peer.read([recorded(tmp_path, softmax)]))
    assert [row.ratio("peer") for row in twice.rows] == [pytest.approx(1.5), pytest.approx(1.5)]
    assert twice.about.notes == ()


# -- what is refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"timing": None}, "timing is None, not one of cupti, cuda-events, events"),
        ({"timing": "clock"}, "timing is 'clock'"),
        ({"reading": {**READING, "device_busy_ms": "1"}}, "expected float @ $.reading.device_busy_ms"),
        ({"reading": {**READING, "device_busy_ms": 0}}, "device_busy_ms is 0.0, no finite number above 0"),
        ({"reading": {**READING, "latency_ms": math.nan}}, "latency_ms is nan"),
        ({"reading": {**READING, "spread": -1.0}}, "spread is -1.0"),
        ({"reading": None}, "it has no reading, and why does not say why"),
        ({"host_us": -3.0}, "host_us is -3.0"),
        ({"device": 0}, "device is 0, no name"),
        ({"problem": None}, "why does not say why"),
        ({"error": "small"}, "TypeError"),
        ({"error": -5.0}, "error is -5.0, below 0"),
        ({"problem": ""}, "why does not say why"),
        ({"label": ["a"]}, "is no text"),
    ],
)
def test_a_line_that_no_run_writes_is_refused_with_its_number(
    change: dict[str, object], said: str, tmp_path: Path
) -> None:
    path = recorded(tmp_path, {**THEIRS, "label": "another"}, {**THEIRS, **change})
    with pytest.raises(UsageError) as refused:
        peer.read([path])
    assert f"{path}, line 2 is no record of a peer" in str(refused.value)
    assert said in str(refused.value)


def test_a_file_without_records_or_with_two_of_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no record of a peer: the run that it comes from timed no row"):
        peer.read([recorded(tmp_path)])
    with pytest.raises(UsageError, match="line 2 is of a row that has one already: GemmFwdOp one bfloat16"):
        peer.read([recorded(tmp_path, THEIRS, THEIRS)])
    (tmp_path / "peer.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"holds no records of a peer: .*can't decode"):
        peer.read([tmp_path / "peer.jsonl"])
    with pytest.raises(UsageError, match=r"cannot read .*: Is a directory"):
        peer.read([tmp_path])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"timing": "cuda-events"}, "GemmFwdOp one bfloat16 was timed by cupti, the peer by cuda-events"),
        ({"device": "NVIDIA A100"}, "GemmFwdOp one bfloat16 was run on NVIDIA H200, the peer on NVIDIA A100"),
        ({"label": "no row"}, "of none of the report's rows, but of GemmFwdOp no row bfloat16"),
    ],
)
def test_what_is_no_ratio_is_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    records = peer.read([recorded(tmp_path, {**THEIRS, **change})])
    with pytest.raises(UsageError, match=said):
        peer.joined(Report(ABOUT, (timed("one"),)), records)


# -- what is no time, and what is said


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"error": 0.5}, "relative error 0.5 is over 0.01"),
        ({"error": 5e-3, "tolerance": 1e-3}, "relative error 0.005 is over 0.001"),
        ({"error": math.nan}, "relative error nan is over 0.01"),
        ({"problem": "not for this shape"}, "not for this shape"),
    ],
)
def test_a_wrong_result_is_a_problem_and_no_time(change: dict[str, object], why: str, tmp_path: Path) -> None:
    records = peer.read([recorded(tmp_path, {**THEIRS, **change})])
    found = peer.joined(Report(ABOUT, (timed("one"),)), records).rows[0].baselines["peer"]
    assert (found.reading, found.why) == (None, why)


def test_an_older_record_s_error_is_held_against_the_tolerance_of_its_dtype(tmp_path: Path) -> None:
    old = {name: value for name, value in THEIRS.items() if name not in ("tolerance", "device")}
    records = peer.read([recorded(tmp_path, {**old, "dtypes": "float16", "error": 3e-3}, old)])
    assert records["GemmFwdOp", "one", "float16"].measured.why == "relative error 0.003 is over 0.002"
    assert records["GemmFwdOp", "one", "bfloat16"].measured.reading is not None


def test_what_does_not_meet_is_said(tmp_path: Path) -> None:
    unchecked = {name: value for name, value in THEIRS.items() if name != "error"}
    strangers = [{**THEIRS, "label": f"elsewhere-{number}"} for number in range(5)]
    first = recorded(tmp_path, {**THEIRS, "host_us": 9.0}, name="first.jsonl")
    last = recorded(tmp_path, unchecked, *strangers, name="last.jsonl")
    rows = (timed("one"), timed("two"), timed("other", op="RoPEFwdOp"))
    report = peer.joined(Report(ABOUT, rows), peer.read([first, last]))
    one, two, other = report.rows
    assert one.baselines["peer"].host_us == 70.0
    assert two.baselines["peer"].why == "it was not measured"
    assert other.baselines == {}
    assert report.about.notes == (
        "the peer has records of rows that are not here: GemmFwdOp elsewhere-0 bfloat16, "
        "GemmFwdOp elsewhere-1 bfloat16, GemmFwdOp elsewhere-2 bfloat16 and 2 others",
        "the peer was not measured on: RoPEFwdOp",
        "the peer's result was not checked: GemmFwdOp one bfloat16",
        "the last of the peer's files is told: GemmFwdOp one bfloat16",
    )
