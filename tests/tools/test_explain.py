"""What ``tileops explain`` answers, on a machine with no GPU."""

import json
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest

from tileops.tools.catalogue import known
from tileops.tools.cli import main
from tileops.tools.overview import Overview

SCHEMAS = Path(__file__).resolve().parents[2] / "tools" / "schema"
ONE_ROW = ("GemmFwdOp", "m=1", "n=4096", "k=4096", "dtype=bfloat16")


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def told(capsys: pytest.CaptureFixture[str], *argv: str, status: int | None = 0) -> str:
    """What ``tileops explain`` prints; its exit status must be the one given, 0 or 1 for None."""
    ended = main(["explain", *argv])
    out, err = capsys.readouterr()
    assert ended in ((0, 1) if status is None else (status,)), out + err
    return out if ended < 2 else err


def plain(capsys: pytest.CaptureFixture[str], *argv: str, status: int | None = 0) -> Any:
    answer = json.loads(told(capsys, *argv, "--json", status=status))
    for one in answer if isinstance(answer, list) else [answer]:
        jsonschema.validate(one, schema("explain-1"))
    return answer


def test_one_row_goes_to_gemv_and_everyone_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    answer = plain(capsys, *ONE_ROW, "trans_a=false", "trans_b=true", "--arch", "90")
    assert (answer["op"], answer["interface"], answer["winner"]) == ("GemmFwdOp", "gemm", "gemv")
    assert answer["call"] == {
        "m": 1, "n": 4096, "k": 4096, "dtype": "bfloat16", "trans_a": False, "trans_b": True
    }  # fmt: skip
    assert answer["device"]["arch"] == 90
    assert answer["device"]["sm_count"] == 132
    assert answer["target"] == {"name": None, "origin": "none", "text": answer["target"]["text"]}
    verdicts = {one["key"]: one for one in answer["implementations"]}
    assert verdicts["gemv"]["verdict"] == "wins"
    assert verdicts["gemm_mma"]["verdict"] == "serves"
    assert verdicts["gemm_mma"]["general"] is True
    assert verdicts["gemm_wgmma"]["verdict"] == "refuses"
    (reason,) = verdicts["gemm_wgmma"]["reasons"]
    assert reason["rule"] == "m < 64"
    assert reason["rendered"] == "1 < 64"
    assert reason["values"] == {"m": 1}
    assert "gemm_mma" in answer["beaten"]
    assert answer["entry"]["implementation"] == "gemv"
    assert answer["error"] is None


def test_the_text_has_a_line_for_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, *ONE_ROW, "--arch", "90").splitlines()
    assert lines[0].startswith("GemmFwdOp.gemm  m=1 n=4096 k=4096 dtype=bfloat16 trans_a=False trans_b=True ")
    assert lines[0].endswith("cuda, arch 90, 132 SMs, 227 KiB (H200)")
    assert [line.split()[0] for line in lines[1:]] == [
        "target",
        "gemm_mma",
        "gemm_splitk",
        "gemm_wgmma",
        "gemv",
        "entry",
    ]
    assert "> wins" in next(line for line in lines if line.startswith("gemv"))


def test_params_have_the_defaults_of_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    call = plain(capsys, *ONE_ROW, "--arch", "90")["call"]
    assert call["trans_a"] is False
    assert call["trans_b"] is True


def test_the_arch_decides(capsys: pytest.CaptureFixture[str]) -> None:
    large = ("GemmFwdOp", "m=4096", "n=4096", "k=4096", "dtype=float16")
    assert plain(capsys, *large, "--arch", "90")["winner"] == "gemm_wgmma"
    ampere = plain(capsys, *large, "--arch", "80")
    assert ampere["winner"] == "gemm_mma"
    wgmma = next(one for one in ampere["implementations"] if one["key"] == "gemm_wgmma")
    assert wgmma["verdict"] == "unavailable"
    assert wgmma["reasons"][0]["rule"] is None


def test_a_call_that_nobody_serves_exits_1_with_every_reason(capsys: pytest.CaptureFixture[str]) -> None:
    answer = plain(capsys, *ONE_ROW, "--arch", "75", status=1)
    assert answer["winner"] is None
    assert answer["entry"] is None
    assert answer["outcome"] == "no implementation"
    assert answer["error"].startswith("OpNotAvailableError: no implementation serves this call")
    assert all(one["reasons"] for one in answer["implementations"])
    assert "no implementation serves this call" in told(capsys, *ONE_ROW, "--arch", "75", status=1)


