"""Random rule tables over small finite domains: their requests, their rules, and every value and device to try.

Whatever the language has is generated: each operator and kind of fact, None, device facts, derived facts, invariants,
folds, literal tables, memberships, arch sets, opaque refusals.
"""

from __future__ import annotations

import itertools
import math
import random
from functools import lru_cache
from typing import Any

import attrs
import torch

from tileops.rules.archs import arch_set
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import DeviceFacts
from tileops.rules.errors import ExpressionError
from tileops.rules.facts import choice, dims, flag, integer, number
from tileops.rules.spaces import Region
from tileops.rules.span import Span
from tileops.rules.table import RuleTable

# -- a small world of devices: its regions for the prover, its members for the oracle

DEVICES = {
    "cuda": (
        Region(Span(80, 80), Span(2, 3), Span(64, 64)),
        Region(Span(90, 90), Span(3, 4), Span(128, 128), calibrations=(("H", 4),)),
        Region(Span(89, 91), Span(1, 1), Span(32, 32), but=frozenset({90})),
    ),
    "cpu": (Region(Span(-1, -1), Span(0, 0), Span(0, 0)),),
    "xpu": (Region(Span(-1, 0), Span(2, 2), Span(64, 64), calibrations=None),),
}
MEMBERS = {
    "cuda": [
        DeviceFacts(80, None, 2, 64),
        DeviceFacts(80, None, 3, 64),
        DeviceFacts(90, None, 3, 128),
        DeviceFacts(90, None, 4, 128),
        DeviceFacts(90, "H", 4, 128),
        DeviceFacts(89, None, 1, 32),
        DeviceFacts(91, None, 1, 32),
    ],
    "cpu": [DeviceFacts(-1, None, 0, 0)],
    "xpu": [DeviceFacts(arch, name, 2, 64) for arch in (-1, 0) for name in (None, "H", "Z", "else")],
}
ARCHS: tuple[Any, ...] = (
    *(None, None, None, {80}, {90}, {80, 90}, {91}, {"at_least": 90}, {"at_least": 91}, {"between": [80, 89]}),
    *({"family": 90}, [80, {"at_least": 91}], [{"between": [80, 88]}, 90], {85}, [0, 89], {"between": [0, 79]}),
)


@attrs.frozen
class Fact:
    """Is a fact that a random request may have: how it is declared, and all that matters of its values."""

    name: str
    kind: str
    make: Any
    values: tuple[Any, ...]


# Floats are compared with literals and integers of these tables only: a point on and between each of them will do.
# Between 0.5 and the next double there is none.
NEXT = math.nextafter(0.5, 1.0)
FLOATS = (*(step / 2 for step in range(-6, 12)), 0.25, NEXT, 0.75)
FLOAT_WORDS = ("0.5", repr(NEXT), "0.5", repr(NEXT), "-1.0", "2.0", "3", "0")
TUPLES = ((), (1,), (2,), (1, 1), (1, 2), (2, 1), (2, 2))
FACTS = (
    Fact("m", "int", lambda: integer(-2, 3), tuple(range(-2, 4))),
    Fact("n", "int", lambda: integer(0, 4), tuple(range(5))),
    Fact("k", "int", lambda: integer(1, 9), tuple(range(1, 10))),
    Fact("o", "int?", lambda: integer(-1, 2, optional=True), (None, *range(-1, 3))),
    Fact("f", "bool", flag, (False, True)),
    Fact("g", "bool?", lambda: flag(optional=True), (None, False, True)),
    Fact(
        "d",
        "dtype",
        lambda: choice(torch.float16, torch.float32, torch.int8),
        (torch.float16, torch.float32, torch.int8),
    ),
    Fact("e", "dtype?", lambda: choice(torch.int8, torch.float64, optional=True), (None, torch.int8, torch.float64)),
    Fact("s", "str", lambda: choice("a", "b", "c"), ("a", "b", "c")),
    Fact("x", "float", number, FLOATS),
    Fact("y", "float?", lambda: number(optional=True), (None, *FLOATS)),
    Fact("w", "str?", lambda: choice("a", "b", optional=True), (None, "a", "b")),
    Fact("t", "tuple", lambda: dims(2, low=1, high=2), TUPLES),
    Fact("v", "tuple?", lambda: dims(2, low=1, high=2, optional=True), (None, *TUPLES)),
    Fact("u", "tuple2", lambda: dims(2, 2, low=0, high=2), tuple(itertools.product(range(3), repeat=2))),
)
ANNOTATIONS = {"int": int, "bool": bool, "dtype": torch.dtype, "str": str, "float": float}
LARGEST = 90  # combinations of facts a table may have


