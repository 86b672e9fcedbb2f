"""Checks and times every implementation of the memory-bound ops by name: norms, softmax, sums, SiLU-and-mul, RoPE.

    PYTHONPATH=. python3 tests/gpu/rows.py [ragged] [special] [large] [sweep] [rows]     all without arguments
    OPS=rms_norm,softmax limits it to some.

Needs a CUDA GPU and nvcc. An output is right when ||out - ref|| / ||ref|| against float64 is under the dtype's
tolerance and NaN stands just where the reference has it; inputs are drawn anew and outputs poisoned with NaN for each
check.
Times are GPU times of one call, inputs rotated past the L2 cache; the share is of the bandwidth of a large copy in the
same run. JSON lines go to $OUT/rows.jsonl; exit status 1 when a check fails.
"""
# ruff: noqa: T201  # a script that prints its result

from __future__ import annotations

import concurrent.futures
import json
import logging
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from cases import CUTS, LARGE, RAGGED, SPECIAL, SWEEPS
from operations import OPERATIONS, Operation
from timing import copies, gpu_us, manifest_rows

from tileops.rules.table import RuleTable

TOLERANCE = {torch.bfloat16: 4e-3, torch.float16: 5e-4, torch.float32: 1e-5}
"""Rounding the result alone gives 1.7e-3, 2.1e-4 and 3e-8; the sums are float32."""


class Served:
    """Pairs an op with the table of its implementations."""

    def __init__(self, name: str, operation: Operation) -> None:
        self.name, self.operation = name, operation
        declarations = {key: cls.declaration for key, cls in operation.implementations.items()}
        self.table = RuleTable(name, operation.call_class, declarations)

    def call(self, **facts: Any) -> Any:
        """Returns a call on the current device."""
        return self.operation.call_class(device=torch.device("cuda", torch.cuda.current_device()), **facts)

    def serving(self, call: Any) -> tuple[list[str], str]:
        """Returns the keys that serve a call, and the winner."""
        trace = self.table.explain(call)
        return [v.key for v in trace.verdicts if v.status in ("wins", "serves")], str(trace.winner)


def wrong(out: torch.Tensor, reference: torch.Tensor) -> float:
    """Returns the relative error where the reference is a number; NaN where NaN or shapes differ."""
    dtype = out.dtype
    out, reference = out.reshape(-1), reference.reshape(-1)
    if out.shape != reference.shape or not torch.equal(out.isnan(), reference.isnan()):
        return math.nan
    infinite = reference.to(out.dtype).isinf()
    if not torch.equal(out[infinite], reference.to(out.dtype)[infinite]):
        return math.nan
    finite = ~(infinite | reference.isnan())
    out, reference = out[finite].double(), reference[finite]
    # What is too small for a normal number of the dtype is rounded to a multiple of the least one.
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    error = ((out - reference).abs() - least / 2).clamp_min(0)
    return float(error.norm() / reference.norm().clamp_min(1e-300)) if out.numel() else 0.0


def copy_bandwidth() -> float:
    """Returns the bytes a second, read and written, of a copy of 1 GiB: by the driver or by a kernel, the faster."""
    source = torch.randn(2**28, device="cuda")
    copied = torch.empty_like(source)
    times = []
    for copy in (lambda: copied.copy_(source), lambda: torch.add(source, 1.0, out=copied)):
        for _ in range(10):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            copy()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e-3)
    return 8 * source.numel() / min(times)


def compile_one(item: tuple[type, Any]) -> str | None:
    """Compiles a build identity into TileLang's disk cache; returns what went wrong, if anything did."""
    logging.disable(logging.INFO)
    try:
        item[0].compile(item[1])
    except Exception as error:  # noqa: BLE001  # one build must not end the run
        return f"{type(error).__name__}: {str(error)[-400:]}"
    return None