def test_shapes_ask_what_the_facts_ask(capsys: pytest.CaptureFixture[str]) -> None:
    shapes = ("--shapes", "a=1x4096", "b=4096x4096", "dtype=bfloat16", "--arch", "90")
    by_shapes = plain(capsys, "GemmFwdOp", *shapes)
    assert by_shapes == plain(capsys, *ONE_ROW, "--arch", "90")
    turned = plain(capsys, "GemmFwdOp", "--shapes", "a=4096x1", "b=4096x512", "dtype=bfloat16", "trans_a=true",
                   "trans_b=false", "--arch", "90")  # fmt: skip
    assert {name: turned["call"][name] for name in ("m", "n", "k")} == {"m": 1, "n": 512, "k": 4096}


def test_a_tensor_without_elements_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    answer = plain(capsys, "GemmFwdOp", "--shapes", "a=0x64", "b=8x64", "dtype=float16", "--arch", "90")
    assert answer["outcome"] == "nothing to compute"
    assert answer["winner"] is None


def test_every_workload_case_can_be_asked_by_its_label(capsys: pytest.CaptureFixture[str]) -> None:
    overview = json.loads(told(capsys, "GemmFwdOp", "--json"))
    for row in overview["interfaces"][0]["workloads"]:
        answer = plain(capsys, "GemmFwdOp", "--workload", row["label"], "--arch", "90")
        assert answer["winner"] == row["winners"]["90"]


def test_a_row_of_several_cases_gives_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    overview = json.loads(told(capsys, "GemmFwdOp", "--json"))
    labels = [row["label"] for row in overview["interfaces"][0]["workloads"]]
    row = labels[0].partition("/")[0]
    cases = [label for label in labels if label.startswith(f"{row}/")]
    assert len(cases) > 1, "the first row of the manifest has one dtype case: choose another for this test"
    assert len(plain(capsys, "GemmFwdOp", "--workload", row, "--arch", "90")) == len(cases)


def test_device_facts_can_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    answer = plain(capsys, *ONE_ROW, "--arch", "90", "--sm-count", "100", "--smem", "1024", "--calibration", "none")
    assert answer["device"] == {
        "device": "cuda", "kind": "cuda", "arch": 90, "calibration": None, "sm_count": 100, "smem_budget": 1024
    }  # fmt: skip
    unknown = plain(capsys, *ONE_ROW, "--arch", "130", "--sm-count", "200", "--smem", "232448")
    assert unknown["device"]["arch"] == 130
    assert unknown["winner"] == "gemv"


def test_the_in_tree_kernels_do_not_run_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    answer = plain(capsys, *ONE_ROW, "--device", "cpu", "--target", "builtin", status=1)
    assert answer["outcome"] == "no device"
    assert "GemmFwdOp's in-tree kernels do not run on cpu; known targets for this op: [" in answer["error"]


def test_the_overview_tells_everything_that_no_call_decides(capsys: pytest.CaptureFixture[str]) -> None:
    overview = json.loads(told(capsys, "GemmFwdOp", "--json"))
    jsonschema.validate(overview, schema("overview-1"))
    (interface,) = overview["interfaces"]
    keys = {one["key"] for one in interface["implementations"]}
    assert keys >= {"gemm_mma", "gemm_splitk", "gemm_wgmma", "gemv"}
    assert {above for above, _ in interface["precedence"]} <= keys
    assert interface["proof"]["findings"] == []
    text = told(capsys, "GemmFwdOp")
    for words in (
        "precedence",
        "proved: ",
        "winners",
        *keys,
        *(row["label"].partition("/")[0] for row in interface["workloads"]),
    ):
        assert words in text


def test_an_op_without_in_tree_kernels_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    gemm = known("GemmFwdOp")
    bare = attrs.evolve(gemm, interfaces={})
    assert "no in-tree implementation: targets serve it" in Overview.of(bare, None).text()
    monkeypatch.setattr("tileops.tools.explain.known", lambda name: bare)
    assert "ask with --shapes" in told(capsys, "GemmFwdOp", "m=1", "--arch", "90", status=2)


