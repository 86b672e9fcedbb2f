"""The proof: each kind of finding and its sound twin, witnesses that reproduce, and rules the solver must decide."""

from __future__ import annotations

import threading
import time
from typing import Any

import attrs
import pytest
import torch

from tileops.rules import proof
from tileops.rules.archs import at_least, between, exactly, family
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import boards
from tileops.rules.errors import RuleError
from tileops.rules.facts import choice, dim, dims, flag, integer, number
from tileops.rules.proof import Proof, Report, check
from tileops.rules.report import Finding
from tileops.rules.table import RuleTable


@call_spec()
class GemmCall(CallSpec):
    m: int = dim()
    n: int = dim()
    k: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16)
    trans_a: bool = flag()


@call_spec(invariants=("heads % heads_kv == 0",), derived={"group": "heads // heads_kv"})
class AttentionCall(CallSpec):
    heads: int = dim()
    heads_kv: int = dim()
    batch: int = dim()
    m: int = dim()
    n: int = dim()
    k: int = dim()
    stages: int = integer(1, 8)
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn)
    scale: float | None = number(optional=True)
    shape: tuple[int, ...] = dims(4)


def serving(*rules: str, **fields: Any) -> Declaration:
    """Return a declaration that refuses where one of the rules holds."""
    return Declaration(refusal=tuple(Refusal(rule, "no") for rule in rules), **fields)


def table(request: type[CallSpec] = GemmCall, /, **declarations: Declaration) -> RuleTable:
    return RuleTable("test", request, declarations)


def kinds(report: Report) -> list[str]:
    return [finding.kind for finding in report.findings]


def only(report: Report) -> Finding:
    assert len(report.findings) == 1, report.text()
    return report.findings[0]


# -- what the declarations say


def test_an_unknown_key_is_found_with_the_nearest_one() -> None:
    found = only(check(table(gemv=serving("m > 2", preferred_over={"gem_mma"}), gemm_mma=serving("m <= 2"))))
    assert (found.kind, found.keys) == ("unknown key", ("gemv",))
    assert "did you mean 'gemm_mma'?" in found.message


def test_a_cycle_is_listed_from_key_to_key() -> None:
    rules = {"a": "m > 1", "b": "m != 2", "c": "m < 3"}
    below = {"a": "b", "b": "c", "c": "a"}
    found = only(check(table(**{key: serving(rules[key], preferred_over={below[key]}) for key in rules})))
    assert (found.kind, found.keys) == ("cycle", ("a", "b", "c"))
    assert "a -> b -> c -> a" in found.message


def test_members_of_a_cycle_that_meet_are_ambiguous_too() -> None:
    report = check(table(a=serving(preferred_over={"b"}), b=serving(preferred_over={"a"})))
    assert kinds(report) == ["cycle", "ambiguous"]
    assert "take that cycle apart" in report.of("ambiguous")[0].message
    assert "write preferred_over" not in report.of("ambiguous")[0].message
    apart = check(table(a=serving(), b=serving()))
    assert "write preferred_over={'b'} in the declaration of a" in only(apart).message


def test_two_generals() -> None:
    report = check(table(a=serving("m > 1", general=True), b=serving("m <= 1", general=True)))
    assert only(report).kind == "two generals"
    assert only(report).keys == ("a", "b")


def test_a_general_one_with_a_preference() -> None:
    report = check(table(a=serving(general=True, preferred_over={"b"}), b=serving("m > 1")))
    assert (only(report).kind, only(report).keys) == ("general with a preference", ("a",))


def test_several_device_types_with_supported_archs() -> None:
    report = check(table(a=serving(devices={"cuda", "xpu"}, supported_archs=at_least(80))))
    assert only(report).kind == "several device types with supported_archs"
    assert "cuda, xpu" in only(report).message
    assert check(table(a=serving(devices={"cuda", "xpu"}))).findings == ()


def test_expressions_that_do_not_fit_the_request() -> None:
    report = check(table(a=serving("rows > 2", "dtype > 3"), b=serving()))
    assert kinds(report) == ["bad expression", "bad expression"]
    assert all(finding.keys == ("a",) for finding in report.findings)
    assert "unknown fact 'rows'" in report.text()


def test_findings_about_arguments_are_reported_along() -> None:
    given = Finding("arguments", ("a",), "forward takes no b")
    assert check(table(a=serving()), arguments=[given]).findings == (given,)


# -- ambiguous


