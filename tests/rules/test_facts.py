"""The kinds of fact: what each takes and reads, and what a refusal says."""

from __future__ import annotations

import enum
from typing import Any

import attrs
import pytest
import torch

from tileops.rules.errors import DeclarationError, FactError
from tileops.rules.facts import DIM_MAX, Kind, choice, dim, dims, flag, integer, kind_of, number, read_pairs


class Mode(enum.StrEnum):
    FULL = "full"
    CAUSAL = "causal"


class Plain(enum.Enum):
    A = 1


def kind(made: Any) -> Kind:
    """Return the kind that a maker puts into a field."""
    found = kind_of(attrs.fields(attrs.make_class("Probe", {"fact": made}))[0])
    assert found is not None
    return found


DTYPE = kind(choice(torch.float16, torch.bfloat16))


class _Int(int):
    pass


@pytest.mark.parametrize(
    ("made", "taken", "refused"),
    [
        (dim(), [1, DIM_MAX], [0, -1, DIM_MAX + 1, True, 1.0, "1", None, _Int(3), torch.tensor(3)]),
        (dim(optional=True), [1, None], [0]),
        (integer(-2, 3), [-2, 0, 3], [-3, 4, False]),
        (flag(), [True, False], [0, 1, None, "true", torch.tensor(True)]),
        (flag(optional=True), [True, None], [0]),
        (number(), [1.5, -2.0, 1e300], [1, True, float("nan"), float("inf"), -float("inf"), "1.5", None]),
        (number(optional=True), [None, 0.5], [1]),
        (choice(torch.float16, torch.bfloat16), [torch.float16], [torch.float32, "float16", None]),
        (choice("nhwc", "nchw"), ["nhwc"], ["nhwd", None, 1, torch.float16]),
        (dims(3, 1), [(1,), (1, 2, 3)], [(), (1, 2, 3, 4), (0,), (True,), (1.0,), [1], "1", None, 1, {1}]),
        (dims(2, low=0), [(), (0, 0)], [(-1,)]),
        (dims(2, optional=True), [None, ()], [3]),
    ],
)
def test_exact_types_and_bounds(made: Any, taken: list[Any], refused: list[Any]) -> None:
    fact = kind(made)
    for value in taken:
        assert fact.check("x", value) == value
        assert fact.admits(value)
    for value in refused:
        assert not fact.admits(value)
        with pytest.raises(FactError) as caught:
            fact.check("x", value)
        assert str(caught.value).startswith(f"x takes {fact.describe()}; got ")
        assert caught.value.fields["fact"] == "x"


@pytest.mark.parametrize(
    ("made", "value", "message"),
    [
        (dim(), True, "x takes an integer from 1 to 1099511627776; got True (bool)"),
        (number(), 2, "x takes a finite float; got 2 (int): write 2.0"),
        (DTYPE, torch.float32, "x takes one of float16, bfloat16; got float32"),
        (DTYPE, "float16", "x takes one of float16, bfloat16; got 'float16' (str): write torch.float16"),
        (choice("nhwc", "nchw"), "nhwd", "x takes one of nhwc, nchw; got 'nhwd' (str) (did you mean 'nhwc'?)"),
        (
            dims(2),
            [1],
            "x takes a tuple of 0 to 2 integers, each from 1 to 1099511627776; got [1] (list): write a tuple",
        ),
        (flag(optional=True), 0, "x takes true or false, or None; got 0 (int)"),
    ],
)
def test_what_a_refusal_says(made: Any, value: object, message: str) -> None:
    fact = made if isinstance(made, Kind) else kind(made)
    with pytest.raises(FactError) as caught:
        fact.check("x", value)
    assert str(caught.value) == message


def test_what_is_converted() -> None:
    assert type(kind(dims(3)).check("x", torch.Size([2, 3]))) is tuple
    assert str(kind(number()).check("x", -0.0)) == "0.0"
    modes = kind(choice(*Mode))
    assert modes.check("x", Mode.CAUSAL) == "causal"
    assert type(modes.check("x", Mode.CAUSAL)) is str
    assert modes.check("x", "full") == Mode.FULL


