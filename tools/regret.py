"""Regret: what preferences cost. Times every implementation that serves a call, by name, and holds the choice to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import torch

from tileops import backend
from tileops.forced import use_kernel
from tileops.manifest.schema import Workload
from tileops.manifest.workload import Case, bind, cases
from tileops.op import Op
from tileops.rules.callspec import CallSpec
from tileops.rules.device import DeviceFacts
from tileops.rules.errors import BackendError
from tileops.rules.evaluate import EVALUATION_ERRORS
from tileops.rules.table import RuleTable
from tileops.tools import boundaries, calls, samples, timing
from tileops.tools.catalogue import Asked, Known
from tileops.tools.figures import Preference, Regret, Sample, preference
from tileops.tools.prebuild import Program
from tileops.tools.question import Place
from tileops.tools.rows import Bench, Item, told
from tileops.tools.usage import UsageError

WORKLOAD, NEIGHBOUR, LIMIT = "workload", "neighbour", "limit"
MOST_BYTES: Final = 2**32
MOST_FLOPS: Final = 4 * 10**12


@attrs.frozen
class Contest:
    """Is one call that several implementations serve."""

    item: Item
    origin: str
    asked: Asked
    call: CallSpec
    keys: tuple[str, ...]
    chosen: str


def contests(known: Known, device: torch.device, facts: DeviceFacts, most: int) -> list[Contest]:
    """Return up to ``most`` calls of an op that several implementations serve.

    They are all workload rows, both sides of every limit, and as many neighbours of the rows as there is room for,
    evenly taken. Raises UsageError for an op whose calls leave no choice.
    """
    if all(len(asked.table.declarations) < 2 for asked in known.interfaces.values()):
        raise UsageError(
            f"{known.name} has no interface with several implementations, so there is nothing to regret; it has: "
            + (", ".join(f"{name} ({len(a.table.declarations)})" for name, a in known.interfaces.items()) or "none")
        )
    where = Place(device, facts)
    found: dict[CallSpec, Contest] = {}
    for origin, case in sampled(known, facts):
        contest = _contest(known, case, origin, where)
        if contest is not None:
            found.setdefault(contest.call, contest)
    first = [one for one in found.values() if one.origin != NEIGHBOUR]
    others = [one for one in found.values() if one.origin == NEIGHBOUR]
    room = max(0, most - len(first))
    step = max(1.0, len(others) / room) if room else 1.0
    chosen = [others[int(place * step)] for place in range(min(room, len(others)))]
    if not first and not chosen:
        raise UsageError(f"{known.name}: no sampled call is served by several implementations on arch {facts.arch}")
    return (first + chosen)[:most]


def sampled(known: Known, facts: DeviceFacts) -> Iterator[tuple[str, Case]]:
    """Yield calls of an op, each with where it comes from: workload rows, both sides of limits, neighbours of rows.

    A row is taken in one of its dtypes, another one each time.
    """
    for place, workload in enumerate(known.entry.workloads):
        each = list(cases(known.entry.checker, workload))
        yield WORKLOAD, each[place % len(each)]
    for boundary in boundaries.boundaries(known, facts):
        for side, call in (("serves", boundary.served), ("refuses", boundary.refused)):
            made = None if call is None else boundaries.op_call(known, known.interfaces[boundary.interface], call)
            if made is not None:
                names = [name for name, index in known.entry.signature.forall.items() if index.kind == "dtype"]
                dtypes = {name: made.values[name] for name in names}
                yield LIMIT, Case(f"{boundary.key} {side}: {boundary.rule}", dtypes, made.tensors, made.params)
    for place, workload in enumerate(known.entry.workloads):
        yield from ((NEIGHBOUR, case) for case in neighbours(known, workload, place))


def neighbours(known: Known, workload: Workload, turn: int = 0) -> Iterator[Case]:
    """Yield cases in which one size of a row is doubled, halved, one more or one less, in one of the row's dtypes."""
    dtypes = workload.dtypes[turn % len(workload.dtypes) :][:1]
    for name, value in workload.values.items():
        for changed in _changed(value):
            row = attrs.evolve(
                workload,
                label=f"{workload.label}, {name}={changed}",
                values={**workload.values, name: changed},
                dtypes=dtypes,
            )
            try:
                made = list(cases(known.entry.checker, row))
                for case in made:
                    bind(known.entry.checker, case)
            except (BackendError, TypeError, *EVALUATION_ERRORS):
                continue  # no call of the op
            yield from made


