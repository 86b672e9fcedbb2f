"""Maps: each point is what explain says, nobody and ties have marks of their own, pictures are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import reference
from tileops.rules.facts import choice, dim
from tileops.rules.table import RuleTable
from tileops.tools.cli import main
from tileops.tools.maps import Axis, Map, axes, draw
from tileops.tools.usage import UsageError

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "tools/schema/map-1.json").read_text())

GEMM = ["explain", "GemmFwdOp", "k=4096", "dtype=bfloat16", "--arch", "90", "--map", "m=1:512", "n=64:16384"]


@call_spec(invariants=("m + n != 7",))
class PlaneCall(CallSpec):
    m: int = dim()
    n: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16)


def at(m: int, n: int) -> CallSpec:
    return PlaneCall(device="cuda:0", stated=reference(90), m=m, n=n, dtype=torch.float16)


def plane(**rows: CallSpec) -> Map:
    table = RuleTable(
        "plane",
        PlaneCall,
        {
            "low": Declaration(refusal=(Refusal("m > 4", "no"),)),
            "high": Declaration(refusal=(Refusal("m < 4", "no"), Refusal("n > 4", "no"))),
        },
    )
    return draw("PlaneFwdOp", "plane", table, at(1, 1), axes(table, ["m=1:8", "n=1:8"]), rows)


def test_each_point_is_what_selection_says() -> None:
    found = plane()
    assert (found.xs, found.ys) == (tuple(range(1, 9)), tuple(range(1, 9)))
    cells: Any = found.winners
    assert cells[0] == ("low", "low", "low", "ambiguous", "high", "no call", "high", "high")
    assert cells[7] == ("low", "low", "low", "low", None, None, None, None)


def test_the_text_has_a_mark_for_everything(capsys: pytest.CaptureFixture[str]) -> None:
    text = plane(small=at(2, 8), outside=at(9, 9)).text()
    assert "8 bBbb....\n" in text
    assert "1 bbb!a aa\n" in text
    for line in ("a  high", "b  low", ".  nobody serves", "!  two serve", "capital: a workload row"):
        assert line in text
    assert main(GEMM) == 0
    assert "d  gemv" in capsys.readouterr().out


def test_points_are_powers_of_two_and_between_with_both_ends() -> None:
    points = Axis("m", 3, 1000).points(96)
    assert {3, 4, 8, 16, 32, 64, 128, 256, 512, 1000} <= set(points)
    assert len(points) <= 96
    assert Axis("m", 1, 2**40).points(96)[-1] == 2**40


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture_is_written(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"map{suffix}"
    plane(small=at(2, 8)).save(path)
    start = path.read_bytes()[:400]
    assert start.startswith(b"\x89PNG") if suffix == ".png" else b"<svg" in start


def test_json_and_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GEMM, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    jsonschema.validate(plain, SCHEMA)
    assert plain["x"]["fact"] == "m"
    assert len(plain["winners"]) == len(plain["y"]["values"])
    assert main([*GEMM[:-2], "mm=1:512", "n=1:8"]) == 2
    assert "did you mean 'm'?" in capsys.readouterr().err
    assert main([*GEMM, "-o", "map.pdf"]) == 2
    assert main([*GEMM[:-3], "-o", "map.png"]) == 2
    with pytest.raises(UsageError, match="5 is not below 2"):
        axes(RuleTable("plane", PlaneCall, {}), ["m=5:2", "n=1:2"])
