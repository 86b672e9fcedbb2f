"""What expressions mean: the generated code, a walk over the nodes, and Python itself agree."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tileops.rules.errors import ExpressionError
from tileops.rules.expr import (
    DTYPES,
    EVALUATION_ERRORS,
    Arithmetic,
    Call,
    Choose,
    Compare,
    Const,
    Fold,
    Index,
    Logic,
    Lookup,
    Member,
    Name,
    Negate,
    Node,
    Not,
    Pack,
    Slice,
    Type,
    constant,
    parse,
)

SCOPE = {
    "m": Type("int", low=-50, high=50),
    "n": Type("int", low=0, high=50),
    "cap": Type("int", optional=True, low=1, high=9),
    "shape": Type("tuple", low=1, high=9, min_len=0, max_len=4),
    "pair": Type("tuple", low=-5, high=5, min_len=2, max_len=2),
    "dtype": Type("dtype", members=(torch.float16, torch.float32, torch.int8)),
    "layout": Type("str", members=("nhwc", "nchw")),
    "flag": Type("bool"),
    "scale": Type("float", optional=True),
}
NAMES = tuple(SCOPE)

values = st.fixed_dictionaries(
    {
        "m": st.integers(-50, 50),
        "n": st.integers(0, 50),
        "cap": st.none() | st.integers(1, 9),
        "shape": st.lists(st.integers(1, 9), max_size=4).map(tuple),
        "pair": st.tuples(st.integers(-5, 5), st.integers(-5, 5)),
        "dtype": st.sampled_from([torch.float16, torch.float32, torch.int8]),
        "layout": st.sampled_from(["nhwc", "nchw"]),
        "flag": st.booleans(),
        "scale": st.none() | st.floats(-4, 4).map(lambda x: x + 0.0),
    }
)


def _join(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    # A variable named by the length of what it encloses is never the name of a variable within.
    return st.tuples(*parts).map(lambda texts: template.format(*texts).replace("$", f"v{sum(map(len, texts))}_"))


literals = st.integers(-9, 130).map(str)
atoms = literals | st.sampled_from(
    ["m", "n", "cap", "len(shape)", "itemsize(dtype)", "shape[0]", "shape[-1]", "pair[1]", "prod(shape)"]
)
integers: st.SearchStrategy[str] = st.deferred(
    lambda: (
        atoms
        | st.tuples(integers, st.sampled_from(["+", "-", "*", "//", "%"]), integers).map(lambda t: f"({' '.join(t)})")
        | _join("-({})", integers)
        | st.tuples(st.sampled_from(["min", "max", "gcd", "ceildiv", "align_up"]), integers, integers).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        )
        | st.tuples(st.sampled_from(["abs", "next_pow2"]), integers).map(lambda t: f"{t[0]}({t[1]})")
        | _join("({} if {} else {})", integers, conditions, integers)
        | _join("{{0: 5, 1: -7, 2: 30}}[{}]", integers)
        | _join("shape[{}]", integers)
        | _join("prod(shape[{}:{}])", integers, integers)
        | _join("len(pair[{}:])", integers)
        | _join("sum({} * $ for $ in range(3))", integers)
        | _join("sum($ % 7 + {} for $ in ({}, n, 3))", integers, integers)
        | _join("sum(({}, {}))", integers, integers)
    )
)
conditions: st.SearchStrategy[str] = st.deferred(
    lambda: (
        st.sampled_from(
            [
                "flag",
                "cap is None",
                "cap is not None",
                "scale is not None and scale > 0.5",
                "layout == 'nhwc'",
                "layout in ('nchw',)",
                "dtype in {float16, bfloat16}",
                "dtype != int8",
                "(m, n) in {(1, 2), (3, 4), (-1, 0)}",
                "pair in ((0, 0), (1, -1))",
                "cap not in (1, None, 3)",
                "scale == 1",
                "(m, dtype) not in {(1, float16), (2, int8)}",
            ]
        )
        | st.tuples(integers, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), integers).map(
            lambda t: f"({' '.join(t)})"
        )
        | _join("({} < {} <= {})", integers, integers, integers)
        | st.tuples(conditions, st.sampled_from(["and", "or"]), conditions).map(lambda t: f"({' '.join(t)})")
        | _join("(not {})", conditions)
        | _join("is_pow2({})", integers)
        | _join("any({} > $ for $ in range(0, 9, 4))", integers)
        | _join("all($ != {} or {} for $ in (m, {}))", integers, conditions, integers)
        | _join("any($ < len(shape) and shape[$] > {} for $ in range(4))", integers)
        | _join("any(({}, {}))", conditions, conditions)
        | _join("any(any($ * $w == {} for $w in range(2)) for $ in range(3))", integers)
    )
)


def _itemsize(dtype: torch.dtype) -> int:
    if dtype is None:
        raise TypeError
    return torch.empty(0, dtype=dtype).element_size()


def _ceildiv(a: int, b: int) -> int:
    quotient, rest = divmod(a, b)
    return quotient + (rest != 0)


def _next_pow2(n: int) -> int:
    power = 1
    while power < n:
        power *= 2
    return power


def _gcd(*numbers: int) -> int:
    found = 0
    for number in numbers:
        other = abs(number)
        while other:
            found, other = other, found % other
    return found


def _prod(items: tuple[int, ...]) -> int:
    result = 1
    for item in items:
        result *= item
    return result


# Written apart from rules/functions.py, so that an error there shows.
PYTHON: dict[str, Any] = {
    "min": min,
    "max": max,
    "abs": abs,
    "len": len,
    "any": any,
    "all": all,
    "sum": sum,
    "range": range,
    "prod": _prod,
    "gcd": _gcd,
    "itemsize": _itemsize,
    "ceildiv": _ceildiv,
    "align_up": lambda a, b: _ceildiv(a, b) * b,
    "is_pow2": lambda n: n > 0 and math.log2(n) % 1 == 0,
    "next_pow2": _next_pow2,
    **DTYPES,
}
ARITHMETIC = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}
COMPARE = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "is": lambda a, b: a is b,
    "is not": lambda a, b: a is not b,
}


def walk(node: Node | None, known: Mapping[str, Any]) -> Any:
    """Compute a node by walking it: the meaning of the language, in the plainest way."""
    match node:
        case None:
            return None
        case Const(value=value):
            return value
        case Name(name=name):
            return known[name]
        case Negate(operand=operand):
            return -walk(operand, known)
        case Arithmetic(op=op, left=left, right=right):
            return ARITHMETIC[op](walk(left, known), walk(right, known))
        case Compare(left=left, ops=ops, rights=rights):
            before = walk(left, known)
            for op, right in zip(ops, rights, strict=True):
                after = walk(right, known)
                if not COMPARE[op](before, after):
                    return False
                before = after
            return True
        case Logic(op=op, operands=operands):
            for operand in operands:
                if walk(operand, known) is (op == "or"):
                    return op == "or"
            return op == "and"
        case Not(operand=operand):
            return not walk(operand, known)
        case Member(needle=needle, options=options, negated=negated):
            found = walk(needle, known)
            return any(found == constant(option) for option in options) is not negated
        case Choose(condition=condition, then=then, otherwise=otherwise):
            return walk(then, known) if walk(condition, known) else walk(otherwise, known)
        case Call(function=function, arguments=arguments):
            return PYTHON[function](*[walk(argument, known) for argument in arguments])
        case Index(base=base, index=index):
            return walk(base, known)[walk(index, known)]
        case Slice(base=base, start=start, stop=stop):
            return walk(base, known)[walk(start, known) : walk(stop, known)]
        case Lookup(table=table, key=key):
            wanted = walk(key, known)
            for option, value in table:
                if constant(option) == wanted:
                    return value.value
            raise KeyError(wanted)
        case Pack(items=items):
            return tuple(walk(item, known) for item in items)
        case Fold(function=function, variable=variable, over=over, body=body):
            items = list(over) if isinstance(over, range) else [walk(item, known) for item in over]
            if variable is None:
                return PYTHON[function](items)
            return PYTHON[function](walk(body, {**known, variable: item}) for item in items)
    raise AssertionError(f"a node the reference does not know: {node!r}")


def _outcome(compute: Any, *arguments: Any) -> tuple[type, Any]:
    try:
        value = compute(*arguments)
    except EVALUATION_ERRORS as error:
        return type(error), None
    return type(value), value


def _parsed(text: str) -> Any:
    try:
        return parse(text)
    except ExpressionError as error:
        assert "nested deeper" in str(error)  # noqa: PT017 - the only fault that generated texts can have
        return None


@settings(max_examples=400, deadline=None)
@given(text=integers | conditions, facts=values)
@example(text="ceildiv(cap, 0)", facts={**dict.fromkeys(NAMES), "cap": 1})
@example(text="any((cap > 1, flag))", facts={**dict.fromkeys(NAMES), "flag": True})
@example(text="any(x > 1 for x in (m, n // 0))", facts={**dict.fromkeys(NAMES), "m": 5, "n": 1})
@example(text="(m // 0 if flag else 3)", facts={**dict.fromkeys(NAMES), "m": 5, "flag": False})
def test_code_walk_and_python_agree(text: str, facts: dict[str, Any]) -> None:
    expression = _parsed(text)
    if expression is None:
        return
    expected = _outcome(eval, text, {"__builtins__": {}, **PYTHON, **facts})
    assert _outcome(expression.compile(NAMES), *[facts[name] for name in NAMES]) == expected
    assert _outcome(walk, expression.root, facts) == expected
    assert _outcome(expression.evaluate, facts) == expected


@settings(max_examples=400, deadline=None)
@given(text=integers | conditions, facts=values)
def test_values_are_of_the_inferred_type(text: str, facts: dict[str, Any]) -> None:
    expression = _parsed(text)
    if expression is None:
        return
    try:
        found = expression.type_in(SCOPE)
    except ExpressionError as error:
        # All that a generated text can have wrong.
        assert "divides by 0" in str(error) or "is never in" in str(error)  # noqa: PT017
        return
    kind, value = _outcome(expression.evaluate, facts)
    if kind in (int, bool):
        assert found.kind == kind.__name__
        if kind is int:
            assert found.low is None or found.low <= value
            assert found.high is None or value <= found.high
    elif kind is type(None):
        assert found.optional
    else:
        assert issubclass(kind, EVALUATION_ERRORS), f"{text} is {value!r}"


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # Python warns of `1 is None`
@settings(max_examples=150, deadline=None)
@given(text=integers | conditions, facts=values)
def test_the_rendered_text_means_the_same(text: str, facts: dict[str, Any]) -> None:
    expression = _parsed(text)
    if expression is None:
        return
    rendered = expression.render(facts)
    assert not _names(rendered) & set(NAMES)
    expected = _outcome(expression.evaluate, facts)
    assert _outcome(eval, rendered, {"__builtins__": {}, **PYTHON}) == expected


def _names(text: str) -> set[str]:
    return {item.id for item in ast.walk(ast.parse(text, mode="eval")) if isinstance(item, ast.Name)}


@pytest.mark.parametrize(
    ("text", "facts", "expected"),
    [
        ("a // b", {"a": -7, "b": 2}, -4),
        ("a % b", {"a": -7, "b": 2}, 1),
        ("a % b", {"a": 7, "b": -2}, -1),
        ("a * a * a", {"a": 2**40}, 2**120),
        ("ceildiv(a, b)", {"a": 2**60 + 1, "b": 2}, 2**59 + 1),
        ("align_up(a, 128)", {"a": 1}, 128),
        ("align_up(a, 128)", {"a": 128}, 128),
        ("is_pow2(a)", {"a": 0}, False),
        ("is_pow2(a)", {"a": -4}, False),
        ("is_pow2(a)", {"a": 2**70}, True),
        ("next_pow2(a)", {"a": -3}, 1),
        ("next_pow2(a)", {"a": 2**40 + 1}, 2**41),
        ("gcd(a, b, 12)", {"a": 0, "b": -18}, 6),
        ("prod(t)", {"t": ()}, 1),
        ("prod(t[1:])", {"t": (3, 4, 5)}, 20),
        ("len(t[-2:])", {"t": (3,)}, 1),
        ("t[5:]", {"t": (3,)}, ()),
        ("t == (2, 3)", {"t": (2, 3)}, True),
        ("itemsize(d)", {"d": torch.bfloat16}, 2),
        ("itemsize(float8_e4m3fn)", {}, 1),
        ("d == bool", {"d": torch.bool}, True),
        ("any(())", {}, False),
        ("all(())", {}, True),
        ("sum(())", {}, 0),
        ("sum(i for i in range(0))", {}, 0),
        ("sum(i for i in range(100))", {}, 4950),
        ("sum(i for i in range(3, 0, -1))", {}, 6),
        ("{(80, float16): 1, (90, float16): 2}[(a, d)]", {"a": 90, "d": torch.float16}, 2),
        ("{float16: 1, bfloat16: 2}[d]", {"d": torch.bfloat16}, 2),
        ("0.1 == x", {"x": 0.1}, True),
        ("x > 16777216", {"x": 16777217.0}, True),
        ("-1.5 < x", {"x": -1.0}, True),
        ("1 is not None", {}, True),
        ("(1 + 2) is None", {}, False),
        ("a is None is not None", {"a": None}, False),
    ],
)
def test_value(text: str, facts: dict[str, Any], expected: object) -> None:
    found = parse(text).evaluate(facts)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "facts", "error"),
    [
        ("a + 1", {"a": None}, TypeError),
        ("a < 1", {"a": None}, TypeError),
        ("min(a, 1)", {"a": None}, TypeError),
        ("itemsize(a)", {"a": None}, TypeError),
        ("len(a)", {"a": None}, TypeError),
        ("is_pow2(a)", {"a": None}, TypeError),
        ("1 // a", {"a": 0}, ZeroDivisionError),
        ("1 % a", {"a": 0}, ZeroDivisionError),
        ("ceildiv(1, a)", {"a": 0}, ZeroDivisionError),
        ("a[2]", {"a": (1, 2)}, IndexError),
        ("a[-3]", {"a": (1, 2)}, IndexError),
        ("{80: 1}[a]", {"a": 90}, KeyError),
        ("any((a > 1, a // 0 > 1))", {"a": 5}, ZeroDivisionError),
    ],
)
def test_what_raises(text: str, facts: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        parse(text).evaluate(facts)


def test_none_equals_only_none() -> None:
    assert parse("a == b").evaluate({"a": None, "b": None}) is True
    assert parse("a == 1").evaluate({"a": None}) is False
    assert parse("a in (1, 2)").evaluate({"a": None}) is False


def test_membership_is_one_set_lookup() -> None:
    options = {(i, i * 7) for i in range(600)}
    text = "(m, n) in {" + ", ".join(map(str, sorted(options))) + "}"
    expression = parse(text)
    function = expression.compile(("m", "n"))
    sets = [value for value in function.__globals__.values() if isinstance(value, frozenset)]
    assert sets == [frozenset(options)]
    assert function(599, 599 * 7) is True
    assert function(599, 0) is False


def test_nesting_up_to_the_limit_compiles() -> None:
    for opening, closing in (
        ("-(", ")"),
        ("abs(", ")"),
        ("ceildiv(1, ", ")"),
        ("min(0, sum((", ",)))"),
        ("(1 + ", ")"),
    ):
        levels = 26 if "sum" in opening else 79
        text = opening * levels + "m" + closing * levels
        assert _outcome(parse(text).evaluate, {"m": 1}) == _outcome(eval, text, {**PYTHON, "m": 1})


def test_code_sees_no_builtins() -> None:
    function = parse("min(m, 3)").compile(("m",))
    assert function.__globals__["__builtins__"] == {}
