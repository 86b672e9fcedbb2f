"""Timing: how long calls keep a device busy, by CUPTI or by device events, and what a call costs the host.

Every call reads cold memory: callers rotate sets of inputs that together exceed the L2 cache several times; where a
set is so small that this would take too many, a buffer is read between calls, which leaves the cache full and clean.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs
import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # torch names it in no __all__

from tileops.rules.errors import BackendError
from tileops.tools.figures import Reading, median

COLD_BYTES: Final = 256 * 2**20  # several times the 50 MiB of an H200's L2 cache
MOST_SETS: Final = 32
ROUNDS: Final = 3  # the contenders take turns, so that a slow spell meets all of them
CALLS: Final = (3, 10)  # of a contender in a round
ROUND_S: Final = 0.02  # what a contender's round should take on the device
LEAD_CYCLES: Final = 4_000_000  # about 2 ms of an H200: the host is ahead when the first call starts
MARK_CYCLES: Final = 2_000
MARKER: Final = "spin_kernel"  # what torch.cuda._sleep launches

Call = Callable[[], object]


class TimingError(BackendError):
    """Says why nothing could be timed."""


@attrs.frozen
class Span:
    """Is one activity of the device, in microseconds."""

    name: str
    start: float
    end: float


class Timer(Protocol):
    """Times contenders beside each other. ``timing`` is the word for the report's column of that name."""

    @property
    def timing(self) -> str:
        """Return ``cupti``, ``cuda-events`` or ``events``."""
        ...

    def measure(self, contenders: Mapping[str, Sequence[Call]], evict: bool) -> dict[str, Reading]:
        """Return the time of a call of each contender, its calls taken in turn; raises TimingError.

        ``evict`` asks to empty the cache before each call.
        """
        ...


def sets_of(bytes_per_call: int) -> tuple[int, bool]:
    """Return how many sets of inputs a row takes, and whether the cache must be emptied between calls as well."""
    wanted = math.ceil(COLD_BYTES / max(bytes_per_call, 1))
    return (max(2, wanted), False) if wanted <= MOST_SETS else (4, True)


def calls_of(seconds: float) -> int:
    """Return how often a call of so many seconds is made in a round."""
    low, high = CALLS
    return max(low, min(high, int(ROUND_S / max(seconds, 1e-9))))


@attrs.define
class _Turns:
    """Makes a contender's calls in turn.

    The result of each is kept until its turn comes again. Otherwise the allocator would hand every call the memory of
    the one before, whose lines lie in the cache, to be written once more before they reach memory.
    """

    calls: Sequence[Call]
    count: int
    place: int = 0
    results: dict[int, object] = attrs.field(factory=dict)

    def call(self) -> None:
        """Make the next call."""
        place = self.place % len(self.calls)
        self.results[place] = self.calls[place]()
        self.place += 1


def turns(contenders: Mapping[str, Sequence[Call]], synchronize: Call, clock: Callable[[], float]) -> dict[str, _Turns]:
    """Warm every contender up, and settle by a first measurement how often each is called."""
    settled = {}
    for name, calls in contenders.items():
        for call in calls[:2]:
            call()
        synchronize()
        start = clock()
        for call in calls[:3]:
            call()
        synchronize()
        settled[name] = _Turns(calls, calls_of((clock() - start) / len(calls[:3])))
    return settled


@attrs.frozen
class Device:
    """Is what a timer does to a device besides the calls; each a function, so that tests give their own."""

    synchronize: Call
    evict: Call
    spin: Callable[[int], object] = lambda cycles: None
    clock: Callable[[], float] = time.perf_counter


@attrs.frozen
class CuptiTimer:
    """Times by the kernels that CUPTI recorded: a short marker kernel stands before each call."""

    device: Device
    record: Callable[[Call], Iterable[Span]]
    """Runs a function and returns the device's activities meanwhile."""
    timing: str = "cupti"

    def measure(self, contenders: Mapping[str, Sequence[Call]], evict: bool) -> dict[str, Reading]:
        """Return the time of a call of each contender; raises TimingError where CUPTI left something out."""
        settled = turns(contenders, self.device.synchronize, self.device.clock)
        labels: list[tuple[str, int] | None] = []

        def mark(label: tuple[str, int] | None, cycles: int = MARK_CYCLES) -> None:
            labels.append(label)
            self.device.spin(cycles)

        def run() -> None:
            for number in range(ROUNDS):
                for name, taken in settled.items():
                    mark(None, LEAD_CYCLES)
                    for _ in range(taken.count):
                        if evict:
                            mark(None)
                            self.device.evict()
                        mark((name, number))
                        taken.call()
                    mark(None)  # what follows the last call is not its own
            self.device.synchronize()

        segments = split(self.record(run))
        if len(segments) != len(labels):
            raise TimingError(f"CUPTI recorded {len(segments)} of {len(labels)} marker kernels")
        found: dict[str, list[list[tuple[float, float]]]] = {name: [[] for _ in range(ROUNDS)] for name in settled}
        for label, spans in zip(labels, segments, strict=True):
            if label is None:
                continue
            if not spans:
                raise TimingError(f"CUPTI recorded no kernel in a call of {label[0]}")
            found[label[0]][label[1]].append((max(s.end for s in spans) - min(s.start for s in spans), busy(spans)))
        return {name: reading(rounds) for name, rounds in found.items()}


