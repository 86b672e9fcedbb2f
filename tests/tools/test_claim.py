"""The claim of a backend: what a report has to show, and which tests a run drops, skips and runs."""

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tileops.tools import claim as tool
from tileops.tools.testrun import Case, Run, address_of, op_tests, read
from tileops.tools.usage import UsageError

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tools/schema/claim-1.json").read_text())

KIT = """
import pytest
import torch

from tileops.backend import OpNotAvailableError
from tileops.gemm import GemmFwdOp
from tileops.norm import RMSNormFwdOp

ONES, ZEROS = torch.ones(2), torch.zeros(2)


@pytest.mark.parametrize("which", ["a/b", "[c]", "d e"])
def test_right(check, which):
    check(GemmFwdOp, (ONES, ONES), (ONES, ONES))


def test_compares_nothing(check):
    check(GemmFwdOp, (), ())


def test_never_calls_check(check):
    pass


def test_wrong(check):
    check(RMSNormFwdOp, ONES, ZEROS)


def test_two_ops(check):
    check(GemmFwdOp, ONES, ONES)
    check(RMSNormFwdOp, ONES, ONES)


def test_an_op_that_the_target_lacks():
    raise OpNotAvailableError("target 'acme' registers no kernel builder", op="OtherFwdOp", target="acme")


class TestBehaviour:
    def test_passes(self):
        assert True

    def test_skips(self):
        pytest.skip("not today")


@pytest.mark.in_tree_kernels
def test_in_tree():
    raise AssertionError("dropped for a target")


@pytest.mark.cuda_only
def test_cuda():
    raise AssertionError("dropped off CUDA")


@pytest.mark.sm90
def test_hopper_without_the_device_fixture():
    raise AssertionError("skipped elsewhere")


@pytest.mark.sm90
def test_hopper(device, check):
    raise AssertionError("skipped elsewhere")
"""
DROPPED = {"test_in_tree", "test_cuda"}


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "tests/ops", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout's op tests in small: the real conftest beside one file of every kind of test, and a run's report."""
    folder = tmp_path_factory.mktemp("kit")
    ops = folder / "tests" / "ops"
    ops.mkdir(parents=True)
    shutil.copy(ROOT / "tests/ops/conftest.py", ops)
    (ops / "test_kit.py").write_text(KIT)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib --strict-markers -ra\n")
    done = run_pytest(folder, "--tileops-target=acme", "--tileops-device=cpu", "--junitxml=R.xml")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    return folder


@pytest.fixture(autouse=True, scope="module")
def _tileops_is_importable() -> Iterator[None]:
    """The kit lies far from the checkout, and tileops need not be installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        yield


@pytest.fixture(scope="module")
def run(kit: Path) -> Run:
    return read(kit / "R.xml")


def test_the_report_says_whose_it_is(run: Run) -> None:
    assert (run.target, run.device) == ("acme", "cpu")
    assert run.timestamp is not None


def test_what_is_dropped_is_not_in_the_report_and_what_needs_an_arch_is_skipped(run: Run) -> None:
    by_name = {case.name.partition("::")[2]: case for case in run.cases.values()}
    assert not DROPPED & set(by_name)
    for name in ("test_hopper_without_the_device_fixture", "test_hopper"):
        assert by_name[name].outcome == "skipped"
        assert "needs CUDA of arch [90], this is cpu of arch None" in by_name[name].why
    assert len(by_name) == 12


def test_only_tests_that_called_check_have_the_properties(run: Run) -> None:
    by_name = {case.name.partition("::")[2]: (case.ops, case.checked) for case in run.cases.values()}
    assert by_name["test_right[a/b]"] == (("GemmFwdOp",), 2)
    assert by_name["test_compares_nothing"] == (("GemmFwdOp",), 0)
    assert by_name["test_never_calls_check"] == ((), 0)
    assert by_name["test_wrong"] == (("RMSNormFwdOp",), 0)
    assert by_name["test_two_ops"] == (("GemmFwdOp", "RMSNormFwdOp"), 2)
    assert by_name["test_an_op_that_the_target_lacks"] == (("OtherFwdOp",), 0)


