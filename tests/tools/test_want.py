"""The nearest call that an implementation wins, held against a search of every call of a small domain."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jsonschema
import pytest

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import reference
from tileops.rules.facts import choice, flag, integer
from tileops.rules.table import RuleTable
from tileops.tools.cli import main
from tileops.tools.want import want

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "tools/schema/want-1.json").read_text())

GEMM = ["explain", "GemmFwdOp", "m=1", "n=4096", "k=4096", "dtype=bfloat16"]


@call_spec()
class SmallCall(CallSpec):
    m: int = integer(1, 6)
    n: int = integer(0, 4)
    layout: str = choice("nhwc", "nchw")
    turned: bool = flag()


EVERY = [
    dict(zip(("m", "n", "layout", "turned"), values, strict=True))
    for values in itertools.product(range(1, 7), range(5), ("nhwc", "nchw"), (False, True))
]
RULES = ["m > 3", "m * n > 6", "n == 0", "turned", "layout == 'nhwc'", "m % 2 == 0", "ceildiv(m, 2) < n", "not turned"]
declarations = st.lists(st.sampled_from(RULES), max_size=3, unique=True)


def at(**facts: Any) -> CallSpec:
    return SmallCall(device="cuda:0", stated=reference(90), **facts)


def steps(base: dict[str, Any], other: dict[str, Any]) -> tuple[int, int]:
    """How many facts differ, and how far apart they are."""
    changed = [name for name in base if base[name] != other[name]]
    far = sum(abs(base[name] - other[name]) if name in ("m", "n") else 1 for name in changed)
    return len(changed), far


@hypothesis.given(first=declarations, second=declarations, base=st.sampled_from(EVERY), above=st.booleans())
@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
def test_nothing_nearer_wins(first: list[str], second: list[str], base: dict[str, Any], above: bool) -> None:
    table = RuleTable(
        "small",
        SmallCall,
        {
            "a": Declaration(refusal=tuple(Refusal(rule, "no") for rule in first)),
            "b": Declaration(
                refusal=tuple(Refusal(rule, "no") for rule in second), preferred_over={"a"} if above else set()
            ),
        },
    )
    found = want("SmallFwdOp", "small", table, at(**base), "a").answer
    winning = [steps(base, facts) for facts in EVERY if table.explain(at(**facts)).contenders.count("a")]
    if above:  # without a preference two may tie, which is another finding's matter
        assert found.status == ("found" if winning else "none")
    if found.witness is not None:
        assert table.explain(found.witness).winner == "a"
        assert steps(base, found.witness.facts()) == min(
            steps(base, facts) for facts in EVERY if table.explain(at(**facts)).winner == "a"
        )


def test_the_command_says_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GEMM, "--arch", "90", "--want", "gemm_splitk"]) == 0
    assert "gemm_splitk wins with m=3, k=4095 (now 1, 4096); fewer facts" in capsys.readouterr().out
    assert main([*GEMM, "--arch", "90", "--want", "gemv", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["outcome"], plain["changes"]) == ("found", {})
    jsonschema.validate(plain, SCHEMA)
    for arch, key, status in (("90", "gemm_splitk", 0), ("80", "gemm_wgmma", 1)):
        assert main([*GEMM, "--arch", arch, "--want", key, "--json"]) == status
        jsonschema.validate(json.loads(capsys.readouterr().out), SCHEMA)


def test_the_command_says_what_stands_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GEMM, "--arch", "80", "--want", "gemm_wgmma"]) == 1
    assert "gemm_wgmma wins no call on this device: it runs on arch 90" in capsys.readouterr().out
    assert main([*GEMM, "--arch", "80", "--want", "gemm_wgma"]) == 2
    assert "did you mean 'gemm_wgmma'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (("m > 2", "m < 3"), "its refusals leave no call"),
        (("m > 2",), "whatever it serves here, one above it serves too: b"),
    ],
)
def test_why_nothing_is_won(rules: tuple[str, ...], why: str) -> None:
    table = RuleTable(
        "small",
        SmallCall,
        {
            "a": Declaration(refusal=tuple(Refusal(rule, "no") for rule in rules)),
            "b": Declaration(preferred_over={"a"}),
        },
    )
    wish = want("SmallFwdOp", "small", table, at(**EVERY[0]), "a")
    assert (wish.answer.status, wish.why) == ("none", why)
    assert why in wish.text()
