"""Every rule of the package, asked through explain: archs known and invented, names, two reasons at once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import pytest

from tileops.catalog import op_names
from tileops.forced import use_kernel
from tileops.kernels.norm.fused_add_rms_norm_rows import WALKED
from tileops.manifest.workload import bind
from tileops.rules.callspec import CallSpec
from tileops.rules.device import CUDA, DeviceFacts, boards, ranges, reference
from tileops.rules.errors import FactError, OpNotAvailableError
from tileops.tools import calls
from tileops.tools.boundaries import Boundary, boundaries
from tileops.tools.catalogue import Asked, known
from tileops.tools.question import Place, device_of

#: Known archs, and invented ones: older than all, siblings of known ones, between families, newer than all.
KNOWN = tuple(sorted(boards()))
INVENTED = (0, 9, 70, 76, 79, 81, 88, 91, 95, 99, 101, 109, 119, 122, 130, 200, 999)
OPS = sorted(op_names())


def facts_of(arch: int) -> DeviceFacts:
    if arch in boards():
        return reference(arch)
    within = ranges(CUDA, arch)
    return DeviceFacts(arch, None, within.sm_count[1], within.smem_budget[1])


def rows(op: str) -> Iterator[tuple[Asked, CallSpec]]:
    """The workload rows of an op that ask an interface, as call specs on the reference board of arch 90."""
    where = Place(device_of(CUDA), reference(90))
    for case in calls.rows(known(op)):
        posed = calls.pose(known(op), None, bind(known(op).entry.checker, case, CUDA), where)
        if posed.interface is not None and posed.call is not None:
            yield posed.interface, posed.call


@functools.cache
def limits(op: str) -> tuple[Boundary, ...]:
    return tuple(boundaries(known(op)))


@pytest.mark.parametrize("op", OPS)
def test_every_implementation_answers_for_every_arch_as_it_declares(op: str) -> None:
    """What "80 and newer" and "90" mean is said here once more, by the text that people read."""
    for asked, call in rows(op):
        for arch in (*KNOWN, *INVENTED):
            trace = asked.table.explain(call.replace(stated=facts_of(arch)))
            for key, declaration in asked.table.declarations.items():
                assert declaration.supported_archs is not None, f"{key} runs on no arch that it does not name"
                member = any(_means(part, arch) for part in declaration.supported_archs.text().split(" or "))
                verdict = trace.verdict(key)
                assert (verdict.status == "unavailable") is not member, (key, arch)
                if not member:
                    assert verdict.reasons[0].text == (
                        f"runs on arch {declaration.supported_archs.text()}, not on arch {arch}"
                    )


def _means(text: str, arch: int) -> bool:
    if text.endswith(" and newer"):
        return arch >= int(text.removesuffix(" and newer"))
    if " to " in text:
        low, high = map(int, text.split(" to "))
        return low <= arch <= high
    return arch in {int(number) for number in text.split(", ")}


def test_gemm_on_known_and_invented_archs() -> None:
    found = {}
    call = next(call for _, call in rows("GemmFwdOp")).replace(m=4096, n=4096, k=4096)
    for arch in (70, 75, 79, 80, 86, 89, 90, 91, 100, 121, 999):
        found[arch] = known("GemmFwdOp").interface(None).table.explain(call.replace(stated=facts_of(arch))).winner
    older, newer = dict.fromkeys((70, 75, 79)), dict.fromkeys((80, 86, 89, 91, 100, 121, 999), "gemm_mma")
    assert found == {**older, **newer, 90: "gemm_persistent"}


@pytest.mark.parametrize("op", OPS)
def test_automatic_choice_serves_where_some_named_one_does_and_each_name_is_reached(op: str) -> None:
    reached: set[tuple[str, str]] = set()
    tried = [(asked, call.replace(stated=facts_of(arch))) for asked, call in rows(op) for arch in (*KNOWN, 70, 91, 200)]
    for one in limits(op):
        asked = known(op).interfaces[one.interface]
        tried += [(asked, call) for call in (one.served, one.refused) if call is not None]
    for asked, call in tried:
        named = [key for key in asked.table.declarations if asked.table.explain(call, only=key).winner == key]
        winner = asked.table.explain(call).winner
        assert (winner is not None) is bool(named), call
        assert winner is None or winner in named
        reached |= {(asked.name, key) for key in named}
    assert reached == {(asked.name, key) for asked in known(op).interfaces.values() for key in asked.table.declarations}


@pytest.mark.parametrize("op", OPS)
def test_every_op_takes_the_same_override_or_refuses_it(op: str) -> None:
    keys = [key for asked in known(op).interfaces.values() for key in asked.table.declarations]
    for key in keys:
        with use_kernel(op, key):
            pass
    with pytest.raises(OpNotAvailableError, match="no_such_kernel"), use_kernel(op, "no_such_kernel"):
        raise AssertionError("an unknown name opened the block")


ALONE = {refusal.text for refusal in WALKED}
"""Rules of few short rows: none of the others, of long rows and of many, and of each other can fire with one."""


@pytest.mark.parametrize("op", OPS)
def test_every_rule_is_told_beside_another_one_that_fires_too(op: str) -> None:
    """A call that trips two rules names both: limits of the declarations, put together two at a time."""
    by_key: dict[tuple[str, str], list[CallSpec]] = {}
    for one in limits(op):
        by_key.setdefault((one.interface, one.key), []).extend([one.refused] if one.refused is not None else [])
    for (interface, key), refused in by_key.items():
        table = known(op).interfaces[interface].table
        rules = {refusal.text for refusal in table.declarations[key].refusal}
        told: set[str] = set()
        for first, second in itertools.permutations(refused, 2):
            for names in itertools.chain.from_iterable(itertools.combinations(first.kinds, size) for size in (1, 2)):
                try:
                    both = first.replace(**{name: getattr(second, name) for name in names})
                except FactError:
                    continue
                reasons = table.explain(both).verdict(key).reasons
                assert [reason.rule for reason in reasons if not reason.evaluated] == []
                if len(reasons) > 1:
                    told |= {reason.rule for reason in reasons if reason.rule is not None}
                    assert all(reason.rendered and reason.values for reason in reasons)
        assert len(rules) < 2 or told == rules - ALONE, key
