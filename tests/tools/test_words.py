"""Values, columns, spans and counts as the command lines write them."""

import pytest
import torch

from tileops.tools import mermaid, words


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (None, "none"),
        (True, "true"),
        (1, "1"),
        (0.5, "0.5"),
        (torch.bfloat16, "bfloat16"),
        ((2, 3), "2x3"),
        ("tanh", "tanh"),
    ],
)
def test_values_are_written_as_the_command_line_reads_them(item: object, text: str) -> None:
    assert words.value(item) == text


def test_plain_values_go_into_json() -> None:
    assert words.plain((1, torch.float16, [torch.device("cuda:1")])) == [1, "float16", ["cuda:1"]]


def test_columns_align_all_but_the_last_cell() -> None:
    assert words.columns([("a", "bbb", "c"), ("aaaa", "b")], indent=" ") == [" a     bbb  c", " aaaa  b"]
    assert words.columns([]) == []


def test_spans_fold_neighbours_with_one_answer() -> None:
    assert words.spans([(75, "none"), (80, "mma"), (89, "mma"), (90, "wgmma")]) == "75 none; 80-89 mma; 90 wgmma"
    assert words.spans([(80, "a"), (86, "b"), (89, "a")]) == "80 a; 86 b; 89 a"


@pytest.mark.parametrize(("number", "noun", "text"), [(1, "query", "1 query"), (2, "query", "2 queries")])
def test_counts_have_their_plural(number: int, noun: str, text: str) -> None:
    assert words.count(number, noun) == text
    assert words.count(1200, "pair") == "1,200 pairs"


def test_mermaid_escapes_labels_and_draws_arrows_down() -> None:
    drawn = mermaid.graph("t.i", {"a": 'm < "2"', "b": ""}, [("a", "b")])
    assert drawn.splitlines() == [
        "flowchart TD",
        '    subgraph table ["t.i"]',
        '        k0_a["a<br/>m #lt; #quot;2#quot;"]',
        '        k1_b["b"]',
        "        k0_a --> k1_b",
        "    end",
    ]


def test_facts_are_written_as_a_call_spec_writes_them() -> None:
    facts = {"m": 1, "flag": True, "scale": None, "dtype": torch.bfloat16, "shape": (2, 3)}
    said = [words.fact(name, value) for name, value in facts.items()]
    assert said == ["m=1", "flag=True", "scale=None", "dtype=bfloat16", "shape=2x3"]
