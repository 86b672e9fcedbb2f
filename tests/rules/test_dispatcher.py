from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest
import torch
from tileops_test_dispatching import Call, Gemm, Narrow, OtherCall, Wide, call, dispatcher

from tileops.rules import (
    Declaration,
    DeviceFacts,
    Refusal,
    RuleTable,
)
from tileops.rules.dispatcher import device_current
from tileops.rules.errors import (
    AmbiguousDispatchError,
    BackendError,
    DeclarationError,
    FactError,
    OpNotAvailableError,
)


@pytest.fixture(autouse=True)
def _forget_what_was_built() -> Iterator[None]:
    Wide.built.clear()
    yield
    Wide.built.clear()


def test_resolving_gives_the_winner_s_kernel() -> None:
    found = dispatcher(wide=Wide, narrow=Narrow)
    entry = found.resolve("gemm", call(m=2))
    assert entry.key == "narrow"
    assert entry.kernel(1) == ("narrow", 1)
    assert found.resolve("gemm", call(m=3)).kernel(1) == ("wide", 4, 1)
    assert (entry.interface, entry.identity, entry.device, entry.tuned) == ("gemm", "any", torch.device("cpu"), False)


def test_an_equal_call_hits_and_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dispatcher(wide=Wide)
    first = found.resolve("gemm", call())

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a hit asks nobody")

    monkeypatch.setattr(RuleTable, "explain", fail)
    monkeypatch.setattr(Wide, "entry_for", fail)
    monkeypatch.setattr("tileops.rules.device.read_facts", fail)
    monkeypatch.setattr(found, "_lock", None)
    assert found.resolve("gemm", call()) is first
    assert found.resolve("gemm", call(), tuned=False, only=None) is first


def test_calls_of_one_identity_share_an_entry() -> None:
    found = dispatcher(wide=Wide)
    entries = {id(found.resolve("gemm", call(m=m))) for m in range(1, 65)}
    assert len(entries) == 1
    assert Wide.built == [4]
    assert found.resolve("gemm", call(n=5)).kernel is not found.resolve("gemm", call()).kernel
    assert found.builds == {("gemm", "wide"): 2}


def test_equal_identities_of_two_implementations_are_two_entries() -> None:
    class Other(Wide):
        declaration = Declaration(devices={"cpu"}, refusal=(Refusal("m > 2", "m={m}"),))

    found = dispatcher(wide=Wide, other=Other)
    assert type(found.resolve("gemm", call(m=1)).kernel) is Other
    assert type(found.resolve("gemm", call(m=3)).kernel) is Wide


@attrs.frozen
class Build:
    """A build identity with a field of any type."""

    stages: Any


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: ("tile", (one,)), Build, lambda one: frozenset({one})])
def test_identities_that_only_python_calls_equal_are_two_entries(wrap: Callable[[Any], Any]) -> None:
    class Typed(Wide):
        @classmethod
        def entry_for(cls, call: Call) -> tuple[Any, Callable[[], Wide]]:
            return wrap((1, True, 1.0, 1)[call.m - 1]), lambda: cls(call.n)

    found = dispatcher(typed=Typed)
    integer, truth, real, again = (found.resolve("gemm", call(m=m)) for m in (1, 2, 3, 4))
    assert len({id(integer), id(truth), id(real)}) == 3
    assert again is integer


def test_tuned_entries_are_their_own() -> None:
    found = dispatcher(wide=Wide, narrow=Narrow)
    plain = found.resolve("gemm", call())
    tuned = found.resolve("gemm", call(), tuned=True)
    assert plain is not tuned
    assert tuned is found.resolve("gemm", call(), tuned=True)
    assert (plain.tuned, plain.kernel.tunings) == (False, 0)  # type: ignore[attr-defined]
    assert (tuned.tuned, tuned.kernel.tunings) == (True, 1)  # type: ignore[attr-defined]
    # One that cannot be tuned has an entry in tuned mode all the same.
    assert found.resolve("gemm", call(m=1), tuned=True).kernel(1) == ("narrow", 1)


def test_one_that_is_asked_for_by_name_runs_or_fails() -> None:
    found = dispatcher(wide=Wide, narrow=Narrow)
    assert found.resolve("gemm", call(m=1)).key == "narrow"
    assert found.resolve("gemm", call(m=1), only="wide").key == "wide"
    assert found.resolve("gemm", call(m=1)).key == "narrow"
    with pytest.raises(OpNotAvailableError, match=r"(?s)no implementation serves.*narrow was asked for.*got m=3"):
        found.resolve("gemm", call(m=3), only="narrow")
    with pytest.raises(DeclarationError, match=r"no implementation 'narow' \(did you mean 'narrow'\?\)"):
        found.resolve("gemm", call(m=3), only="narow")


