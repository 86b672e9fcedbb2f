"""Dead implementations, idle preferences, lost archs: each found, its sound twin silent, exact over three and more."""

from __future__ import annotations

from typing import Any

import torch

from tileops.rules.archs import at_least, between, exactly
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import reference
from tileops.rules.facts import choice, dim
from tileops.rules.merits import merits, regressions
from tileops.rules.proof import Proof
from tileops.rules.query import LIMIT
from tileops.rules.report import Finding
from tileops.rules.table import RuleTable


@call_spec()
class ProductCall(CallSpec):
    m: int = dim()
    n: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16)


def serving(*rules: str, **fields: Any) -> Declaration:
    return Declaration(refusal=tuple(Refusal(rule, "no") for rule in rules), **fields)


def found(**declarations: Declaration) -> list[Finding]:
    return list(merits(Proof(RuleTable("test", ProductCall, declarations))))


def lost(**declarations: Declaration) -> list[Finding]:
    return list(regressions(RuleTable("test", ProductCall, declarations), LIMIT))


def test_refusals_that_leave_no_call() -> None:
    (only,) = found(a=serving("m * n > 5", "m * n < 6"))
    assert (only.kind, only.keys, only.severity) == ("dead", ("a",), "error")
    assert "no call on any device is served by a" in only.message


def test_one_that_is_always_beaten_and_one_that_is_beaten_mostly() -> None:
    (only,) = found(a=serving("m > 8", preferred_over={"b"}), b=serving("m > 4"))
    assert (only.kind, only.keys) == ("dead", ("b",))
    assert "one above it serves too (a)" in only.message
    assert found(a=serving("m > 8", preferred_over={"b"}), b=serving("m > 9")) == []


def test_two_that_together_stand_above_all_of_a_third() -> None:
    below = serving("m > 100")
    above = {"low": serving("m > 50", preferred_over={"c"}), "high": serving("m <= 50", preferred_over={"c"})}
    dead = found(c=below, **above)
    assert [(one.kind, one.keys) for one in dead] == [("dead", ("c",))]
    one_left = {"low": serving("m > 49", preferred_over={"c"}), "high": serving("m <= 50", preferred_over={"c"})}
    assert found(c=below, **one_left) == []


def test_what_says_why_it_is_kept_is_let_be() -> None:
    assert found(a=serving("m > 0", dead_because="the twin of b, for measurements")) == []


def test_an_opaque_refusal_above_leaves_it_undecided() -> None:
    above = Declaration(refusal=(Refusal(opaque=lambda call: call.m == 3, why="no"),), preferred_over={"b"})
    (only,) = found(a=above, b=serving("m > 4"))
    assert only.kind == "undecided"
    assert "opaque refusal" in only.message


def test_a_preference_between_two_that_never_meet() -> None:
    (only,) = found(a=serving("m > 8", preferred_over={"b"}), b=serving("m <= 8"))
    assert (only.kind, only.keys, only.severity) == ("idle preference", ("a", "b"), "warning")
    assert found(a=serving("m > 8", preferred_over={"b"}), b=serving("m <= 7")) == []
    (product,) = found(a=serving("m * n > 8", preferred_over={"b"}), b=serving("n * m <= 8"))
    assert product.kind == "idle preference"


def test_an_arch_that_lost_calls_of_an_older_one() -> None:
    here = {"old": serving(supported_archs=between(80, 89)), "new": serving("m > 16", supported_archs=at_least(90))}
    table = RuleTable("test", ProductCall, here)
    all_lost = lost(**here)
    assert {one.witness.arch for one in all_lost if one.witness} == {90, 100, 103, 110, 120, 121}
    for one in all_lost:
        assert (one.kind, one.severity) == ("arch regression", "warning")
        assert one.witness is not None
        assert one.witness.facts()["m"] == 17
        assert table.explain(one.witness).outcome == "no implementation"
        assert table.explain(one.witness.replace(stated=reference(89))).winner == "old"


def test_an_arch_on_which_nobody_ever_ran_lost_nothing() -> None:
    assert lost(a=serving(supported_archs=at_least(90))) == []
    assert lost(a=serving("m > 16")) == []
    assert lost(a=serving("m > 16", supported_archs=exactly(80, 90))) != []
    assert lost(a=serving("m * n > 4 * sm_count")) != []
