from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from tileops_test_dispatching import Call, Gemm, Narrow, Wide, call, dispatcher

from tileops.rules import (
    Declaration,
    Dispatcher,
    Finding,
    KernelInterface,
    Report,
    RuleTable,
    Slot,
)
from tileops.rules.errors import (
    DeclarationError,
)


@pytest.fixture(autouse=True)
def _forget_what_was_built() -> Iterator[None]:
    Wide.built.clear()
    yield
    Wide.built.clear()


class Fast(Wide):
    declaration = Declaration(devices={"cpu"}, preferred_over={"narrow"})


def prove(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> list[RuleTable]:
    asked: list[RuleTable] = []

    def check(table: RuleTable, limit: int | None = None) -> Report:
        asked.append(table)
        return Report(table.name, findings)

    monkeypatch.setattr(RuleTable, "check", check)
    return asked


def test_adding_swaps_the_table_in_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prove(monkeypatch)
    found = dispatcher(wide=Wide, narrow=Narrow)
    before = found.resolve("gemm", call(m=1))
    wide = found.resolve("gemm", call(m=9), only="wide")
    generation = found.generation
    found.add("gemm", "fast", Fast)
    assert [list(table.declarations) for table in asked] == [["fast", "narrow", "wide"]]
    assert found.generation > generation
    assert found.resolve("gemm", call(m=1)).key == "fast"
    assert found.resolve("gemm", call(m=1), only="narrow") is before, "what is built stays built"
    assert found.resolve("gemm", call(m=9), only="wide") is wide
    found.remove("gemm", "fast")
    assert found.resolve("gemm", call(m=1)) is before
    assert list(found.slots["gemm"].implementations) == ["wide", "narrow"]
    with pytest.raises(DeclarationError, match="no implementation 'fast'"):
        found.remove("gemm", "fast")


@pytest.mark.parametrize(
    "finding",
    [
        Finding("ambiguous", ("fast", "narrow"), "both serve", witness=Call(device="cpu", m=1)),
        Finding("undecided", ("fast", "narrow"), "limit", severity="warning"),
    ],
)
def test_an_addition_that_is_not_sound_changes_nothing(monkeypatch: pytest.MonkeyPatch, finding: Finding) -> None:
    prove(monkeypatch, finding)
    found = dispatcher(wide=Wide, narrow=Narrow)
    entry = found.resolve("gemm", call(m=1))
    state = found._state
    with pytest.raises(DeclarationError, match=f"(?s)fast is not added to gemm.*{finding.message}") as caught:
        found.add("gemm", "fast", Fast)
    assert caught.value.fields["findings"] == (finding,)
    assert caught.value.fields["witness"] == finding.witness
    assert found._state is state
    assert found.resolve("gemm", call(m=1)) is entry


def test_a_warning_does_not_keep_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    prove(monkeypatch, Finding("may raise", ("fast",), "perhaps", severity="warning"))
    found = dispatcher(wide=Wide)
    found.add("gemm", "fast", Fast)
    assert found.resolve("gemm", call()).key == "fast"


def test_what_cannot_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    prove(monkeypatch)
    found = dispatcher(wide=Wide)

    class Other(KernelInterface):
        request = Call

    class Arguments(Wide):
        def forward(self, b: Any) -> Any:
            return b

    with pytest.raises(DeclarationError, match=r"gemm has an implementation 'wide' already: .*Wide; .*Fast comes"):
        found.add("gemm", "wide", Fast)
    with pytest.raises(DeclarationError, match="does not inherit the interface Gemm"):
        found.add("gemm", "other", Other)
    with pytest.raises(DeclarationError, match="argument 1 is 'b', not 'a'"):
        found.add("gemm", "arguments", Arguments)
    with pytest.raises(DeclarationError, match="no interface 'norm'"):
        found.add("norm", "fast", Fast)
    assert list(found.slots["gemm"].implementations) == ["wide"]


def test_threads_that_resolve_while_one_adds_see_the_old_or_the_new(monkeypatch: pytest.MonkeyPatch) -> None:
    prove(monkeypatch)
    found = dispatcher(wide=Wide, narrow=Narrow)
    added, stop = threading.Event(), threading.Event()
    stale: list[str] = []

    def resolve() -> None:
        m = 0
        while not stop.is_set():
            m += 1
            after = added.is_set()
            key = found.resolve("gemm", call(m=m % 200 + 1)).key
            if key not in (("fast",) if after else ("fast", "narrow", "wide")):
                stale.append(key)

    def hit() -> None:
        one = call(m=1)
        while not stop.is_set():
            after = added.is_set()
            if found.resolve("gemm", one).key != "fast" and after:
                stale.append("hit")

    threads = [threading.Thread(target=target) for target in (resolve, resolve, hit, hit)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    found.add("gemm", "fast", Fast)
    added.set()
    time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join(10)
    assert stale == []


def test_an_addition_is_proved_in_earnest() -> None:
    class Twin(Narrow):
        pass

    class Third(Narrow):
        declaration = attrs.evolve(Narrow.declaration, preferred_over=frozenset({"narrow"}))

    found = dispatcher(wide=Wide, narrow=Narrow)
    with pytest.raises(DeclarationError, match=r"(?s)twin is not added to gemm.*ambiguous") as caught:
        found.add("gemm", "twin", Twin)
    witness = caught.value.fields["witness"]
    joined = found.tables["gemm"].with_declaration("twin", Twin.declaration)
    assert joined.explain(witness).outcome == "ambiguous"
    found.add("gemm", "third", Third)
    assert found.resolve("gemm", call(m=1)).key == "third"


def test_faults_of_slots_come_together() -> None:
    class NoEntry(Gemm):
        pass

    class NoRequest(KernelInterface):
        pass

    class Bare(KernelInterface):
        request = Call

    with pytest.raises(DeclarationError) as caught:
        Dispatcher(
            {
                "gemm": Slot("gemm", Gemm, {"a": NoEntry, "b": int, "c": Wide}),  # type: ignore[dict-item]
                "norm": Slot("norm", NoRequest, {}),
                "wide": Slot("wide", Wide, {}),
                "bare": Slot("bare", Bare, {}),
                "name": Slot("another", Gemm, {}),
            }
        )
    told = str(caught.value)
    for part in (
        "gemm: a:",
        "gemm: b: int does not inherit",
        "request is no call spec class: None",
        "wide: <class",
        "bare: Bare defines no forward".replace("Bare", Bare.__qualname__),
        "interface 'name' has a slot of another name, 'another'",
    ):
        assert part in told
    assert len(caught.value.fields["faults"]) == 6


def test_a_mixed_up_memo_key_is_not_shared_between_interfaces() -> None:
    class Norm(KernelInterface):
        request = Call

        def forward(self, a: Any) -> Any:
            raise NotImplementedError

    class NormKernel(Norm):
        declaration = Declaration(devices={"cpu"})

        def forward(self, a: Any) -> Any:
            return "norm"

        @classmethod
        def entry_for(cls, call: Call) -> tuple[int, Callable[[], NormKernel]]:
            return call.n, cls

    found = Dispatcher({"gemm": Slot("gemm", Gemm, {"k": Wide}), "norm": Slot("norm", Norm, {"k": NormKernel})})
    assert found.resolve("gemm", call()).kernel(1) == ("wide", 4, 1)
    assert found.resolve("norm", call()).kernel(1) == "norm"
    assert set(found.builds) == {("gemm", "k"), ("norm", "k")}
