"""Two tables compared: equal ones by proof, others region by region, held against every call of a small domain."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis
import hypothesis.strategies as st
import torch

from tileops.rules.archs import at_least, exactly
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import reference
from tileops.rules.difference import Comparison, Open, Region
from tileops.rules.facts import choice, dim, integer
from tileops.rules.table import RuleTable


@call_spec()
class WideCall(CallSpec):
    m: int = dim()
    n: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16)


@call_spec()
class SmallCall(CallSpec):
    m: int = integer(1, 4)
    n: int = integer(1, 4)


def serving(*rules: str, **fields: Any) -> Declaration:
    return Declaration(refusal=tuple(Refusal(rule, "no") for rule in rules), **fields)


def regions(
    old: dict[str, Declaration], new: dict[str, Declaration], request: type[CallSpec] = WideCall
) -> list[Region | Open]:
    return list(Comparison(RuleTable("test", request, old), RuleTable("test", request, new)).regions())


def only(found: list[Region | Open]) -> Region:
    (one,) = found
    assert isinstance(one, Region), one
    return one


def test_rules_written_otherwise_that_say_the_same() -> None:
    old = {"a": serving("m * n > 100"), "b": serving("m * n <= 100")}
    new = {"a": serving("not (n * m <= 100)"), "b": serving("100 >= m * n")}
    assert regions(old, new) == []
    assert regions({"a": serving("m > 15")}, {"a": serving("m >= 16")}) == []


def test_a_limit_that_moved_is_one_region() -> None:
    general = serving(general=True)
    one = only(regions({"a": serving("m > 16"), "g": general}, {"a": serving("m > 18"), "g": general}))
    assert (one.old, one.new) == (("g",), ("a",))
    assert one.witness.facts()["m"] in (17, 18)
    assert {80, 90, 120} <= set(one.archs)


def test_an_arch_that_is_added_is_a_region_of_that_arch() -> None:
    one = only(regions({"a": serving(supported_archs=exactly(90))}, {"a": serving(supported_archs={90, 100})}))
    assert (one.old, one.new, one.archs) == ((), ("a",), (100,))
    later = only(regions({"a": serving(supported_archs=exactly(120))}, {"a": serving(supported_archs=at_least(120))}))
    assert later.archs == (121,)


def test_a_new_implementation_is_a_region_for_each_one_that_it_displaces() -> None:
    old = {"a": serving("m > 16"), "g": serving(general=True)}
    found = regions(old, {**old, "new": serving("n < 64", preferred_over={"a"})})
    assert {(one.old, one.new) for one in found if isinstance(one, Region)} == {(("a",), ("new",)), (("g",), ("new",))}
    hidden = {**old, "new": serving("n < 64", "n > 63")}
    assert regions(old, hidden) == []


def test_a_call_that_becomes_ambiguous_or_loses_its_server() -> None:
    old = {"a": serving("m > 16", preferred_over={"b"}), "b": serving("m > 8")}
    tie = only(regions(old, {**old, "a": serving("m > 16")}))
    assert (tie.old, tie.new) == (("a",), ("a", "b"))
    lost = {(one.old, one.new) for one in regions(old, {"b": old["b"]}) if isinstance(one, Region)}
    assert lost == {(("a",), ()), (("a",), ("b",))}


RULES = ["m > 2", "m * n > 6", "n == 1", "m % 2 == 0", "ceildiv(m, 2) < n", "m == n"]
declared = st.builds(
    lambda rules, below: serving(*rules, preferred_over=below),
    st.lists(st.sampled_from(RULES), max_size=2, unique=True),
    st.sampled_from([set(), {"c"}]),
)
tables = st.fixed_dictionaries({"a": declared, "b": declared}, optional={"c": st.just(serving("n > 3"))})


@hypothesis.given(old=tables, new=tables)
@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
def test_the_regions_are_those_of_every_call(old: dict[str, Declaration], new: dict[str, Declaration]) -> None:
    before, after = RuleTable("test", SmallCall, old), RuleTable("test", SmallCall, new)
    expected = set()
    for m, n in itertools.product(range(1, 5), repeat=2):
        call = SmallCall(device="cuda:0", stated=reference(90), m=m, n=n)
        expected.add((before.explain(call).contenders, after.explain(call).contenders))
    found = regions(old, new, SmallCall)
    assert all(isinstance(one, Region) for one in found)
    assert sorted((one.old, one.new) for one in found if isinstance(one, Region)) == sorted(
        pair for pair in expected if pair[0] != pair[1]
    )
