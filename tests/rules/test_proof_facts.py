"""The proof over each kind of fact: tuples among tuples, floats between doubles, device facts and names of any sort."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.facts import dims, flag, integer, number
from tileops.rules.proof import Report, check
from tileops.rules.table import RuleTable


@call_spec()
class PoolCall(CallSpec):
    m: int = integer(1, 1 << 20)
    flag: bool = flag()
    stride: tuple[int, ...] = dims(3)
    pads: tuple[int, ...] | None = dims(2, 2, low=0, optional=True)


@call_spec()
class ScaleCall(CallSpec):
    m: int = integer(-(1 << 60), 1 << 60)
    x: float = number()
    y: float | None = number(optional=True)


def between(request: type[CallSpec], first: tuple[str, ...], second: tuple[str, ...]) -> Report:
    """Return the report on two implementations, each with these refusals."""
    made = {"first": first, "second": second}
    declarations = {key: Declaration(refusal=tuple(Refusal(r, "no") for r in rules)) for key, rules in made.items()}
    return check(RuleTable("test", request, declarations))


def meeting(request: type[CallSpec], first: tuple[str, ...], second: tuple[str, ...]) -> CallSpec | None:
    """Return the witness of two implementations that meet, None where they are proved apart."""
    report = between(request, first, second)
    assert [found.kind for found in report.findings] in ([], ["ambiguous"]), report.text()
    return report.findings[0].witness if report.findings else None


# -- tuples


@pytest.mark.parametrize(
    ("rule", "stride"),
    [
        ("stride not in ((1, 2), (2, 2))", (1, 2)),
        ("not (stride in ((1, 2), (2, 2)))", (1, 2)),
        ("stride not in {(1, 2)}", (1, 2)),
        ("stride not in ((3, 4, 5),) or m > 3", (3, 4, 5)),
        ("stride not in ((7,), (8, 9))", (7,)),
        ("stride != (1, 2)", (1, 2)),
        ("stride in ((1, 2), (2, 2))", ()),
    ],
)
def test_a_tuple_among_tuples_serves_calls(rule: str, stride: tuple[int, ...]) -> None:
    found = meeting(PoolCall, (rule,), ("m > 64",))
    assert found is not None
    assert found.stride == stride  # type: ignore[attr-defined]  # a PoolCall


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("stride not in ((1, 2), (2, 2))", "stride in ((1, 2), (2, 2), (3,))"),
        ("stride not in ((1, 2),)", "stride not in ((2, 1),)"),
        ("stride not in ((1, 2),)", "stride != (2, 1)"),
        ("stride not in ((1, 2),)", "len(stride) != 3"),
        ("stride not in ((1, 2),)", "stride == (1, 2)"),
        ("pads not in ((0, 0), None)", "pads is None or pads == (0, 0)"),
    ],
)
def test_tuples_that_no_call_shares(first: str, second: str) -> None:
    assert meeting(PoolCall, (first,), (second,)) is None


def test_an_optional_tuple_may_be_none_among_tuples() -> None:
    found = meeting(PoolCall, ("pads not in ((0, 1), None)",), ("pads in ((0, 0), (0, 1))",))
    assert found is not None
    assert found.pads is None  # type: ignore[attr-defined]  # a PoolCall
    other = meeting(PoolCall, ("pads not in ((0, 1), None)",), ("pads is None",))
    assert other is not None
    assert other.pads == (0, 1)  # type: ignore[attr-defined]  # a PoolCall


# -- floats


ABOVE = math.nextafter(0.1, 1.0)
LEAST = math.nextafter(0.0, 1.0)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x <= 0.1", f"x >= {ABOVE!r}"),
        ("x <= 0.0", f"x >= {LEAST!r}"),
        (f"x <= {-LEAST!r}", "x >= 0.0"),
        ("x <= 9007199254740992", "x >= 9007199254740994"),
        ("x != 9007199254740993", "m != 0"),
        ("x <= 0.1", f"y is None or x >= y or y > {ABOVE!r}"),
    ],
)
def test_no_float_lies_between_neighbouring_doubles(first: str, second: str) -> None:
    assert meeting(ScaleCall, (first,), (second,)) is None


@pytest.mark.parametrize(
    ("first", "second", "facts"),
    [
        ("x <= 0.1", f"x > {ABOVE!r}", {"x": ABOVE}),
        ("x < 0.1", f"x >= {ABOVE!r}", {"x": 0.1}),
        ("x <= 0.0", f"x > {LEAST!r}", {"x": LEAST}),
        ("x <= 0.1", f"y is None or x >= y or y > {math.nextafter(ABOVE, 1.0)!r}", {"x": ABOVE}),
        ("x != m", "m < 9007199254740993", {"m": 9007199254740994}),
    ],
)
def test_the_only_double_is_found(first: str, second: str, facts: dict[str, Any]) -> None:
    found = meeting(ScaleCall, (first,), (second,))
    assert found is not None
    assert {name: getattr(found, name) for name in facts} == facts


# -- integers beyond what Python prints


def test_a_constant_of_thousands_of_digits_is_decided() -> None:
    huge = " * ".join([str(1 << 255)] * 60)
    assert meeting(ScaleCall, (f"m * {huge} > x",), (f"m * {huge} <= 5",)) is None
    found = meeting(ScaleCall, (f"m * {huge} <= 0",), (f"m * {huge} < 5 or m > 1",))
    assert found is not None
    assert found.m == 1  # type: ignore[attr-defined]  # a ScaleCall


# -- invariants


@pytest.mark.parametrize(
    ("invariants", "empty"),
    [
        (("m > 5", "m < 6"), True),
        (("m > 5", "m < 7"), False),
        (("m % 2 == 0", "m == n", "n % 2 == 1"), True),
        (("m * n == 7", "m > n"), False),
        (("6 // (m - n) == 7",), True),
        ((), False),
    ],
)
def test_invariants_that_no_call_meets_are_found(invariants: tuple[str, ...], empty: bool) -> None:
    body = {"__annotations__": {"m": int, "n": int}, "m": integer(1, 1 << 20), "n": integer(1, 1 << 20)}
    made: type[CallSpec] = call_spec(invariants=invariants)(type("Made", (CallSpec,), body))
    found = check(RuleTable("test", made, {"a": Declaration()})).of("no call")
    assert [finding.keys for finding in found] == [("Made",)] * empty
    assert all(repr(rule) in finding.message for finding in found for rule in invariants)
