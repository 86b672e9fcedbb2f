from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from tileops.rules import (
    CallSpec,
    Declaration,
    Refusal,
    Row,
    RuleTable,
    at_least,
    call_spec,
    choice,
    dim,
    dims,
    exactly,
    flag,
    integer,
    number,
    reference,
)
from tileops.rules.errors import AmbiguousDispatchError, DeclarationError, FactError, OpNotAvailableError, RuleError
from tileops.rules.trace import layout


@call_spec()
class Call(CallSpec):
    m: int = dim()
    n: int = dim()
    k: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16)
    trans_a: bool = flag()
    trans_b: bool = flag()


def call(m: int = 1, arch: int = 90, k: int = 4096, device: str = "cuda") -> Call:
    facts: dict[str, Any] = {"dtype": torch.bfloat16, "trans_a": False, "trans_b": True}
    return Call(device=device, m=m, n=4096, k=k, stated=reference(arch) if device == "cuda" else None, **facts)


TABLE = RuleTable(
    "gemm",
    Call,
    {
        "gemm_mma": Declaration(supported_archs=at_least(80), general=True),
        "gemm_splitk": Declaration(refusal=(Refusal("m < 16", "m={m}: one tile has at least 16 rows"),)),
        "gemm_wgmma": Declaration(
            supported_archs=exactly(90),
            refusal=(
                Refusal("m < 64", "m={m}: one tile has at least 64 rows"),
                Refusal("k % 8 != 0", "a row of k={k} {dtype} is no multiple of {8 * itemsize(dtype)} bytes"),
            ),
        ),
        "gemv": Declaration(supported_archs=at_least(80), refusal=(Refusal("m > 2", "m={m}: more than two rows"),)),
    },
)


def test_the_text_says_most_in_least() -> None:
    text = TABLE.explain(call()).text(
        "GemmFwdOp.gemm",
        before=[Row("target", ["in-tree: no target claims cuda"])],
        after=[Row("entry", ["gemv, 8 rows a block"])],
    )
    assert text == (
        "GemmFwdOp.gemm  m=1 n=4096 k=4096 dtype=bfloat16 trans_a=False trans_b=True   "
        "cuda, arch 90, 132 SMs, 227 KiB (H200)\n"
        "target        in-tree: no target claims cuda\n"
        "gemm_mma      serves  general, below all others\n"
        "gemm_splitk   refuses m=1: one tile has at least 16 rows\n"
        "gemm_wgmma    refuses m=1: one tile has at least 64 rows\n"
        "gemv        > wins    above gemm_mma, the general one\n"
        "entry         gemv, 8 rows a block"
    )


def test_one_rule_and_two_at_once() -> None:
    assert [r.text for r in TABLE.explain(call(m=63)).verdict("gemm_wgmma").reasons] == [
        "m=63: one tile has at least 64 rows"
    ]
    assert [r.text for r in TABLE.explain(call(m=64, k=4095)).verdict("gemm_wgmma").reasons] == [
        "a row of k=4095 bfloat16 is no multiple of 16 bytes"
    ]
    both = TABLE.explain(call(m=63, k=4095)).verdict("gemm_wgmma")
    assert both.status == "refuses"
    assert [(r.rule, r.rendered, dict(r.values)) for r in both.reasons] == [
        ("m < 64", "63 < 64", {"m": 63}),
        ("k % 8 != 0", "4095 % 8 != 0", {"k": 4095}),
    ]
    assert "k=4095 bfloat16 is no multiple of 16 bytes [k % 8 != 0: 4095 % 8 != 0]" in TABLE.explain(
        call(m=63, k=4095)
    ).text(rules=True)


def test_an_arch_that_is_not_supported_and_a_rule_besides() -> None:
    verdict = TABLE.explain(call(m=2, arch=80)).verdict("gemm_wgmma")
    assert verdict.status == "unavailable"
    assert [reason.text for reason in verdict.reasons] == [
        "runs on arch 90, not on arch 80",
        "m=2: one tile has at least 64 rows",
    ]


def test_an_unknown_arch_is_called_unknown() -> None:
    table = RuleTable("t", Call, {"a": Declaration(devices={"cpu"}, supported_archs=at_least(1))})
    (verdict,) = table.explain(call(device="cpu")).verdicts
    assert verdict.reasons[0].text == "runs on arch 1 and newer, and the arch of cpu is not known"