@attrs.frozen
class Request:
    """Is a random call spec class and what the oracle knows of it."""

    spec: type[CallSpec]
    facts: tuple[Fact, ...]
    invariants: tuple[str, ...]
    derived: tuple[tuple[str, str], ...]


@lru_cache(maxsize=4096)
def request(facts: tuple[Fact, ...], invariants: tuple[str, ...], derived: tuple[tuple[str, str], ...]) -> Request:
    body: dict[str, Any] = {fact.name: fact.make() for fact in facts}
    body["__annotations__"] = {fact.name: object for fact in facts}
    body["__module__"] = __name__
    made: type[CallSpec] = call_spec(invariants=invariants, derived=dict(derived))(
        type("RandomCall", (CallSpec,), body)
    )
    return Request(made, facts, invariants, derived)


class Maker:
    """Writes random, well-typed expressions over the facts of a request."""

    def __init__(self, source: random.Random, kinds: dict[str, str]) -> None:
        self.random = source
        self.kinds = kinds

    def pick(self, *options: Any) -> Any:
        return options[self.random.randrange(len(options))]

    def names(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.kinds.items() if kind in kinds]

    def boolean(self, depth: int) -> str:
        options = [self.comparison, self.comparison, self.comparison, self.atom, self.membership, self.among]
        if depth > 0:
            options += [self.logic, self.logic, self.negation, self.fold, self.chosen_condition]
        return str(self.pick(*options)(depth - 1))

    def atom(self, depth: int) -> str:
        options = []
        if flags := self.names("bool"):
            options.append(self.pick(*flags))
        if flags := self.names("bool?"):
            options.append(f"({self.pick(*flags)} == {self.pick('True', 'False')})")
        if len(flags := self.names("bool", "bool?")) > 1:
            options.append(f"({self.pick(*flags)} {self.pick('==', '!=')} {self.pick(*flags)})")
        if flags and depth > 0:
            options.append(f"({self.pick(*flags)} {self.pick('==', '!=')} {self.boolean(0)})")
        if "arch" in self.kinds:
            options.append("{80: True, 89: False, 90: True, 91: False, -1: True}[arch]")
        if maybe := self.names("int?", "bool?", "dtype?", "float?", "str?", "board?", "tuple?"):
            options += [f"({self.pick(*maybe)} {self.pick('is', 'is not')} None)"] * 2
        options.append(f"is_pow2({self.integer(depth)})")
        return str(self.pick(*options))

    def comparison(self, depth: int) -> str:
        floats = self.names("float", "float?")
        if floats and self.random.random() < (0.3 if len(self.kinds) > 1 else 0.9):
            parts = [self.float(depth)]
            for _ in range(self.pick(1, 1, 1, 2)):
                parts += [self.pick("<", "<=", ">", ">=", "==", "!="), self.float(depth)]
            return f"({' '.join(parts)})"
        words: list[tuple[str, tuple[str, ...]]] = [(name, ("'a'", "'b'", "'c'")) for name in self.names("str")]
        words += [(name, ("float16", "float32", "int8")) for name in self.names("dtype")]
        words += [(name, ("int8", "float64")) for name in self.names("dtype?")]
        words += [(name, ("'a'", "'b'")) for name in self.names("str?")]
        words += [(name, ("'H'", "'Z'")) for name in self.names("board?")]
        if words and self.random.random() < 0.3:
            name, values = self.pick(*words)
            return f"({name} {self.pick('==', '!=')} {self.pick(*values)})"
        if self.names("tuple", "tuple?", "tuple2") and self.random.random() < (0.2 if len(self.kinds) > 1 else 0.6):
            return f"({self.tuple(depth)} {self.pick('==', '!=')} {self.tuple(depth)})"
        parts = [self.integer(depth)]
        for _ in range(self.pick(1, 1, 1, 2)):
            parts += [self.pick("<", "<=", ">", ">=", "==", "!="), self.integer(depth)]
        return f"({' '.join(parts)})"

    def float(self, depth: int) -> str:
        floats = self.names("float", "float?")
        whole = [name for name in ("m", "n", "sm_count") if name in self.kinds]  # within FLOATS
        options = [*floats, *floats, *whole, *FLOAT_WORDS]
        if depth > 0:
            options.append(f"({self.float(0)} if {self.boolean(0)} else {self.float(0)})")
            options.append(f"{{0: 0.5, 1: 2, 2: -1.0, 3: {NEXT!r}}}[{self.integer(0)}]")
        return str(self.pick(*options))

    def tuple(self, depth: int) -> str:
        tuples = self.names("tuple", "tuple?", "tuple2")
        options = [*tuples, *tuples, "(1, 2)", "(2,)", f"({self.integer(0)}, {self.integer(0)})"]
        options += [f"{name}[{self.pick(':1', '1:', ':-1', '-1:', '0:9', '-9:1', '1:1')}]" for name in tuples]
        if depth > 0:
            options.append(f"({self.tuple(0)} if {self.boolean(0)} else {self.tuple(0)})")
        return str(self.pick(*options))

    def among(self, depth: int) -> str:
        """Write a fact of any kind among constants of its kind, or several facts among tuples of constants."""
        constants = {
            "int": ("0", "1", "2", "-1", "2.0"),
            "bool": ("True", "False"),
            "dtype": ("float16", "int8", "bfloat16"),
            "str": ("'a'", "'b'"),
            "board": ("'H'", "'Z'"),
            "float": (*FLOAT_WORDS, "0.5"),
            "tuple": ("(1, 2)", "(2,)", "()", "(2, 2)", "(1, 1)"),
            "tuple2": ("(0, 1)", "(2, 2)", "(0, 0)"),
        }
        sign = self.pick("in", "not in")
        names = [name for name in self.kinds if name not in ("i", "q", "arch", "sm_count", "smem_budget")]
        scalars = [name for name in names if not self.kinds[name].startswith("tuple")]
        if len(scalars) > 1 and self.random.random() < 0.3:
            chosen = self.random.sample(scalars, 2)
            rows = []
            for _ in range(self.pick(1, 2, 3)):
                row = [self.one_of(constants, name) for name in chosen]
                rows.append(f"({', '.join(row)})")
            return f"(({', '.join(chosen)}) {sign} {{{', '.join(rows)}}})"
        if not names:
            return self.comparison(depth)
        name = self.pick(*names)
        values = {self.one_of(constants, name) for _ in range(self.pick(1, 2, 3))}
        return f"({name} {sign} ({', '.join(sorted(values))},))"

    def one_of(self, constants: dict[str, tuple[str, ...]], name: str) -> str:
        kind = self.kinds[name]
        options = constants[kind.rstrip("?")]
        return str(self.pick(*options, "None")) if kind.endswith("?") else str(self.pick(*options))

    def membership(self, depth: int) -> str:
        negated = self.pick("in", "not in")
        if self.random.random() < 0.3:
            rows = ", ".join(f"({self.pick(0, 1, 2, 3)}, {self.pick(0, 1, 2)})" for _ in range(self.pick(1, 2, 5)))
            return f"(({self.integer(depth)}, {self.integer(depth)}) {negated} {{{rows}}})"
        if (names := self.names("dtype")) and self.random.random() < 0.5:
            return f"({self.pick(*names)} {negated} (float16, {self.pick('float32', 'int8')}))"
        if (names := self.names("board?")) and self.random.random() < 0.5:
            return f"({self.pick(*names)} {negated} ('H', None))"
        if (names := self.names("int?")) and self.random.random() < 0.5:
            return f"({self.pick(*names)} {negated} (None, 1))"
        values = ", ".join(str(self.pick(-1, 0, 1, 2, 3, 4, 8)) for _ in range(self.pick(1, 2, 3)))
        return f"({self.integer(depth)} {negated} ({values},))"

    def logic(self, depth: int) -> str:
        op = str(self.pick(" and ", " or "))
        return f"({op.join(self.boolean(depth) for _ in range(self.pick(2, 2, 3)))})"

    def negation(self, depth: int) -> str:
        return f"(not {self.boolean(depth)})"

    def chosen_condition(self, depth: int) -> str:
        return f"({self.boolean(depth)} if {self.boolean(depth)} else {self.boolean(depth)})"

    def fold(self, depth: int) -> str:
        function = self.pick("any", "all")
        if self.random.random() < 0.3:
            return f"{function}(({self.boolean(depth)}, {self.boolean(depth)}))"
        if "i" not in self.kinds and self.random.random() < 0.3:
            if len(names := self.names("dtype", "dtype?")) > 0:
                return (
                    f"{function}(i {self.pick('==', '!=')} int8 for i in ({self.pick(*names)}, float16, {names[-1]}))"
                )
            if len(names := self.names("float", "float?")) > 0:
                return f"{function}({self.pick(*names)} {self.pick('<', '==')} i for i in (0.5, -1.0, {NEXT!r}))"
            return f"{function}(any(i == j for j in ({self.integer(0)}, {self.integer(0)})) for i in range(2, -1, -1))"
        return f"{function}({self.with_variable(depth, self.boolean)} for i in {self.over(depth)})"

    def over(self, depth: int) -> str:
        return str(self.pick("range(3)", "range(1, 3)", f"({self.integer(depth)}, {self.integer(depth)})", "range(0)"))

    def with_variable(self, depth: int, write: Any) -> str:
        if "i" in self.kinds:
            return str(write(0))
        self.kinds = {**self.kinds, "i": "int"}
        text = str(write(0))
        self.kinds = {name: kind for name, kind in self.kinds.items() if name != "i"}
        return text

    def integer(self, depth: int) -> str:
        leaves = [*self.names("int")] * 3 + self.names("int?") + [str(self.pick(-2, -1, 0, 1, 2, 3, 5, 8))]
        leaves += [f"itemsize({name})" for name in self.names("dtype", "dtype?")]
        for name in self.names("tuple", "tuple?", "tuple2"):
            leaves += [f"len({name})", f"{name}[{self.pick(0, 1, -1, -2)}]", f"prod({name})", f"len({name}[1:])"]
            leaves.append(f"prod({name}[{self.pick(':-1', '1:', ':1', '-1:', '0:9')}])")
        if depth <= 0 or self.random.random() < 0.25:
            return str(self.pick(*leaves))
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        nonzero = self.pick("1", "2", "3", "4", "8", "-3", b, b)
        options = [f"({a} {self.pick('+', '-', '*')} {b})"] * 3
        options += [
            f"({a} // {nonzero})",
            f"({a} % {nonzero})",
            f"ceildiv({a}, {nonzero})",
            f"align_up({a}, {nonzero})",
        ]
        options += [f"min({a}, {b}, 2)", f"max(0, {a}, {b})", f"gcd({a}, 4, {b})", f"sum(({a}, {b}, 1))"]
        options += [f"min({a}, {b})", f"max({a}, {b})", f"abs({a})", f"(-{a})", f"next_pow2({a})"]
        options += [f"gcd({a}, {self.pick('6', '8', b)})", f"{{0: 3, 1: -1, 2: 5, 3: 0}}[{a}]"]
        options.append(f"({a} if {self.boolean(depth - 1)} else {b})")
        if self.names("str"):
            options.append(f"{{'a': 1, 'b': 4, 'c': 0}}[{self.pick(*self.names('str'))}]")
        if self.names("dtype"):
            options.append(f"{{float16: 2, int8: 0}}[{self.pick(*self.names('dtype'))}]")
        if (words := self.names("str")) and (flags := self.names("bool")):
            table = "{('a', True): 1, ('b', False): 2, ('c', True): -1, ('a', False): 0}"
            options.append(f"{table}[({self.pick(*words)}, {self.pick(*flags)})]")
        if "arch" in self.kinds:
            options.append("{80: 2, 90: None, 91: 3}[arch]")
        if tuples := self.names("tuple", "tuple?", "tuple2"):
            options += [f"{self.pick(*tuples)}[{a}]", f"prod({self.pick(*tuples)}[{a}:{b}])"]
        if "i" not in self.kinds:
            options.append(f"sum({self.with_variable(depth - 1, self.integer)} for i in {self.over(depth - 2)})")
        return str(self.pick(*options))


