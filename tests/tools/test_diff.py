"""What ``tileops diff`` tells of a change, against a git repository made for the test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest

from tileops.rules.declaration import Refusal
from tileops.tools import snapshot
from tileops.tools.catalogue import known
from tileops.tools.cli import main
from tileops.tools.diff import archs, changes, outcome
from tileops.tools.usage import UsageError

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "tools/schema/diff-1.json").read_text())

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git, to read another revision")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout in a git repository of its own, committed as it stands."""
    copy = tmp_path_factory.mktemp("diff") / "copy"
    for part in ("rules", "manifest", "kernels", "tileops", "tools"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, copy / part, symlinks=True, ignore=ignore)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "as it stands"]):
        subprocess.run(["git", *words], cwd=copy, check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull})
    return copy


@pytest.fixture(scope="module")
def before(checkout: Path) -> dict[str, Any]:
    return snapshot.of_revision("HEAD", checkout)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch, before: dict[str, Any]) -> Callable[[str], None]:
    """Lets the work tree's gemv refuse by another rule than the revision's ``m > 2``."""

    def use(rule: str) -> None:
        op = known("GemmFwdOp")
        gemm = op.interfaces["gemm"]
        gemv = gemm.table.declarations["gemv"]
        first, *others = gemv.refusal
        assert first.when == "m > 2", "change this test with gemv"
        new = attrs.evolve(gemv, refusal=(Refusal(rule, first.why), *others))
        changed = attrs.evolve(gemm, table=gemm.table.with_declaration("gemv", new))
        for module in ("diff", "decisions"):
            monkeypatch.setattr(
                f"tileops.tools.{module}.known",
                lambda name: attrs.evolve(op, interfaces={"gemm": changed}),
                raising=False,
            )

    monkeypatch.setattr(snapshot, "of_revision", lambda revision: before)
    return use


def test_a_revision_is_read_as_it_was_committed(before: dict[str, Any]) -> None:
    gemm = before["GemmFwdOp"]["gemm"]
    table = known("GemmFwdOp").interfaces["gemm"].table
    assert gemm["declarations"] == {key: each.content() for key, each in table.declarations.items()}
    assert gemm["rows"]["square-4k/bfloat16"]["90"] == ["gemm_persistent"]
    assert changes(before, ["GemmFwdOp"]) == []


def test_a_rule_written_otherwise_is_proved_equal(
    limited: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    limited("not m <= 2")
    assert main(["diff", "HEAD", "GemmFwdOp"]) == 0
    assert "declared otherwise: gemv\n  every call is answered as before: proved" in capsys.readouterr().out


def test_a_limit_that_moved_is_told_region_by_region(
    limited: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    limited("m > 8")
    assert main(["diff", "HEAD", "GemmFwdOp", "--json"]) == 1
    plain = json.loads(capsys.readouterr().out)
    jsonschema.validate(plain, SCHEMA)
    (only,) = plain["changes"]
    pairs = {(one["old"][0], one["new"][0]): one for one in only["regions"]}
    assert set(pairs) == {("gemm_mma", "gemv"), ("gemm_splitk", "gemv"), ("gemm_swapped", "gemv")}
    region = pairs["gemm_mma", "gemv"]
    assert 2 < region["witness"]["m"] <= 8
    assert {80, 90, 120} <= set(region["archs"])
    assert "qwen3-32b-o-decode-8/bfloat16" in region["rows"]
    assert {row["row"] for row in only["rows"]} >= set(region["rows"])
    assert main(["diff", "HEAD", "GemmFwdOp", "--markdown"]) == 1
    assert "| `GemmFwdOp.gemm` | gemm_mma | gemv | arch 80-121 |" in capsys.readouterr().out
    assert main(["diff", "HEAD", "GemmFwdOp"]) == 1
    assert "before, gemv refuses: " in capsys.readouterr().out


def test_what_cannot_be_compared_is_told(before: dict[str, Any]) -> None:
    gemm = before["GemmFwdOp"]["gemm"]
    opaque = {"refusal": [{"opaque": "gone.away", "why": "no"}]}
    old = {**gemm, "declarations": {**gemm["declarations"], "older": opaque}}
    (lost,) = changes({**before, "GemmFwdOp": {"gemm": old}}, ["GemmFwdOp"])
    assert "gone.away, which is not here any more" in lost.open[0].why
    (broken,) = changes({**before, "GemmFwdOp": {"error": "ImportError: no"}}, ["GemmFwdOp"])
    assert (broken.alike, broken.open[0].why) == (False, "ImportError: no")
    (new,) = changes({}, ["GemmFwdOp"])
    assert new.notes == ("a new op",)


def test_mistakes_are_told(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="git knows no revision 'HEAT'"):
        snapshot.of_revision("HEAT", checkout)
    assert main(["diff", "HEAD", "GemFwdOp"]) == 2
    assert "did you mean 'GemmFwdOp'?" in capsys.readouterr().err


def test_outcomes_and_archs_in_words() -> None:
    assert [outcome(keys) for keys in ((), ("a",), ("a", "b"))] == ["nobody", "a", "ambiguous (a, b)"]
    assert archs((80, 86, 87, 90)) == "arch 80-87, 90"
    assert archs(()) == "no known board"