def test_a_call_that_is_not_served_says_why_and_leaves_nothing() -> None:
    found = dispatcher(narrow=Narrow)
    with pytest.raises(OpNotAvailableError, match="no implementation serves this call of GemmFwdOp") as caught:
        found.resolve("gemm", call(m=3))
    assert caught.value.fields["trace"].outcome == "no implementation"
    on_other = Call(device="meta", m=1, n=1)
    with pytest.raises(OpNotAvailableError, match="GemmFwdOp's in-tree kernels do not run on meta"):
        found.resolve("gemm", on_other)
    assert found.builds == {}
    assert not found._memo

    class Twin(Narrow):
        pass

    with pytest.raises(AmbiguousDispatchError, match="dispatch is ambiguous: narrow and twin"):
        dispatcher(narrow=Narrow, twin=Twin).resolve("gemm", call(m=1))


def test_stated_device_facts_never_reach_a_kernel() -> None:
    found = dispatcher(wide=Wide)
    stated = Call(device="cpu", m=8, n=4, stated=DeviceFacts(90, None, 1, 1))
    for _ in range(2):  # cold, then with an equal call in the memo
        with pytest.raises(FactError, match="states its device facts, so it is for explain and select"):
            found.resolve("gemm", stated)
        with pytest.raises(FactError, match="states its device facts"):
            found.built("gemm", stated)
        assert stated == call()
        found.resolve("gemm", call())
    assert found.tables["gemm"].select(stated) == "wide"


def test_what_is_asked_wrongly() -> None:
    found = dispatcher(wide=Wide)
    with pytest.raises(DeclarationError, match=r"GemmFwdOp has no interface 'gem' \(did you mean 'gemm'\?\)"):
        found.resolve("gem", call())
    with pytest.raises(DeclarationError, match="gemm is asked with Call, got OtherCall"):
        found.resolve("gemm", OtherCall(device="cpu", m=8))


def test_built_says_so_and_builds_nothing() -> None:
    found = dispatcher(wide=Wide, narrow=Narrow)
    assert not found.built("gemm", call())
    assert Wide.built == []
    found.resolve("gemm", call())
    assert found.built("gemm", call())
    assert found.built("gemm", call(m=9)), "another call of the same identity"
    assert not found.built("gemm", call(), tuned=True)
    assert not found.built("gemm", call(m=1))
    assert found.built("gemm", call(m=1), only="wide")
    with pytest.raises(OpNotAvailableError):
        dispatcher(narrow=Narrow).built("gemm", call())


def test_clear_forgets_and_unloads_nothing() -> None:
    found = dispatcher(wide=Wide)
    kept = found.resolve("gemm", call())
    generation = found.generation
    found.clear()
    assert found.generation > generation
    assert kept.kernel(1) == ("wide", 4, 1)
    assert not found.built("gemm", call())
    assert found.resolve("gemm", call()) is not kept


# Builds -----------------------------------------------------------------------------------------------------------


def test_sixteen_threads_build_each_entry_once() -> None:
    started = threading.Barrier(16)

    class Slow(Wide):
        @classmethod
        def entry_for(cls, call: Call) -> tuple[int, Callable[[], Wide]]:
            identity, build = super().entry_for(call)

            def slowly() -> Wide:
                time.sleep(0.05)
                return build()

            return identity, slowly

    found = dispatcher(slow=Slow)

    def resolve(number: int) -> Any:
        started.wait()
        return found.resolve("gemm", call(m=number + 1, n=4 + number % 2))

    with ThreadPoolExecutor(16) as pool:
        entries = list(pool.map(resolve, range(16)))
    assert sorted(Wide.built) == [4, 5]
    assert len({id(entry) for entry in entries}) == 2
    assert all(entry.kernel.n == 4 + number % 2 for number, entry in enumerate(entries))
    assert found.builds == {("gemm", "slow"): 2}


def test_two_entries_build_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)

    class Meeting(Wide):
        @classmethod
        def entry_for(cls, call: Call) -> tuple[int, Callable[[], Wide]]:
            def build() -> Wide:
                both.wait()  # breaks unless the other build runs meanwhile
                return cls(call.n)

            return call.n, build

    found = dispatcher(meeting=Meeting)
    with ThreadPoolExecutor(2) as pool:
        entries = list(pool.map(lambda n: found.resolve("gemm", call(n=n)), (4, 5)))
    assert [entry.kernel.n for entry in entries] == [4, 5]  # type: ignore[attr-defined]


