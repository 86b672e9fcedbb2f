"""Timing, without a GPU: a device of plain Python that keeps a clock and records what CUPTI would."""

import weakref
from collections.abc import Callable

import attrs
import pytest
import torch
from torch.autograd import DeviceType

from tileops.tools import timing
from tileops.tools.figures import median
from tileops.tools.timing import MARKER, ROUNDS, CuptiTimer, Device, EventsTimer, Span, TimingError


@attrs.define
class Stream:
    """A device: kernels run one after the other, each a microsecond after the one before."""

    now: float = 0.0
    spans: list[Span] = attrs.field(factory=list)
    evictions: int = 0
    lost: bool = False

    def kernel(self, name: str, us: float) -> None:
        self.spans.append(Span(name, self.now + 1, self.now + 1 + us))
        self.now += 1 + us

    def spin(self, cycles: int) -> None:
        self.kernel(f"at::cuda::{MARKER}(long)", cycles / 1e3)

    def evict(self) -> None:
        self.evictions += 1
        self.kernel("reduce", 70)

    def record(self, run: Callable[[], object]) -> list[Span]:
        self.spans.clear()
        run()
        return self.spans[1:] if self.lost else self.spans

    def device(self) -> Device:
        return Device(lambda: None, self.evict, self.spin, lambda: self.now / 1e6)

    def cupti(self) -> CuptiTimer:
        return CuptiTimer(self.device(), self.record)


@attrs.define(eq=False)
class Event:
    """A device event of the stream."""

    stream: Stream
    at: float = 0.0

    def record(self) -> None:
        self.at = self.stream.now

    def elapsed_time(self, other: "Event") -> float:
        return (other.at - self.at) / 1e3


@pytest.mark.parametrize("evict", [False, True])
def test_cupti_separates_calls_and_gaps(evict: bool) -> None:
    stream = Stream()

    def two_kernels() -> None:
        stream.kernel("first", 10)
        stream.kernel("second", 5)

    readings = stream.cupti().measure({"one": [lambda: stream.kernel("only", 20)], "two": [two_kernels]}, evict)
    assert readings["one"].device_busy_ms == pytest.approx(0.020)
    assert readings["one"].latency_ms == pytest.approx(0.020)
    assert readings["two"].device_busy_ms == pytest.approx(0.015)
    assert readings["two"].latency_ms == pytest.approx(0.016)
    assert readings["two"].calls == ROUNDS * timing.CALLS[1]
    assert (stream.evictions > 0) is evict


def test_calls_take_their_turn_over_the_sets() -> None:
    stream, seen = Stream(), []

    def call(place: int) -> Callable[[], object]:
        return lambda: (seen.append(place), stream.kernel("k", 5))

    stream.cupti().measure({"x": [call(place) for place in range(4)]}, evict=False)
    timed = seen[5:]  # two to warm up, three to see how long a call takes
    assert timed == [place % 4 for place in range(len(timed))]
    assert len(timed) == ROUNDS * timing.CALLS[1]


def test_results_live_until_their_turn_comes_again() -> None:
    stream, alive = Stream(), weakref.WeakSet[Event]()
    most = 0

    def call() -> Event:
        nonlocal most
        stream.kernel("k", 5)
        made = Event(stream)
        alive.add(made)
        most = max(most, len(alive))
        return made

    stream.cupti().measure({"x": [call] * 4}, evict=False)
    assert most == 5


def test_a_lost_marker_is_an_error() -> None:
    stream = Stream(lost=True)
    with pytest.raises(TimingError, match=r"recorded \d+ of \d+ marker kernels"):
        stream.cupti().measure({"x": [lambda: stream.kernel("k", 5)]}, evict=False)


def test_a_call_without_a_kernel_is_an_error() -> None:
    with pytest.raises(TimingError, match="no kernel in a call of idle"):
        Stream().cupti().measure({"idle": [lambda: None]}, evict=False)


def test_events_see_no_gaps() -> None:
    stream = Stream()

    def two_kernels() -> None:
        stream.kernel("first", 10)
        stream.kernel("second", 5)

    timer = EventsTimer(stream.device(), lambda: Event(stream), "cuda-events")
    (reading,) = timer.measure({"two": [two_kernels]}, evict=True).values()
    assert reading.device_busy_ms == reading.latency_ms == pytest.approx(0.017)
    assert stream.evictions == reading.calls


def test_busy_time_counts_overlapping_kernels_once() -> None:
    spans = [Span("a", 0, 10), Span("b", 5, 12), Span("c", 6, 7), Span("d", 20, 21)]
    assert timing.busy(spans) == 13


def test_the_spread_is_that_of_the_rounds() -> None:
    reading = timing.reading([[(10, 10), (11, 11)], [(12, 12), (12, 12)], [(10, 10), (10, 10)]])
    assert reading.device_busy_ms == pytest.approx(0.010)
    assert reading.spread == pytest.approx(0.2)
    assert median([3, 1, 2, 4]) == 2


@pytest.mark.parametrize(
    ("size", "count", "evict"), [(2**30, 2, False), (2**26, 4, False), (2**23, 32, False), (2**13, 4, True)]
)
def test_sets_exceed_the_cache_or_it_is_emptied(size: int, count: int, evict: bool) -> None:
    assert timing.sets_of(size) == (count, evict)
    assert evict or count * size >= timing.COLD_BYTES


def test_long_calls_are_made_seldom() -> None:
    assert [timing.calls_of(seconds) for seconds in (1e-5, 4e-3, 1.0, 0.0)] == [10, 5, 3, 10]


def test_the_host_time_is_the_best_of_three_runs() -> None:
    ticks = iter([0.0, 30e-6, 0.0, 20e-6, 0.0, 40e-6])
    assert timing.host_us(lambda: None, lambda: None, 10, lambda: next(ticks)) == pytest.approx(2.0)


def test_cupti_that_fails_is_told_or_replaced_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "COLD_BYTES", 16)
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda size, device: ones(size))

    def probe(timer: CuptiTimer) -> None:
        raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")

    cuda = torch.device("cuda", 0)
    with pytest.raises(TimingError, match=r"PRIVILEGES.*--tileops-allow-events-fallback"):
        timing.choose(cuda, False, probe)
    assert timing.choose(cuda, True, probe).timing == "cuda-events"
    assert timing.choose(cuda, True, lambda timer: None).timing == "cupti"
    assert timing.choose(torch.device("xpu"), False).timing == "events"


def test_what_torch_s_profiler_records_becomes_spans() -> None:
    x = torch.ones(64, 64)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile, torch.profiler.record_function("an annotation"):
        torch.mm(x, x)
    spans = timing.spans_of(profile.events(), DeviceType.CPU)
    (product,) = [span for span in spans if span.name == "aten::mm"]
    assert product.end > product.start
    assert not [span for span in spans if span.name == "an annotation"]
    assert timing.spans_of(profile.events(), DeviceType.CUDA) == []
