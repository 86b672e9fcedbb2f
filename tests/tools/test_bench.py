"""The benchmark's command line: what it takes, what it refuses and why, what it makes of recorded figures."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import attrs
import jsonschema
import pytest
import torch

from tileops.rules.errors import BackendError
from tileops.tools import benchrun, chart, hostcost, page, tables
from tileops.tools.cli import main
from tileops.tools.figures import About, Measured, Preference, Reading, Regret, Report, Row, Sample, write
from tileops.tools.recording import read
from tileops.tools.usage import UsageError

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tools/schema/bench-1.json").read_text())

ABOUT = About(
    date="2026-11-29",
    device="cuda:0",
    device_name="NVIDIA H200",
    arch=90,
    target="builtin",
    timing="cupti",
    versions={"torch": "2.11.0", "tilelang": "0.1.15"},
    copy_gb_s=4300.0,
    matrix_tflops={"bfloat16": 760.0},
    missing={"compile": "triton is not installed"},
)


def timed(label: str, ms: float, against: float, op: str = "GemmFwdOp") -> Row:
    return Row(
        op=op,
        label=label,
        dtypes="bfloat16",
        shapes="a=1x4096 b=4096x4096",
        outcome="timed",
        implementation="gemv",
        error=1e-3,
        tolerance=1e-2,
        flops=2 * 4096 * 4096,
        bytes=2 * 4096 * 4097,
        floor_ms=0.008,
        bound="memory",
        timing="cupti",
        reading=Reading(ms * 1.1, ms, 30, 0.01),
        host_us=14.0,
        first_call_s=2.5,
        baselines={"cublas": Measured("selected", Reading(against, against, 30, 0.01), 25.0)},
    )


FAILED = Row(op="GemmFwdOp", label="odd", dtypes="float16", shapes="a=3x3 b=3x3", outcome="failed", why="no luck")
SAMPLES = (
    Sample("decode", "workload", "m=1", "gemv", {"gemv": 1.0, "gemm_mma": 2.0}),
    Sample("decode", "limit", "m=2", "gemv", {"gemv": 1.2, "gemm_mma": 1.0}),
)
REGRET = Regret(
    "GemmFwdOp",
    "gemm",
    SAMPLES,
    (Preference("gemm", "gemv", "gemm_mma", "general", 2, 1.29, 0.83, ("m=2",)),),
).judged()
REPORT = Report(ABOUT, (timed("won", 0.010, 0.012), timed("lost", 0.010, 0.008)), (REGRET,))


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
        (["--host", "GemmFwdOp"], "give neither OP nor a file"),
        (["-o", "chart.png"], "a file of the kind .svg"),
        (["--from", "nowhere.json"], "cannot read nowhere.json"),
    ],
)
def test_a_mistake_is_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err


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


def test_a_folder_without_the_peer_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--host", "--peer", str(tmp_path)]) == 2
    assert "holds no tileops/gemm.py" in capsys.readouterr().err


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
