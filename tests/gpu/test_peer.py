"""The scripts that time the peer: what they refuse, what they leave, and that their calls and references are right."""

import functools
import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.ops import references
from tileops.manifest import loader
from tileops.tools import rows

GPU = Path(__file__).parent


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The scripts' shared module, with the CPU for a device."""
    monkeypatch.setattr(sys, "path", [str(GPU), *sys.path])
    import peer

    monkeypatch.setattr(peer, "DEVICE", "cpu")
    return peer


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder that holds what looks like the peer."""
    folder = tmp_path / "PEER"
    (folder / "tileops" / "_ops").mkdir(parents=True)
    (folder / "tileops" / "__init__.py").touch()
    return folder


def refusal(peer: ModuleType, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        peer.main("Times.", {"SoftmaxFwdOp": "reduction", "CumsumFwdOp": "reduction"}, None)
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


# -- what they refuse, before anything is done


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "error: the following arguments are required: PEER_DIR"),
        (
            ["nowhere"],
            "nowhere does not hold the public package tileops 0.1.0 (no tileops/_ops); get it by: pip install",
        ),
        ([str(GPU.parents[1])], "does not hold the public package tileops 0.1.0"),  # ours has the name only
        (["PEER", "soon"], "SECONDS: takes a number of seconds from 0 on, got 'soon'"),
        (["PEER", "-1"], "from 0 on, got '-1'"),
        (["PEER", "nan"], "from 0 on, got 'nan'"),
        (["PEER", "1", "SoftmaxOp"], "no op SoftmaxOp here: choose of SoftmaxFwdOp, CumsumFwdOp"),
        (["PEER", "1", "CumsumFwdOp"], "not the peer's in"),  # this process has ours in the name's place
    ],
)
def test_what_is_wrong_is_said_first(
    words: list[str],
    said: str,
    peer: ModuleType,
    package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["peer_rows.py", *words])
    assert said in refusal(peer, capsys)
    assert list(tmp_path.glob("*.jsonl*")) == []


def test_records_need_a_folder_and_times_a_device(
    peer: ModuleType, package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["peer_rows.py", str(package)])
    monkeypatch.setenv("OUT", "/nowhere")
    assert "OUT=/nowhere is no folder that can be written to" in refusal(peer, capsys)
    monkeypatch.setenv("OUT", str(package))
    monkeypatch.setattr(peer, "load", lambda package: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "there is no CUDA device here" in refusal(peer, capsys)


def test_the_page_tells_how_to_get_the_peer_as_the_scripts_do(peer: ModuleType) -> None:
    assert peer.GET_IT.replace("PEER_DIR", "PEER") in (GPU.parents[1] / "docs/performance.md").read_text()


# -- a process of its own


def test_a_failure_is_told_and_the_next_row_gets_a_fresh_process(
    peer: ModuleType, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    import worker as module

    with peer.workers(package, 1) as (worker,):
        assert worker(len, "abc") == (3, None)
        first = worker.process.pid
        assert worker(len, "ab") == (2, None)
        assert worker.process.pid == first
        assert worker(int, "x") == (None, "ValueError: invalid literal for int() with base 10: 'x'")
        assert worker.process is None
        assert worker(os._exit, 3) == (None, "its process ended with status 3")
        monkeypatch.setattr(module, "PATIENCE_S", 0.1)
        assert worker(time.sleep, 60) == (None, "TimeoutError: no answer in 0.1 s")
        assert worker.process is None


# -- records

THERE = {"op": "SoftmaxFwdOp", "label": "of the run before"}
TIMES = {"reading": {}}


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_stay_until_a_row_is_timed_and_name_every_row_from_then_on(peer: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "peer_rows.jsonl"
    path.write_text(json.dumps(THERE) + "\n")
    todo = [peer.Row("SoftmaxFwdOp", label, "float32", {}) for label in ("refused", "wrong", "right", "later", "last")]
    seen = []

    def worker(function: functools.partial, row: object) -> tuple[object, str | None]:
        seen.append((row.label, records(path)[0]["label"]))
        return {"wrong": ({"problem": "wrong"}, None), "later": (None, "it ended")}.get(row.label, (TIMES, None))

    clock = iter([False, False, False, True])  # the refused row is not begun
    found = peer.measure(worker, None, todo, {todo[0]: "no"}, lambda: next(clock), path)
    assert seen == [("wrong", THERE["label"]), ("right", THERE["label"]), ("later", "refused")]
    assert [row.label for row in found] == ["refused", "wrong", "right", "later"]
    lines = records(path)
    assert [line["label"] for line in lines] == ["refused", "wrong", "right", "later", "last"]
    left = "not reached in the time that the run was given"
    assert [line.get("problem") for line in lines] == ["no", "wrong", None, "it ended", left]
    assert list(tmp_path.iterdir()) == [path]


def test_records_stay_where_no_row_could_be_timed(peer: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "peer_rows.jsonl"
    path.write_text(json.dumps(THERE) + "\n")
    todo = [peer.Row("SoftmaxFwdOp", "one", "float32", {}), peer.Row("SoftmaxFwdOp", "two", "float32", {})]
    peer.measure(lambda function, row: (None, "it ended"), None, todo, {todo[0]: "no"}, lambda: False, path)
    assert records(path) == [THERE]


FAKE = """
    import sys
    sys.path.insert(0, {gpu!r})
    import peer, peer_rows
    peer.DEVICE = "cpu"
    peer.has_device = lambda: True
    peer.device_name = lambda: "a device"
    peer.synchronize = lambda: None
    peer.bench_record = lambda make, moved: {{"timing": "cupti", "reading": {{"shape": list(make()().shape)}}}}
    if __name__ == "__main__":
        sys.exit(peer.main("Times.", {{"SoftmaxFwdOp": "reduction", "CumsumFwdOp": "reduction"}}, peer_rows.prepared))
