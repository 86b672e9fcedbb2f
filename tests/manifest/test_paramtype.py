import math

import pytest
import torch

from tileops.manifest.paramtype import REFUSED, choices, parse_type, show_received
from tileops.rules.types import Type


@pytest.mark.parametrize(
    ("text", "taken", "refused"),
    [
        ("bool", [True, False], [1, 0, None, "true"]),
        ("int", [0, -3, 2**70], [True, 1.0, "1", None]),
        ("float", [0.5, math.inf, 3, 2**53], [True, "0.5", None, 2**53 + 1]),
        ("float | None", [0.5, None], [True, []]),
        ("str", ["x"], [b"x", 1]),
        ("str[none | tanh]", ["none", "tanh"], ["erf", None]),
        ("dtype", [torch.float16], ["float16"]),
        ("dtype[float16 | float32]", [torch.float32], [torch.bfloat16]),
        ("list[int]", [[], [1, 2]], [(1, 2), [1.0], [True], 1]),
        ("tuple[int, ...]", [(), (1, 2)], [[1, 2], (1, None)]),
        ("tuple[int, float]", [(1, 0.5)], [(1,), (1, 0.5, 2), (0.5, 1)]),
        ("tuple[int | None, ...]", [(1, None)], [(1, "x")]),
        ("list[tuple[int, int]]", [[(1, 2), (3, 4)]], [[(1, 2, 3)], [[1, 2]]]),
        ("list[int] | tuple[int, ...]", [[64], (64,)], [64, "64", [[64]]]),
    ],
)
def test_a_type_takes_exactly_its_values(text, taken, refused):
    type_ = parse_type(text)
    for value in taken:
        kept = type_.accept(value)
        assert kept == value
        assert type(kept) is type(value)
    for value in refused:
        assert type_.accept(value) is REFUSED, value


def test_a_list_is_copied_and_a_size_becomes_a_tuple():
    type_ = parse_type("list[int] | tuple[int, ...]")
    mine = [1, 2]
    kept = type_.accept(mine)
    mine.append(3)
    assert kept == [1, 2]
    assert type(type_.accept(torch.empty(2, 3).shape)) is tuple


def test_a_sequence_of_ints_holds_at_most_eight():
    type_ = parse_type("tuple[int, ...]")
    assert type_.accept((1,) * 8) == (1,) * 8
    assert type_.accept((1,) * 9) is REFUSED


@pytest.mark.parametrize("text", ["bool", "float | None", "list[int] | tuple[int, ...]", "tuple[int, int]"])
def test_a_type_prints_as_it_was_written(text):
    assert str(parse_type(text)) == text


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "flaot",
            "'flaot' is no type (did you mean 'float'?); types are bool, int, float, str, dtype, None, list, tuple",
        ),
        ("list", "list needs its elements' type, such as list[int]"),
        ("tuple", "tuple needs its elements' type, such as tuple[int, ...]"),
        ("int |", "'int |' ends where a type is expected"),
        ("int int", "'int int' has 'int' where it should end"),
        ("list[int", "'list[int' lacks a ',' or ']' in list[...]"),
        ("list[int, int]", "'list[int, int]' gives list[...] more than its elements' type"),
        ("tuple[int, ..., int]", "'tuple[int, ..., int]' gives tuple[...] more than its elements' type"),
        ("int[1]", "'int[1]' has '1' where a type is expected"),
        ("int[a]", "int takes no choices: only str and dtype do"),
        ("str[a, b]", "'str[a, b]' does not list its choices as [a | b]"),
        ("str[", "'str[' does not list its choices as [a | b]"),
    ],
)
def test_a_type_that_does_not_read_says_why(text, cause):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared whole
        parse_type(text)
    assert str(caught.value) == cause


def test_an_unknown_dtype_is_named_with_the_nearest():
    with pytest.raises(ValueError, match=r"^'fp16' is no dtype"):
        parse_type("dtype[fp16]")
    with pytest.raises(ValueError, match=r"^'bfloat' is no dtype \(did you mean 'bfloat16'\?\)"):
        parse_type("dtype[bfloat]")


def test_choices_split_a_head_from_its_list():
    assert choices("DType[float16 | bfloat16]") == ("DType", ("float16", "bfloat16"))
    assert choices("Dim") == ("Dim", ())
    with pytest.raises(ValueError, match=r"^'Dim\]' has '\]' where '\[' is expected$"):
        choices("Dim]")


@pytest.mark.parametrize(
    ("text", "static"),
    [
        ("bool", Type("bool")),
        ("float | None", Type("float", optional=True)),
        ("int | float", Type("float")),
        ("None", Type("none")),
        ("str[a | b]", Type("str", members=("a", "b"))),
        ("dtype[float16]", Type("dtype", members=(torch.float16,))),
        ("tuple[int, int]", Type("tuple", min_len=2, max_len=2)),
        ("list[int] | tuple[int, ...] | None", Type("tuple", optional=True, min_len=0, max_len=8)),
        ("int | str", None),
        ("list[str]", None),
    ],
)
def test_expressions_see_a_static_type(text, static):
    assert parse_type(text).static == static


def test_yaml_data_means_dtypes_and_tuples():
    assert parse_type("dtype | None").from_plain("float16") is torch.float16
    assert parse_type("tuple[int, int]").from_plain([1, 2]) == (1, 2)
    assert parse_type("list[int]").from_plain([1, 2]) == [1, 2]
    assert parse_type("str").from_plain("float16") == "float16"
    assert parse_type("int").from_plain("1") is REFUSED


def test_received_values_show_their_type():
    shown = [show_received(value) for value in (None, 64, "x", torch.float16, [1])]
    assert shown == ["None", "int 64", "str 'x'", "dtype float16", "list [1]"]
    assert show_received("y" * 500) == "str '" + "y" * 76 + "..."
