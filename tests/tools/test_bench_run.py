"""A whole run: what is tried before it, the report that grows and is kept, and what Ctrl-C leaves of it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest
import torch

from tests.tools.test_bench_rows import CPU, NOTHING, TARGET, FakeTimer, bench, small
from tileops.tools import benchrun, regret
from tileops.tools.catalogue import known
from tileops.tools.cli import main
from tileops.tools.figures import Reading, Regret, Report, Sample
from tileops.tools.recording import read
from tileops.tools.rows import Item
from tileops.tools.usage import UsageError

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tools/schema/bench-1.json").read_text())


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def plan(**more: Any) -> benchrun.Plan:
    bench(FakeTimer())  # or the test is skipped, without the example backend
    about = {"progress": benchrun.Progress(io.StringIO()), **more}
    return benchrun.Plan(device=CPU, target=TARGET, baselines=(NOTHING,), **about)


def items() -> list[Item]:
    return [small("SoftmaxFwdOp"), small("CumsumFwdOp")]


def test_a_run_says_how_far_it_is_and_leaves_its_figures(tmp_path: Path) -> None:
    screen, path = Screen(), tmp_path / "bench.json"
    about = plan(progress=benchrun.Progress(screen))
    reports = benchrun.run(about, items(), FakeTimer({"torch": 0.5}))
    report, whole = benchrun.keep(reports, path, about.progress)
    assert whole
    assert report.ok
    assert [row.lost for row in report.rows] == [True, True]
    assert read(path) == report
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    assert "\r\x1b[K[2/2] " in screen.getvalue()
    assert report.about.versions["torch"] == torch.__version__


def test_progress_elsewhere_is_headings_only() -> None:
    stream = io.StringIO()
    progress = benchrun.Progress(stream)
    progress.heading("GemmFwdOp")
    progress.step(1, 2, "square")
    progress.done()
    assert stream.getvalue() == "GemmFwdOp\n"


def test_rows_that_are_not_reached_are_said_so_and_the_run_fails() -> None:
    clock = iter([0.0, 5.0, 20.0])
    about = plan(seconds=10, clock=lambda: next(clock))
    *_, report = benchrun.run(about, items(), FakeTimer())
    assert [row.outcome for row in report.rows] == ["timed", "skipped"]
    assert report.rows[1].why == "not reached in 10 s"
    assert report.about.problems == ("1 row not reached in 10 s",)
    assert not report.ok


def test_a_device_that_fails_ends_the_run_with_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    about = bench(FakeTimer())
    assert benchrun._lost(about) is None
    assert benchrun._lost(attrs.evolve(about, synchronize=fails)) == (
        "RuntimeError: CUDA error: an illegal memory access was encountered"
    )
    monkeypatch.setattr(benchrun, "_lost", lambda bench: "gone")
    *_, report = benchrun.run(plan(), items(), FakeTimer())
    assert [row.outcome for row in report.rows] == ["timed", "skipped"]
    (problem,) = report.about.problems
    assert re.fullmatch("1 row not reached: after SoftmaxFwdOp .* the device fails: gone", problem)
    *_, report = benchrun.run(plan(), items()[:1], FakeTimer())
    assert not report.ok


# -- on its way


def test_a_report_on_its_way_says_that_it_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    seen = []

    def watched() -> Generator[Report, None, None]:
        for report in benchrun.run(plan(), [*items(), small("RMSNormFwdOp")], FakeTimer()):
            yield report
            seen.append(json.loads(path.read_text()))

    benchrun.keep(watched(), path, benchrun.Progress(io.StringIO()))
    assert [(len(one["rows"]), one["ok"], one["about"]["problems"]) for one in seen] == [
        (1, False, ["2 rows not reached (interrupted)"]),
        (2, False, ["1 row not reached (interrupted)"]),
        (3, True, []),
        (3, True, []),
    ]


def interrupting(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Let Ctrl-C come in a row."""
    begun = []
    row = benchrun.Bench.row

    def interrupted(self: benchrun.Bench, item: Item) -> Any:
        begun.append(item)
        if len(begun) > at:
            raise KeyboardInterrupt
        return row(self, item)

    monkeypatch.setattr(benchrun.Bench, "row", interrupted)


def test_what_was_measured_until_ctrl_c_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    interrupting(monkeypatch, 1)
    path = tmp_path / "bench.json"
    report, whole = benchrun.keep(benchrun.run(plan(), items(), FakeTimer()), path, plan().progress)
    assert not whole
    assert [row.op for row in report.rows] == ["SoftmaxFwdOp"]
    assert report.about.problems == ("1 row not reached (interrupted)",)
    assert read(path) == report
    assert not read(path).ok