def test_an_overlap_is_found_with_a_small_witness_that_reproduces() -> None:
    overlapping = table(gemv=serving("m > 2", "k % 8 != 0"), splitk=serving("k < 2048", "trans_a"))
    found = only(check(overlapping))
    assert (found.kind, found.keys, found.severity) == ("ambiguous", ("gemv", "splitk"), "error")
    assert found.witness is not None
    assert overlapping.explain(found.witness).contenders == ("gemv", "splitk")
    assert found.witness.facts() == {"m": 1, "n": 1, "k": 2048, "dtype": torch.float16, "trans_a": False}
    assert found.witness.calibration == boards()[found.witness.arch].reference.calibration
    assert "preferred_over={'splitk'}" in found.message
    assert repr(found.witness) in found.message


@pytest.mark.parametrize(
    "settled",
    [
        {"gemv": serving("m > 2", preferred_over={"splitk"}), "splitk": serving("k < 2048")},
        {"gemv": serving("m > 2"), "splitk": serving("k < 2048", "m <= 2")},
        {"gemv": serving("m > 2"), "splitk": serving("k < 2048", general=True)},
        {"gemv": serving("m > 2", devices={"xpu"}), "splitk": serving("k < 2048")},
        {"gemv": serving("m > 2", supported_archs=family(90)), "splitk": serving(supported_archs=between(80, 89))},
        {"gemv": serving("m > 2", supported_archs=exactly(90)), "splitk": serving(supported_archs=exactly(80))},
    ],
)
def test_what_settles_an_overlap(settled: dict[str, Declaration]) -> None:
    assert check(table(**settled)).findings == ()


def test_a_third_above_both_on_the_whole_overlap_resolves_it() -> None:
    two = {"a": serving("m > 20"), "b": serving("m < 10")}
    assert kinds(check(table(**two))) == ["ambiguous"]
    third = serving("m < 10", "m > 20", preferred_over={"a", "b"})
    assert check(table(**two, third=third)).findings == ()


def test_a_third_above_both_on_part_of_the_overlap_does_not() -> None:
    two = {"a": serving("m > 20"), "b": serving("m < 10")}
    found = only(check(table(**two, third=serving("m < 11", "m > 20", preferred_over={"a", "b"}))))
    assert found.keys == ("a", "b")
    assert found.witness is not None
    assert found.witness.facts()["m"] == 10


def test_two_thirds_that_share_the_overlap_resolve_it_together() -> None:
    two = {"a": serving("m > 20"), "b": serving("m < 10")}
    low = serving("m < 10", "m > 15", preferred_over={"a", "b"})
    high = serving("m < 16", "m > 20", preferred_over={"a", "b"})
    assert check(table(**two, low=low, high=high)).findings == ()


def test_a_third_above_one_of_the_two_takes_its_place() -> None:
    report = check(table(a=serving(), b=serving(), third=serving("m > 4", preferred_over={"a"})))
    assert [finding.keys for finding in report.of("ambiguous")] == [("a", "b"), ("b", "third")]
    assert all(finding.witness is not None for finding in report.findings)


def test_precedence_is_transitive() -> None:
    chain = table(a=serving(preferred_over={"b"}), b=serving(preferred_over={"c"}), c=serving())
    assert check(chain).findings == ()


def test_a_call_on_which_another_rule_raises_is_no_witness() -> None:
    # Where m is 7 the third raises, and then nothing is selected: the overlap must be shown elsewhere.
    raising = table(
        a=serving("m not in (7, 9)"),
        b=serving("m not in (7, 9)"),
        other=serving("m > 10", "8 // (m - 7) >= 0", "m > 0"),
    )
    report = check(raising)
    assert kinds(report) == ["may raise", "ambiguous"]
    found = report.of("ambiguous")[0].witness
    assert found is not None
    assert found.facts()["m"] == 9


def test_archs_and_boards_are_part_of_the_domain() -> None:
    apart = table(
        a=serving("smem_budget < 200000", supported_archs=exactly(86, 90)), b=serving(supported_archs=exactly(86))
    )
    assert check(apart).findings == ()
    meets = table(a=serving("sm_count < 100"), b=serving(supported_archs=exactly(90)))
    found = only(check(meets)).witness
    assert found is not None
    assert (found.arch, found.sm_count) == (90, 132)


def test_an_arch_not_made_yet_is_in_the_domain() -> None:
    found = only(check(table(a=serving("arch < 500"), b=serving("arch > 1000")))).witness
    assert found is not None
    assert 500 <= found.arch <= 1000


def test_a_calibration_goes_with_the_boards_it_is_kept_for() -> None:
    assert check(table(a=serving("calibration != 'H200'"), b=serving("sm_count == 132"))).findings == ()
    assert check(table(a=serving("calibration != 'H200'"), b=serving("arch == 90"))).findings == ()
    assert kinds(check(table(a=serving("calibration != 'H200'"), b=serving("arch != 90")))) == ["ambiguous"]