def draw_request(source: random.Random) -> Request:
    while True:
        facts = tuple(sorted(source.sample(FACTS, source.randrange(2, 5)), key=lambda fact: fact.name))
        if math.prod(len(fact.values) for fact in facts) <= LARGEST:
            break
    maker = Maker(source, {fact.name: fact.kind for fact in facts})
    derived = []
    invariants = []
    if source.random() < 0.25:
        derived.append(("q", maker.integer(1)))
    if source.random() < 0.25:
        derived.append(("z", str(maker.pick(maker.boolean, maker.float, maker.tuple, maker.integer)(1))))
    if source.random() < 0.25:
        invariants.append(maker.boolean(1))
    try:
        return request(facts, tuple(invariants), tuple(derived))
    except ExpressionError:
        return request(facts, (), ())


def draw_table(source: random.Random) -> tuple[RuleTable, Request]:
    return draw_narrow_table(source) if source.random() < 0.4 else draw_wide_table(source)


def draw_narrow_table(source: random.Random) -> tuple[RuleTable, Request]:
    """Return a table of which every rule asks about one fact: what is settled without the solver, if anything is."""
    fact = FACTS[source.randrange(len(FACTS))]
    other = FACTS[source.randrange(len(FACTS))]
    facts = tuple(sorted({fact, other}, key=lambda fact: fact.name))
    asked = request(facts if math.prod(len(fact.values) for fact in facts) <= LARGEST else (fact,), (), ())
    maker = Maker(source, {fact.name: fact.kind} if source.random() < 0.7 else {name.name: name.kind for name in facts})
    maker.kinds = {name: kind for name, kind in maker.kinds.items() if name in asked.spec.kinds}
    declarations = {}
    for letter in "abc"[: source.randrange(2, 4)]:
        rules = []
        for _ in range(maker.pick(1, 1, 2)):
            text = str(maker.pick(maker.among, maker.among, maker.comparison, maker.atom)(0))
            text = f"(not {text})" if source.random() < 0.5 else text
            rules.append(f"({text} {maker.pick('and', 'or')} {maker.atom(0)})" if source.random() < 0.2 else text)
        declarations[f"impl_{letter}"] = Declaration(refusal=tuple(Refusal(rule, "x") for rule in rules))
    return RuleTable("narrow", asked.spec, declarations), asked


