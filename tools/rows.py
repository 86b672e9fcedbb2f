"""Rows: a benchmark's workload rows, and how one is checked, timed and compared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import torch

from tileops import backend
from tileops.manifest.workload import Case, bind
from tileops.op import Op
from tileops.rules.errors import nearest
from tileops.tools import samples, timing
from tileops.tools.baselines import Baseline, Eager, eager
from tileops.tools.catalogue import Known
from tileops.tools.figures import FAILED, SKIPPED, TIMED, WRONG, Measured, Reading, Row
from tileops.tools.usage import UsageError

TOLERANCE: Final = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5, torch.float64: 1e-12}
HOST_CALLS: Final = (3, 100)
HOST_S: Final = 0.02


@attrs.frozen
class Item:
    """Is one call to be measured: a case of a workload row of an op."""

    known: Known
    case: Case

    @property
    def label(self) -> str:
        """Return the row's label, without the dtypes."""
        return self.case.label.rpartition("/")[0] or self.case.label

    def op(self, target: backend.Target | None) -> Op:
        """Return an instance of the op with the row's params."""
        return self.known.op(**self.case.params, target=target)

    def row(self, outcome: str, **more: Any) -> Row:
        """Return what is known of the row before anything is measured, and ``more``."""
        return Row(
            op=self.known.name,
            label=self.label,
            dtypes=samples.dtypes(self.case),
            shapes=samples.shapes(self.case),
            outcome=outcome,
            **more,
        )


def items(ops: Sequence[Known], labels: Sequence[str] = (), dtypes: Sequence[str] = ()) -> list[Item]:
    """Return the cases of all rows, or of those that ``labels`` name, in one of ``dtypes`` where any is given.

    A label is a row's, or that of one case (``square-1k/bfloat16``). Raises UsageError for a label that no op has, and
    where nothing is left.
    """
    every = [Item(known, case) for known in ops for case in known.entry.cases()]
    valid = {item.label for item in every} | {item.case.label for item in every}
    for label in labels:
        if label not in valid:
            names = ", ".join(known.name for known in ops)
            raise UsageError(f"no row {label!r} in {names}{nearest(label, valid)}")
    chosen = [
        item
        for item in every
        if (not labels or {item.label, item.case.label} & set(labels))
        and (not dtypes or samples.dtypes(item.case).partition("-")[0] in dtypes)
    ]
    if not chosen:
        raise UsageError(f"no row is left: {', '.join(labels) or 'all rows'} in {', '.join(dtypes) or 'any dtype'}")
    return chosen


@attrs.frozen
class Ceilings:
    """Holds what the device reaches in this run: bytes a second of a copy, operations a second of a product."""

    copy: float | None = None
    matrix: Mapping[torch.dtype, float] = attrs.field(factory=dict)

    def floor(self, flops: int, moved: int, dtype: torch.dtype) -> tuple[float | None, str | None]:
        """Return the least milliseconds of a call, and whether ``memory`` or ``matrix`` sets them."""
        parts = {}
        if self.copy:
            parts["memory"] = moved / self.copy * 1e3
        if dtype in self.matrix:
            parts["matrix"] = flops / self.matrix[dtype] * 1e3
        bound = max(parts, key=parts.__getitem__, default=None)
        return (None, None) if bound is None else (parts[bound], bound)


def ceilings(
    timer: timing.Timer, device: torch.device, dtypes: Sequence[torch.dtype], copied: int = 2**30, side: int = 8192
) -> Ceilings:
    """Measure a copy of so many bytes, and a square product of random values for each dtype."""
    source = torch.randint(0, 255, (copied,), dtype=torch.uint8, device=device)
    copy = torch.empty_like(source)
    seconds = _seconds(timer, lambda: copy.copy_(source))
    rates = {}
    for dtype in dtypes:
        size = side if dtype.itemsize < 4 else side // 2
        a, b = (torch.randn(size, size, dtype=dtype, device=device) for _ in range(2))
        rates[dtype] = 2 * size**3 / _seconds(timer, lambda a=a, b=b: torch.matmul(a, b))  # type: ignore[misc]
    return Ceilings(2 * copied / seconds, rates)


