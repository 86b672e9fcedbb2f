"""Translation: what a node means to z3 is what it means to Python, defined where Python raises nothing."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from tileops.rules import smt
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.domain import Domain
from tileops.rules.errors import FactError
from tileops.rules.evaluate import EVALUATION_ERRORS
from tileops.rules.expr import parse
from tileops.rules.facts import choice, dims, flag, integer, number
from tileops.rules.nodes import Node
from tileops.rules.query import Prover
from tileops.rules.symbolic import Arithmetic, Unsupported, divisors, prime_powers


@call_spec()
class Call(CallSpec):
    a: int = integer(-12, 12)
    b: int = integer(-12, 12)
    c: int = integer(0, 1000)
    maybe: int | None = integer(-2, 2, optional=True)
    on: bool = flag()
    perhaps: bool | None = flag(optional=True)
    dtype: torch.dtype = choice(torch.float16, torch.float32, torch.int8)
    layout: str | None = choice("nhwc", "nchw", optional=True)
    scale: float | None = number(optional=True)
    shape: tuple[int, ...] = dims(3, low=0, high=9)
    pair: tuple[int, ...] = dims(2, 2, low=0, high=9)


BASE: dict[str, Any] = {
    "a": 1,
    "b": 2,
    "c": 3,
    "maybe": None,
    "on": True,
    "perhaps": None,
    "dtype": torch.float16,
    "layout": None,
    "scale": None,
    "shape": (2, 3),
    "pair": (4, 5),
}


class World:
    """Evaluates expressions with Python and by z3, on the same facts."""

    def __init__(self) -> None:
        self.domain = Domain(Call, {"cpu"})
        self.prover = Prover(self.domain)

    def both(self, text: str, facts: dict[str, Any]) -> tuple[Any, Any]:
        """Return what Python and the translation say of ``text == its value``: the value, or "raises"."""
        expression = parse(text)
        expression.type_in(Call.scope)
        known = {**BASE, **facts}
        try:
            expected = expression.evaluate(known)
        except EVALUATION_ERRORS:
            expected = "raises"
        value, defined = self.domain.translator.translate(expression.root)
        fixed = [
            self.domain.numbers.equal(self.domain.values[name], self.domain.numbers.constant(known[name]))
            for name in expression.facts
        ]
        about = self.domain.numbers.about([value.term, defined]).lemmas.values()
        model = self.prover.model([*fixed, *about, *self.domain.around([*fixed, defined])])
        assert model, f"no model of {facts}"
        if not model.holds(defined):
            return expected, "raises"
        if model.holds(value.none):
            return expected, None
        return expected, model.holds(value.term) if value.kind == "bool" else model.integer(value.term)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


SIGNS = list(itertools.product((-7, -6, -1, 0, 1, 4, 12), (-6, -3, -1, 0, 1, 2, 7)))


@pytest.mark.parametrize(
    "text",
    [
        "a // b",
        "a % b",
        "ceildiv(a, b)",
        "align_up(a, b)",
        "gcd(a, b)",
        "min(a, b)",
        "max(a, b)",
        "a * b - a",
        "-a + b",
    ],
)
def test_arithmetic_is_pythons_for_every_sign(world: World, text: str) -> None:
    for a, b in SIGNS:
        expected, found = world.both(text, {"a": a, "b": b})
        assert found == expected, f"{text} for a={a}, b={b}"


@pytest.mark.parametrize("text", ["a // 5", "a % 5", "a // -5", "a % -5", "7 % b", "12 // b", "gcd(a, 12)", "abs(a)"])
def test_a_constant_operand_means_the_same(world: World, text: str) -> None:
    for number_ in range(-12, 13):
        expected, found = world.both(text, {"a": number_, "b": number_})
        assert found == expected, f"{text} for {number_}"


@pytest.mark.parametrize("text", ["is_pow2(c)", "next_pow2(c)", "c % 8 == 0", "c * 6 % 4 == 0", "720 % c == 0"])
def test_powers_and_multiples(world: World, text: str) -> None:
    for number_ in (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 31, 32, 33, 127, 128, 129, 720, 1000):
        expected, found = world.both(text, {"c": number_})
        assert found == expected, f"{text} for c={number_}"


CASES = [
    ("on and 1 // a > 0", {"a": 0, "on": False}),
    ("on and 1 // a > 0", {"a": 0, "on": True}),
    ("on or 1 // a > 0", {"a": 0, "on": True}),
    ("on or 1 // a > 0", {"a": 0, "on": False}),
    ("not on", {}),
    ("1 < a < 8 // b", {"a": 1, "b": 0}),
    ("1 < a < 8 // b", {"a": 2, "b": 0}),
    ("1 < a < 8 // b", {"a": 2, "b": 2}),
    ("8 // b if on else 0", {"b": 0, "on": False}),
    ("8 // b if on else 0", {"b": 0, "on": True}),
    ("maybe is None or maybe > 1", {"maybe": None}),
    ("maybe is not None and maybe > 1", {"maybe": 2}),
    ("maybe > 1", {"maybe": None}),
    ("maybe + 1", {"maybe": None}),
    ("-maybe", {"maybe": None}),
    ("maybe == 1", {"maybe": None}),
    ("maybe != 1", {"maybe": None}),
    ("maybe in (None, 2)", {"maybe": None}),
    ("maybe not in (1, 2)", {"maybe": None}),
    ("(maybe if on else 3) is None", {"maybe": None}),
    ("(maybe if on else 3) is None", {"maybe": None, "on": False}),
    ("perhaps == True", {"perhaps": None}),
    ("perhaps == on", {"perhaps": True}),
    ("itemsize(dtype) * 8", {"dtype": torch.int8}),
    ("itemsize(dtype) * 8", {"dtype": torch.float32}),
    ("dtype == float16", {}),
    ("dtype in (float32, int8)", {}),
    ("layout == 'nhwc'", {"layout": None}),
    ("layout != 'nhwc'", {"layout": "nchw"}),
    ("layout in ('nhwc', None)", {"layout": None}),
    ("{'nhwc': 1, 'nchw': 2}[layout]", {"layout": "nchw"}),
    ("{'nhwc': 1, 'nchw': 2}[layout]", {"layout": None}),
    ("{1: 5, 2: 7}[a]", {"a": 2}),
    ("{1: 5, 2: 7}[a]", {"a": 3}),
    ("{(1, 2): 5, (2, 2): 7}[(a, b)]", {"a": 2, "b": 2}),
    ("(a, b) in {(1, 2), (3, 4)}", {"a": 3, "b": 4}),
    ("(a, b) not in {(1, 2), (3, 4)}", {"a": 3, "b": 2}),
    ("len(shape)", {"shape": ()}),
    ("len(shape)", {"shape": (1, 2, 3)}),
    ("prod(shape)", {"shape": ()}),
    ("prod(shape)", {"shape": (9, 8, 7)}),
    ("shape[0]", {"shape": ()}),
    ("shape[-1]", {"shape": (1, 2, 3)}),
    ("shape[2]", {"shape": (1, 2)}),
    ("shape[a]", {"shape": (5, 6), "a": -2}),
    ("shape[a]", {"shape": (5, 6), "a": -3}),
    ("shape[a]", {"shape": (5, 6), "a": 1}),
    ("prod(shape[1:])", {"shape": (5, 6, 7)}),
    ("prod(shape[:-1])", {"shape": (5, 6, 7)}),
    ("prod(shape[:-1])", {"shape": ()}),
    ("len(shape[a:b])", {"shape": (5, 6, 7), "a": -2, "b": 9}),
    ("len(shape[a:b])", {"shape": (5, 6, 7), "a": 2, "b": 1}),
    ("len(shape[a:b])", {"shape": (5, 6, 7), "a": -9, "b": -1}),
    ("len(shape[maybe:])", {"shape": (5, 6, 7), "maybe": None}),
    ("shape == (2, 3)", {}),
    ("shape == pair", {"shape": (4, 5)}),
    ("shape != pair", {"shape": (4, 5, 6)}),
    ("any(shape[i] > 4 for i in range(3))", {"shape": (5,)}),
    ("any(shape[i] > 4 for i in range(3))", {"shape": (1,)}),
    ("all(i < a for i in (1, 2, 8 // b))", {"a": 0, "b": 0}),
    ("all(i < a for i in (1, 2, 8 // b))", {"a": 0, "b": 1}),
    ("any((on, 1 // a > 0))", {"a": 0}),
    ("sum(i * a for i in range(4))", {"a": 3}),
    ("sum((a, b, 1))", {"a": 3}),
    ("any(a == i for i in range(0))", {}),
    ("all(a == i for i in range(0))", {}),
]


@pytest.mark.parametrize(("text", "facts"), CASES, ids=[f"{text} {facts}" for text, facts in CASES])
def test_each_node_means_what_python_means(world: World, text: str, facts: dict[str, Any]) -> None:
    expected, found = world.both(text, facts)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("literal", ["0.1", "0.5", "-1e300", "3", "1e-320"])
@pytest.mark.parametrize("op", ["<", "<=", "==", ">", ">=", "!="])
def test_a_float_is_compared_as_its_exact_fraction(world: World, literal: str, op: str) -> None:
    at = float(literal)
    for scale in (at, math.nextafter(at, -math.inf), math.nextafter(at, math.inf)):
        expected, found = world.both(f"scale {op} {literal}", {"scale": scale})
        assert found is expected, f"{scale!r} {op} {literal}"


def test_constants_fold_without_the_solver() -> None:
    numbers = Arithmetic()
    to = smt.Translator(numbers, {})
    for text, value in (("7 // 2 * 3 % 5", 4), ("next_pow2(9) + gcd(8, 12)", 20), ("prod((2, 3, 4)[1:])", 12)):
        found, defined = to.translate(parse(text).root)
        assert (found.term, defined) == (value, True)


def test_bounds_settle_conditions_without_the_solver(world: World) -> None:
    for text, value in (("c >= 0", True), ("c * 2 > 2000", False), ("a % 5 < 5", True), ("c // 8 <= 125", True)):
        assert world.domain.translator.condition(parse(text).root)[0] is value, text


def test_what_has_no_translation_says_so() -> None:
    class Unknown(Node):
        pass

    with pytest.raises(Unsupported, match="no translation of Unknown"):
        smt.translate(Unknown(), smt.Translator(Arithmetic(), {}))


def test_divisors_and_primes() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(2**30) == []
    assert prime_powers(720) == {2: 4, 3: 2, 5: 1}
    assert prime_powers(1) == {}


def test_a_model_decodes_to_the_call_that_has_its_facts(world: World) -> None:
    domain = world.domain
    call = Call(device="cpu", **{**BASE, "maybe": -2, "layout": "nchw", "scale": 0.1, "shape": (7, 8, 9)})
    fixed = [
        domain.numbers.equal(domain.values[name], domain.numbers.constant(value))
        for name, value in call.facts().items()
    ]
    model = world.prover.model([*fixed, *domain.everything()])
    assert model
    assert domain.decode(model) == call
    assert domain.decode(model).stated is not None


def test_a_call_spec_that_cannot_be_made_is_no_fact_of_the_domain(world: World) -> None:
    with pytest.raises(FactError):
        Call(device="cpu", **{**BASE, "a": 13})
    too_large = world.domain.terms.less(12, world.domain.values["a"].term)
    assert world.prover.model([too_large, *world.domain.everything()]) is False