class Event(Protocol):
    """Is a device event that keeps its time."""

    def record(self) -> object:
        """Put the event into the stream."""
        ...

    def elapsed_time(self, other: Any) -> float:
        """Return the milliseconds to another event."""
        ...


@attrs.frozen
class EventsTimer:
    """Times by two device events around a call, which cannot see the gaps between a call's kernels."""

    device: Device
    event: Callable[[], Event]
    timing: str

    def measure(self, contenders: Mapping[str, Sequence[Call]], evict: bool) -> dict[str, Reading]:
        """Return the time of a call of each contender; busy time and latency are one figure."""
        settled = turns(contenders, self.device.synchronize, self.device.clock)
        found: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in settled}
        for _ in range(ROUNDS):
            for name, taken in settled.items():
                self.device.spin(LEAD_CYCLES)
                pairs = []
                for _ in range(taken.count):
                    if evict:
                        self.device.evict()
                    before, after = self.event(), self.event()
                    before.record()
                    taken.call()
                    after.record()
                    pairs.append((before, after))
                self.device.synchronize()
                times = [before.elapsed_time(after) * 1e3 for before, after in pairs]
                found[name].append([(us, us) for us in times])
        return {name: reading(rounds) for name, rounds in found.items()}


def split(spans: Iterable[Span]) -> list[list[Span]]:
    """Cut the device's activities at the markers: what ran after each, up to the next one."""
    segments: list[list[Span]] = []
    for span in sorted(spans, key=lambda one: one.start):
        if MARKER in span.name:
            segments.append([])
        elif segments:
            segments[-1].append(span)
    return segments


def busy(spans: Sequence[Span]) -> float:
    """Return the microseconds in which at least one of the activities ran."""
    total, until = 0.0, -math.inf
    for span in sorted(spans, key=lambda one: one.start):
        total += max(0.0, span.end - max(span.start, until))
        until = max(until, span.end)
    return total


def reading(rounds: Sequence[Sequence[tuple[float, float]]]) -> Reading:
    """Return the medians of (latency, busy) in microseconds, and how far the rounds lie apart."""
    flat = [pair for part in rounds for pair in part]
    latency, occupied = (median([pair[place] for pair in flat]) for place in (0, 1))
    medians = [median([pair[1] for pair in part]) for part in rounds]
    spread = (max(medians) - min(medians)) / occupied if occupied else 0.0
    return Reading(latency / 1e3, occupied / 1e3, len(flat), spread)


def host_us(call: Call, synchronize: Call, calls: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the host's microseconds a call, from entry to return: the best of three runs of so many calls."""
    best = math.inf
    for _ in range(3):
        synchronize()
        start = clock()
        for _ in range(calls):
            call()
        best = min(best, (clock() - start) / calls)
    synchronize()
    return best * 1e6


# -- on this machine


def choose(device: torch.device, allow_events: bool, probe: Callable[[CuptiTimer], object] | None = None) -> Timer:
    """Return the timer for a device: CUPTI's on CUDA, by events elsewhere.

    On CUDA a call is timed first: where CUPTI fails, ``allow_events`` takes CUDA events in its place.

    Raises:
        TimingError: CUPTI failed, and events are not allowed.
    """
    if device.type != "cuda":
        buffer = torch.ones(COLD_BYTES // 4, device=device)
        bare = Device(lambda: torch.accelerator.synchronize(device), buffer.sum)
        return EventsTimer(bare, lambda: _event(device), "events")
    buffer = torch.ones(COLD_BYTES // 4, device=device)
    # The one kernel of torch that lasts as long as it is asked to, and whose name no op's kernel has.
    cuda = Device(lambda: torch.cuda.synchronize(device), buffer.sum, torch.cuda._sleep)
    timer = CuptiTimer(cuda, recorded)
    try:
        (probe or _probe)(timer)
    except (RuntimeError, BackendError) as error:
        if not allow_events:
            raise TimingError(
                f"CUPTI does not work here: {error}. Pass --tileops-allow-events-fallback to time by CUDA events, "
                "which count the gaps between kernels as time"
            ) from error
        return EventsTimer(cuda, lambda: _event(device), "cuda-events")
    return timer


def _event(device: torch.device) -> Event:
    make: Any = torch.cuda.Event if device.type == "cuda" else torch.Event
    event: Event = make(enable_timing=True) if device.type == "cuda" else make(device, enable_timing=True)
    return event


def _probe(timer: CuptiTimer) -> None:
    ones = torch.ones(1 << 20, device="cuda")
    timer.measure({"probe": [lambda: ones + 1]}, evict=True)


def recorded(run: Call) -> list[Span]:
    """Run a function under torch's profiler and return the CUDA device's activities, kernels, copies and fills."""
    # acc_events: nothing is accumulated, since each profile is a new one, but torch warns without it.
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        run()
    return spans_of(profile.events() or [], DeviceType.CUDA)


def spans_of(events: Iterable[Any], kind: Any) -> list[Span]:
    """Return a profile's events on one kind of device, annotations left out."""
    return [
        Span(event.name, event.time_range.start, event.time_range.end)
        for event in events
        if event.device_type == kind and not getattr(event, "is_user_annotation", False)
    ]