def test_the_command_judges_the_run(
    kit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = str(kit / "tests/ops")
    monkeypatch.setattr(tool, "collected", functools.cache(tool.collected))  # each pytest takes seconds
    assert tool.main([str(kit / "R.xml"), "--tests", tests, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    assert (found["target"], found["device"], found["ok"]) == ("acme", "cpu", False)
    assert found["dropped"] == {"tests/ops/test_kit.py": 2}
    assert found["absent"] == {}
    by_op = {one["op"]: one for one in found["ops"]}
    gemm, norm, other = by_op["GemmFwdOp"], by_op["RMSNormFwdOp"], by_op["OtherFwdOp"]
    assert (gemm["claimed"], gemm["passed"], gemm["skipped"], gemm["failed"]) == (True, 4, 1, 0)
    assert [test["checked_outputs"] for test in gemm["tests"]] == [2, 2, 2, 0, 2]
    assert not norm["claimed"]
    assert norm["reasons"][0].startswith("1 test failed: tests.ops.test_kit::test_wrong: AssertionError: ")
    assert len(norm["reasons"]) == 1, "another test of it is evidence"
    assert not other["claimed"]
    assert "target 'acme' registers no kernel builder" in other["reasons"][0]
    assert "no numerical evidence" in other["reasons"][1]
    assert found["behaviour"] == {"passed": 2, "skipped": 3, "failed": 0, "failures": []}

    assert tool.main([str(kit / "R.xml"), "GemmFwdOp", "--tests", tests]) == 0
    said = capsys.readouterr().out
    assert "claimed  GemmFwdOp  4 passed, 1 skipped; 8 outputs checked" in said
    assert "dropped, not about this run: 2 tests\n  tests/ops/test_kit.py  2 tests" in said
    assert "tests.ops.test_kit::test_right             2 each in 3 tests" in said
    assert "RMSNormFwdOp" not in said


def test_the_cpu_has_no_in_tree_kernels_to_test(kit: Path) -> None:
    done = run_pytest(kit, "--tileops-device=cpu")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no in-tree kernel runs on the CPU" in done.stderr


# The judgement, over runs made here.


def case(name: str, outcome: str = "passed", ops: Sequence[str] = (), checked: int = 0) -> Case:
    return Case(f"tests.ops.test_x::{name}", outcome, "because" if outcome != "passed" else "", tuple(ops), checked)  # type: ignore[arg-type]


def judged(*cases: Case, ops: Sequence[str] = ("GemmFwdOp",)) -> tool.Claim:
    run = Run({one.name: one for one in cases}, "acme", "cpu", None)
    return tool.claim(run, "acme", "cpu", ops, [], [])


GOOD = case("test_good", ops=["GemmFwdOp"], checked=1)


@pytest.mark.parametrize(
    ("cases", "reasons"),
    [
        ([GOOD], []),
        ([GOOD, case("test_skipped", "skipped", ["GemmFwdOp"])], []),
        ([GOOD, case("test_nothing", ops=["GemmFwdOp"])], []),
        ([GOOD, case("test_layer", "skipped")], []),
        ([GOOD, case("test_bad", "failed", ["GemmFwdOp"], 3)], ["1 test failed: tests.ops.test_x::test_bad: because"]),
        ([GOOD, case("test_layer", "failed")], ["behaviour: 1 test of no op failed"]),
        (
            [case("test_nothing", ops=["GemmFwdOp"])],
            [
                "no numerical evidence: no test of it passed with outputs checked (1 test skipped or compared nothing)",
            ],
        ),
        (
            [case("test_skipped", "skipped", ["GemmFwdOp"], 4)],
            [
                "no numerical evidence: no test of it passed with outputs checked (1 test skipped or compared nothing)",
            ],
        ),
        (
            [case("test_bad", "failed", ["GemmFwdOp"], 2)],
            [
                "1 test failed: tests.ops.test_x::test_bad: because",
                "no numerical evidence: no test of it passed with outputs checked (all failed)",
            ],
        ),
        (
            [case("test_of_another", ops=["RMSNormFwdOp"], checked=1)],
            ["no numerical evidence: no test of it passed with outputs checked (the report has no test of it)"],
        ),
    ],
)
def test_the_three_conditions(cases: list[Case], reasons: list[str]) -> None:
    found = judged(*cases)
    assert list(found.ops[0].reasons) == reasons
    assert found.holds is not bool(reasons)


def test_a_failure_of_no_op_refuses_every_op_and_one_of_an_op_only_that_op() -> None:
    norm = case("test_norm", ops=["RMSNormFwdOp"], checked=1)
    broken = judged(GOOD, norm, case("test_layer", "failed"), ops=["GemmFwdOp", "RMSNormFwdOp"])
    assert [bool(one.reasons) for one in broken.ops] == [True, True]
    own = judged(GOOD, norm, case("test_bad", "failed", ["RMSNormFwdOp"]), ops=["GemmFwdOp", "RMSNormFwdOp"])
    assert [bool(one.reasons) for one in own.ops] == [False, True]


def test_many_failures_are_counted_and_three_quoted() -> None:
    found = judged(GOOD, *(case(f"test_{number}", "failed", ["GemmFwdOp"]) for number in range(5)))
    (reason,) = found.ops[0].reasons
    assert reason.startswith("5 tests failed: ")
    assert reason.endswith("test_2: because; and 2 more")
    said = judged(GOOD, *(case(f"test_{number}", "failed") for number in range(5))).text()
    assert "behaviour tests  0 passed, 0 skipped, 5 failed\n  tests.ops.test_x::test_0: because\n" in said
    assert "  and 2 more\n" in said


def test_a_run_without_ops_claims_nothing() -> None:
    found = judged(case("test_layer"), ops=[])
    assert not found.holds
    assert "nothing to claim: no test of the report belongs to an op" in found.text()


def test_tests_left_out_of_the_report_are_counted() -> None:
    run = Run({GOOD.name: GOOD}, "acme", "cpu", None)
    nodes = ["tests/ops/test_x.py::test_good", "tests/ops/test_x.py::test_bad", "tests/ops/test_y.py::test_y"]
    found = tool.claim(run, "acme", "cpu", ["GemmFwdOp"], nodes, [*nodes, "tests/ops/test_y.py::test_cuda"])
    assert found.absent == {"tests/ops/test_x.py": 1, "tests/ops/test_y.py": 1}
    assert found.dropped == {"tests/ops/test_y.py": 1}
    assert "not in the report, though the run collects them: 2 tests" in found.text()


# Reading.


@pytest.mark.parametrize(
    ("node", "address"),
    [
        ("tests/ops/test_x.py::test_a", "tests.ops.test_x::test_a"),
        ("tests/ops/test_x.py::TestB::test_a[c::d/e.py-f]", "tests.ops.test_x.TestB::test_a[c::d/e.py-f]"),
    ],
)
def test_an_address_is_what_pytest_writes(node: str, address: str) -> None:
    assert address_of(node) == address


def write(folder: Path, text: str) -> Path:
    path = folder / "report.xml"
    path.write_text(text)
    return path


def test_a_test_with_two_records_has_the_worse_outcome(tmp_path: Path) -> None:
    record = '<testcase classname="t" name="a"><properties><property name="op" value="X"/></properties>{}</testcase>'
    error = '<error message="at  teardown"/>'
    text = f"<testsuite>{record.format('')}{record.format(error)}</testsuite>"
    (found,) = read(write(tmp_path, text)).cases.values()
    assert (found.outcome, found.why, found.ops) == ("failed", "at teardown", ("X",))


def test_a_collection_error_counts_as_a_failure_of_no_op(tmp_path: Path) -> None:
    record = '<testcase classname="" name="tests.ops.test_x"><error message="collection failure"/></testcase>'
    text = f"<testsuite>{record}</testsuite>"
    (found,) = read(write(tmp_path, text)).cases.values()
    assert (found.outcome, found.ops) == ("failed", ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JUnit report"),
        ("<html></html>", "holds a <html> and no <testsuite>"),
        (
            '<testsuite><testcase classname="t" name="a"><properties><property name="checked_outputs" value="-1"/>'
            "</properties></testcase></testsuite>",
            "no count",
        ),
    ],
)
def test_what_is_no_report_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(write(tmp_path, text))


def usage(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert tool.main(list(words)) == 2
    return capsys.readouterr().err


def test_mistakes_give_2(tmp_path: Path, kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = str(write(tmp_path, '<testsuite><testcase classname="t" name="a"/></testsuite>'))
    assert "cannot read the report" in usage(capsys, str(tmp_path / "no.xml"))
    assert "does not say which target the run was for: add --target" in usage(capsys, bare)
    assert "which device the run was for: add --device" in usage(capsys, bare, "--target", "acme")
    report = str(kit / "R.xml")
    assert "--target is 'other', but the report is of a run for 'acme'" in usage(capsys, report, "--target", "other")
    assert "did you mean 'GemmFwdOp'?" in usage(capsys, report, "GemFwdOp")
    assert "tests/ops of a TileOps checkout by --tests" in usage(capsys, report, "--tests", str(tmp_path))
    assert "did you mean '--json'?" in usage(capsys, report, "--jsno")


def test_tests_that_do_not_collect_are_a_mistake(tmp_path: Path, kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "tests" / "ops"
    broken.mkdir(parents=True)
    (broken / "conftest.py").write_text("raise RuntimeError('no such kit')\n")
    assert "no such kit" in usage(capsys, str(kit / "R.xml"), "--tests", str(broken))


def test_the_tests_of_this_checkout_are_found() -> None:
    assert op_tests(None) == ROOT / "tests/ops"


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_the_plain_form_is_of_the_schema() -> None:
    jsonschema.validate(plain(judged(GOOD, case("test_layer", "failed")).plain()), SCHEMA)