def test_ctrl_c_before_the_first_row_leaves_the_file_of_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    interrupting(monkeypatch, 0)
    path = tmp_path / "bench.json"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt, match="nothing was measured yet"):
        benchrun.keep(benchrun.run(plan(), items(), FakeTimer()), path, plan().progress)
    assert path.read_text() == "before"


def test_a_pipe_gets_no_report_that_is_on_its_way(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    _, whole = benchrun.keep(benchrun.run(plan(), items(), FakeTimer()), pipe, plan().progress)  # or it waits for ever
    assert whole


def test_a_file_that_fails_does_not_end_the_run(tmp_path: Path) -> None:
    told = io.StringIO()
    reports = benchrun.run(plan(), items(), FakeTimer())
    report, whole = benchrun.keep(reports, tmp_path / "gone" / "bench.json", benchrun.Progress(told))
    assert whole
    assert report.ok
    assert f"cannot write {tmp_path}/gone/bench.json: No such file or directory" in told.getvalue()


@attrs.frozen
class Call:
    """Stands for a call spec."""

    name: str

    def text(self) -> str:
        return self.name


@pytest.fixture
def regrets(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], Generator[Report, None, None]]:
    """A regret run of two ops of two calls each; Ctrl-C comes in the call of that number."""

    def contests(op: Any, device: object, facts: object, most: int) -> list[Any]:
        return [regret.Contest(Item(op, None), "limit", None, Call(name), ("a",), "a") for name in "ab"]  # type: ignore[arg-type]

    def run(interrupted: int | None, **more: Any) -> Generator[Report, None, None]:
        begun = []

        def measure(found: Sequence[Any], bench: object, begin: Callable[[Any], bool]) -> Iterator[list[Regret]]:
            taken = []
            for contest in found:
                if not begin(contest):
                    return
                begun.append(contest)
                if interrupted is not None and len(begun) > interrupted:
                    raise KeyboardInterrupt
                taken.append(Sample("row", "limit", contest.call.name, "a", {"a": 1.0}))
                yield [Regret(contest.item.known.name, "interface", tuple(taken), ())]

        monkeypatch.setattr(regret, "measure", measure)
        about = benchrun.Plan(device=CPU, target=None, baselines=(), progress=plan().progress, **more)
        return benchrun.run_regret(about, [known("GemmFwdOp"), known("SoftmaxFwdOp")], 80, FakeTimer())

    monkeypatch.setattr(regret, "contests", contests)
    return run


def test_a_regret_on_its_way_counts_the_calls_of_all_ops(regrets: Callable[..., Any]) -> None:
    reports = list(regrets(None))
    assert [one.about.problems for one in reports] == [
        ("3 calls not reached (interrupted)",),
        ("2 calls not reached (interrupted)",),
        ("1 call not reached (interrupted)",),
        (),
        (),
    ]
    assert reports[-1].ok
    report, whole = benchrun.keep(regrets(3), None, plan().progress)
    assert not whole
    assert [len(one.samples) for one in report.regret] == [2, 1]
    assert report.about.problems == ("1 call not reached (interrupted)",)


def test_calls_that_are_not_reached_are_said_once(regrets: Callable[..., Any]) -> None:
    clock = iter([0.0, 1.0, 20.0, 20.0])
    reports = list(regrets(None, seconds=10, clock=lambda: next(clock)))
    assert reports[0].about.problems == ("3 calls not reached (interrupted)",)
    assert reports[-1].about.problems == (
        "GemmFwdOp: 1 call not reached in 10 s",
        "SoftmaxFwdOp: 2 calls not reached in 10 s",
    )