def test_devices_of_other_kinds_may_have_any_facts() -> None:
    on_xpu = {"a": serving("calibration != 'Max'", "sm_count < 7", devices={"xpu"}), "b": serving(devices={"xpu"})}
    found = only(check(table(**on_xpu))).witness
    assert found is not None
    assert (found.device.type, found.calibration, found.sm_count) == ("xpu", "Max", 7)


def test_a_device_type_that_torch_does_not_know_leaves_it_undecided() -> None:
    report = check(table(a=serving(devices={"acme_chip"}), b=serving(devices={"acme_chip"})))
    assert kinds(report) == ["unknown device type", "unknown device type", "undecided"]
    assert all(found.severity == "warning" and "acme_chip" in found.message for found in report.findings)
    apart = check(table(a=serving("m > 1", devices={"acme_chip"}), b=serving("m < 2", devices={"acme_chip"})))
    assert kinds(apart) == ["unknown device type", "unknown device type"]


def test_a_device_type_written_wrong_is_told_with_the_nearest() -> None:
    found = only(check(table(a=serving(devices={"cdua"}))))
    assert (found.kind, found.keys, found.severity) == ("unknown device type", ("a",), "warning")
    assert "did you mean 'cuda'?" in found.message
    assert check(table(a=serving(devices={"rocm"}), b=serving(devices={"xpu"}))).findings == ()


# -- opaque refusals


def never(call: CallSpec) -> bool:
    return False


def always(call: CallSpec) -> bool:
    return True


def opaque(function: Any, *rules: str, **fields: Any) -> Declaration:
    declared = serving(*rules, **fields)
    return attrs.evolve(declared, refusal=(*declared.refusal, Refusal(opaque=function, why="no")))


def test_an_opaque_refusal_is_taken_to_accept_anything() -> None:
    assert only(check(table(a=opaque(never), b=serving()))).kind == "ambiguous"
    assert check(table(a=opaque(never, "m > 2"), b=serving("m < 3"))).findings == ()


def test_a_witness_that_an_opaque_refusal_refuses_leaves_it_undecided() -> None:
    found = only(check(table(a=opaque(always), b=serving())))
    assert (found.kind, found.witness) == ("undecided", None)
    assert "opaque" in found.message


def test_an_opaque_implementation_cannot_be_trusted_to_settle_an_overlap() -> None:
    found = only(check(table(a=serving(), b=serving(), c=opaque(never, preferred_over={"a", "b"}))))
    assert (found.kind, found.keys) == ("undecided", ("a", "b"))
    assert "opaque" in found.message


# -- may raise


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("128 % (m - 4) == 0", "ZeroDivisionError"),
        ("n // (k % 2) > 4", "ZeroDivisionError"),
        ("ceildiv(n, m - 1) > 4", "ZeroDivisionError"),
        ("{80: 4, 90: 5}[arch] > m", "KeyError"),
        ("any(8 // (m - i) == 0 for i in range(3))", "ZeroDivisionError"),
        ("m > 4 or 8 // (m - 2) == 3", "ZeroDivisionError"),
        ("4 > m > 8 // (n - 9)", "ZeroDivisionError"),
    ],
)
def test_a_rule_that_may_raise_is_found_with_a_call(rule: str, error: str) -> None:
    broken = table(a=serving(rule))
    found = only(check(broken))
    assert (found.kind, found.keys) == ("may raise", ("a",))
    assert found.witness is not None
    with pytest.raises(RuleError, match=error):
        broken.explain(found.witness)
    assert error in found.message
    assert rule in found.message


@pytest.mark.parametrize(
    "rules",
    [
        ("m == 4", "128 % (m - 4) == 0"),
        ("m == 4 or 128 % (m - 4) == 0",),
        ("m != 4 and 128 % (m - 4) == 0",),
        ("(0 if m == 4 else 128 % (m - 4)) == 0",),
        ("arch not in (80, 90)", "{80: 4, 90: 5}[arch] > m"),
        ("k % 2 != 1", "n // (k % 2) > 4"),
        ("m == n", "4 > k // (m - n)"),
    ],
)
def test_what_keeps_a_rule_from_raising(rules: tuple[str, ...]) -> None:
    assert check(table(a=serving(*rules))).findings == ()


def test_availability_keeps_a_rule_from_raising() -> None:
    rule = "{80: 4, 90: 5}[arch] > m"
    assert check(table(a=serving(rule, supported_archs=exactly(80, 90)))).findings == ()
    assert kinds(check(table(a=serving(rule, supported_archs=exactly(80, 86))))) == ["may raise"]