def test_a_composite_answers_with_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    shapes = ("--shapes", "x=64x128", "w_gate_up=512x128", "w_down=128x256", "dtype=bfloat16", "--arch", "90")
    answer = plain(capsys, "GatedMLPFwdOp", *shapes, "--target", "builtin", status=None)
    assert [part["op"] for part in answer["parts"]] == ["GemmFwdOp", "SiLUAndMulFwdOp", "GemmFwdOp"]
    gate_up, _, down = answer["parts"]
    assert {name: gate_up["call"][name] for name in ("m", "n", "k")} == {"m": 64, "n": 512, "k": 128}
    assert {name: down["call"][name] for name in ("m", "n", "k")} == {"m": 64, "n": 128, "k": 256}
    assert gate_up["outcome"] == "served"
    assert answer["outcome"] in {"served by parts", "part not served"}
    assert "a composite of GemmFwdOp, SiLUAndMulFwdOp, GemmFwdOp" in told(capsys, "GatedMLPFwdOp")


def test_the_graph_is_the_transitive_reduction(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = told(capsys, "GemmFwdOp", "--graph", "mermaid")
    overview = json.loads(told(capsys, "GemmFwdOp", "--json"))
    assert drawn.startswith("flowchart TD")
    assert drawn.count("-->") == len(overview["interfaces"][0]["precedence"])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("GemFwdOp",), "there is no op 'GemFwdOp' (did you mean 'GemmFwdOp'?)"),
        ((*ONE_ROW, "trans_c=true", "--arch", "90"), "unknown fact 'trans_c' (did you mean 'trans_"),
        (("GemmFwdOp", "m=1", "dtype=float16", "--arch", "90"), "missing: n (an integer"),
        (("GemmFwdOp", "m=0", "n=1", "k=1", "dtype=float16", "--arch", "90"), "m takes "),
        ((*ONE_ROW[:-1], "dtype=float8", "--arch", "90"), "dtype"),
        ((*ONE_ROW, "m=2", "--arch", "90"), "twice"),
        ((*ONE_ROW, "loose", "--arch", "90"), "name=value"),
        ((*ONE_ROW, "--arch", "91"), "no cuda board of arch 91 is known (did you mean 90?)"),
        ((*ONE_ROW, "--arch", "sm90"), "--arch takes a number such as 90, got 'sm90'"),
        ((*ONE_ROW, "--arhc", "90"), "unknown option --arhc (did you mean '--arch'?)"),
        ((*ONE_ROW, "--device", "cdua"), "no torch device"),
        ((*ONE_ROW, "--arch", "90", "--interface", "gem"), "no interface 'gem' (did you mean 'gemm'?)"),
        ((*ONE_ROW, "--arch", "90", "--target", "bulitin"), "no target 'bulitin' (did you mean 'builtin'?)"),
        ((*ONE_ROW, "--arch", "90", "--sm-count", "many"), "--sm-count"),
        (("GemmFwdOp", "--workload", "no-such-row", "--arch", "90"), "no workload 'no-such-row'"),
        (("GemmFwdOp", "--shapes", "a=1x2", "--arch", "90"), "missing of GemmFwdOp: b, dtype (float16 or bfloat16)"),
        (("GemmFwdOp", "--shapes", "a=1x2", "c=2x2", "--arch", "90"), "no input or param 'c'"),
        (("GemmFwdOp", "--shapes", "a=1x2", "b=2xx", "dtype=float16", "--arch", "90"), "b takes a shape such as"),
        (("GemmFwdOp", "--shapes", "a=1x2", "b=8x3", "dtype=float16", "--arch", "90"), "K"),
        (("GemmFwdOp", "--shapes", "a=1x2", "b=8x2", "dtype=float61", "--arch", "90"), "did you mean 'float16'?"),
        (("GemmFwdOp", "--shapes", "a=1x2", "b=8x2", "dtype=float16", "trans_a=x", "--arch", "90"), "takes bool"),
        (("GemmFwdOp", "m=1", "--workload", "x", "--arch", "90"), "give no facts or shapes beside it"),
        ((), "name an op, such as GemmFwdOp"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_a_mistake_exits_2_and_says_what_would_be_right(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str
) -> None:
    error = told(capsys, *argv, status=2)
    assert error.startswith("error: ")
    assert said in error


def test_without_a_gpu_the_question_needs_an_arch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "there is no CUDA device here to ask about: say --arch N" in told(capsys, *ONE_ROW, status=2)
