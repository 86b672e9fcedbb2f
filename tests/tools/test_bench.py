"""The benchmark's command line: what it takes, what it refuses and why, what it makes of recorded figures."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from xml.etree import ElementTree

import attrs
import jsonschema
import pytest
import torch

from tests.tools.reports import ABOUT, FAILED, REPORT, timed
from tileops.rules.errors import BackendError
from tileops.tools import benchrun, chart, hostcost, page, tables
from tileops.tools.cli import main
from tileops.tools.figures import Report, write
from tileops.tools.recording import read
from tileops.tools.usage import UsageError

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tools/schema/bench-1.json").read_text())


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "bench.json"
    write(REPORT, path)
    return path


# -- what it refuses


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tileops-device", "cpu"], "cpu is not benchmarked: its calls are not queued"),
        (["--tileops-device", "cpux"], "no torch device"),
        (["--tileops-device", "xpu"], "neither CUDA nor the process's accelerator"),
        (["NoSuchOp"], "there is no op 'NoSuchOp'"),
        (["GemmFwdOp", "--rows", "square-1kk"], "did you mean 'square-1k'?"),
        (["GemmFwdOp", "--dtypes", "int8"], "no row is left"),
        (["--regret"], "--regret takes the ops"),
        (["--regret", "GemmFwdOp", "--tileops-target", "torch_cpu"], "chooses its kernels itself"),
        (["--peer", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["--host", "--peer", "a", "b"], "--peer is one folder, got 2"),
        (["--baselines", "cudnn"], "there is no baseline cudnn; baselines: cublas, torch, compile"),
        (["--host", "GemmFwdOp"], "--host does not take OP; it takes: --json, --peer"),
        (["--host", "--rows", "foo", "--seconds", "0"], "--host does not take --rows, --seconds"),
        (["--host", "--regret"], "--regret and --host are questions of their own"),
        (["--host", "--json", "FILE"], "--host prints: --json takes no file with it"),
        (["--proof", "--json", "FILE"], "--proof prints: --json takes no file with it"),
        (["--proof", "--page", "FILE"], "--proof does not take --page; it takes: --json"),
        (["--from", "FILE", "--regret"], "--from and --regret are questions of their own"),
        (["--from", "FILE", "--baselines", "foo"], "--from does not take --baselines; it takes: OP, --rows"),
        (["--from", "FILE", "--jobs", "0"], "--from does not take --jobs"),
        (["--regret", "GemmFwdOp", "--rows", "square-1k"], "--regret does not take --rows"),
        (["--regret", "GemmFwdOp", "--baselines", "torch"], "--regret does not take --baselines"),
        (["--regret", "GemmFwdOp", "-o", "chart.svg", "--peer", "FILE"], "--regret does not take -o, --peer"),
        (["--samples", "3"], "a run does not take --samples"),
        (["--regret", "GemmFwdOp", "--samples", "0"], "--samples: takes a number from 1 on, got 0"),
        (["--regret", "GemmFwdOp", "--samples", "-3"], "--samples: takes a number from 1 on, got -3"),
        (["--regret", "GemmFwdOp", "--samples", "some"], "--samples: takes a whole number, got 'some'"),
        (["--jobs", "-1"], "--jobs: takes a number from 0 on, got -1"),
        (["--jobs", "1.5"], "--jobs: takes a whole number, got '1.5'"),
        (["--seconds", "-1"], "--seconds: takes a number from 0 on, got -1"),
        (["--seconds", "nan"], "--seconds: takes a number from 0 on, got nan"),
        (["--seconds", "inf"], "--seconds: takes a number from 0 on, got inf"),
        (["-o", "chart.png"], "a file of the kind .svg"),
        (["--from", "nowhere.json"], "cannot read nowhere.json"),
    ],
)
def test_a_mistake_is_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--seconds", "1", "--jobs", "14"], ["--jobs", "0"], ["--seconds", "0"]])
def test_limits_of_nothing_are_no_mistake(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[benchrun.Plan] = []

    def run(plan: benchrun.Plan, items: object, timer: object) -> Generator[Report, None, None]:
        plans.append(plan)
        yield REPORT

    monkeypatch.setattr(benchrun, "run_device", lambda name: torch.device("cpu"))
    monkeypatch.setattr(benchrun.Plan, "timer", lambda self: None)
    monkeypatch.setattr(benchrun, "run", run)
    assert main(["bench", "GemmFwdOp", *words]) == 0
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert plans[0].jobs == (int(given["--jobs"]) if "--jobs" in given else benchrun.cores())
    assert plans[0].seconds == (float(given["--seconds"]) if "--seconds" in given else None)


def test_the_help_says_what_an_exit_status_means(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for meaning in (
        "0 if all is well",
        "1 if something was measured and is wrong",
        "2 for a mistake",
        "130 after Ctrl-C",
    ):
        assert meaning in said


def test_a_machine_without_cuda_is_told_so() -> None:
    with pytest.raises(UsageError, match="no CUDA device here"):
        benchrun.run_device("cuda", lambda: None, lambda: False)


def test_the_accelerator_is_a_device_of_a_run() -> None:
    assert benchrun.run_device("xpu:1", lambda: torch.device("xpu"), lambda: False) == torch.device("xpu", 1)
    with pytest.raises(UsageError, match="this process's is mps"):
        benchrun.run_device("xpu", lambda: torch.device("mps"), lambda: False)


# -- recorded figures


def test_recorded_figures_come_back_and_are_of_the_schema(recorded: Path) -> None:
    assert read(recorded) == REPORT
    jsonschema.validate(json.loads(recorded.read_text()), SCHEMA)


def test_the_schema_takes_rows_that_failed(recorded: Path) -> None:
    report = Report(ABOUT, (FAILED,))
    assert not report.ok
    jsonschema.validate(report.plain(), SCHEMA)


def test_recorded_figures_are_shown_drawn_and_put_into_a_page(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, chart = tmp_path / "page.md", tmp_path / "chart.svg"
    page.write_text("# Rows\n\n<!-- bench: rows -->\nold\n<!-- end -->\n\nkept\n")
    assert main(["bench", "--from", str(recorded), "-o", str(chart), "--page", str(page)]) == 0
    out = capsys.readouterr().out
    assert "NVIDIA H200 (cuda:0), 2026-11-29, torch 2.11.0, tilelang 0.1.15; timed by cupti" in out
    assert "no column compile: triton is not installed" in out
    assert re.search(r"GemmFwdOp +cublas +2 +0.980 +0.800 +0.80 +lost bfloat16 +1 +1.79 +1.79 +lost bfloat16", out)
    assert "regret over 2 calls: geometric mean 1.095, worst 1.200" in out
    assert "contradicted: gemv over gemm_mma at m=2" in out
    assert chart.read_text().startswith("<svg")
    assert (
        "| lost | bfloat16 | gemv | cupti | 11.0 | 10.0 | 14.0 | 25.0 | 80% memory | 0.80 | lost |" in page.read_text()
    )
    assert "old" not in page.read_text()
    assert page.read_text().endswith("\nkept\n")


def test_figures_of_two_runs_are_joined(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    write(Report(attrs.evolve(ABOUT, problems=("1 row not reached",)), (FAILED,)), other)
    assert main(["bench", "--from", str(recorded), str(other), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["about"]["problems"] == ["1 row not reached"]
    assert [row["label"] for row in told["rows"]] == ["won", "lost", "odd"]
    assert told["rows"][0]["ratios"] == {"cublas": pytest.approx(1.2)}
    assert told["regret"][0]["worst"] == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("words", "rows", "regret"),
    [
        ([], ["won", "lost", "won"], 1),
        (["GemmFwdOp"], ["won", "lost"], 1),
        (["SoftmaxFwdOp"], ["won"], 0),
        (["--rows", "won"], ["won", "won"], 0),
        (["--rows", "lost/bfloat16"], ["lost"], 0),
        (["--dtypes", "bfloat16"], ["won", "lost", "won"], 0),
        (["SoftmaxFwdOp", "--rows", "won", "lost"], ["won"], 0),
    ],
)
def test_recorded_figures_are_chosen_by_op_row_and_dtype(
    words: list[str], rows: list[str], regret: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    write(REPORT, one)
    write(Report(ABOUT, (timed("won", 0.010, 0.012, "SoftmaxFwdOp"),)), other)
    assert main(["bench", *words, "--from", str(one), "--from", str(other), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in told["rows"]] == rows
    assert len(told["regret"]) == regret


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["NoSuchOp"], "no op 'NoSuchOp' in"),
        (["GemFwdOp"], "did you mean 'GemmFwdOp'?"),
        (["--rows", "nosuch"], "no row 'nosuch' in"),
        (["--rows", "won/float16"], "no row 'won/float16' in"),
        (["--dtypes", "xx"], "no dtype 'xx' in"),
    ],
)
def test_what_recorded_figures_do_not_hold_is_a_mistake(
    words: list[str], said: str, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words, "--from", str(recorded)]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""


def test_figures_that_no_choice_leaves_are_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bench.json"
    write(Report(ABOUT, (timed("one", 0.01, 0.01), timed("two", 0.01, 0.01, "SoftmaxFwdOp"))), path)
    assert main(["bench", "SoftmaxFwdOp", "--rows", "one", "--from", str(path)]) == 2
    assert "no figures are left" in capsys.readouterr().err


# -- the peer's

THEIRS = {
    "op": "GemmFwdOp",
    "label": "won",
    "dtypes": "bfloat16",
    "timing": "cupti",
    "reading": {"latency_ms": 0.02, "device_busy_ms": 0.015, "calls": 30, "spread": 0.0},
    "host_us": 70.0,
}


def test_the_peer_s_times_are_one_more_baseline(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, out = tmp_path / "peer.jsonl", tmp_path / "both.json"
    refused = {"op": "GemmFwdOp", "label": "lost", "dtypes": "bfloat16", "problem": "not for this shape"}
    lines.write_text("".join(json.dumps(line) + "\n" for line in (THEIRS, refused, {**refused, "label": "no row"})))
    assert main(["bench", "--from", str(recorded), "--peer", str(lines), "--json", str(out)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"GemmFwdOp +peer +1 +1\.500 +- +1\.50 +won bfloat16 +0 +5\.00", said)
    assert "no peer for GemmFwdOp lost bfloat16: not for this shape" in said
    report = read(out)
    assert report.rows[0].ratio("peer") == pytest.approx(1.5)
    jsonschema.validate(json.loads(out.read_text()), SCHEMA)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1 is no record of a peer"),
        ("[]", "line 1 is no record of a peer"),
        (json.dumps({**THEIRS, "reading": {}}), "line 1 is no record of a peer"),
        (json.dumps({**THEIRS, "label": "another"}), "of none of the report's rows"),
        (json.dumps({**THEIRS, "timing": "events"}), "was timed by cupti, the peer by events"),
    ],
)
def test_records_that_are_no_comparison_are_refused(
    line: str, said: str, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "peer.jsonl"
    lines.write_text(line + "\n")
    assert main(["bench", "--from", str(recorded), "--peer", str(lines)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ('{"schema": "tileops.check/1"}', "its schema is 'tileops.check/1'"),
        ('{"schema": "tileops.bench/1", "rows": []}', "does not hold what"),
    ],
)
def test_a_file_that_holds_no_run_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read(path)


# -- the host's side


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_ctrl_c_tells_the_costs_until_then(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(peer: Path | None) -> Generator[hostcost.Measure, None, None]:
        yield hostcost.Measure("a call", "a call", 1e-6, "1.00 us", "", "2 us")
        raise KeyboardInterrupt

    monkeypatch.setattr(hostcost, "measure", measure)
    assert main(["bench", "--host", *words]) == 130
    said = capsys.readouterr()
    assert said.err == "interrupted: what was measured is told\n"
    assert "a call" in said.out


def test_a_folder_without_the_peer_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, Path(__file__).parents[2]):  # a checkout of ours is no peer of itself
        assert main(["bench", "--host", "--peer", str(folder)]) == 2
        assert "holds no tileops/_ops" in capsys.readouterr().err


def test_the_wide_table_is_sound_and_every_band_serves() -> None:
    table = hostcost.wide_table(40)
    assert len(table.declarations) == 40
    assert table.check().findings == ()
    call = hostcost.ProductCall(device=torch.device("cpu"), m=1, n=8, k=64, dtype=torch.float16)
    assert table.select(call) == "band_00001"
    assert table.select(call.replace(m=17)) == "band_00017"
    assert table.select(call.replace(m=10_000)) == "general"


def test_the_in_tree_path_builds_once_for_many_instances() -> None:
    script = hostcost.IN_TREE.replace("20000", "100")
    seconds, plain, builds = json.loads(hostcost.python(script, str(hostcost.root()), "16"))
    assert builds == 1
    assert seconds > plain > 0


def test_the_measured_call_goes_through_the_target() -> None:
    seconds, plain = json.loads(
        hostcost.python(hostcost.OP_CALL.replace("20000", "100"), str(hostcost.root()), "GemmFwdOp")
    )
    assert seconds > plain > 0


def test_a_measure_that_fails_says_why() -> None:
    with pytest.raises(BackendError, match="no_such_module"):
        hostcost.python("import no_such_module")


def test_a_measure_is_told_in_its_unit() -> None:
    assert [hostcost.duration(seconds) for seconds in (3e-8, 2.5e-6, 0.0042)] == ["30 ns", "2.50 us", "4.20 ms"]


def test_every_marked_place_of_the_page_is_filled_and_filling_again_changes_nothing() -> None:
    text = (ROOT / "docs/performance.md").read_text()
    found = tables.sections(attrs.evolve(REPORT, rows=(*REPORT.rows, FAILED)))
    assert set(page.places(text, found)) == found.keys()
    filled = page.fill(text, found)
    assert set(filled.anew) == found.keys()
    assert "- failed: GemmFwdOp odd float16: no luck" in filled.text
    assert page.fill(filled.text, found) == filled


def test_shares_of_the_roofline_are_those_of_large_calls() -> None:
    large = attrs.evolve(timed("large", 0.010, 0.012), bytes=tables.LARGE_BYTES)
    found = tables.sections(Report(ABOUT, (timed("small", 0.010, 0.012), large)))
    assert found["shares"].splitlines()[2:] == ["| GemmFwdOp | 1 | 80% | 80% | large bfloat16 |"]
    assert [line.split(" | ")[2] for line in found["small"].splitlines()[2:]] == ["1"]
    assert [line.split(" | ")[2] for line in found["means"].splitlines()[2:]] == ["2"]
    assert "calls that move 64 MiB" in tables.text(Report(ABOUT, (large,)))
    assert "calls that move 64 MiB" not in tables.text(REPORT)


def test_a_report_of_a_real_size_is_drawn_in_one_piece() -> None:
    rows = tuple(timed(f"row-{place}", 0.01, 0.002 * (place + 1), op=f"Op{place // 20}") for place in range(60))
    svg = chart.svg(Report(ABOUT, rows))
    root = ElementTree.fromstring(svg)
    bars = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("stroke")]
    assert len(bars) == 60
    assert sum(bar.get("fill") == chart.LOST for bar in bars) == 4
    assert svg.count("(cut)") == sum(not chart.LOW <= 0.2 * (place + 1) <= chart.HIGH for place in range(60))


def test_a_chart_of_a_regret_alone_is_refused_and_the_old_one_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded, drawn = tmp_path / "regret.json", tmp_path / "chart.svg"
    write(attrs.evolve(REPORT, rows=()), recorded)
    drawn.write_text("old")
    assert main(["bench", "--from", str(recorded), "-o", str(drawn)]) == 2
    assert "-o draws rows" in capsys.readouterr().err
    assert drawn.read_text() == "old"


def test_the_file_that_is_read_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = tmp_path / "bench.json"
    write(REPORT, recorded)
    before = recorded.read_text()
    assert main(["bench", "--from", str(recorded), "--json", str(recorded)]) == 2
    assert "--json and --from name one file" in capsys.readouterr().err
    assert recorded.read_text() == before