def compile_all(items: Iterable[tuple[type, Any]]) -> list[str]:
    """Compiles build identities in parallel processes; returns the failures."""
    items = list(dict.fromkeys(items))
    start = time.time()
    jobs = int(os.environ.get("JOBS", os.cpu_count() or 1))
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(compile_one, items, chunksize=1))
    print(f"compiled {len(items)} programs in {time.time() - start:.0f} s", flush=True)
    return [f"{cls.__name__} {identity}: {e}" for (cls, identity), e in zip(items, results, strict=True) if e]


class Run:
    """Collects records, kernels and failures."""

    def __init__(self) -> None:
        self.file = (Path(os.environ.get("OUT", ".")) / "rows.jsonl").open("w")
        self.failures: list[str] = []
        self.kernels: dict[Any, Any] = {}
        self.checks = 0
        wanted = os.environ.get("OPS", "").split(",") if os.environ.get("OPS") else list(OPERATIONS)
        self.served = {name: Served(name, OPERATIONS[name]) for name in wanted}

    def record(self, **fields: Any) -> None:
        """Writes one JSON line."""
        self.file.write(json.dumps(fields) + "\n")
        self.file.flush()

    def fail(self, what: str, error: BaseException) -> None:
        """Counts a failure."""
        self.failures.append(f"{what}: {type(error).__name__}: {str(error)[-300:]}")

    def built(self, cls: type, identity: Any) -> Any:
        """Returns the kernel of a build identity."""
        if (cls, identity) not in self.kernels:
            self.kernels[cls, identity] = cls(identity)
        return self.kernels[cls, identity]

    def identities(self, served: Served, call: Any) -> list[tuple[type, Any]]:
        """Returns class and build identity of every implementation that serves a call."""
        return self.chosen(served, call, served.serving(call)[0])

    def chosen(self, served: Served, call: Any, keys: list[str]) -> list[tuple[type, Any]]:
        """Returns class and build identity of some implementations for a call."""
        classes = served.operation.implementations
        return [(classes[key], classes[key].entry_for(call)[0]) for key in keys]

    def contenders(self, served: Served, call: Any) -> list[str]:
        """Returns the keys that serve a call, the general one only where it wins."""
        keys, winner = served.serving(call)
        classes = served.operation.implementations
        return [key for key in keys if key == winner or not classes[key].declaration.general]

    def check(self, served: Served, key: str, call: Any, arguments: list[Any] | None = None) -> float:
        """Returns the worst error over tolerance of one call by name, and counts it."""
        operation = served.operation
        what = f"{key} {call.text()}"
        try:
            given = operation.inputs(call) if arguments is None else arguments
            expected = operation.reference(call, given)
            cls = operation.implementations[key]
            kernel = self.built(cls, cls.entry_for(call)[0])
            poison = [torch.full(out.shape, math.nan, device="cuda", dtype=given[0].dtype) for out in expected]
            del poison
            outputs = operation.outputs(kernel(*given), given)
            share = 0.0
            for out, reference in zip(outputs, expected, strict=True):
                error = wrong(out, reference) / TOLERANCE[out.dtype]
                share = error if not error <= share else share
        except Exception as problem:  # noqa: BLE001  # one shape must not end the run
            self.fail(what, problem)
            return math.nan
        self.checks += 1
        if not share <= 1.0:
            self.failures.append(f"{what}: error over tolerance {share:.3g}")
        self.record(kind="check", key=key, call=call.text(), share=share)
        return share

    def ragged(self) -> None:
        """Checks every implementation on shapes that divide nothing, on both sides of its limits."""
        calls = [(served, served.call(**facts)) for served in self.served.values() for facts in RAGGED[served.name]]
        self.failures += compile_all(item for served, call in calls for item in self.identities(served, call))
        worst: dict[str, list[float]] = {}
        for served, call in calls:
            for key in served.serving(call)[0]:
                worst.setdefault(key, []).append(self.check(served, key, call))
        for key, shares in sorted(worst.items()):
            print(f"ragged {key:26} {len(shares):3} checks, worst error over tolerance {max(shares):.2f}")
        torch.cuda.empty_cache()

    def special(self) -> None:
        """Checks infinities, NaN, large values and large means, by name."""
        items = [
            (served, served.call(**facts), change)
            for served in self.served.values()
            for facts, change in SPECIAL.get(served.name, ())
        ]
        self.failures += compile_all(item for served, call, _ in items for item in self.identities(served, call))
        for served, call, change in items:
            for key in served.serving(call)[0]:
                given = served.operation.inputs(call)
                change(given)
                self.check(served, key, call, given)

    def large(self) -> None:
        """Checks tensors of more than 2**31 elements, by parts of them that the reference gets alone."""
        items = [
            (served, key, served.call(**facts))
            for served in self.served.values()
            for facts in LARGE[served.name]
            for key in served.serving(served.call(**facts))[0]
        ]
        pairs = [
            (s.operation.implementations[key], s.operation.implementations[key].entry_for(call)[0])
            for s, key, call in items
        ]
        self.failures += compile_all(pairs)
        for (served, key, call), pair in zip(items, pairs, strict=True):
            what = f"large {key} {call.text()}"
            try:
                share = self._share_of_parts(served, call, pair)
                self.checks += 1
                if not share <= 1.0:
                    self.failures.append(f"{what}: error over tolerance {share:.3g}")
                print(f"{what}: error over tolerance {share:.2g}", flush=True)
            except Exception as problem:  # noqa: BLE001  # one shape must not end the run
                self.fail(what, problem)
                print(f"{what}: {type(problem).__name__}", flush=True)
            torch.cuda.empty_cache()

    def _share_of_parts(self, served: Served, call: Any, pair: tuple[type, Any]) -> float:
        """Returns the worst error over tolerance of the first, the middle and the last part of a call's outputs."""
        given, cuts = served.operation.inputs(call), CUTS.get(served.name, {0: 0})

        def part(tensor: torch.Tensor | None, dim: int | None, place: int) -> torch.Tensor | None:
            return tensor if tensor is None or dim is None else tensor.narrow(dim, place, 1)

        size = given[0].shape[cuts[0]]
        parts = {}
        for place in sorted({0, size // 2, size - 1}):
            cut = [part(tensor, cuts.get(number), place) for number, tensor in enumerate(given)]
            parts[place] = served.operation.reference(call, [None if one is None else one.clone() for one in cut])
        outputs = served.operation.outputs(self.built(*pair)(*given), given)
        worst = 0.0
        for place, expected in parts.items():
            for out, reference in zip(outputs, expected, strict=True):
                made = part(out, cuts[0] if out.dim() == given[0].dim() else 0, place)
                error = wrong(made, reference) / TOLERANCE[out.dtype]
                worst = error if not error <= worst else worst
        return worst

    def sweep(self) -> None:
        """Times other shares of the threads than the one that the tables choose."""
        items = []
        for name, key, facts, variants in SWEEPS:
            if name in self.served:
                served = self.served[name]
                call = served.call(**facts)
                cls = served.operation.implementations[key]
                chosen = cls.entry_for(call)[0]
                items.append((served, cls, call, list(dict.fromkeys([chosen, *variants(chosen)]))))
        self.failures += compile_all((cls, identity) for _, cls, _, builds in items for identity in builds)
        for served, cls, call, builds in items:
            moved = served.operation.moved(call)
            sets = [served.operation.inputs(call) for _ in range(copies(moved))]
            times = []
            for place, identity in enumerate(builds):
                try:
                    kernel = self.built(cls, identity)
                    us = gpu_us([lambda given=given, f=kernel: f(*given) for given in sets], repeats=7)
                    times.append((us, "*" * (place == 0) + str(identity).split(", ", 1)[1]))
                    self.record(kind="sweep", key=cls.__name__, call=call.text(), build=str(identity), us=us)
                except Exception as problem:  # noqa: BLE001  # one candidate must not end the sweep
                    self.fail(f"sweep {identity}", problem)
            shown = " | ".join(f"{us:.1f} {text}" for us, text in sorted(times)[:5])
            print(f"{cls.__name__} {call.text()}: {moved / min(times)[0] / 1e6:.2f} TB/s\n    {shown}", flush=True)
            del sets
            torch.cuda.empty_cache()

    def rows(self) -> None:
        """Checks and times the manifest's rows."""
        bandwidth = copy_bandwidth()
        print(f"copy bandwidth {bandwidth / 1e12:.2f} TB/s", flush=True)
        calls = []
        for served in self.served.values():
            operation = served.operation
            for label, row in manifest_rows(operation.op, operation.family):
                for case in row["dtypes"]:
                    if operation.applies(row):
                        calls.append((label, served, served.call(**operation.facts(row | case))))
        self.failures += compile_all(
            item for _, served, call in calls for item in self.chosen(served, call, self.contenders(served, call))
        )
        ratios: dict[str, list[float]] = {}
        for label, served, call in calls:
            self._row(label, served, call, bandwidth, ratios)
            torch.cuda.empty_cache()
        print(f"copy bandwidth afterwards {copy_bandwidth() / 1e12:.2f} TB/s")
        for name, values in ratios.items():
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"{name}: torch's time over ours, mean of {len(values)}: {mean:.2f}, worst {min(values):.2f}")

    def _row(self, label: str, served: Served, call: Any, bandwidth: float, ratios: dict[str, list[float]]) -> None:
        operation = served.operation
        keys, winner = self.contenders(served, call), served.serving(call)[1]
        moved = operation.moved(call)
        sets = [operation.inputs(call) for _ in range(copies(moved))]
        times = {}
        try:
            times["torch"] = gpu_us(
                [lambda given=given: operation.torch_call(call, given) for given in sets], repeats=7
            )
        except RuntimeError as problem:
            print(f"torch does not take {label}: {str(problem)[:100]}")
        for key in keys:
            if not self.check(served, key, call) <= 1.0:
                continue
            cls = operation.implementations[key]
            kernel = self.built(cls, cls.entry_for(call)[0])
            try:
                times[key] = gpu_us([lambda given=given, f=kernel: f(*given) for given in sets], repeats=7)
            except Exception as problem:  # noqa: BLE001  # one row must not end the run
                self.fail(f"{label} {key}", problem)
        ours = times.get(winner, math.inf)
        if "torch" in times and ours < math.inf:
            ratios.setdefault(served.name, []).append(times["torch"] / ours)
        share = moved / ours * 1e6 / bandwidth
        identity = str(operation.implementations[winner].entry_for(call)[0])
        self.record(
            kind="row",
            op=served.name,
            label=label,
            call=call.text(),
            winner=winner,
            us=times,
            share=share,
            moved=moved,
            build=identity,
        )
        others = "  ".join(
            f"{key.removeprefix(served.name + '_')} {us:.1f}" for key, us in times.items() if key != winner
        )
        name = str(call.dtype).removeprefix("torch.")
        best = min((us, key) for key, us in times.items() if key != "torch") if len(times) > 1 else (0.0, winner)
        mark = "" if best[1] == winner or ours < 1.03 * best[0] else " BEATEN"
        print(
            f"{winner:24} {label:28} {name:8} {moved / 2**20:7.1f} MiB {ours:7.1f} us {share:4.0%}  {others}{mark}",
            flush=True,
        )


def main() -> int:
    """Runs the wanted parts; returns the exit status."""
    logging.disable(logging.INFO)
    run = Run()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for part in sys.argv[1:] or ["ragged", "special", "large", "rows"]:
        start = time.time()
        getattr(run, part)()
        print(f"{part}: {time.time() - start:.0f} s", flush=True)
    print(f"{run.checks} checks, {len(run.failures)} failures")
    for failure in run.failures[:40]:
        print("FAILED", failure)
    for failure in run.failures:
        run.record(kind="failure", text=failure)
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