def _seconds(timer: timing.Timer, call: timing.Call) -> float:
    return timer.measure({"": [call]}, evict=False)[""].device_busy_ms / 1e3


@attrs.frozen
class Bench:
    """Measures rows on one device. Everything that touches the device's clock is given, so that tests give their own.

    ``missing`` says which baselines cannot run here, and why.
    """

    device: torch.device
    target: backend.Target | None
    timer: timing.Timer
    synchronize: Callable[[], object]
    baselines: Sequence[Baseline]
    ceilings: Ceilings = Ceilings()
    clock: Callable[[], float] = time.perf_counter

    @property
    def missing(self) -> dict[str, str]:
        """Say why baselines cannot run on the device, by name."""
        found = {one.name: one.missing(self.device.type) for one in self.baselines}
        return {name: why for name, why in found.items() if why is not None}

    def row(self, item: Item) -> Row:
        """Measure one row; whatever goes wrong is in the row that comes back."""
        missing = self.missing
        for one in self.baselines:
            if one.role == "selected" and one.serves(item.known.name) and one.name in missing:
                outcome = FAILED if self.device.type == "cuda" else SKIPPED
                return item.row(outcome, why=f"baseline {one.name}: {missing[one.name]}")
        try:
            return self._row(item)
        except Exception as problem:  # noqa: BLE001  # one row must not end the run, and its problem is reported
            return item.row(FAILED, why=told(problem))

    def _row(self, item: Item) -> Row:
        known, case = item.known, item.case
        signature, checker = known.entry.signature, known.entry.checker
        function, op = eager(known.name), item.op(self.target)
        flops, moved = checker.roofline(bind(checker, case, self.device))
        first: list[float] = []

        def first_call(*tensors: torch.Tensor | None, **named: torch.Tensor | None) -> Any:
            start = self.clock()
            result = op(*tensors, **named)
            self.synchronize()
            first.append(self.clock() - start)
            return result

        error, tolerance = self.judge(item, op, first_call)
        facts = op.last_call
        about: dict[str, Any] = {
            "error": error if math.isfinite(error) else None,
            "tolerance": tolerance,
            "flops": flops,
            "bytes": moved,
            "implementation": facts.key if facts is not None else None,
            "target": facts.target if facts is not None and isinstance(facts.target, str) else None,
        }
        if not error <= tolerance:
            return item.row(WRONG, why=f"relative error {error:.3g} is over {tolerance:g}", **about)
        count, evict = timing.sets_of(moved)
        sets = [samples.make(known.name, signature, case, self.device) for _ in range(count)]
        contenders: dict[str, list[timing.Call]] = {"": [_op_call(op, given) for given in sets]}
        baselines: dict[str, Measured] = {}
        for one in self.baselines:
            if not one.serves(known.name) or one.name in self.missing:
                continue
            first_of = _EagerCall(one.ready(function), sets[0], case.params)
            try:
                first_of()
                self.synchronize()
            except Exception as problem:  # noqa: BLE001  # a library may fail in any way; it is reported
                if one.role == "selected":
                    return item.row(FAILED, why=f"baseline {one.name}: {told(problem)}", **about)
                baselines[one.name] = Measured(one.role, why=told(problem))
                continue
            ready = first_of.function
            contenders[one.name] = [_EagerCall(ready, given, case.params) for given in sets]
            baselines[one.name] = Measured(one.role)
        readings = self.timer.measure(contenders, evict)
        hosts = {name: self._host(calls[0], readings[name]) for name, calls in contenders.items()}
        for name in list(baselines):
            if name in readings:
                baselines[name] = Measured(baselines[name].role, readings[name], hosts[name])
        floor, bound = self.ceilings.floor(flops, moved, _dtype(case))
        return item.row(
            TIMED,
            floor_ms=floor,
            bound=bound,
            timing=self.timer.timing,
            reading=readings[""],
            host_us=hosts[""],
            first_call_s=first[0],
            baselines=baselines,
            **about,
        )

    def judge(self, item: Item, op: Op, call: Callable[..., Any]) -> tuple[float, float]:
        """Return the relative error of a call on fresh inputs, and its tolerance: of the output that is worst.

        ``call`` is the op, or calls it in some way. Written inputs are outputs too.
        """
        known, case = item.known, item.case
        given = samples.make(known.name, known.entry.signature, case, self.device)
        written = known.entry.checker.writes(op.params)
        reference = samples.wide(given)
        expected = samples.outputs(eager(known.name)(reference, op.params))
        expected += [_there(reference, name) for name in written]
        poison = [  # what the op gets to write on: all of it at once, or one block serves several outputs
            torch.full(spec.shape, math.nan, dtype=spec.dtype, device=self.device)
            for spec in known.entry.checker.outputs(bind(known.entry.checker, case, self.device))
            if spec.dtype.is_floating_point
        ]
        del poison
        made = [*_made(known, call(*given.values()), written), *(_there(given, name) for name in written)]
        self.synchronize()
        worst = (0.0, TOLERANCE[_dtype(case)])
        for out, right in zip(made, expected, strict=True):
            found = relative_error(out, right), TOLERANCE[out.dtype]
            if math.isnan(found[0]):
                return found
            if found[0] / found[1] > worst[0] / worst[1]:
                worst = found
        return worst

    def _host(self, call: timing.Call, reading: Reading) -> float:
        low, high = HOST_CALLS
        calls = max(low, min(high, int(HOST_S * 1e3 / max(reading.latency_ms, 1e-6))))
        return timing.host_us(call, self.synchronize, calls, self.clock)