@pytest.mark.parametrize(
    ("made", "text", "expected"),
    [
        (dim(), "4096", 4096),
        (dim(optional=True), "none", None),
        (integer(-3, 3), " -2 ", -2),
        (flag(), "true", True),
        (flag(), "False", False),
        (number(), "0.5", 0.5),
        (number(), "2", 2.0),
        (number(optional=True), "None", None),
        (DTYPE, "bfloat16", torch.bfloat16),
        (DTYPE, "torch.bfloat16", torch.bfloat16),
        (choice("nhwc", "nchw"), "nchw", "nchw"),
        (choice("none", "all", optional=True), "none", "none"),
        (choice("none", "all", optional=True), "None", None),
        (dims(3), "2x3", (2, 3)),
        (dims(3), "(2, 3)", (2, 3)),
        (dims(3), "5", (5,)),
        (dims(3), "(5,)", (5,)),
        (dims(3), "()", ()),
        (dims(3, low=-1), "-1x2", (-1, 2)),
    ],
)
def test_read(made: Any, text: str, expected: object) -> None:
    fact = made if isinstance(made, Kind) else kind(made)
    found = fact.read(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("made", "text", "words"),
    [
        (dim(), "0", "an integer from 1 to"),
        (dim(), "none", "an integer from 1 to"),
        (dim(), "1.5", "an integer from 1 to"),
        (flag(), "1", "true or false"),
        (number(), "nan", "a finite float"),
        (number(), "inf", "a finite float"),
        (DTYPE, "bfloat61", "did you mean 'bfloat16'?"),
        (DTYPE, "float32", "one of float16, bfloat16"),
        (dims(2), "2xx3", "a tuple of 0 to 2"),
        (dims(2), "2x3x4", "a tuple of 0 to 2"),
    ],
)
def test_read_refuses(made: Any, text: str, words: str) -> None:
    fact = made if isinstance(made, Kind) else kind(made)
    with pytest.raises(FactError) as caught:
        fact.read(text, "x")
    assert words in str(caught.value)
    assert str(caught.value).startswith("x takes")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: choice(), "one or more values"),
        (lambda: choice("a", torch.float16), "all dtypes or all strings"),
        (lambda: choice("a", "a"), "has 'a' twice"),
        (lambda: choice(1, 2), "for numbers take integer(low, high)"),
        (lambda: choice(Plain.A), "derive the enum from StrEnum"),
        (lambda: choice(torch.qint8), "no dtype torch.qint8"),
        (lambda: integer(3, 2), "integers low <= high"),
        (lambda: integer(True, 2), "integers low <= high"),
        (lambda: dims(2, 3), "0 <= min_rank <= max_rank <= 64"),
        (lambda: dims(65), "0 <= min_rank <= max_rank <= 64"),
        (lambda: dims(2, low=3, high=1), "integers low <= high"),
        (lambda: dim(default=0), "dim(): the default takes an integer"),
        (lambda: flag(default=None), "flag(): the default takes true or false"),
    ],
)
def test_malformed_kinds(make: Any, words: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert words in str(caught.value)


def test_content_is_plain() -> None:
    assert kind(dim(optional=True, default=3)).content() == {
        "kind": "dim",
        "optional": True,
        "low": 1,
        "high": DIM_MAX,
    }
    assert DTYPE.content() == {"kind": "choice", "members": ["float16", "bfloat16"], "of": "dtype"}
    assert kind(dims(4, 2, low=0, high=9)).content() == {
        "kind": "dims",
        "low": 0,
        "high": 9,
        "min_rank": 2,
        "max_rank": 4,
    }
    assert kind(choice("float16")).content() != kind(choice(torch.float16)).content()


def test_read_pairs() -> None:
    kinds = {"m": kind(dim()), "dtype": DTYPE}
    assert read_pairs(["m=1", "dtype = bfloat16"], kinds) == {"m": 1, "dtype": torch.bfloat16}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["dtyp=bfloat16"], "unknown fact 'dtyp' (did you mean 'dtype'?); known: m, dtype"),
        (["m"], "a fact is written name=value, got 'm'"),
        (["m=1", "m=2"], "the fact 'm' is given twice"),
        (["m=x"], "m takes an integer from 1 to"),
    ],
)
def test_read_pairs_refuses(texts: list[str], words: str) -> None:
    with pytest.raises(FactError) as caught:
        read_pairs(texts, {"m": kind(dim()), "dtype": DTYPE})
    assert words in str(caught.value)
