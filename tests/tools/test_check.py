"""What ``tileops check`` finds, and that each finding can be seen again by the command it prints."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest

from tileops.manifest import loader
from tileops.rules.errors import ManifestError
from tileops.tools import audit
from tileops.tools.catalogue import known
from tileops.tools.cli import main

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tools/schema/check-1.json").read_text())
PREFERENCE = 'preferred_over={"gemm_swapped"}'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout that a test may break."""
    for part in ("rules", "manifest", "kernels", "tileops", "tools"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, tmp_path / "copy" / part, symlinks=True, ignore=ignore)
    return tmp_path / "copy"


def run(checkout: Path, *words: str) -> tuple[int, str]:
    """Run a module in a checkout, with an empty cache folder; its exit status and what it printed."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(checkout / "cache")}
    done = subprocess.run(
        [sys.executable, *words], cwd=checkout, capture_output=True, text=True, check=False, env=environment
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{path} lacks {old!r}: change this test with it"
    path.write_text(text.replace(old, new))


def checked(checkout: Path, *ops: str) -> tuple[int, Any]:
    status, out = run(checkout, "-m", "tools.check", "--json", *ops)
    found = json.loads(out)
    jsonschema.validate(found, SCHEMA)
    return status, found


def test_the_project_is_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    assert found["ok"] is True
    assert [one for one in found["findings"] if one["severity"] == "error"] == []
    assert found["counts"]["ops"] >= 2
    assert found["counts"]["implementations"] >= 4
    assert found["counts"]["workloads"] > 0
    assert main(["check", "GemmFwdOp"]) == 0
    assert "1 op, 1 table, " in capsys.readouterr().out


def test_a_preference_that_matters_is_missed_with_a_witness_that_explain_confirms(checkout: Path) -> None:
    replace(checkout / "kernels/gemm/gemv.py", PREFERENCE, "preferred_over=set()")
    status, found = checked(checkout, "GemmFwdOp")
    assert status == 1
    assert found["ok"] is False
    ambiguous = [one for one in found["findings"] if one["kind"] == "ambiguous"]
    assert ["gemm_splitk", "gemv"] in [one["keys"] for one in ambiguous]
    for one in ambiguous:
        python, *words = shlex.split(one["witness"]["command"])
        assert python == "python"
        status, out = run(checkout, *words, "--json")
        answer = json.loads(out)
        assert (status, answer["outcome"]) == (1, "ambiguous")
        assert "dispatch is ambiguous" in answer["error"]
        assert {name: one["witness"]["call"][name] for name in answer["call"]} == answer["call"]
    status, text = run(checkout, "-m", "tools.check", "GemmFwdOp")
    assert status == 1
    assert "error: ambiguous: GemmFwdOp.gemm gemm_splitk, gemv: " in text
    assert "\n  python -m tools.explain GemmFwdOp " in text


def test_a_rule_that_can_divide_by_zero_is_found_with_its_witness(checkout: Path) -> None:
    replace(checkout / "kernels/gemm/gemv.py", '"m > 2"', '"m > 2 or n // (k - 7) == 3"')
    status, found = checked(checkout, "GemmFwdOp")
    assert status == 1
    (raises,) = [one for one in found["findings"] if one["kind"] == "may raise"]
    assert raises["keys"] == ["gemv"]
    assert raises["witness"]["call"]["k"] == 7


def test_an_unknown_fact_is_told_with_the_nearest(checkout: Path) -> None:
    replace(checkout / "kernels/gemm/gemv.py", '"m > 2"', '"trans_c"')
    status, found = checked(checkout, "GemmFwdOp")
    assert status == 1
    assert any("did you mean 'trans_" in one["message"] for one in found["findings"])


def test_a_broken_manifest_is_told_with_file_and_line_and_the_rest_is_checked(checkout: Path) -> None:
    replace(checkout / "manifest/spec/norm.yaml", "signature:", "signatur:")
    status, found = checked(checkout)
    assert status == 1
    (broken,) = [one for one in found["findings"] if one["kind"] == "manifest"]
    assert "norm.yaml:" in broken["message"]
    assert "signatur" in broken["message"]
    assert found["counts"]["tables"] >= 1


def test_an_op_that_does_not_import_is_a_finding(checkout: Path) -> None:
    replace(checkout / "tileops/norm.py", "class RMSNormFwdOp", "class RMSNormForwardOp")
    status, found = checked(checkout)
    assert status == 1
    errors = {one["op"]: one["kind"] for one in found["findings"] if one["severity"] == "error"}
    assert errors["RMSNormFwdOp"] == "import"
    assert "GemmFwdOp" not in errors


def test_a_claim_that_nobody_serves_is_a_finding_with_a_witness() -> None:
    gemm = known("GemmFwdOp")
    claims_too_much = attrs.evolve(gemm, entry=attrs.evolve(gemm.entry, serves={"cuda": (75, 90)}))
    found = [one for one in audit.check_op(claims_too_much, Counter(), []) if one.severity == audit.ERROR]
    assert {one.kind for one in found} == {"claim", "gap"}
    rows = [one.message for one in found if one.kind == "claim"]
    assert all("claims cuda arch 75" in message for message in rows)
    assert all("--arch 75" in str(one.command) for one in found)
    unknown = attrs.evolve(gemm, entry=attrs.evolve(gemm.entry, serves={"cuda": (91,)}))
    (only,) = [one for one in audit.check_op(unknown, Counter(), []) if one.severity == audit.ERROR]
    assert "of which no board is known" in only.message


def test_undecided_is_an_error_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from tileops.rules.report import WARNING, Finding, Report
    from tileops.rules.table import RuleTable

    undecided = Finding("undecided", ("a", "b"), "the solver gave up", severity=WARNING)
    monkeypatch.setattr(RuleTable, "check", lambda table: Report(table.name, (undecided,)))
    found = audit.audit(["GemmFwdOp"])
    assert [one.kind for one in found.errors] == ["undecided"]


def test_a_stale_verdict_is_a_warning_and_update_writes_it(checkout: Path) -> None:
    (checkout / "kernels/verdicts.json").unlink(missing_ok=True)
    status, found = checked(checkout)
    assert status == 0
    assert {(one["kind"], one["severity"]) for one in found["findings"]} == {("verdict", "warning")}
    status, text = run(checkout, "-m", "tools.check", "--update")
    assert status == 0
    assert "wrote " in text
    assert checked(checkout) == (0, {**found, "findings": []})


def test_an_unknown_op_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "GemFwdOp"]) == 2
    assert "did you mean 'GemmFwdOp'?" in capsys.readouterr().err
    assert main(["check", "GemmFwdOp", "--update"]) == 2
    assert "name no op beside it" in capsys.readouterr().err


def test_every_manifest_error_reaches_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(family: str) -> None:
        raise ManifestError(f"{family}.yaml:1: broken")

    monkeypatch.setattr(loader, "family", refuse)
    found = audit.audit()
    assert {one.kind for one in found.findings} == {"manifest"}
    assert found.counts["ops"] == 0
