"""Verdicts: a proof is done once, whatever happens to the places where its result is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from tileops.rules import verdicts
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.facts import dim, integer
from tileops.rules.report import Finding, Proved, Report
from tileops.rules.table import RuleTable
from tileops.rules.verdicts import cache_folder, load, prover, save, storable, verdict, verdict_hash

ROOT = Path(__file__).resolve().parents[2]


@call_spec()
class Call(CallSpec):
    m: int = dim()
    n: int = dim()


@call_spec()
class NarrowCall(CallSpec):
    m: int = integer(1, 8)
    n: int = dim()


def declared(*rules: str, **fields: Any) -> Declaration:
    return Declaration(refusal=tuple(Refusal(rule, "no") for rule in rules), **fields)


def sound(name: str = "sound") -> RuleTable:
    return RuleTable(name, Call, {"a": declared("m > 2"), "b": declared("m <= 2")})


def ambiguous() -> RuleTable:
    return RuleTable("ambiguous", Call, {"a": declared("m > 3"), "b": declared("m <= 2")})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tileops" / "verdicts"


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of the tables that are proved."""
    names: list[str] = []
    check = RuleTable.check

    def counted(self: RuleTable, limit: int | None = None) -> Report:
        names.append(self.name)
        return check(self, limit)

    monkeypatch.setattr(RuleTable, "check", counted)
    return names


def test_a_table_is_proved_once_and_remembered(cache: Path, proofs: list[str]) -> None:
    first = verdict(sound())
    assert cache_folder() == cache
    assert [path.name for path in cache.iterdir()] == [f"{verdict_hash(sound())}.json"]
    assert verdict(sound()) == first
    assert proofs == ["sound"]


def test_a_shipped_verdict_needs_no_proof_and_no_cache(tmp_path: Path, cache: Path, proofs: list[str]) -> None:
    shipped = tmp_path / "verdicts.json"
    written = save(shipped, [sound("one"), sound("two")])
    proofs.clear()
    assert verdict(sound("two"), shipped) == written[verdict_hash(sound("two"))]
    assert proofs == []
    assert not cache.exists()


def test_the_shipped_file_is_the_same_whatever_the_order(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    save(one, [sound("one"), sound("two")])
    save(other, [sound("two"), sound("one")])
    assert one.read_text() == other.read_text()
    assert json.loads(one.read_text())["prover"] == prover()


def test_a_witness_is_never_read_from_a_file(cache: Path, proofs: list[str]) -> None:
    assert verdict(ambiguous()).findings[0].witness is not None
    assert verdict(ambiguous()).findings[0].witness is not None
    assert proofs == ["ambiguous", "ambiguous"]
    assert not cache.exists()


def test_a_verdict_without_a_witness_keeps_its_findings(proofs: list[str]) -> None:
    unknown = RuleTable("unknown", Call, {"a": declared(preferred_over={"c"})})
    assert verdict(unknown).of("unknown key")
    assert verdict(unknown).of("unknown key") == verdict(unknown).of("unknown key")
    assert proofs == ["unknown"]


def test_findings_that_hang_on_opaque_code_are_not_kept() -> None:
    opaque = attrs.evolve(declared("m > 2"), refusal=(Refusal(opaque=lambda call: True, why="no"),))
    open_table = RuleTable("opaque", Call, {"a": opaque, "b": declared()})
    assert not storable(open_table, open_table.check())
    settled = RuleTable("opaque", Call, {"a": opaque, "b": declared(general=True)})
    assert storable(settled, settled.check())


def test_findings_on_a_device_type_that_may_come_later_are_not_kept() -> None:
    foreign = RuleTable("foreign", Call, {"a": Declaration(devices={"acme_chip"})})
    assert not storable(foreign, foreign.check())
    assert storable(sound(), sound().check())


def test_arguments_are_looked_at_each_time(proofs: list[str]) -> None:
    given = Finding("arguments", ("a",), "forward takes no b")
    assert verdict(sound(), arguments=[given]).findings == (given,)
    assert verdict(sound()).findings == ()
    assert proofs == ["sound"]


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "[]",
        "[" * 200_000,
        '{"format": 99, "verdicts": {}}',
        '{"format": 1}',
        '{"format": 1, "verdicts": {"HASH": {}}}',
    ],
)
def test_a_broken_file_costs_a_proof(tmp_path: Path, cache: Path, proofs: list[str], broken: str) -> None:
    text = broken.replace("HASH", verdict_hash(sound()))
    shipped = tmp_path / "verdicts.json"
    shipped.write_text(text)
    cache.mkdir(parents=True)
    (cache / f"{verdict_hash(sound())}.json").write_text(text)
    assert verdict(sound(), shipped).findings == ()
    assert proofs == ["sound"]
    assert verdict(sound(), shipped).findings == ()
    assert proofs == ["sound"]


def test_bytes_that_are_no_text_cost_a_proof(tmp_path: Path, proofs: list[str]) -> None:
    shipped = tmp_path / "verdicts.json"
    shipped.write_bytes(b"\xff\xfe\x00")
    assert verdict(sound(), shipped).findings == ()
    assert proofs == ["sound"]


def test_a_cache_that_cannot_be_written_costs_a_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proofs: list[str]
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    for _ in range(2):
        assert verdict(sound(), tmp_path / "missing.json").findings == ()
    assert proofs == ["sound", "sound"]


def test_a_cache_on_a_full_disk_leaves_nothing_behind(
    cache: Path, monkeypatch: pytest.MonkeyPatch, proofs: list[str]
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert verdict(sound()).findings == ()
    assert list(cache.iterdir()) == []


def test_without_a_cache_variable_the_home_folder_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for base in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        assert cache_folder() == tmp_path / ".cache" / "tileops" / "verdicts"


def test_the_hash_covers_what_the_proof_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    base = sound()
    others = [
        base.with_declaration("a", declared("m > 3")),
        base.with_declaration("a", declared("m > 2", preferred_over={"b"})),
        base.with_declaration("a", declared("m > 2", general=True)),
        base.with_declaration("a", declared("m > 2", devices={"cpu"})),
        base.with_declaration("c", declared("m > 0")),
        RuleTable("sound", NarrowCall, dict(base.declarations)),
    ]
    hashes = {verdict_hash(table) for table in (base, *others)}
    assert len(hashes) == 1 + len(others)
    assert verdict_hash(sound()) == verdict_hash(base)
    before = verdict_hash(base)
    monkeypatch.setattr(verdicts, "prover", lambda: "another")
    assert verdict_hash(base) != before


def test_a_report_survives_its_file() -> None:
    report = Report("t", (Finding("undecided", ("a", "b"), "who knows", severity="warning"),), Proved(3, 1, 2, 99))
    assert Report.from_plain(json.loads(json.dumps(report.to_plain()))) == report


def test_a_missing_file_has_no_verdicts(tmp_path: Path) -> None:
    assert load(tmp_path / "missing.json") == {}


def test_a_matching_hash_imports_neither_z3_nor_networkx(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.facts import dim
from tileops.rules.table import RuleTable
from tileops.rules.verdicts import verdict

@call_spec()
class Call(CallSpec):
    m: int = dim()

table = RuleTable("t", Call, {"a": Declaration(refusal=(Refusal("m > 2", "no"),)), "b": Declaration(general=True)})
assert verdict(table, Path(sys.argv[1])).findings == ()
print(*sorted({"z3", "networkx", "tilelang"} & set(sys.modules)))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "verdicts.json")]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split() for _ in range(2)
    )
    assert first == ["z3"]
    assert second == []
