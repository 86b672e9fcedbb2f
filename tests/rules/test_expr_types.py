"""Types of expressions: what they are, and what each mismatch says."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tileops.rules import intervals
from tileops.rules.errors import ExpressionError
from tileops.rules.expr import Type, parse
from tileops.rules.functions import align_up, ceildiv, next_pow2
from tileops.rules.types import type_of_value

DIM = Type("int", low=1, high=2**40)
SCOPE = {
    "m": DIM,
    "n": DIM,
    "cap": Type("int", optional=True, low=1, high=8),
    "dtype": Type("dtype", members=(torch.float16, torch.bfloat16)),
    "layout": Type("str", members=("nhwc", "nchw")),
    "name": Type("str", optional=True),
    "flag": Type("bool"),
    "maybe": Type("bool", optional=True),
    "scale": Type("float", optional=True),
    "eps": Type("float"),
    "shape": Type("tuple", low=1, high=2**40, min_len=1, max_len=4),
    "pad": Type("tuple", low=0, high=7, min_len=2, max_len=2),
    "rest": Type("tuple", optional=True),
    "arch": Type("int", low=-1),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", Type("int", low=3, high=3)),
        ("None", Type("none")),
        ("m > 2", Type("bool")),
        ("m + 1", Type("int", low=2, high=2**40 + 1)),
        ("m - n", Type("int", low=1 - 2**40, high=2**40 - 1)),
        ("m % 128", Type("int", low=0, high=127)),
        ("arch % 128", Type("int", low=0, high=127)),
        ("pad[0] % 128", Type("int", low=0, high=7)),
        ("arch // 10", Type("int", low=-1)),
        ("m // n", Type("int", low=0, high=2**40)),
        ("cap + 1", Type("int", low=2, high=9)),
        ("itemsize(dtype)", Type("int", low=2, high=2)),
        ("len(shape)", Type("int", low=1, high=4)),
        ("len(shape[1:])", Type("int", low=0, high=3)),
        ("shape[-1]", DIM),
        ("shape[:-1]", Type("tuple", low=1, high=2**40, min_len=0, max_len=3)),
        ("shape[m:]", Type("tuple", low=1, high=2**40, min_len=0, max_len=4)),
        ("prod(pad)", Type("int", low=0, high=49)),
        ("prod(rest)", Type("int")),
        ("m if flag else None", Type("int", True, 1, 2**40)),
        ("1 if flag else 2.5", Type("float")),
        ("cap if cap is not None else 1", Type("int", low=1, high=8)),
        ("1 if cap is None else cap", Type("int", low=1, high=8)),
        ("float16 if flag else bfloat16", Type("dtype", members=(torch.float16, torch.bfloat16))),
        ("dtype if flag else float32", Type("dtype", members=(torch.float16, torch.bfloat16, torch.float32))),
        ("layout if flag else name", Type("str", True)),
        ("{80: 1, 90: 5}[arch]", Type("int", low=1, high=5)),
        ("{80: 1, 90: None}[arch]", Type("int", True, 1, 1)),
        ("{'nhwc': 1, 'nchw': 2}[layout]", Type("int", low=1, high=2)),
        ("(m, 3)", Type("tuple", low=1, high=2**40, min_len=2, max_len=2)),
        ("()", Type("tuple", max_len=0)),
        ("sum(shape[i] for i in range(1))", DIM),
        ("sum((1, pad[0]))", Type("int", low=1, high=8)),
        ("min(m, 8, 9)", Type("int", low=1, high=8)),
        ("max(m, 8)", Type("int", low=8, high=2**40)),
        ("gcd(m, 12)", Type("int", low=1, high=12)),
        ("next_pow2(cap)", Type("int", low=1, high=8)),
        ("align_up(cap, 4)", Type("int", low=1, high=11)),
        ("ceildiv(cap, 4)", Type("int", low=1, high=2)),
        ("abs(1 - cap)", Type("int", low=0, high=7)),
    ],
)
def test_type(text: str, expected: Type) -> None:
    assert parse(text).type_in(SCOPE) == expected


@pytest.mark.parametrize(
    "text",
    [
        "m is None",  # constantly False: the fact is never None
        "cap is None or cap > 2",
        "cap > 2",  # has a type; raises where cap is None, and the proof says so
        "scale == 1",
        "scale > m",
        "dtype == float32",  # constantly False, allowed: the list of dtypes may be shared between interfaces
        "dtype in (float16, bfloat16, float32)",
        "layout in ('nhwc',)",
        "name == 'anything'",
        "cap in (1, None)",
        "shape in ((1, 2), (3,))",
        "shape == (m, 2)",
        "(m, dtype, flag) in {(1, float16, True)}",
        "maybe is not None and maybe",
        "not (maybe is None) and maybe",
        "maybe is None or maybe",
        "not (maybe is None or flag) and maybe",
        "maybe == True",
        "any(x == dtype for x in (float16, bfloat16))",
        "all(i >= len(shape) or shape[i] % 8 == 0 for i in range(4))",
        "{(80, float16): True, (90, float16): False}[(arch, dtype)]",
        "{80: False}[cap]",
        "1 < m <= n < 2.5",
    ],
)
def test_condition(text: str) -> None:
    expression = parse(text)
    assert expression.type_in(SCOPE) == Type("bool")
    expression.require("bool", SCOPE)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("m2 > 1", 0, "unknown fact 'm2' (did you mean 'm'?)"),
        ("n > 1 and laout == 'nhwc'", 10, "unknown fact 'laout' (did you mean 'layout'?)"),
        ("dtype > 3", 0, "'>' orders integers and floats, got a dtype"),
        ("3 < layout", 4, "'<' orders integers and floats, got a string"),
        ("flag < 2", 0, "'<' orders integers and floats, got a bool"),
        ("flag + 1", 0, "'+' takes integers, got a bool: write 'x if flag else y'"),
        ("m * eps", 4, "'*' takes integers, got a float: floats are only compared"),
        ("-eps > 1", 1, "unary '-' takes integers, got a float"),
        ("max(eps, 1) > 1", 4, "max(a, b, ...) takes integers, got a float"),
        ("m + None", 4, "'+' takes integers, got None"),
        ("flag == 1", 8, "'==' between a bool and an integer never holds"),
        ("m == True", 5, "'==' between an integer and a bool never holds"),
        ("dtype == 'float16'", 9, "'==' between a dtype and a string never holds"),
        ("layout == 'nhwd'", 10, "'nhwd' is none of 'nhwc', 'nchw' (did you mean 'nhwc'?)"),
        ("'nhwd' != layout", 0, "'nhwd' is none of"),
        ("layout in ('nhwc', 'nhcw')", 19, "'nhcw' is none of"),
        ("m in (1, 'a')", 9, "'in' between an integer and a string"),
        ("m in (1, True)", 9, "'in' between an integer and a bool"),
        ("m in ((1, 2), (3, 4))", 6, "between an integer and a tuple of 2 integers"),
        ("(m, n) in {(1, 2), (3, 4, 5)}", 19, "beside a tuple of 2 is a tuple of 2"),
        ("(m, n) in (1, 2)", 11, "beside a tuple of 2 is a tuple of 2"),
        ("(m, dtype) in {(1, 2)}", 19, "'in' between a dtype and an integer"),
        ("not m", 4, "'not' takes a condition, got an integer: compare it"),
        ("m and flag", 0, "'and' takes a condition, got an integer"),
        ("flag or dtype", 8, "'or' takes a condition, got a dtype"),
        ("cap and flag", 0, "got an integer or None: write 'x is not None'"),
        ("maybe and flag", 0, "never None: write 'x is not None and x'"),
        ("maybe is None and maybe", 18, "never None"),
        ("not maybe", 4, "never None"),
        ("1 if m else 2", 5, "'if' takes a condition"),
        ("1 if flag else 'a'", 15, "the two sides of 'if' differ: an integer, and a string"),
        ("m % 0 == 1", 4, "'%' divides by 0"),
        ("ceildiv(m, 0)", 11, "ceildiv(a, b) divides by 0"),
        ("itemsize(m)", 9, "itemsize(d) takes a dtype, got an integer"),
        ("len(m)", 4, "len(t) takes a tuple, got an integer"),
        ("m[0]", 0, "an index takes a tuple, got an integer"),
        ("m[1:]", 0, "a slice takes a tuple, got an integer"),
        ("shape[4]", 6, "index 4 is never in a tuple of 1 to 4 integers"),
        ("pad[-3]", 4, "index -3 is never in a tuple of 2 integers"),
        ("shape[flag]", 6, "an index takes integers, got a bool"),
        ("shape[flag:]", 6, "a slice takes integers, got a bool"),
        ("(m, flag) == (1, 2)", 4, "a tuple holds integers that are never None, got a bool"),
        ("(m, cap) == (1, 2)", 4, "a tuple holds integers that are never None, got an integer or None"),
        ("{80: 1}[flag]", 1, "asked with a bool, and one of its keys is an integer"),
        ("{80: 1, 90: 'a'}[arch]", 12, "the values of a table are of one type"),
        ("any(i for i in range(3))", 4, "any takes a condition, got an integer"),
        ("sum(i > 1 for i in range(3))", 4, "sum takes integers, got a bool"),
        ("any((m, flag))", 5, "any takes a condition, got an integer"),
        ("any(m > 1 for m in (1, 2))", 0, "the variable 'm' hides the fact"),
        ("any(x == 1 for x in (m, dtype))", 24, "the items of a comprehension are of one type"),
        ("scale is not None and scale * 2 > 1", 22, "'*' takes integers, got a float"),
    ],
)
def test_mismatch(text: str, column: int, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text).type_in(SCOPE)
    assert words in str(caught.value)
    assert caught.value.fields["column"] == column


def test_an_empty_scope_says_so() -> None:
    with pytest.raises(ExpressionError, match="no fact is known here"):
        parse("m").type_in({})


@pytest.mark.parametrize(("text", "got"), [("m", "an integer"), ("maybe", "a bool or None"), ("None", "None")])
def test_require(text: str, got: str) -> None:
    with pytest.raises(ExpressionError, match=f"wanted a bool, got {got}"):
        parse(text).require("bool", SCOPE)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Type("int"), "an integer"),
        (Type("tuple", min_len=2, max_len=2), "a tuple of 2 integers"),
        (Type("tuple", min_len=0, max_len=8, optional=True), "a tuple of 0 to 8 integers or None"),
        (Type("tuple"), "a tuple of integers"),
    ],
)
def test_types_say_themselves(value: Type, words: str) -> None:
    assert str(value) == words


def test_a_value_the_language_lacks() -> None:
    with pytest.raises(TypeError, match="no value like"):
        type_of_value([1])  # type: ignore[arg-type]


ends = st.none() | st.integers(-6, 6)
spans = st.tuples(ends, ends).filter(lambda s: s[0] is None or s[1] is None or s[0] <= s[1])
BINARY = {
    intervals.add: lambda a, b: a + b,
    intervals.multiply: lambda a, b: a * b,
    intervals.floor_divide: lambda a, b: a // b,
    intervals.modulo: lambda a, b: a % b,
    intervals.least: min,
    intervals.greatest: max,
    intervals.ceil_divide: ceildiv,
    intervals.align: align_up,
    intervals.common_divisor: lambda a, b: __import__("math").gcd(a, b),
}
UNARY = {intervals.negate: lambda a: -a, intervals.absolute: abs, intervals.next_power: next_pow2}


def _inside(span: intervals.Interval) -> range:
    return range(-9 if span[0] is None else span[0], 10 if span[1] is None else span[1] + 1)


def _holds(span: intervals.Interval, value: int) -> bool:
    return (span[0] is None or span[0] <= value) and (span[1] is None or value <= span[1])


@given(a=spans, b=spans)
def test_intervals_hold_every_value(a: intervals.Interval, b: intervals.Interval) -> None:
    for bound, compute in BINARY.items():
        found = bound(a, b)
        for x, y in itertools.product(_inside(a), _inside(b)):
            divides = bound in (intervals.floor_divide, intervals.modulo, intervals.ceil_divide, intervals.align)
            if not (divides and y == 0):
                assert _holds(found, compute(x, y)), (bound.__name__, a, b, x, y)
    for single, compute_one in UNARY.items():
        assert all(_holds(single(a), compute_one(x)) for x in _inside(a)), (single.__name__, a)
