"""Call specs: made, compared, checked, asked; and what a malformed class says."""

from __future__ import annotations

import builtins
import copy
import enum
import inspect
import json
import keyword
import pickle
import re
from typing import Any, ClassVar

import attrs
import pytest
import torch

from tileops.rules import callspec as callspec_module
from tileops.rules import device as device_module
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import DeviceFacts
from tileops.rules.errors import DeclarationError, ExpressionError, FactError, RuleError
from tileops.rules.expr import Type
from tileops.rules.facts import choice, dim, dims, flag, integer, number
from tileops.rules.table import RuleTable

H200 = DeviceFacts(90, "h200", 132, 232448)


class Mode(enum.StrEnum):
    FULL = "full"
    CAUSAL = "causal"


@call_spec()
class GemmCall(CallSpec):
    """A small spec."""

    m: int = dim()
    n: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16)
    trans: bool = flag(default=False)


@call_spec(
    invariants=("heads % heads_kv == 0", "window is None or group * window <= 4096"),
    derived={"group": "heads // heads_kv", "double": "group * 2"},
)
class AttentionCall(CallSpec):
    """A spec with everything."""

    note: ClassVar[str] = "not a fact"

    heads: int = dim()
    heads_kv: int = dim()
    mode: str = choice(*Mode)
    window: int | None = integer(0, 4096, optional=True)
    scale: float | None = number(optional=True, default=None)
    shape: tuple[int, ...] = dims(4, default=())

    def shown(self) -> str:
        """Show that methods stay."""
        return f"{self.heads}/{self.heads_kv}"


@call_spec(invariants=("sinks <= heads",), derived={"quad": "double * 2"})
class SinkCall(AttentionCall):
    """A spec that inherits facts, invariants and derived facts."""

    sinks: int = dim()


def gemm(**changes: Any) -> GemmCall:
    """Return a spec with some facts changed."""
    given: dict[str, Any] = {"device": "cuda:0", "m": 1, "n": 4096, "dtype": torch.bfloat16, "trans": False}
    return GemmCall(**{**given, **changes})


def attention(**changes: Any) -> AttentionCall:
    """Return a spec with some facts changed."""
    given: dict[str, Any] = {"device": "cuda:0", "heads": 8, "heads_kv": 4, "mode": "full", "window": None}
    return AttentionCall(**{**given, **changes})


def test_a_spec_shows_itself() -> None:
    assert repr(gemm()) == "GemmCall(cuda:0, m=1, n=4096, dtype=bfloat16, trans=False)"
    assert gemm().text() == "m=1 n=4096 dtype=bfloat16 trans=False"
    assert attention(shape=(2, 3)).text() == "heads=8 heads_kv=4 mode=full window=None scale=None shape=2x3"
    assert "stated=DeviceFacts(" in repr(gemm(stated=H200))


def test_text_reads_back() -> None:
    for spec in (gemm(), attention(shape=(2, 3), scale=0.5), attention(window=7), attention(mode=Mode.CAUSAL)):
        assert type(spec).read(spec.text().split(), device=spec.device) == spec


def test_equality_and_hash_cover_facts_and_device() -> None:
    assert gemm() == gemm(device=torch.device("cuda", 0))
    assert hash(gemm()) == hash(gemm())
    assert gemm() == gemm(stated=H200)
    assert len({gemm(), gemm(m=2), gemm(device="cuda:1"), gemm(dtype=torch.float16), gemm(trans=True)}) == 5
    assert gemm() != "gemm"
    assert attention(scale=0.0) == attention(scale=-0.0)


def test_equal_facts_of_two_classes_differ() -> None:
    @call_spec()
    class One(CallSpec):
        m: int = dim()

    @call_spec()
    class Two(CallSpec):
        m: int = dim()

    assert One(device="cpu", m=1) != Two(device="cpu", m=1)
    assert hash(One(device="cpu", m=1)) != hash(Two(device="cpu", m=1))