def test_who_beat_whom() -> None:
    trace = TABLE.explain(call(m=1))
    assert trace.outcome == "served"
    assert trace.beaten == ("gemm_mma",)
    assert trace.contenders == ("gemv",)
    assert trace.verdict("gemm_mma").beaten_by == ("gemv",)
    assert trace.verdict("gemv").beaten_by == ()
    alone = TABLE.without("gemm_mma").explain(call(m=1))
    assert "wins    the only one that serves this call" in alone.text()
    assert "wins asked for by name" in TABLE.explain(call(m=1), only="gemm_mma").text()


def test_below_another_that_is_not_the_general_one() -> None:
    first = Declaration(preferred_over={"gemm_splitk"})
    trace = TABLE.with_declaration("first", first).without("gemm_wgmma").explain(call(m=16))
    assert trace.winner == "first"
    assert "gemm_splitk   serves  below first" in trace.text()
    assert "above gemm_splitk and gemm_mma, the general one" in trace.text()


def test_ambiguous_names_both_and_what_to_write() -> None:
    trace = TABLE.explain(call(m=64))
    assert trace.outcome == "ambiguous"
    assert trace.winner is None
    assert trace.beaten == ()
    assert "gemm_splitk   serves  no precedence between it and gemm_wgmma" in trace.text()
    error = trace.error("GemmFwdOp")
    assert isinstance(error, AmbiguousDispatchError)
    assert error.fields["trace"] is trace
    assert str(error) == (
        "dispatch is ambiguous: gemm_splitk and gemm_wgmma serve the same call of GemmFwdOp, and none goes before the "
        "others\n"
        "  m=64 n=4096 k=4096 dtype=bfloat16 trans_a=False trans_b=True on cuda, arch 90, 132 SMs, 227 KiB (H200)\n"
        "Write preferred_over={'gemm_wgmma'} in the declaration of gemm_splitk (or the other way round), or a refusal "
        "in all but one of them."
    )


def test_on_a_cycle_nobody_is_beaten() -> None:
    first, second = Declaration(preferred_over={"b"}), Declaration(preferred_over={"a"})
    trace = RuleTable("t", Call, {"a": first, "b": second}).explain(call())
    assert trace.outcome == "ambiguous"
    assert [verdict.beaten_by for verdict in trace.verdicts] == [(), ()]
    assert "a   serves no precedence between it and b" in trace.text()


def test_no_device_is_the_spec_s_sentence() -> None:
    trace = TABLE.explain(call(device="cpu"))
    assert trace.outcome == "no device"
    error = trace.error("GemmFwdOp", targets=["torch_cpu", "acme"])
    assert isinstance(error, OpNotAvailableError)
    assert isinstance(error, ValueError)
    assert str(error) == (
        "GemmFwdOp's in-tree kernels do not run on cpu; known targets for this op: ['acme', 'torch_cpu']"
    )
    assert str(trace.error("GemmFwdOp", [])).endswith("known targets for this op: []")
    assert str(trace.error()) == "gemm's in-tree kernels do not run on cpu; they run on ['cuda']"
    assert trace.text().splitlines()[0].endswith("   cpu")
    assert "gemv          unavailable runs on cuda, not on cpu" in trace.text()


def test_no_implementation_lists_every_reason_of_every_one() -> None:
    table = TABLE.without("gemm_mma")
    trace = table.explain(call(m=3, k=4095))
    assert trace.outcome == "no implementation"
    text = str(trace.error("GemmFwdOp"))
    assert text.startswith("no implementation serves this call of GemmFwdOp: m=3 n=4096 k=4095")
    for told in (
        "m=3: one tile has at least 16 rows [m < 16: 3 < 16]",
        "m=3: one tile has at least 64 rows [m < 64: 3 < 64]",
        "a row of k=4095 bfloat16 is no multiple of 16 bytes [k % 8 != 0: 4095 % 8 != 0]",
        "m=3: more than two rows [m > 2: 3 > 2]",
    ):
        assert told in text
    assert text.endswith("Change one of these facts, or add an implementation that serves them.")


def test_one_that_was_asked_for_by_name_answers_for_itself() -> None:
    trace = TABLE.explain(call(m=3), only="gemv")
    assert trace.outcome == "no implementation"
    assert [verdict.key for verdict in trace.verdicts] == ["gemv"]
    text = str(trace.error("GemmFwdOp"))
    assert "gemv was asked for by name, so none of gemm_mma, gemm_splitk, gemm_wgmma was considered" in text
    assert "m=3: more than two rows" in text
    assert "gemm_splitk   " not in text