def _changed(value: Any) -> Iterator[Any]:
    if type(value) is int and value >= 1:
        yield from dict.fromkeys(size for size in (2 * value, value // 2, value + 1, value - 1) if 1 <= size != value)
    elif isinstance(value, list | tuple):
        for place, size in enumerate(value):
            for changed in _changed(size):
                yield type(value)([*value[:place], changed, *value[place + 1 :]])


def _contest(known: Known, case: Case, origin: str, where: Place) -> Contest | None:
    flops, moved = known.entry.checker.roofline(bind(known.entry.checker, case, where.device))
    if moved > MOST_BYTES or flops > MOST_FLOPS:
        return None
    found = posed(known, case, origin, where)
    return None if found is None or len(found.keys) < 2 else found


def posed(known: Known, case: Case, origin: str, where: Place) -> Contest | None:
    """Return a call with all that serve it; None where nothing does."""
    try:
        asked = calls.pose(known, None, bind(known.entry.checker, case, where.device), where)
    except UsageError:
        return None  # the op's facts do not take this call
    if asked.interface is None or asked.call is None:
        return None
    trace = asked.interface.table.explain(asked.call)
    if trace.winner is None:
        return None
    keys = tuple(verdict.key for verdict in trace.verdicts if verdict.status in ("wins", "serves"))
    return Contest(Item(known, case), origin, asked.interface, asked.call, keys, trace.winner)


def programs(found: Sequence[Contest]) -> list[Program]:
    """Return the programs of every implementation that serves a call, each once."""
    every = {}
    for contest in found:
        for key in contest.keys:
            implementation = contest.asked.implementations[key]
            if hasattr(implementation, "compile"):
                identity, _ = implementation.entry_for(contest.call)
                every[implementation, identity] = Program(implementation, identity)
    return list(every.values())


def measure(found: Sequence[Contest], bench: Bench, begin: Callable[[Contest], bool]) -> Iterator[list[Regret]]:
    """Time the contests of one op; yield after each what is known so far, a result for each interface.

    Stops at the first contest that ``begin`` refuses.
    """
    taken: dict[str, list[Sample]] = {}
    tables: dict[str, RuleTable] = {}
    op = found[0].item.known.name
    for contest in found:
        if not begin(contest):
            break
        tables[contest.asked.name] = contest.asked.table
        taken.setdefault(contest.asked.name, []).append(_sample(contest, bench))
        yield [Regret(op, name, tuple(one), preferences(name, tables[name], one)) for name, one in taken.items()]


def _sample(contest: Contest, bench: Bench) -> Sample:
    item, known = contest.item, contest.item.known
    op = item.op(backend.BUILTIN)
    problems: dict[str, str] = {}
    right = []
    for key in contest.keys:
        try:
            error, tolerance = bench.judge(item, op, by_name(known.name, key, op))
        except Exception as problem:  # noqa: BLE001  # one implementation must not end the run; it is reported
            problems[key] = told(problem)
            continue
        if error <= tolerance:
            right.append(key)
        else:
            problems[key] = f"relative error {error:.3g} is over {tolerance:g}"
    times: dict[str, float] = {}
    if right:
        _, moved = known.entry.checker.roofline(bind(known.entry.checker, item.case, bench.device))
        count, evict = timing.sets_of(moved)
        sets = [samples.make(known.name, known.entry.signature, item.case, bench.device) for _ in range(count)]
        contenders = {key: [_call(by_name(known.name, key, op), given) for given in sets] for key in right}
        try:
            readings = bench.timer.measure(contenders, evict)
            times = {key: reading.device_busy_ms for key, reading in readings.items()}
        except (BackendError, RuntimeError) as problem:
            problems |= {key: told(problem) for key in right}
    label = item.case.label if contest.origin != NEIGHBOUR else item.label
    return Sample(label, contest.origin, contest.call.text(), contest.chosen, times, problems)


def by_name(name: str, key: str, op: Op) -> Callable[..., Any]:
    """Return a function that calls an op and has it served by one implementation."""

    def call(*tensors: torch.Tensor | None) -> Any:
        with use_kernel(name, key):
            return op(*tensors)

    return call


def _call(function: Callable[..., Any], given: samples.Tensors) -> timing.Call:
    tensors = tuple(given.values())
    return lambda: function(*tensors)


def preferences(interface: str, table: RuleTable, found: Sequence[Sample]) -> tuple[Preference, ...]:
    """Hold every preference of a table to the times: those declared, those over the general one, those through others.

    Pairs that no sample times both of are left out.
    """
    told_of = []
    for under, above in sorted(table.above.items()):
        for over in sorted(above):
            how = _declared(table, over, under)
            told_of.append(preference(interface, over, under, how, found))
    return tuple(one for one in told_of if one is not None)


def _declared(table: RuleTable, over: str, under: str) -> str:
    declarations: Mapping[str, Any] = table.declarations
    if under in declarations[over].preferred_over:
        return "preferred_over"
    return "general" if declarations[under].general else "through others"