@pytest.mark.parametrize(
    ("rule", "sound"),
    [
        ("scale > 0.5", "scale is not None and scale > 0.5"),
        ("shape[-1] > 4", "len(shape) > 0 and shape[-1] > 4"),
        ("shape[2] > 4", "len(shape) >= 3 and shape[2] > 4"),
        ("prod(shape[1:]) // shape[0] > 3", "len(shape) == 0 or prod(shape[1:]) // shape[0] > 3"),
    ],
)
def test_none_and_short_tuples_raise(rule: str, sound: str) -> None:
    assert only(check(table(AttentionCall, a=serving(rule)))).kind == "may raise"
    assert check(table(AttentionCall, a=serving(sound))).findings == ()


def test_invariants_keep_calls_out() -> None:
    assert check(table(AttentionCall, a=serving("heads < heads_kv", "1 // group > 4"))).findings == ()
    assert check(table(AttentionCall, a=serving("group * heads_kv == heads"))).findings == ()


def test_a_derived_fact_and_an_invariant_that_may_raise() -> None:
    @call_spec(invariants=("a // b > 0",), derived={"c": "a % (a - 3)"})
    class Loose(CallSpec):
        a: int = integer(0, 9)
        b: int = integer(0, 9)

    report = check(table(Loose, one=serving("c > 2")))
    assert [(finding.kind, finding.keys) for finding in report.findings] == [("may raise", ("Loose",))] * 2
    assert "the derived fact c = 'a % (a - 3)' raises on a=3" in report.text()
    assert "the invariant 'a // b > 0' raises on " in report.text()


# -- rules that the solver must decide

WAVES = "ceildiv(m, 128) * ceildiv(n, 256) * batch"
SMEM = "stages * (128 * 64 + 256 * 64) * itemsize(dtype)"
ROWS = ", ".join(f"({64 * (i % 16 + 1)}, {128 * (i * 7 % 190 + 1)}, {64 * (i * 11 % 170 + 1)})" for i in range(200))

DECIDED = [
    ([f"{WAVES} > 3 * sm_count"], [f"{WAVES} <= 3 * sm_count"], False),
    ([f"{WAVES} > 3 * sm_count"], ["batch * ceildiv(n, 256) * ceildiv(m, 128) <= 3 * sm_count"], False),
    ([f"{WAVES} > 3 * sm_count"], [f"{WAVES} <= 4 * sm_count"], False),
    ([f"{WAVES} > 3 * sm_count"], [f"{WAVES} <= sm_count"], True),
    ([f"{WAVES} > 3 * sm_count"], ["ceildiv(m, 128) * ceildiv(n, 256) <= 3 * sm_count"], False),
    (["ceildiv(m, 128) * n > sm_count"], ["ceildiv(m, 64) * n <= 2 * sm_count"], False),
    ([f"(m, n, k) in {{{ROWS}}}"], [f"(m, n, k) not in {{{ROWS}}}"], False),
    ([f"(m, n, k) not in {{{ROWS}}}"], ["m % 64 == 0"], False),
    ([f"(m, n, k) in {{{ROWS}}}"], ["m % 128 != 0"], True),
    (["128 % (heads // heads_kv) != 0"], ["128 % group == 0"], False),
    (["128 % (heads // heads_kv) != 0"], ["group <= 128"], False),
    (["128 % (heads // heads_kv) != 0", "heads % 3 != 0"], ["heads_kv % 3 == 0"], False),
    (["128 % (heads // heads_kv) != 0", "heads % 128 != 0"], ["heads_kv > 3"], True),
    (["k * itemsize(dtype) % 16 != 0"], ["k % 4 == 0"], False),
    (["k * itemsize(dtype) % 16 != 0"], ["k % 8 == 0"], True),
    (["k * n % 16 != 0"], ["k % 2 == 0", "n % 2 == 0"], False),
    (["k % 4 != 0", "n % 4 != 0"], ["k * n % 16 == 0"], False),
    ([f"{SMEM} > smem_budget", "arch != 90"], ["stages * itemsize(dtype) <= 9"], False),
    ([f"{SMEM} > smem_budget", "arch != 90"], ["stages * itemsize(dtype) <= 7"], True),
    (["scale is not None and scale > 0.1"], ["scale is None", "scale <= 0.1"], False),
    (["scale is not None and scale > 0.1"], ["scale is None", "scale < 0.1"], True),
    (["not is_pow2(m)"], ["m % 3 != 0"], False),
    (["next_pow2(m) * next_pow2(n) > 1024"], ["m * n <= 1024"], False),
    (["next_pow2(m) - m > 3"], ["m < 1000", "m % 4 == 0"], True),
    (["gcd(m, 64) < 16"], ["m % 16 == 0"], False),
    (["gcd(m, n) != 1"], ["m % 2 != 0", "n % 2 != 0"], False),
    (["gcd(m, n) < 7"], ["m > 1000"], True),
    (["align_up(m, 128) != m"], ["m % 128 == 0"], False),
    (["prod(shape) > 4096"], ["len(shape) < 3", "shape[0] <= 4096"], False),
    (["len(shape) == 0 or shape[-1] % 8 != 0"], ["prod(shape) % 8 == 0"], False),
    (["prod(shape) % 8 != 0"], ["len(shape) == 0 or shape[-1] % 8 == 0"], True),
    (["m * n * k > 1048576"], ["m * n * k * batch <= 1048576 * batch"], False),
    (["n * k > m * 8"], ["n < m or k <= 8"], False),
]