def test_a_served_call_has_no_error() -> None:
    with pytest.raises(ValueError, match="gemv serves the call"):
        TABLE.explain(call()).error()


def test_json_holds_the_same() -> None:
    trace = TABLE.explain(call(m=64))
    plain = json.loads(json.dumps(trace.to_plain()))
    assert plain["interface"] == "gemm"
    assert plain["call"] == {"m": 64, "n": 4096, "k": 4096, "dtype": "bfloat16", "trans_a": False, "trans_b": True}
    assert plain["device"] == {
        "device": str(trace.call.device),
        "kind": "cuda",
        "arch": 90,
        "calibration": "H200",
        "sm_count": 132,
        "smem_budget": 232448,
    }
    assert plain["outcome"] == "ambiguous"
    assert plain["winner"] is None
    assert plain["contenders"] == ["gemm_splitk", "gemm_wgmma"]
    assert {one["key"]: one["verdict"] for one in plain["implementations"]} == {
        verdict.key: verdict.status for verdict in trace.verdicts
    }


def test_json_of_every_kind_of_fact() -> None:
    @call_spec()
    class Odd(CallSpec):
        shape: tuple[int, ...] = dims(max_rank=3)
        scale: float | None = number(optional=True)
        layout: str = choice("nhwc", "nchw")

    table = RuleTable("odd", Odd, {"a": Declaration(devices={"cpu"}, refusal=(Refusal("len(shape) > 1", "{shape}"),))})
    trace = table.explain(Odd(device="cpu", shape=(2, 3), scale=None, layout="nhwc"))
    plain = json.loads(json.dumps(trace.to_plain()))
    assert plain["call"] == {"shape": [2, 3], "scale": None, "layout": "nhwc"}
    assert plain["implementations"][0]["reasons"][0]["values"] == {"shape": [2, 3]}
    assert plain["device"] == {
        "device": "cpu",
        "kind": "cpu",
        "arch": -1,
        "calibration": None,
        "sm_count": 0,
        "smem_budget": 0,
    }


def test_rendering_happens_only_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr("tileops.rules.table._reason", lambda refusal, values, fired: calls.append(refusal.why))
    trace = TABLE.explain(call())
    assert calls == []
    assert trace.verdict("gemm_splitk").status == "refuses"
    assert calls == ["m={m}: one tile has at least 16 rows"]


def test_lines_of_one_reason_stay_in_their_column() -> None:
    assert layout([Row("a", ["one", "two"], "refuses"), Row("bcd", [], "wins", ">")], indent="  ") == [
        "  a     refuses one",
        "                two",
        "  bcd > wins",
    ]
    assert layout([]) == []


def test_an_integer_too_long_to_print_is_told_by_its_size() -> None:
    @call_spec(derived={"power": " * ".join(["prod(t)"] * 8)})
    class Long(CallSpec):
        m: int = integer(-(1 << 255), 1 << 255)
        t: tuple[int, ...] = dims(64)

    call = Long(device="cuda", m=2, t=(1 << 40,) * 64, stated=reference(90))
    assert call.power > 10**6000  # type: ignore[attr-defined]  # derived
    refusing = Declaration(
        refusal=[Refusal("power > 5", "got {power} and {-power}"), Refusal("power // (m - 2) > 1", "x")]
    )
    trace = RuleTable("long", Long, {"a": refusing}).explain(call)
    assert trace.verdict("a").reasons[0].full() == (
        "got about 10**6165 and about -10**6165 [power > 5: about 10**6165 > 5]"
    )
    assert "about 10**6165" in json.dumps(trace.to_plain())
    assert "about 10**6165" in str(trace.error())
    raising = RuleTable("long", Long, {"a": Declaration(refusal=[Refusal("power // (m - 2) > 1", "x")])})
    with pytest.raises(RuleError, match="ZeroDivisionError"):
        raising.select(call)
    assert [found.kind for found in raising.check().findings] == ["may raise"]
    with pytest.raises(FactError, match=r"m takes an integer from .*; got about 10\*\*5000"):
        call.replace(m=10**5000)
    with pytest.raises(DeclarationError, match=r"bounds of at most 256 bits, got 0 and about 10\*\*5000"):
        integer(0, 10**5000)
