from __future__ import annotations

import subprocess
import sys
from typing import Any

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileops.rules.declaration import Declaration
from tileops.rules.precedence import Precedence


def over(*keys: str) -> Declaration:
    return Declaration(preferred_over=set(keys))


nx: Any = networkx
GENERAL = Declaration(general=True)


def test_everything_goes_before_the_general_one() -> None:
    found = Precedence({"g": GENERAL, "a": over(), "b": over("a")})
    assert found.above("g") == {"a", "b"}
    assert found.above("a") == {"b"}
    assert found.above("b") == frozenset()
    assert found.generals == ("g",)


def test_precedence_is_transitive_and_its_display_is_not() -> None:
    found = Precedence({"a": over("b", "c"), "b": over("c"), "c": over("g"), "g": GENERAL})
    assert found.above("c") == {"a", "b"}
    assert found.above("g") == {"a", "b", "c"}
    assert found.reduction() == (("a", "b"), ("b", "c"), ("c", "g"))


def test_unknown_keys_are_left_out_and_reported() -> None:
    found = Precedence({"a": over("b", "z", "y"), "b": over()})
    assert found.unknown_keys() == {"a": ("y", "z")}
    assert found.above("b") == {"a"}
    assert set(found.graph.nodes) == {"a", "b"}


@pytest.mark.parametrize(
    ("declarations", "cycles"),
    [
        ({"a": over("b"), "b": over()}, ()),
        ({"a": over("a")}, (("a",),)),
        ({"b": over("a"), "a": over("b")}, (("a", "b"),)),
        (
            {"c": over("a"), "a": over("b"), "b": over("c"), "y": over("x"), "x": over("y"), "z": over("a", "y")},
            (("a", "b", "c"), ("x", "y")),
        ),
    ],
)
def test_cycles_are_reported_once_each_from_the_least_key(
    declarations: dict[str, Declaration], cycles: tuple[tuple[str, ...], ...]
) -> None:
    found = Precedence(declarations)
    assert found.cycles() == cycles
    for key in declarations:
        assert (key in found.above(key)) == any(key in cycle for cycle in cycles)
    assert set(found.reduction()) <= set(found.graph.edges)


def test_a_general_one_with_a_preference_makes_no_cycle_of_it() -> None:
    found = Precedence({"g": Declaration(general=True, preferred_over={"a"}), "a": over()})
    assert found.cycles() == ()
    assert found.above("g") == {"a"}
    assert found.above("a") == frozenset()


def test_two_general_ones_stand_beside_each_other() -> None:
    found = Precedence({"g": GENERAL, "h": GENERAL, "a": over()})
    assert found.generals == ("g", "h")
    assert found.above("g") == found.above("h") == {"a"}


keys = st.sampled_from("abcdef")
tables = st.dictionaries(
    keys, st.builds(Declaration, preferred_over=st.frozensets(keys, max_size=3), general=st.booleans()), min_size=1
)


@given(tables, st.randoms())
def test_the_closure_is_networkx_s_and_order_means_nothing(table: dict[str, Declaration], random: Any) -> None:
    found = Precedence(table)
    for key in table:
        assert found.above(key) == _reaching(found.graph, key)
    items = list(table.items())
    random.shuffle(items)
    other = Precedence(dict(items))
    assert list(other.graph.edges) == list(found.graph.edges)
    assert other.cycles() == found.cycles()
    assert other.reduction() == found.reduction()
    assert bool(found.cycles()) != nx.is_directed_acyclic_graph(found.graph)


def _reaching(graph: Any, key: str) -> set[str]:
    above = set(nx.ancestors(graph, key))
    on_cycle = graph.has_edge(key, key) or any(key in nx.ancestors(graph, other) and other in above for other in above)
    return above | ({key} if on_cycle else set())


def test_selection_needs_no_networkx() -> None:
    program = (
        "import sys; from tileops.rules import Declaration, RuleTable, CallSpec, call_spec, dim\n"
        "@call_spec()\nclass C(CallSpec):\n    m: int = dim()\n"
        "a, b = Declaration(devices={'cpu'}, preferred_over={'b'}), Declaration(devices={'cpu'})\n"
        "t = RuleTable('t', C, {'a': a, 'b': b})\n"
        "assert t.select(C(device='cpu', m=1)) == 'a'\n"
        "print([name for name in ('networkx', 'z3', 'tilelang') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