def relative_error(out: torch.Tensor, right: torch.Tensor) -> float:
    """Return ``||out - right|| / ||right||`` over the finite; NaN where shapes, NaN or inf differ."""
    if out.shape != right.shape:
        return math.nan
    finite = right.isfinite()
    if not torch.equal(out.isfinite(), finite) or not torch.equal(out.isnan(), right.isnan()):
        return math.nan
    if not torch.equal(out[right.isinf()].signbit(), right[right.isinf()].signbit()):
        return math.nan
    zero = torch.zeros((), dtype=torch.float64, device=out.device)
    a, b = torch.where(finite, out.double(), zero), torch.where(finite, right.double(), zero)
    return float((a - b).norm() / b.norm().clamp_min(1e-300))


def told(problem: BaseException) -> str:
    """Write an exception in one line of bounded length."""
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text if len(text) <= 400 else text[:400] + ' ...'}"


@attrs.frozen
class _EagerCall:
    """Calls a function of torch on one set of inputs."""

    function: Eager
    given: samples.Tensors
    params: Mapping[str, Any]

    def __call__(self) -> object:
        return self.function(self.given, self.params)


def _op_call(op: Op, given: samples.Tensors) -> timing.Call:
    tensors = tuple(given.values())
    return lambda: op(*tensors)


def _dtype(case: Case) -> torch.dtype:
    return next(size.dtype for size in case.inputs.values() if size is not None)


def _there(tensors: samples.Tensors, name: str) -> torch.Tensor:
    tensor = tensors[name]
    assert tensor is not None, "a written input is no optional one"
    return tensor


def _made(known: Known, result: Any, written: Sequence[str]) -> list[torch.Tensor]:
    """Return what a call made: outputs that hand back a written input stand there already."""
    outputs = known.entry.signature.outputs.values()
    pairs = zip(samples.outputs(result), outputs, strict=True)
    return [out for out, spec in pairs if spec.same_as is None or spec.same_as not in written]