# -- the command


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that a command makes, on the CPU."""
    made: list[str] = []
    run = benchrun.run

    def counted(about: benchrun.Plan, chosen: Sequence[Item], timer: Any) -> Generator[Report, None, None]:
        made.append(about.device.type)
        return run(attrs.evolve(about, target=TARGET, baselines=(NOTHING,), jobs=0), items(), timer)

    bench(FakeTimer())
    monkeypatch.setattr(benchrun, "run", counted)
    monkeypatch.setattr(benchrun, "run_device", lambda name: CPU)
    monkeypatch.setattr(benchrun.Plan, "timer", lambda self: FakeTimer())
    return made


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "no/such/bench.json"], "cannot write no/such/bench.json: there is no folder"),
        (["--json", "folder"], "cannot write folder: it is a folder"),
        (["--json", ""], "cannot write .: it is a folder"),
        (["-o", "no/such/bench.svg"], "cannot write no/such/bench.svg: there is no folder"),
        (["--page", "no/such/page.md"], "cannot write no/such/page.md: there is no folder"),
        (["--page", "nowhere.md"], "cannot read nowhere.md"),
        (["--page", "latin.md"], "latin.md is no page: byte 9 of it is no UTF-8"),
        (["--page", "unbalanced.md"], "unbalanced.md: line 1: means has no <!-- end --> after it"),
        (["--peer", "latin.jsonl"], "latin.jsonl"),
        (["--peer", "other.jsonl"], "none of the report's rows"),
        (["--peer", "cupti.jsonl"], "was timed by events, the peer by cupti"),
    ],
)
def test_what_would_fail_after_a_run_is_refused_before_it(
    words: list[str],
    said: str,
    runs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("latin.md").write_bytes(b"# Messger\xe4te\n")
    Path("unbalanced.md").write_text("<!-- bench: means -->\n")
    Path("latin.jsonl").write_bytes(b"\xe4\n")
    record = {"op": "GemmFwdOp", "label": "square-1k", "dtypes": "float16", "timing": "cupti", "host_us": 9.0}
    record["reading"] = {"latency_ms": 1.0, "device_busy_ms": 1.0, "calls": 9, "spread": 0.0}
    Path("cupti.jsonl").write_text(json.dumps(record) + "\n")
    Path("other.jsonl").write_text(json.dumps({**record, "timing": "events", "label": "another"}) + "\n")
    before = sorted(tmp_path.iterdir())
    assert main(["bench", "GemmFwdOp", *words]) == 2
    assert said in capsys.readouterr().err
    assert runs == []
    assert sorted(tmp_path.iterdir()) == before


def test_a_run_writes_what_it_is_asked_for(runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, chart, page = tmp_path / "bench.json", tmp_path / "bench.svg", tmp_path / "page.md"
    page.write_text("<!-- bench: means -->\nold\n<!-- end -->\n")
    assert main(["bench", "GemmFwdOp", "--json", str(path), "-o", str(chart), "--page", str(page)]) == 0
    assert runs == ["cpu"]
    assert len(read(path).rows) == 2
    assert chart.read_text().startswith("<svg")
    assert "| SoftmaxFwdOp | torch | 1 |" in page.read_text()
    assert "time of the baseline over ours" in capsys.readouterr().out


def test_ctrl_c_is_one_line_and_130_and_what_was_measured_is_told(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupting(monkeypatch, 1)
    path, chart, page = tmp_path / "bench.json", tmp_path / "bench.svg", tmp_path / "page.md"
    marked = "<!-- bench: means -->\nold\n<!-- end -->\n"
    page.write_text(marked)
    assert main(["bench", "GemmFwdOp", "--json", str(path), "-o", str(chart), "--page", str(page)]) == 130
    said = capsys.readouterr()
    assert said.err == "interrupted: what was measured is told; -o and --page got nothing of it\n"
    assert "1 row not reached (interrupted)" in said.out
    assert "SoftmaxFwdOp" in said.out
    assert read(path).about.problems == ("1 row not reached (interrupted)",)
    assert not chart.exists()
    assert page.read_text() == marked
    assert main(["bench", "GemmFwdOp", "--json"]) == 130
    assert capsys.readouterr().err == "interrupted: nothing was measured yet\n"


def test_a_file_that_fails_in_the_end_leaves_the_rest_told(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, chart = tmp_path / "bench.json", tmp_path / "bench.svg"

    def full(*arguments: object) -> None:
        raise UsageError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(benchrun.figures, "write", full)
    assert main(["bench", "GemmFwdOp", "--json", str(path), "-o", str(chart)]) == 2
    said = capsys.readouterr()
    assert said.err.endswith(f"error: cannot write {path}: No space left on device\n")
    assert "time of the baseline over ours" in said.out
    assert chart.exists()


def test_a_peer_that_does_not_fit_in_the_end_is_a_problem_of_the_run(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"op": "GemmFwdOp", "label": "square-1k", "dtypes": "float16", "timing": "events", "host_us": 9.0}
    record["reading"] = attrs.asdict(Reading(1.0, 1.0, 9, 0.0))
    (tmp_path / "peer.jsonl").write_text(json.dumps(record) + "\n")
    # The run is of other rows than the words say, as one is that does not reach them.
    assert main(["bench", "GemmFwdOp", "--peer", str(tmp_path / "peer.jsonl")]) == 1
    said = capsys.readouterr().out
    assert "without the peer: " in said
    assert "time of the baseline over ours" in said


# -- processes

SLEEPING = """
import functools, sys, time
from tileops.tools import prebuild
from tileops.tools.usage import report

def command(argv):
    with prebuild.Pool(1) as pool:
        begun = pool.begin([functools.partial(time.sleep, seconds) for seconds in (600, 601)])
        print("begun", flush=True)
        pool.end(begun, lambda done, of: None)

sys.exit(report(command, []))
"""


def test_ctrl_c_ends_the_compiling_processes_without_a_word() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPING],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the command
        assert process.communicate(timeout=60) == ("", "interrupted\n")
        assert process.returncode == 130
