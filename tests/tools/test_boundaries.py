"""Boundaries derived from declarations: both sides hold through explain, neighbours where one integer decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from tileops.catalog import op_names
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import reference
from tileops.rules.facts import choice, dim, flag
from tileops.rules.table import RuleTable
from tileops.tools.boundaries import REDUNDANT, Boundary, boundaries, op_call, sides
from tileops.tools.catalogue import known
from tileops.tools.cli import main

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "tools/schema/boundaries-1.json").read_text())


def held(table: RuleTable, one: Boundary) -> None:
    """Both sides are what they are said to be, as `explain` tells it."""
    assert one.served is not None, one
    assert one.refused is not None, one
    assert table.explain(one.served, only=one.key).winner == one.key
    verdict = table.explain(one.refused, only=one.key).verdict(one.key)
    assert [reason.rule for reason in verdict.reasons] == [one.rule]


@pytest.mark.parametrize("name", sorted(op_names()))
def test_each_refusal_of_the_project_has_both_sides(name: str) -> None:
    op = known(name)
    found = list(boundaries(op))
    for one in found:
        if one.missing == REDUNDANT:
            assert one.refused is not None
            assert len(op.interfaces[one.interface].table.explain(one.refused, only=one.key).verdicts[0].reasons) > 1
            continue
        held(op.interfaces[one.interface].table, one)
    declared = [
        (key, refusal.text)
        for asked in op.interfaces.values()
        for key, declaration in asked.table.declarations.items()
        for refusal in declaration.refusal
    ]
    assert [(one.key, one.rule) for one in found] == declared


def test_the_limits_of_gemm_are_the_ones_of_its_declarations() -> None:
    found = {(one.key, one.rule): one for one in boundaries(known("GemmFwdOp"))}
    rows = found["gemv", "m > 2"]
    assert rows.served is not None
    assert rows.refused is not None
    assert (rows.served.facts()["m"], rows.refused.facts()["m"], rows.facts) == (2, 3, ("m",))
    tile = found["gemm_wgmma", "m < 64"]
    assert tile.served is not None
    assert tile.refused is not None
    assert (tile.served.facts()["m"], tile.refused.facts()["m"]) == (64, 63)


def test_a_boundary_is_a_call_of_the_op() -> None:
    op = known("GemmFwdOp")
    for one in boundaries(op, of="gemv"):
        for call in (one.served, one.refused):
            assert call is not None
            made = op_call(op, op.interfaces["gemm"], call)
            assert made is not None
            assert made.spec is not None
            assert made.spec.facts() == call.facts()


@call_spec()
class ProductCall(CallSpec):
    m: int = dim()
    n: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16)
    turned: bool = flag()


def pairs(*rules: Any, **base: Any) -> list[tuple[CallSpec, CallSpec] | None]:
    refusal = tuple(rule if isinstance(rule, Refusal) else Refusal(rule, "no") for rule in rules)
    table = RuleTable("test", ProductCall, {"a": Declaration(refusal=refusal)})
    start = {"m": 100, "n": 100, "dtype": torch.float16, "turned": False} | base
    call = ProductCall(device="cuda:0", stated=reference(90), **start)  # type: ignore[arg-type]
    return [sides(table, "a", index, [call]) for index in range(len(rules))]


@pytest.mark.parametrize(
    ("rule", "served", "refused"),
    [
        ("m > 128", {"m": 128}, {"m": 129}),
        ("m % 12 != 0 and n < 1000", {"m": 96}, {"m": 97}),
        ("m * n > 12000", {"m": 120}, {"m": 121}),
        ("ceildiv(m, 64) * ceildiv(n, 64) > sm_count", {"m": 4224}, {"m": 4225}),
        ("dtype == bfloat16", {"dtype": torch.float16}, {"dtype": torch.bfloat16}),
        ("turned", {"turned": False}, {"turned": True}),
    ],
)
def test_the_sides_of_a_limit_are_neighbours(rule: str, served: dict[str, Any], refused: dict[str, Any]) -> None:
    (pair,) = pairs(rule)
    assert pair is not None
    near, beyond = (call.facts() for call in pair)
    assert [name for name in near if near[name] != beyond[name]] == list(served)
    if rule != "m % 12 != 0 and n < 1000":
        assert ({**near, **served}, {**beyond, **refused}) == (near, beyond)
    elif near["m"] % 12 != 0 or abs(near["m"] - beyond["m"]) > 1:
        pytest.fail(f"{near} and {beyond} are no neighbours")


def test_a_limit_that_one_fact_cannot_reach_takes_two() -> None:
    (pair,) = pairs("m > 5000 and n > 5000")
    assert pair is not None
    assert {name for name in ("m", "n") if getattr(pair[1], name) > 5000} == {"m", "n"}


def test_a_limit_that_no_call_reaches_has_no_sides() -> None:
    first, second = pairs("m > 128", "m > 130 and m < 120")
    assert (first is None, second is None) == (False, True)


def test_the_command_prints_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--boundaries", "GemmFwdOp"]) == 0
    text = capsys.readouterr().out
    assert "gemv  refuses m > 2\n  serves   m=2 n=" in text
    assert main(["check", "--boundaries", "GemmFwdOp", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    jsonschema.validate(plain, SCHEMA)
    assert {"key", "rule", "served", "refused", "device"} <= set(plain["boundaries"][0])
