from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tileops.rules.archs import at_least, between, exactly
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.errors import DeclarationError, ExpressionError


def test_the_defaults() -> None:
    plain = Declaration()
    assert plain.devices == {"cuda"}
    assert plain.supported_archs is None
    assert plain.refusal == ()
    assert plain.general is False
    assert plain.preferred_over == frozenset()
    assert plain.dead_because is None


def test_collections_of_any_kind_are_taken() -> None:
    one = Declaration(devices=["cuda", "rocm"], supported_archs={90, 80}, refusal=[Refusal("m > 2", "m={m}")])
    other = Declaration(devices={"rocm", "cuda"}, supported_archs=exactly(80, 90), refusal=(Refusal("m > 2", "m={m}"),))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"devices": "cuda"}, r"devices takes a set of names such as \{'cuda'\}, got 'cuda'"),
        ({"devices": set()}, "devices names no device type"),
        ({"devices": {1}}, "devices takes names"),
        ({"devices": {""}}, "devices takes names"),
        ({"supported_archs": 90}, "supported_archs takes"),
        ({"refusal": Refusal("m > 2", "m={m}")}, "refusal takes a tuple"),
        ({"refusal": ("m > 2",)}, r"refusal takes Refusal\(...\) in its tuple"),
        ({"general": 1}, "general takes True or False, got 1"),
        ({"preferred_over": "gemv"}, "preferred_over takes a set of names"),
        ({"dead_because": ""}, "dead_because takes a sentence"),
        ({"dead_because": True}, "dead_because takes a sentence"),
    ],
)
def test_a_malformed_declaration_says_which_field(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        Declaration(**fields)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Refusal(), "either a rule or an opaque callable"),
        (lambda: Refusal("m > 2", "w", opaque=lambda call: True), "either a rule or an opaque callable"),
        (lambda: Refusal("m > 2"), "says not why"),
        (lambda: Refusal("m > 2", "  "), "says not why"),
        (lambda: Refusal(lambda call: True, "w"), "expression in a string"),  # type: ignore[arg-type]
        (lambda: Refusal(opaque=3, why="w"), "cannot be called: 3"),  # type: ignore[arg-type]
    ],
)
def test_a_malformed_refusal_says_what_it_lacks(make: Any, told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        make()


@pytest.mark.parametrize("when", ["m >", "m.n > 2", "__import__('os')", "m > 2 and", "f(m)"])
def test_a_rule_is_parsed_when_it_is_made(when: str) -> None:
    with pytest.raises(ExpressionError):
        Refusal(when, "w")


def test_a_message_is_parsed_when_it_is_made() -> None:
    with pytest.raises(ExpressionError):
        Refusal("m > 2", "got {m +}")


def test_an_opaque_refusal_is_known_by_its_name() -> None:
    def odd(call: Any) -> bool:
        return True

    refusal = Refusal(opaque=odd, why="w")
    assert refusal.rule is None
    assert refusal.text.endswith("odd")
    with pytest.raises(DeclarationError, match=r"odd is a Python callable and cannot be written as data"):
        Declaration(refusal=(refusal,)).to_plain()
    assert "odd" in Declaration(refusal=(refusal,)).content()["refusal"][0]["opaque"]


names = st.text("abcdefghij_", min_size=1, max_size=8)
refusals = st.builds(
    Refusal,
    st.sampled_from(["m > 2", "k * itemsize(dtype) % 16 != 0", "dtype == bfloat16", "m in (1, 2)", "x is None"]),
    st.sampled_from(["got m={m}", "no {{braces}}", "ünïcode: yes", "true", "1"]),
)
archs = st.none() | st.builds(at_least, st.integers(0, 200)) | st.just(between(80, 89)) | st.just(exactly(80, 90))
declarations = st.builds(
    Declaration,
    devices=st.frozensets(names, min_size=1, max_size=3),
    supported_archs=archs,
    refusal=st.lists(refusals, max_size=3).map(tuple),
    general=st.booleans(),
    preferred_over=st.frozensets(names, max_size=3),
    dead_because=st.none() | st.just("kept for the benchmark"),
)


@given(declarations)
def test_data_gives_the_declaration_back_through_json_and_yaml(declaration: Declaration) -> None:
    plain = declaration.to_plain()
    assert Declaration.from_plain(plain) == declaration
    assert Declaration.from_plain(json.loads(json.dumps(plain))) == declaration
    assert Declaration.from_plain(yaml.safe_load(yaml.safe_dump(plain))) == declaration
    assert pickle.loads(pickle.dumps(declaration)) == declaration
    # Equal declarations are equal text, whatever the order of their sets.
    assert json.dumps(plain) == json.dumps(Declaration.from_plain(plain).to_plain())


def test_defaults_are_left_out_of_data() -> None:
    assert Declaration().to_plain() == {}
    assert Declaration(preferred_over={"b", "a"}, supported_archs=at_least(80)).to_plain() == {
        "supported_archs": {"at_least": 80},
        "preferred_over": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (["cuda"], "a declaration is a mapping"),
        ({"device": ["cuda"]}, r"unknown field 'device' \(did you mean 'devices'\?\) @ declaration"),
        ({"devices": "cuda"}, r"devices takes a set of names .* @ declaration\.devices"),
        ({"general": "yes"}, r"takes true or false, got 'yes' @ declaration\.general"),
        ({"refusal": 3}, r"takes a list of refusals.* @ declaration\.refusal"),
        ({"refusal": [{"when": "m > 2", "why": 3}]}, r"takes a string, got 3 @ declaration\.refusal\[0\]\.why"),
        ({"refusal": [{"when": "m > 2"}]}, r"says not why.* @ declaration\.refusal\[0\]"),
        ({"refusal": [{"wen": "m > 2", "why": "x"}]}, r"unknown field 'wen' \(did you mean 'when'\?\)"),
        ({"refusal": [{"opaque": "os.system", "why": "x"}]}, "unknown field 'opaque'"),
        ({"refusal": [{"when": "m >", "why": "x"}]}, r"(?s)m >.*@ declaration\.refusal\[0\]"),
        ({"supported_archs": {"newer": 80}}, r"a range of archs is .* @ declaration\.supported_archs"),
    ],
)
def test_bad_data_says_the_path(data: Any, told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        Declaration.from_plain(data)


def test_all_faults_of_data_come_together() -> None:
    with pytest.raises(DeclarationError) as caught:
        Declaration.from_plain({"devices": [], "supported_archs": [-3], "general": 1, "refusal": [{"when": "m >"}]})
    assert len(caught.value.fields["faults"]) >= 3


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({1: 2}, "a declaration has no 1; it is a mapping of devices,"),
        ({"refusal": [3]}, "takes a mapping of `when` and `why`, got 3 @ declaration.refusal[0]"),
        ({"refusal": ["m > 1"]}, "takes a mapping of `when` and `why`, got 'm > 1' @ declaration.refusal[0]"),
        ({"refusal": [{"when": "m > 1", "why": "x", 3: 4}]}, "takes a mapping of `when` and `why`"),
    ],
)
def test_data_of_a_wrong_shape_is_told_in_our_own_words(data: Any, told: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Declaration.from_plain(data)
    assert told in str(caught.value)


def test_an_unknown_field_is_told_with_the_nearest() -> None:
    with pytest.raises(DeclarationError, match=r"a declaration has no 'refusals' \(did you mean 'refusal'\?\)"):
        Declaration(refusals=[])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "told"), [("cuda:0", "write 'cuda' for 'cuda:0'"), ("cu da", "takes device types"), ("0", "device types")]
)
def test_a_device_type_is_a_word(name: str, told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        Declaration(devices={name})
