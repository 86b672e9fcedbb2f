from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileops.rules.archs import ArchSet, arch_set, at_least, between, exactly, family
from tileops.rules.errors import DeclarationError

# Known and invented ones, and the unknown arch of a device that reports none.
ARCHS = (-1, 0, 75, 79, 80, 81, 86, 87, 89, 90, 91, 99, 100, 103, 110, 120, 121, 129, 130, 990)


@pytest.mark.parametrize(
    ("archs", "members", "text"),
    [
        (at_least(80), {80, 81, 86, 87, 89, 90, 91, 99, 100, 103, 110, 120, 121, 129, 130, 990}, "80 and newer"),
        (at_least(0), set(ARCHS) - {-1}, "0 and newer"),
        (between(80, 89), {80, 81, 86, 87, 89}, "80 to 89"),
        (family(90), {90, 91, 99}, "90 to 99"),
        (family(103), {100, 103}, "100 to 109"),
        (exactly(80), {80}, "80"),
        (exactly(90, 80, 86), {80, 86, 90}, "80, 86 or 90"),
        (ArchSet([(120, None), (80, 86)]), {80, 81, 86, 120, 121, 129, 130, 990}, "80 to 86 or 120 and newer"),
    ],
)
def test_every_arch_against_every_kind_of_set(archs: ArchSet, members: set[int], text: str) -> None:
    assert {arch for arch in ARCHS if arch in archs} == members
    assert archs.text() == text
    covered = {a for a in ARCHS for low, high in archs.intervals() if a >= low and (high is None or a <= high)}
    assert covered == members


def test_the_number_only_is_a_member() -> None:
    assert 90 in exactly(90)
    assert "90" not in exactly(90)
    assert None not in at_least(0)


@pytest.mark.parametrize(
    "given_value",
    [
        [],
        set(),
        [-1],
        [True],
        ["90"],
        [90.0],
        90,
        "90",
        {"at_least": -1},
        {"at_least": 80, "between": [80, 89]},
        {"between": [89, 80]},
        {"between": [80]},
        {"newer": 80},
        {},
    ],
)
def test_what_is_no_set_of_archs_is_refused(given_value: Any) -> None:
    with pytest.raises(DeclarationError, match="arch"):
        arch_set(given_value)


def test_what_a_declaration_may_say() -> None:
    assert arch_set(None) is None
    assert arch_set({90, 80}) == arch_set([80, 90, 90]) == exactly(80, 90)
    assert arch_set({"family": 90}) == family(90) == between(90, 99)
    assert arch_set([80, {"at_least": 90}]) == ArchSet([(80, 80), (90, None)])


intervals = st.tuples(st.integers(0, 150), st.none() | st.integers(0, 50)).map(
    lambda pair: (pair[0], None if pair[1] is None else pair[0] + pair[1])
)


@given(st.lists(intervals, min_size=1, max_size=4))
def test_plain_data_gives_the_set_back(pairs: list[tuple[int, int | None]]) -> None:
    archs = ArchSet(pairs)
    assert arch_set(archs.to_plain()) == archs
    assert ArchSet(reversed(pairs)) == archs
    assert hash(ArchSet(reversed(pairs))) == hash(archs)


def test_plain_data_reads_well() -> None:
    assert at_least(80).to_plain() == {"at_least": 80}
    assert between(80, 89).to_plain() == {"between": [80, 89]}
    assert exactly(90, 80).to_plain() == [80, 90]
    assert exactly(90).to_plain() == [90]
    assert [repr(a) for a in (at_least(80), family(90), exactly(80, 90))] == [
        "at_least(80)",
        "between(90, 99)",
        "exactly(80, 90)",
    ]