def test_a_failing_build_reaches_its_own_callers_and_is_retried() -> None:
    broken = threading.Event()
    broken.set()
    begun, others_wait = threading.Event(), threading.Event()
    attempts: list[int] = []

    class Failing(Wide):
        @classmethod
        def entry_for(cls, call: Call) -> tuple[int, Callable[[], Wide]]:
            def build() -> Wide:
                attempts.append(call.n)
                if call.n == 4 and broken.is_set():
                    begun.set()
                    assert others_wait.wait(10)
                    raise RuntimeError("no compiler")
                return cls(call.n)

            return call.n, build

    found = dispatcher(failing=Failing)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(found.resolve, "gemm", call())
        assert begun.wait(10)
        waiting = [pool.submit(found.resolve, "gemm", call(m=m)) for m in range(1, 4)]
        good = pool.submit(found.resolve, "gemm", call(n=5))
        assert good.result(10).kernel.n == 5  # type: ignore[attr-defined]
        (running,) = found._state.building.values()
        while len(running.result._condition._waiters) < 3:  # type: ignore[attr-defined]
            time.sleep(0.001)
        others_wait.set()
        for future in (first, *waiting):
            with pytest.raises(RuntimeError, match="no compiler"):
                future.result(10)
    assert attempts.count(4) == 1, "those who waited got the failure of the build they waited for"
    assert found._state.building == {}
    assert not found.built("gemm", call())
    broken.clear()
    assert found.resolve("gemm", call()).kernel.n == 4  # type: ignore[attr-defined]
    assert found.builds == {("gemm", "failing"): 2}


def test_an_interrupted_build_is_taken_over_by_one_that_waits() -> None:
    begun, go = threading.Event(), threading.Event()
    attempts: list[int] = []

    class Interrupted(Wide):
        @classmethod
        def entry_for(cls, call: Call) -> tuple[int, Callable[[], Wide]]:
            def build() -> Wide:
                attempts.append(call.m)
                if len(attempts) == 1:
                    begun.set()
                    assert go.wait(10)
                    raise KeyboardInterrupt
                return cls(call.n)

            return call.n, build

    found = dispatcher(interrupted=Interrupted)
    outcome: list[BaseException] = []

    def interrupted() -> None:
        try:
            found.resolve("gemm", call(m=1))
        except KeyboardInterrupt as error:
            outcome.append(error)

    thread = threading.Thread(target=interrupted)
    thread.start()
    assert begun.wait(10)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(found.resolve, "gemm", call(m=2))
        while not other.running():
            time.sleep(0.001)
        time.sleep(0.02)
        go.set()
        assert other.result(10).kernel.n == 4  # type: ignore[attr-defined]
    thread.join(10)
    assert len(outcome) == 1
    assert attempts == [1, 2]


def test_a_build_that_asks_for_itself_is_told_so() -> None:
    class Loop(Wide):
        @classmethod
        def entry_for(cls, call: Call) -> tuple[int, Callable[[], Wide]]:
            return call.n, lambda: found.resolve("gemm", call).kernel  # type: ignore[return-value]

    found = dispatcher(loop=Loop)
    with pytest.raises(BackendError, match="the build of loop for 4 asks for itself"):
        found.resolve("gemm", call())


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, r"entry_for returns \(identity, build\), got None"),
        ((1, 2), r"entry_for returns \(identity, build\)"),
        (([], lambda: abs), "build identity of Odd cannot be a key"),
        ((1, lambda: 3), "returned what cannot be called: 3"),
    ],
)
def test_an_entry_for_that_answers_wrongly(answer: Any, told: str) -> None:
    class Odd(Gemm):
        declaration = Declaration(devices={"cpu"})
        entry_for = classmethod(lambda cls, call: answer)

    Odd.__qualname__ = "Odd"
    found = dispatcher(odd=Odd)
    with pytest.raises(DeclarationError, match=told):
        found.resolve("gemm", call())
    assert found.builds == {}


def test_the_device_is_current_while_its_kernel_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    current = [0]

    @contextlib.contextmanager
    def device_index(index: int) -> Iterator[None]:
        before, current[0] = current[0], index
        try:
            yield
        finally:
            current[0] = before

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("xpu"))
    monkeypatch.setattr(torch.accelerator, "device_index", device_index)
    seen: list[int] = []

    class Where(Wide):
        declaration = Declaration(devices={"xpu", "cpu"})

        @classmethod
        def entry_for(cls, call: Call) -> tuple[int, Callable[[], Wide]]:
            def build() -> Wide:
                seen.append(current[0])
                if call.n == 13:
                    raise RuntimeError("unlucky")
                return cls(call.n)

            return call.n, build

    found = dispatcher(where=Where)
    entries = [found.resolve("gemm", Call(device=name, m=1, n=4)) for name in ("xpu:1", "xpu:0", "cpu", "xpu:1")]
    assert seen == [1, 0, 0]
    assert [str(entry.device) for entry in entries] == ["xpu:1", "xpu:0", "cpu", "xpu:1"]
    with pytest.raises(RuntimeError, match="unlucky"):
        found.resolve("gemm", Call(device="xpu:1", m=1, n=13))
    assert current == [0]


def test_a_device_of_no_accelerator_is_left_alone() -> None:
    with device_current(torch.device("meta")), device_current(torch.device("cpu")):
        assert torch.empty(1).device.type == "cpu"