def test_a_spec_is_frozen_and_slotted() -> None:
    spec = gemm()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        spec.m = 2  # type: ignore[misc]
    assert not hasattr(spec, "__dict__")
    assert not hasattr(attention(), "__dict__")


def test_a_spec_takes_keywords_only() -> None:
    with pytest.raises(TypeError):
        GemmCall("cuda:0", 1, 2)  # type: ignore[misc]
    kinds = {parameter.kind for parameter in inspect.signature(GemmCall).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


def test_pickle_copy_and_evolve() -> None:
    spec = attention(window=3, stated=H200)
    again = pickle.loads(pickle.dumps(spec))
    assert again == spec
    assert hash(again) == hash(spec)
    assert again.stated == H200
    assert copy.deepcopy(spec) == spec
    assert attrs.evolve(gemm(), m=3) == gemm(m=3)


def test_replace() -> None:
    assert gemm().replace(m=7) == gemm(m=7)
    assert gemm(stated=H200).replace(m=7).stated == H200
    assert gemm().replace(device="cuda:1").device.index == 1
    with pytest.raises(FactError, match=r"unknown fact 'dtyp' \(did you mean 'dtype'\?\)"):
        gemm().replace(dtyp=torch.float16)


def test_defaults() -> None:
    assert GemmCall(device="cpu", m=1, n=2, dtype=torch.float16).trans is False
    assert GemmCall.has_default("trans")
    assert not GemmCall.has_default("m")
    assert attention().shape == ()


def test_conversions() -> None:
    spec = attention(mode=Mode.CAUSAL, shape=torch.Size([2, 3]))
    assert type(spec.mode) is str
    assert type(spec.shape) is tuple
    assert spec == attention(mode="causal", shape=(2, 3))


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(FactError) as caught:
        GemmCall(device=3, m=True, dtype=torch.float32, trans=0, kk=1)  # type: ignore[call-arg, arg-type]
    message = str(caught.value)
    for words in (
        "GemmCall: unknown fact 'kk'",
        "device takes a torch.device or its name; got 3",
        "m takes an integer from 1 to 1099511627776; got True (bool)",
        "n takes an integer from 1 to 1099511627776; got nothing",
        "dtype takes one of float16, bfloat16; got float32",
        "trans takes true or false; got 0 (int)",
    ):
        assert words in message
    assert caught.value.fields["facts"] == ["kk", "device", "m", "n", "dtype", "trans"]


@pytest.mark.parametrize(
    ("fact", "value"),
    [("m", 0), ("m", 2**40 + 1), ("m", 1.0), ("dtype", "float16"), ("dtype", [1]), ("trans", None), ("stated", 90)],
)
def test_a_wrong_fact_is_named(fact: str, value: object) -> None:
    with pytest.raises(FactError, match=f"GemmCall: {fact} takes"):
        gemm(**{fact: value})


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("scale", float("nan")),
        ("scale", float("inf")),
        ("scale", 1),
        ("shape", (1, 0)),
        ("shape", [1]),
        ("mode", "ful"),
    ],
)
def test_a_wrong_fact_of_other_kinds(fact: str, value: object) -> None:
    with pytest.raises(FactError, match=f"AttentionCall: {fact} takes"):
        attention(**{fact: value})


@pytest.mark.parametrize(
    ("given", "kept"),
    [("cpu", "cpu"), ("cpu:0", "cpu"), ("cuda:1", "cuda:1"), (torch.device("meta"), "meta"), ("xpu:2", "xpu:2")],
)
def test_devices_have_one_form(given: Any, kept: str) -> None:
    for _ in range(2):
        assert str(gemm(device=given).device) == kept


@pytest.mark.parametrize("given", ["cud:0", "", "cuda:x", 0, None, []])
def test_no_device(given: Any) -> None:
    with pytest.raises(FactError, match=r"device takes a torch\.device or its name"):
        gemm(device=given)


def test_the_current_device_fills_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert str(gemm(device="cuda").device) == "cuda:2"
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert str(gemm(device="cuda").device) == "cuda:1"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert str(gemm(device="cuda").device) == "cuda:0"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gemm(device="cuda").device.index is None