"""
THEIRS = """
    import torch

    class SoftmaxFwdOp:
        def __init__(self, dim):
            self.dim = dim

        def __call__(self, x):
            return x.softmax(self.dim) if len(x) > 2 else x

    class CumsumFwdOp:
        def __init__(self, dim):
            raise ValueError("no sums in this release")
"""
ROWS = """
    SoftmaxFwdOp:
      workloads:
        - {label: right, S: [3, 5], dtypes: [{T: float32}]}
        - {label: wrong, S: [2, 5], dtypes: [{T: bfloat16}]}
    CumsumFwdOp:
      workloads:
        - {label: refused, S: [3, 5], dtypes: [{T: float32}]}
"""


def test_a_run_times_the_peer_although_ours_is_on_the_path(package: Path, tmp_path: Path) -> None:
    for name, text in {
        "fake.py": FAKE.format(gpu=str(GPU)),
        "PEER/tileops/reduction.py": THEIRS,
        "rows.yaml": ROWS,
    }.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "fake.py", "PEER", "200"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(GPU.parents[1]), "ROWS": "rows.yaml", "OUT": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "peer: first call of CumsumFwdOp refused float32: ValueError: no sums in this release" in done.stderr
    assert "peer: first calls of 3 rows, 1 failed" in done.stdout
    assert "peer: 1 of 3 rows timed, 2 with a problem, 0 not reached" in done.stdout
    right, wrong, refused = records(tmp_path / "fake.jsonl")
    assert right["reading"] == {"shape": [3, 5]}
    assert right["error"] <= right["tolerance"] == 1e-5
    assert right["device"] == "a device"
    assert wrong["problem"].endswith("is over 0.01")
    assert refused["problem"] == "ValueError: no sums in this release"


def test_the_manifest_is_found_from_any_folder(
    peer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import peer_rows

    monkeypatch.chdir(tmp_path)
    found = peer.rows({name: family for name, (family, _) in peer_rows.OPS.items()}, ["SoftmaxFwdOp", "RoPEFwdOp"])
    ours = [case.label for op in ("SoftmaxFwdOp", "RoPEFwdOp") for case in loader.entry(op).cases()]
    assert sorted(f"{row.label}/{row.dtypes}" for row in found) == sorted(ours)


# -- right or wrong


def test_tolerances_are_the_benchmark_s(peer: ModuleType) -> None:
    assert rows.TOLERANCE.items() >= peer.TOLERANCE.items()
    assert set(peer.TOLERANCE) == {torch.bfloat16, torch.float16, torch.float32}


@pytest.mark.parametrize(
    ("outputs", "written", "error"),
    [
        ([1.0, 9.0], 1.0, 0.0),  # what the call returns beyond the expected is not looked at
        ([1.5], 1.0, 0.5),
        ([1.0], 1.25, 0.25),
        ([math.nan], 1.0, math.nan),
        ([math.nan], 1.25, math.nan),
        ([1.0], math.nan, math.nan),
    ],
)
def test_the_worst_output_is_judged(peer: ModuleType, outputs: list[float], written: float, error: float) -> None:
    state = torch.ones(2)
    case = peer.Case(
        lambda: [state.fill_(written), *(torch.full((2,), value) for value in outputs)][1:],
        lambda: [torch.ones(2, dtype=torch.float64), state.double()],
        0,
        torch.float32,
        (state,),
    )
    assert peer.judged(case) == (pytest.approx(error, nan_ok=True), 1e-5)


def test_another_shape_is_wrong(peer: ModuleType) -> None:
    case = peer.Case(lambda: torch.ones(1), lambda: [torch.ones(2, dtype=torch.float64)], 0, torch.float32)
    assert math.isnan(peer.judged(case)[0])


SMALL = {
    "RMSNormFwdOp": [{"B": [3], "normalized_shape": [8]}, {"B": [3], "normalized_shape": [8], "without": ["weight"]}],
    "FusedAddRMSNormFwdOp": [{"B": [2, 3], "normalized_shape": [8], "eps": 1e-3, "without": ["weight"]}],
    "LayerNormFwdOp": [{"B": [3], "normalized_shape": [8], "eps": 1e-3}],
    "SoftmaxFwdOp": [{"S": [2, 3, 4], "dim": 1}],
    "SiLUAndMulFwdOp": [{"B": [2, 3], "H": 4}],
    "GroupNormFwdOp": [{"N": 2, "C": 6, "S": [5], "num_groups": 3, "eps": 1e-3}],
    "BatchNormFwdOp": [
        {"N": 2, "C": 6, "S": [5], "P": "float32"},
        {"N": 2, "C": 6, "S": [], "P": "float32", "training": True, "momentum": 0.3, "without": ["weight", "bias"]},
    ],
    "CumsumFwdOp": [{"S": [2, 3, 4], "dim": 0}],
}
PARAMS = {
    "RMSNormFwdOp": {"eps": None},
    "LayerNormFwdOp": {},
    "BatchNormFwdOp": {"training": False, "momentum": 0.1, "eps": 1e-5},
}


@pytest.mark.parametrize(("op", "size"), [(op, size) for op, sizes in SMALL.items() for size in sizes])
def test_what_is_expected_of_the_peer_is_what_our_op_means(
    op: str, size: dict[str, object], peer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import peer_rows

    given: list[torch.Tensor | None] = []
    monkeypatch.setattr(peer_rows, "op", lambda family, name, *values, **params: lambda *x: given.extend(x))
    case = peer_rows.prepared(peer.Row(op, "small", "float32", {"T": "float32", **size}))
    case.call()
    signature = loader.entry(op).signature
    inputs = dict(zip(signature.inputs, given, strict=True))
    meant = references.reference(op, PARAMS.get(op, {}) | size, inputs)
    y = meant.outputs.flatten(0, -2) if op == "SiLUAndMulFwdOp" else meant.outputs
    ours = [*([y] if isinstance(y, torch.Tensor) else y), *meant.written.values()]
    theirs = case.expected()
    assert len(theirs) == len(ours)
    for one, other in zip(theirs, ours, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("interleaved", [False, True])
def test_what_is_expected_of_rope_is_what_our_op_means(
    interleaved: bool, peer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import peer_rows

    given: list[tuple[torch.Tensor, ...]] = []
    monkeypatch.setattr(peer_rows, "op", lambda family, name, *values, **params: lambda *x: given.append(x))
    size = {"B": [2, 3], "HQ": 4, "HK": 2, "D": 8 if interleaved else 10, "P": 50, "R": 4, "I": "int64", "T": "float32"}
    case = peer_rows.prepared(peer.Row("RoPEFwdOp", "small", "", size | {"interleaved": interleaved}))
    case.call()
    (q, *positions), (k, *_) = given
    place = positions[0] if positions else torch.arange(6)
    angles = torch.arange(50).double()[:, None] * 10000.0 ** -(torch.arange(4).double() / 4)
    table = torch.cat([angles.cos(), angles.sin()], -1)
    for one, other in zip(
        case.expected(), references.rope(q.double(), k.double(), place, table, interleaved), strict=True
    ):
        torch.testing.assert_close(one, other)
