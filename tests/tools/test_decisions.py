"""The stored decisions are those of the tables; one that moves is an error of the check; digests agree."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from tileops.rules.declaration import Refusal
from tileops.tools import audit, decisions
from tileops.tools.catalogue import known
from tileops.tools.check import digest
from tileops.tools.cli import main
from tileops.tools.progress import progress

ROOT = Path(__file__).resolve().parents[2]


def test_the_stored_decisions_are_those_of_the_tables() -> None:
    kept = decisions.stored()
    assert kept is not None
    op = known("GemmFwdOp")
    assert list(decisions.differences(op, kept)) == []
    assert len(kept["GemmFwdOp"]) == len(op.entry.cases())
    assert "90 gemm_persistent" in kept["GemmFwdOp"]["square-4k/bfloat16"]


def test_a_decision_that_moves_is_an_error_of_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = decisions.stored()
    assert kept is not None
    rows = {**kept["GemmFwdOp"], "square-4k/bfloat16": "80-120 gemm_mma", "of-old/bfloat16": "80-120 gemm_mma"}
    del rows["square-2k/bfloat16"]
    monkeypatch.setattr(decisions, "stored", lambda: {**kept, "GemmFwdOp": rows})
    found = [one for one in audit.audit(["GemmFwdOp"]).errors if one.kind == "decision"]
    told = {str((one.call or {})["workload"]): one.message for one in found}
    assert set(told) == {"square-4k/bfloat16", "square-2k/bfloat16", "of-old/bfloat16"}
    assert "90 gemm_persistent" in told["square-4k/bfloat16"]
    assert "is decided gone" in told["of-old/bfloat16"]


def test_a_file_is_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "decisions.yaml"
    op = known("GemmFwdOp")
    decisions.save({"GemmFwdOp": op}, path)
    assert decisions.stored(path) == {"GemmFwdOp": decisions.winners(op)}
    assert decisions.stored(tmp_path / "none.yaml") is None


def test_a_digest_is_the_same_in_every_process_and_another_for_another_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "GemmFwdOp", "--digest"]) == 0
    here = capsys.readouterr().out.strip()
    for seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-m", "tools.check", "GemmFwdOp", "--digest"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == here
    assert digest(["GemmFwdOp", "RMSNormFwdOp"]) != here


def test_a_digest_follows_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(["GemmFwdOp"])
    op = known("GemmFwdOp")
    gemm = op.interfaces["gemm"]
    gemv = gemm.table.declarations["gemv"]
    stricter = attrs.evolve(gemv, refusal=(*gemv.refusal, Refusal("m == 2", "no")))
    changed = attrs.evolve(gemm, table=gemm.table.with_declaration("gemv", stricter))
    monkeypatch.setattr("tileops.tools.check.known", lambda name: attrs.evolve(op, interfaces={"gemm": changed}))
    assert digest(["GemmFwdOp"]) != before


def test_the_progress_bar_is_for_terminals() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    silent, drawn = io.StringIO(), Terminal()
    for stream in (silent, drawn):
        tell = progress(stream)
        tell(1, 2, "GemmFwdOp")
        tell(2, 2, "")
    assert silent.getvalue() == ""
    assert "] 1/2 GemmFwdOp" in drawn.getvalue()
    assert drawn.getvalue().endswith("\r\x1b[K")