def test_stated_device_facts_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "read_facts", lambda device: pytest.fail("read"))
    spec = gemm(stated=H200)
    assert (spec.arch, spec.calibration, spec.sm_count, spec.smem_budget) == (90, "h200", 132, 232448)


def test_device_facts_are_read_once_a_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.device] = []

    def read(device: torch.device) -> DeviceFacts:
        asked.append(device)
        return H200

    monkeypatch.setattr(device_module, "read_facts", read)
    spec = gemm()
    assert asked == []
    assert spec.arch == 90
    assert spec.smem_budget == 232448
    assert asked == [torch.device("cuda:0")]


def test_values_are_all_that_a_rule_reads() -> None:
    spec = attention(stated=H200)
    assert spec.values() == {
        "heads": 8,
        "heads_kv": 4,
        "mode": "full",
        "window": None,
        "scale": None,
        "shape": (),
        "group": 2,
        "double": 4,
        "arch": 90,
        "calibration": "h200",
        "sm_count": 132,
        "smem_budget": 232448,
    }
    assert set(spec.values()) == set(AttentionCall.scope)
    assert list(spec.facts()) == list(AttentionCall.kinds)


def test_derived_facts() -> None:
    assert attention().group == 2  # type: ignore[attr-defined]
    assert attention(heads=16).double == 8  # type: ignore[attr-defined]
    assert AttentionCall.scope["group"] == Type("int", low=0, high=2**40)
    with pytest.raises(AttributeError):
        attention().group = 3  # type: ignore[attr-defined]


def test_invariants() -> None:
    with pytest.raises(FactError) as caught:
        attention(heads_kv=3)
    assert str(caught.value) == "AttentionCall: every call meets 'heads % heads_kv == 0'; got 8 % 3 == 0"
    with pytest.raises(FactError, match=r"got 4096 is None or 2 \* 4096 <= 4096"):
        attention(window=4096)


def test_an_invariant_that_raises_is_a_bug_of_the_class() -> None:
    @call_spec(invariants=("8 % window == 0",))
    class Broken(CallSpec):
        window: int = integer(0, 4)

    assert Broken(device="cpu", window=2).window == 2
    with pytest.raises(RuleError, match=r"Broken: the invariant '8 % window == 0' raises ZeroDivisionError"):
        Broken(device="cpu", window=0)


def test_a_derived_fact_that_raises_is_a_bug_of_the_class() -> None:
    @call_spec(derived={"part": "8 // window"})
    class Broken(CallSpec):
        window: int = integer(0, 4)

    with pytest.raises(RuleError, match="the derived fact 'part' = '8 // window' raises ZeroDivisionError"):
        _ = Broken(device="cpu", window=0).part  # type: ignore[attr-defined]


def test_specs_inherit() -> None:
    spec = SinkCall(device="cpu", heads=8, heads_kv=4, mode="full", window=None, sinks=2)
    assert list(SinkCall.kinds) == ["heads", "heads_kv", "mode", "window", "scale", "shape", "sinks"]
    assert spec.quad == 8  # type: ignore[attr-defined]
    assert spec.shown() == "8/4"
    with pytest.raises(FactError, match="got 9 <= 8"):
        spec.replace(sinks=9)
    with pytest.raises(FactError, match="heads % heads_kv"):
        spec.replace(heads_kv=5)


def test_content_is_plain_and_complete() -> None:
    content = AttentionCall.content()
    assert json.loads(json.dumps(content)) == content
    assert list(content["facts"]) == ["heads", "heads_kv", "mode", "window", "scale", "shape"]
    assert content["invariants"] == ["heads % heads_kv == 0", "window is None or group * window <= 4096"]
    assert content["derived"] == {"group": "heads // heads_kv", "double": "group * 2"}