@pytest.mark.parametrize(("first", "second", "meet"), DECIDED)
def test_hard_rules_are_decided(first: list[str], second: list[str], meet: bool) -> None:
    pair = table(AttentionCall, a=serving(*first), b=serving(*second))
    report = check(pair)
    assert kinds(report) == (["ambiguous"] if meet else []), report.text()
    for finding in report.findings:
        assert finding.witness is not None
        assert pair.explain(finding.witness).outcome == "ambiguous"


# -- limits, determinism, threads


FERMAT = table(a=serving("m * m * m + n * n * n != k * k * k"), b=serving("m < 3"))


def test_a_query_beyond_the_limit_is_a_finding_of_its_own() -> None:
    found = only(check(FERMAT, limit=20_000))
    assert (found.kind, found.severity, found.keys) == ("undecided", "warning", ("a", "b"))
    assert "20000 units" in found.message


def test_a_check_says_the_same_each_time() -> None:
    overlapping = table(a=serving(f"{WAVES.replace(' * batch', '')} > 3 * sm_count"), b=serving("m * n < 70000"))
    first, second = check(overlapping), check(overlapping)
    assert first == second
    assert [finding.witness for finding in first.findings] == [finding.witness for finding in second.findings]
    assert first.proved.rlimit > 0


def test_threads_do_not_disturb_each_other() -> None:
    gemm = gemm_table()
    expected = check(gemm).to_plain()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(check(gemm).to_plain())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 6


def gemm_table() -> RuleTable:
    return table(
        gemm_mma=serving(supported_archs=at_least(80), general=True),
        gemm_wgmma=serving(
            "m < 64",
            "k * itemsize(dtype) % 16 != 0",
            "n * itemsize(dtype) % 16 != 0",
            supported_archs=family(90),
            preferred_over={"gemm_splitk", "gemm_small"},
        ),
        gemv=serving("m > 2", "trans_a", "k % 8 != 0", supported_archs=at_least(80)),
        gemm_splitk=serving(
            "m < 16", "ceildiv(m, 128) * ceildiv(n, 128) * 2 > sm_count", "k < 2048", supported_archs=at_least(80)
        ),
        gemm_small=serving("m * n * k > 4096", "m <= 2", supported_archs=at_least(80)),
        gemm_wide=serving(
            "m <= 2",
            "m * n * k <= 4096",
            "ceildiv(m, 128) * ceildiv(n, 128) * 2 <= sm_count",
            supported_archs=family(100),
        ),
    )


def test_a_table_of_six_is_proved_within_half_a_second() -> None:
    gemm = gemm_table()
    check(gemm)  # imports and warms up
    start = time.perf_counter()
    report = check(gemm)
    spent = time.perf_counter() - start
    assert report.findings == ()
    assert report.proved.pairs == 8
    assert spent < 0.5


def test_apart_needs_no_solver() -> None:
    asked = Proof(table(a=serving("m > 2"), b=serving("m < 3"), c=serving("trans_a"), d=serving("not trans_a")))
    assert asked.apart("a", "b")
    assert asked.apart("c", "d")
    assert not asked.apart("a", "c")
    assert asked.proved.queries == 0


def test_a_report_in_words_and_as_data() -> None:
    report = check(table(a=serving(), b=serving()))
    assert report.text().splitlines()[-1].startswith("test: 1 pairs (0 without the solver), 1 queries, ")
    plain = report.to_plain()
    assert plain["findings"][0]["witness"].startswith("GemmCall(cuda:0, m=1, n=1, k=1")
    assert report.errors == report.findings
    assert report.warnings == ()
    assert proof.check(table()).findings == ()