def draw_wide_table(source: random.Random) -> tuple[RuleTable, Request]:
    asked = draw_request(source)
    kinds = {fact.name: fact.kind for fact in asked.facts}
    for name, _ in asked.derived:
        found = asked.spec.scope[name]
        kinds[name] = found.kind + "?" * found.optional
    if source.random() < 0.5:  # rules on the call alone meet more often
        kinds |= {"arch": "int", "sm_count": "int", "smem_budget": "int", "calibration": "board?"}
    maker = Maker(source, kinds)
    keys = [f"impl_{letter}" for letter in "abcdef"[: source.randrange(2, 7)]]
    declarations = {}
    for key in keys:
        rules = tuple(Refusal(draw_rule(maker), "x") for _ in range(maker.pick(0, 1, 1, 2, 2, 3)))
        if source.random() < 0.06:
            place = source.randrange(len(rules) + 1)
            asking = Refusal(opaque=OPAQUE[source.randrange(len(OPAQUE))], why="x")
            rules = (*rules[:place], asking, *rules[place:])
        preferred = {other for other in (*keys, "impl_z") if other != key and source.random() < 0.2}
        preferred -= {"impl_z"} if source.random() < 0.9 else set()
        declarations[key] = Declaration(
            devices=maker.pick({"cuda"}, {"cuda"}, {"cuda"}, {"cpu"}, {"cuda", "xpu"}, {"xpu", "cpu"}),
            supported_archs=arch_set(maker.pick(*ARCHS)),
            refusal=rules,
            general=source.random() < 0.12,
            preferred_over=preferred,
        )
    return RuleTable("random", asked.spec, declarations), asked


def draw_rule(maker: Maker) -> str:
    if maker.random.randrange(100) == 57:
        return "rows > 2"  # no request has it
    text = maker.boolean(2)
    return text[1:-1] if text.startswith("(") and text.endswith(")") and _balanced(text[1:-1]) else text


def _balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0:
            return False
    return depth == 0


def refuses_every_other(call: CallSpec) -> bool:
    return len(repr(call.facts())) % 2 == 0


def refuses_all(call: CallSpec) -> str:
    return "whatever is asked"


def refuses_nothing(call: CallSpec) -> None:
    return None


OPAQUE: tuple[Any, ...] = (refuses_every_other, refuses_all, refuses_nothing)