def test_a_spec_without_facts() -> None:
    @call_spec()
    class Empty(CallSpec):
        pass

    assert repr(Empty(device="cpu")) == "Empty(cpu)"
    assert Empty(device="cpu").text() == ""


def define(facts: dict[str, Any], **options: Any) -> type[CallSpec]:
    """Return the spec class with these annotated facts."""
    body = {"__annotations__": dict.fromkeys(facts, object), **{k: v for k, v in facts.items() if v is not None}}
    made: type[CallSpec] = call_spec(**options)(type("Made", (CallSpec,), body))
    return made


@pytest.mark.parametrize("name", ["arch", "device", "stated", "values", "min", "float16", "any", "range", "_m", "text"])
def test_taken_names(name: str) -> None:
    with pytest.raises(DeclarationError, match=f"Made cannot call a fact '{name}': the name is taken"):
        define({name: dim()})
    with pytest.raises(DeclarationError, match=f"Made cannot call a fact '{name}': the name is taken"):
        define({"m": dim()}, derived={name: "m"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"invariants": ("m >",)}, "Made: an invariant: not an expression"),
        ({"invariants": ("mm > 1",)}, "Made: an invariant: unknown fact 'mm' (did you mean 'm'?)"),
        ({"invariants": ("m + 1",)}, "Made: the invariant 'm + 1' is no condition"),
        ({"invariants": ("arch > 80",)}, "an invariant reads the device fact 'arch'"),
        ({"derived": {"d": "sm_count * m"}}, "derived fact 'd' reads the device fact 'sm_count'"),
        ({"derived": {"d": "e", "e": "m"}}, "derived fact 'd': unknown fact 'e'"),
        ({"derived": {"d": "m + True"}}, "derived fact 'd': '+' takes integers"),
        ({"derived": {"m": "1"}}, "Made has the fact 'm' already"),
        ({"invariants": "m > 1"}, "invariants takes a tuple of expressions"),
    ],
)
def test_malformed_rules(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        define({"m": dim()}, **options)
    assert words in str(caught.value)
    if "column" in caught.value.fields:
        assert isinstance(caught.value, ExpressionError)


def test_malformed_classes() -> None:
    with pytest.raises(DeclarationError, match=r"Made.m has no kind: write m = dim\(\)"):
        define({"m": None})
    with pytest.raises(DeclarationError, match=r"Made.m has no kind"):
        define({"m": attrs.field(default=3)})
    with pytest.raises(DeclarationError, match=r"Bare.m has no annotation: write m: int"):
        call_spec()(type("Bare", (CallSpec,), {"m": dim()}))
    with pytest.raises(DeclarationError, match="completes a subclass of CallSpec"):
        call_spec()(int)  # type: ignore[type-var]
    with pytest.raises(DeclarationError, match="cannot have the fact 'group': its base class derives it"):
        call_spec()(type("Again", (AttentionCall,), {"__annotations__": {"group": int}, "group": dim()}))


# Names that generated code, Python, attrs or a class body use themselves.
ODD_NAMES = sorted(
    {
        *(name for name in dir(builtins) if not name.startswith("_") and not keyword.iskeyword(name)),
        *keyword.softkwlist,
        *("self", "cls", "key", "settled", "unknown", "place", "kept", "spec", "call", "facts", "given", "checked"),
        *("kind", "stated_facts", "names", "value", "args", "kwargs", "mro", "attrs", "torch", "expression", "trace"),
    }
    - {"_"}
)


def test_any_name_may_be_a_fact_that_is_not_taken() -> None:
    known = [name for name in ODD_NAMES if name not in callspec_module._TAKEN]
    assert {"cls", "key", "settled", "unknown", "dict", "type", "match", "set", "object"} <= set(known)
    made: Any = define({name: integer(0, 1000) for name in known})
    given = {name: place for place, name in enumerate(known)}
    for device in ("cpu", torch.device("cpu")):
        spec = made(device=device, **given)
        assert spec.facts() == given
        assert {name: getattr(spec, name) for name in known} == given
        assert spec == made.read([f"{name}={value}" for name, value in given.items()], device="cpu")
        assert spec.replace(**{known[0]: 999}).facts() == {**given, known[0]: 999}
        assert pickle.loads(pickle.dumps(spec.facts())) == given
    with pytest.raises(FactError, match="key takes an integer from 0 to 1000; got 'x'"):
        made(device="cpu", **{**given, "key": "x"})
    table = RuleTable("odd", made, {"a": Declaration(refusal=[Refusal("key + dict + type > 9", "got {key}")])})
    trace = table.explain(made(device="cuda:0", stated=H200, **given))
    assert trace.verdict("a").reasons[0].text == f"got {given['key']}"


def test_each_name_may_be_the_only_fact() -> None:
    for name in ODD_NAMES:
        if name in callspec_module._TAKEN:
            with pytest.raises(DeclarationError, match="the name is taken"):
                define({name: integer(0, 9)})
        else:
            made: Any = define({name: integer(0, 9)}, invariants=(f"{name} < 9",), derived={"double_": f"{name} * 2"})
            spec = made(device="cpu", **{name: 4})
            assert (spec.facts(), spec.double_) == ({name: 4}, 8)


@pytest.mark.parametrize("name", ["q q", "for", "", "1m", "m-n", "lambda"])
def test_a_name_that_no_expression_reads_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match=f"Made cannot call a fact '{name}': no expression could read that name"):
        define({"m": dim()}, derived={name: "m"})
    with pytest.raises(DeclarationError, match="no expression could read that name"):
        define({name: dim()})


