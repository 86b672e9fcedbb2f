"""What ``tileops explain`` answers, on a machine with no GPU."""

import json
import shlex
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest

from tileops.backend import registered_targets
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.device import reference
from tileops.rules.facts import choice, dims, flag
from tileops.tools.calls import Posed, command_of
from tileops.tools.catalogue import known
from tileops.tools.cli import main
from tileops.tools.explain import parser
from tileops.tools.overview import Overview
from tileops.tools.question import call_of, place

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
        "gemm_padded",
        "m=1:",
        "gemm_persistent",
        "gemm_splitk",
        "gemm_swapped",
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
    assert plain(capsys, *large, "--arch", "90")["winner"] == "gemm_persistent"
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
        ((*ONE_ROW, "--arch", "9999"), "no cuda board of arch 9999 is known; known: 75, "),
        ((*ONE_ROW, "--arch", "90", "--device", "cpu"), "no board of cpu is known, so --arch 90 says too little"),
        ((*ONE_ROW, "--arch", "90", "--calibration", "H20"), "(did you mean 'H200'?); --calibration takes: "),
        (("GemmFwdOp", "--graph", "mermaid", "m=1", "--json"), "--graph does not take facts, --json; it takes: "),
        (("GemmFwdOp", "--graph", "mermaid", "--arch", "90"), "--graph does not take the device options"),
        (("GemmFwdOp", "--rules", "--target", "builtin"), "an op without a call does not take --target, --rules"),
        ((*ONE_ROW, "--want", "gemv", "--rules", "--arch", "90"), "--want does not take --rules"),
        ((*ONE_ROW, "--want", "gemv", "--map", "m=1:2", "n=1:2"), "--want and --map are questions of their own"),
        ((*ONE_ROW, "--map", "m=1:2", "n=1:2", "--shapes", "a=1x1"), "--map does not take --shapes"),
        ((*ONE_ROW, "--map", "m=1:2", "n=1:2", "--target", "builtin"), "--map does not take --target"),
        (("GemmFwdOp", "--map", "m=1:2", "n=1:2", "-o", "x.png", "--json"), "give one of them"),
        ((*ONE_ROW, "-o", "map.png"), "-o says where a map goes"),
        (("--targets", "--rules"), "--targets does not take --rules"),
        (("--targets", "--arch", "90"), "it takes --device, and no facts of one"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_a_mistake_exits_2_and_says_what_would_be_right(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str
) -> None:
    error = told(capsys, *argv, status=2)
    assert error.startswith("error: ")
    assert said in error


@pytest.mark.parametrize(
    ("argv", "faults"),
    [
        (
            ("m=x", "zz=1", "k=2", "k=3", "dtype=float61"),
            ("m takes an integer", "unknown fact 'zz'", "'k' is given twice", "dtype takes one of", "missing: n (an"),
        ),
        (
            ("--shapes", "a=2xx", "q=3", "dtype=float61", "trans_a=maybe"),
            ("no input or param 'q'", "T takes ", "missing of GemmFwdOp: b", "trans_a takes bool", "a takes a shape"),
        ),
        (("--map", "m=0:512", "n=5:3"), ("m=0:512: the axes are logarithmic", "n=5:3: a span goes from its least")),
        (
            ("--map", "m=2:9999999999999", "o=1:3"),
            ("m takes an integer from 1 to 1099511627776", "no integer fact 'o'"),
        ),
        (("--map", "m=x:2", "n=7:7"), ("got 'm=x:2'", "7 is not below 7")),
    ],
    ids=["facts", "shapes", "spans", "bounds", "forms"],
)
def test_all_mistakes_are_told_at_once(capsys: pytest.CaptureFixture[str], argv: Any, faults: tuple[str, ...]) -> None:
    lines = told(capsys, "GemmFwdOp", *argv, "--arch", "90", status=2).splitlines()
    assert len(lines) == len(faults)
    for line, fault in zip(lines, faults, strict=True):
        assert fault in line


def device_of(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[Any, ...]:
    answer = plain(capsys, *ONE_ROW, "--arch", "90", *options)
    device = answer["device"]
    assert (f"({device['calibration']})" in told(capsys, *ONE_ROW, "--arch", "90", *options)) is bool(
        device["calibration"]
    )
    return device["calibration"], device["sm_count"], device["smem_budget"], len(answer["notes"])


def test_measurements_of_a_board_go_with_that_board_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert device_of(capsys) == ("H200", 132, 232448, 0)
    assert device_of(capsys, "--sm-count", "132") == ("H200", 132, 232448, 0)
    assert device_of(capsys, "--sm-count", "131") == (None, 131, 232448, 0)
    assert device_of(capsys, "--calibration", "none") == (None, 132, 232448, 0)
    assert device_of(capsys, "--smem", "101376") == (None, 132, 101376, 1)
    assert device_of(capsys, "--sm-count", "131", "--calibration", "H200") == ("H200", 131, 232448, 1)


def test_a_device_that_no_proof_covers_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    for count, notes in (("7", 1), ("8", 0), ("144", 0), ("145", 1)):
        assert device_of(capsys, "--sm-count", count)[-1] == notes
    said = told(capsys, *ONE_ROW, "--arch", "90", "--sm-count", "145").splitlines()[-1]
    assert said == (
        "note: no proof covers this device: of cuda, arch 90, they cover 8 to 144 SMs and 232448 bytes of shared "
        "memory a block, H200 with 132 SMs only"
    )
    unlisted = (*ONE_ROW, "--arch", "91", "--sm-count", "200", "--smem", "232448")
    assert plain(capsys, *unlisted, status=None)["notes"] == []


def test_rocm_can_be_asked_of_a_build_for_it_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (*ONE_ROW, "--device", "rocm", "--arch", "90", "--sm-count", "304", "--smem", "65536")
    assert "only a ROCm build of torch can be asked about rocm" in told(capsys, *asked, status=2)
    monkeypatch.setattr("torch.version.hip", "6.4")
    answer = plain(capsys, *asked, "--target", "builtin", status=1)
    assert (answer["device"]["kind"], answer["outcome"]) == ("rocm", "no device")
    assert answer["error"].startswith(
        "OpNotAvailableError: GemmFwdOp's in-tree kernels do not run on rocm; known targets"
    )


def test_every_heading_has_dtypes_and_the_device_and_writes_values_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    device = "cuda, arch 90, 132 SMs, 227 KiB (H200)"
    shapes = ("dtype=float16", "--arch", "90", "--target", "builtin")
    empty = told(capsys, "GemmFwdOp", "--shapes", "a=0x64", "b=8x64", *shapes).splitlines()[0]
    assert empty == f"GemmFwdOp  a=0x64 b=8x64 T=float16 trans_a=False trans_b=True   {device}"
    whole = told(
        capsys, "GatedMLPFwdOp", "--shapes", "x=2x8", "w_gate_up=16x8", "w_down=8x8", *shapes, status=None
    ).splitlines()[0]
    assert whole == f"GatedMLPFwdOp  x=2x8 w_gate_up=16x8 w_down=8x8 T=float16   {device}"
    facts = ("GemmFwdOp", "m=2", "n=8", "k=64", "dtype=float16")
    in_tree = told(capsys, *facts, *shapes[1:]).splitlines()[0]
    assert in_tree == f"GemmFwdOp.gemm  m=2 n=8 k=64 dtype=float16 trans_a=False trans_b=True   {device}"
    if "torch_cpu" in registered_targets():
        by_target = told(capsys, *facts, "--device", "cpu", "--target", "torch_cpu").splitlines()[0]
        assert by_target == "GemmFwdOp  m=2 n=8 k=64 dtype=float16 trans_a=False trans_b=True   cpu"


def test_an_op_with_no_kernels_of_its_own_is_told_so(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    shapes = ("--shapes", "a=2x4", "b=8x4", "dtype=float16", "--arch", "90", "--target", "builtin")
    assert plain(capsys, "GemmFwdOp", *shapes)["notes"] == []
    bare = attrs.evolve(known("GemmFwdOp"), interfaces={})
    monkeypatch.setattr("tileops.tools.explain.known", lambda name: bare)
    monkeypatch.setattr(
        "tileops.tools.calls.pose", lambda known, interface, binding, where: Posed(given={}, binding=binding)
    )
    answer = plain(capsys, "GemmFwdOp", *shapes, status=1)
    assert answer["error"].startswith(
        "OpNotAvailableError: GemmFwdOp's in-tree kernels do not run on cuda; known targets"
    )
    assert answer["notes"] == ["GemmFwdOp has no in-tree kernels, for any device"]


def test_the_overview_of_one_arch_has_the_winners_of_that_arch(capsys: pytest.CaptureFixture[str]) -> None:
    (every,) = json.loads(told(capsys, "GemmFwdOp", "--json"))["interfaces"]
    for arch in ("75", "90"):
        overview = json.loads(told(capsys, "GemmFwdOp", "--json", "--arch", arch))
        jsonschema.validate(overview, schema("overview-1"))
        (one,) = overview["interfaces"]
        assert [row["winners"] for row in one["workloads"]] == [
            {arch: row["winners"][arch]} for row in every["workloads"]
        ]
    text = told(capsys, "GemmFwdOp", "--arch", "90")
    assert "winners on cuda, arch 90, 132 SMs, 227 KiB (H200)\n" in text
    assert "80-89" not in text


@call_spec()
class ModeCall(CallSpec):
    mode: str = choice("a b", "it's", "plain")
    flag: bool = flag()
    shape: tuple[int, ...] = dims(3)


def test_a_command_that_is_printed_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    asked = known("GemmFwdOp").interface(None)
    for mode in ("a b", "it's", "plain"):
        for shape in ((), (2,), (2, 3)):
            call = ModeCall(device="cuda", stated=reference(90), mode=mode, flag=True, shape=shape)
            _, _, _, _, *words = shlex.split(command_of("AnyFwdOp", asked, call))
            options = parser().parse(["AnyFwdOp", *words])
            assert call_of(ModeCall, {}, options.facts, place(options)) == call
            assert place(options).facts == reference(90)
            assert ModeCall.read(shlex.split(call.text()), device="cuda", stated=reference(90)) == call


def test_without_a_gpu_the_question_needs_an_arch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "there is no CUDA device here to ask about: say --arch N" in told(capsys, *ONE_ROW, status=2)