def test_parentheses_may_be_left_out() -> None:
    @call_spec
    class Bare(CallSpec):
        m: int = dim()

    assert Bare(device="cpu", m=3).m == 3
    with pytest.raises(DeclarationError, match="derived takes a mapping of names to expressions, got \\['q'\\]"):
        define({"m": dim()}, derived=["q"])
    with pytest.raises(DeclarationError, match="invariants takes a tuple of expressions, got 3"):
        define({"m": dim()}, invariants=3)


@pytest.mark.parametrize(
    ("annotation", "fact", "fits"),
    [
        ("str", dim, "int"),
        (int, flag, "bool"),
        ("int", lambda: dim(optional=True), "int | None"),
        ("int | None", dim, "int"),
        ("Optional[int]", dim, "int"),
        ("tuple[int, ...]", dim, "int"),
        ("int", lambda: dims(2), "tuple[int, ...]"),
        ("str", lambda: choice(torch.float16), "torch.dtype"),
        (float | None, number, "float"),
    ],
)
def test_an_annotation_against_the_kind_is_refused(annotation: object, fact: Any, fits: str) -> None:
    with pytest.raises(DeclarationError, match=f"its kind makes it '{re.escape(fits)}'"):
        call_spec(type("Made", (CallSpec,), {"__annotations__": {"m": annotation}, "m": fact()}))


@pytest.mark.parametrize(
    ("annotation", "fact"),
    [
        ("int", dim),
        (int, dim),
        ("'int | None'", lambda: dim(optional=True)),
        ("Optional[int]", lambda: dim(optional=True)),
        (int | None, lambda: integer(1, 2, optional=True)),
        ("tuple[int, int] | None", lambda: dims(2, optional=True)),
        ("Optional[tuple[int, ...]]", lambda: dims(2, optional=True)),
        (tuple[int, ...], lambda: dims(2)),
        ("torch.dtype", lambda: choice(torch.float16)),
        ("Mode", lambda: choice(*Mode)),
        (Mode, lambda: choice(*Mode)),
        ("Literal['int', 'str']", lambda: choice("int", "str")),
        ("Any", lambda: number(optional=True)),
    ],
)
def test_an_annotation_that_fits_or_says_nothing_is_taken(annotation: object, fact: Any) -> None:
    made: type[CallSpec] = call_spec(type("Made", (CallSpec,), {"__annotations__": {"m": annotation}, "m": fact()}))
    assert list(made.kinds) == ["m"]
