"""Checks and times every GEMM implementation by name, on the manifest's rows and on ragged ones.

    PYTHONPATH=. python3 tests/gpu/gemm_rows.py [rows] [ragged] [large] [host]     all four without arguments

Needs a CUDA GPU and nvcc. A row is right when ||out - ref|| / ||ref|| against a float64 product of the same inputs is
under the dtype's tolerance; inputs are drawn anew and outputs poisoned with NaN for each check. Times are GPU times of
one call, inputs rotated past the L2 cache. JSON lines go to $OUT/gemm_rows.jsonl; exit status 1 when a check fails.
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
from timing import copies, gpu_us, manifest_rows, relative_error

from tileops.kernels.gemm import GEMM_IMPLEMENTATIONS, GemmCall
from tileops.kernels.gemm.form import Form
from tileops.kernels.gemm.mma import GemmMmaKernel, MmaBuild
from tileops.kernels.gemm.tiles import MMA_WIDE
from tileops.rules.table import RuleTable

TOLERANCE = {torch.bfloat16: 4e-3, torch.float16: 5e-4}
"""Rounding the result alone gives 1.7e-3 and 2.1e-4; the sums are float32."""

FORMS = [(False, True), (False, False), (True, False), (True, True)]

RAGGED = [
    (1, 1, 1), (2, 3, 5), (1, 4097, 4099), (2, 1000, 1003), (2, 264, 4104), (1, 40, 16), (3, 17, 1030), (17, 33, 65),
    (33, 2112, 2055), (16, 520, 4100), (63, 127, 129), (64, 8, 16), (65, 136, 72), (100, 200, 1096), (127, 2100, 1032),
    (129, 257, 520), (136, 264, 520), (1000, 8, 8), (1032, 777, 1000), (200, 1000, 264), (264, 17008, 72),
    (264, 17003, 136), (2000, 2501, 520), (3000, 1030, 264),
]  # fmt: skip
"""Ones, primes, one off a tile and one off a 16-byte pitch, every implementation on both sides of its limits."""

TABLE = RuleTable("gemm", GemmCall, {key: cls.declaration for key, cls in GEMM_IMPLEMENTATIONS.items()})


def call_of(m: int, n: int, k: int, dtype: torch.dtype, trans_a: bool, trans_b: bool) -> GemmCall:
    """Returns the call spec of a product on the current device."""
    device = torch.device("cuda", torch.cuda.current_device())
    return GemmCall(device=device, m=m, n=n, k=k, dtype=dtype, trans_a=trans_a, trans_b=trans_b)


def serving(call: GemmCall) -> tuple[list[str], str]:
    """Returns the keys that serve a call, and the winner."""
    trace = TABLE.explain(call)
    return [v.key for v in trace.verdicts if v.status in ("wins", "serves")], str(trace.winner)


def operands(call: GemmCall) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns fresh random operands as stored."""
    a = torch.randn((call.k, call.m) if call.trans_a else (call.m, call.k), device=call.device, dtype=call.dtype)
    b = torch.randn((call.n, call.k) if call.trans_b else (call.k, call.n), device=call.device, dtype=call.dtype)
    return a, b


def logical(call: GemmCall, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns views [m, k] and [k, n] of the operands."""
    return (a.T if call.trans_a else a), (b.T if call.trans_b else b)


def poison(call: GemmCall) -> None:
    """Leaves NaN in the allocator's free blocks of the sizes that a kernel will ask for."""
    blocks = [torch.full((call.m, call.n), math.nan, device=call.device, dtype=call.dtype)]
    parts = min(32, 2**26 // (call.m * call.n))
    blocks += [torch.full((p, call.m, call.n), math.nan, device=call.device) for p in range(2, parts + 1, 3)]
    del blocks


def check(call: GemmCall, kernel: Any) -> float:
    """Returns the relative error of a kernel on fresh inputs against float64; NaN for a wrong shape."""
    a, b = operands(call)
    poison(call)
    d = kernel(a, b)
    if d.shape != (call.m, call.n) or d.dtype != call.dtype or not d.is_contiguous():
        return math.nan
    left, right = logical(call, a, b)
    return relative_error(d, left.double() @ right.double())


def compile_one(item: tuple[type, Any]) -> str | None:
    """Compiles a build identity into TileLang's disk cache; returns what went wrong, if anything did."""
    logging.disable(logging.INFO)
    try:
        item[0].compile(item[1])
    except Exception as error:  # noqa: BLE001  # one build must not end the run
        return f"{type(error).__name__}: {str(error)[-400:]}"
    return None


def compile_all(calls: Iterable[GemmCall]) -> list[str]:
    """Compiles what the calls need in parallel processes; returns the failures."""
    items = []
    for call in calls:
        for key in serving(call)[0]:
            cls = GEMM_IMPLEMENTATIONS[key]
            items.append((cls, cls.entry_for(call)[0]))
    items = list(dict.fromkeys(items))
    start = time.time()
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(compile_one, items, chunksize=2))
    print(f"compiled {len(items)} programs in {time.time() - start:.0f} s", flush=True)
    return [f"{cls.__name__} {identity}: {e}" for (cls, identity), e in zip(items, results, strict=True) if e]


class Run:
    """Collects records, kernels and failures."""

    def __init__(self) -> None:
        self.file = (Path(os.environ.get("OUT", ".")) / "gemm_rows.jsonl").open("w")
        self.failures: list[str] = []
        self.kernels: dict[Any, Any] = {}
        self.checks = 0

    def kernel(self, key: str, call: GemmCall) -> Any:
        """Returns the kernel of an implementation for a call, shared by build identity."""
        identity, build = GEMM_IMPLEMENTATIONS[key].entry_for(call)
        if (key, identity) not in self.kernels:
            self.kernels[key, identity] = build()
        return self.kernels[key, identity]

    def record(self, **fields: Any) -> None:
        """Writes one JSON line."""
        self.file.write(json.dumps(fields) + "\n")
        self.file.flush()

    def judge(self, what: str, error: float, dtype: torch.dtype) -> bool:
        """Counts a check; an error over the tolerance, or NaN, is a failure."""
        self.checks += 1
        if not error <= TOLERANCE[dtype]:
            self.failures.append(f"{what}: relative error {error:.3g}")
            return False
        return True

    def rows(self) -> None:
        """Checks and times the manifest's rows."""
        calls = []
        for label, row in manifest_rows():
            for case in row["dtypes"]:
                dtype = getattr(torch, case["T"])
                form = row.get("trans_a", False), row.get("trans_b", True)
                calls.append((label, call_of(row["M"], row["N"], row["K"], dtype, *form)))
        self.failures += compile_all(call for _, call in calls)
        lines, ratios = [], []
        for label, call in calls:
            keys, winner = serving(call)
            count = copies(2 * (call.m * call.k + call.k * call.n + call.m * call.n))
            sets = [operands(call) for _ in range(count)]
            views = [logical(call, a, b) for a, b in sets]
            times = {"cublas": gpu_us([lambda a=a, b=b: torch.matmul(a, b) for a, b in views])}
            errors = {}
            for key in keys:
                try:
                    kernel = self.kernel(key, call)
                    errors[key] = check(call, kernel)
                    self.judge(f"{label} {call.dtype} {key}", errors[key], call.dtype)
                    times[key] = gpu_us([lambda a=a, b=b, f=kernel: f(a, b) for a, b in sets])
                except Exception as error:  # noqa: BLE001  # one row must not end the run
                    self.failures.append(f"{label} {key}: {type(error).__name__}: {str(error)[-300:]}")
            identity = str(GEMM_IMPLEMENTATIONS[winner].entry_for(call)[0])
            ratio = times["cublas"] / times.get(winner, math.inf)
            best = min((us, key) for key, us in [*times.items(), ("none", math.inf)] if key != "cublas")[1]
            ratios.append(ratio)
            self.record(
                kind="row", label=label, call=call.text(), winner=winner, build=identity, us=times, error=errors
            )
            shown = "  ".join(f"{key} {us:.1f}" for key, us in times.items())
            name = str(call.dtype).removeprefix("torch.")
            lines.append(
                f"{label:24} {call.m}x{call.n}x{call.k} {name:9} {ratio:5.2f} {winner:12} {shown}"
                + ("" if best == winner else f"   best: {best}")
            )
        print("row, m x n x k, dtype, cuBLAS time over winner's, winner, us a call")
        print("\n".join(lines))
        mean = math.exp(sum(math.log(max(r, 1e-9)) for r in ratios) / len(ratios))
        print(f"geometric mean over {len(ratios)} rows, cuBLAS time over ours: {mean:.3f}")
        self.record(kind="mean", ratio=mean)

    def ragged(self) -> None:
        """Checks every implementation on shapes that divide nothing, in all four forms."""
        calls = [
            call_of(*shape, (torch.bfloat16, torch.float16)[(i + j) % 2], *form)
            for i, shape in enumerate(RAGGED)
            for j, form in enumerate(FORMS)
        ]
        self.failures += compile_all(calls)
        worst: dict[str, tuple[float, str]] = {}
        count: dict[str, int] = {}
        for call in calls:
            for key in serving(call)[0]:
                self._ragged(key, call, lambda key=key, call=call: self.kernel(key, call), worst, count)
        for form in FORMS:
            build = MmaBuild(Form(None, None, None, "bfloat16", *form), MMA_WIDE, current_arch(), True)
            kernel = GemmMmaKernel(build)
            for shape in ((1, 1, 1), (65, 130, 70), (200, 77, 33)):
                call = call_of(*shape, torch.bfloat16, *form)
                self._ragged("gemm_mma 64-bit", call, lambda kernel=kernel: kernel, worst, count)
        for key, (error, text) in sorted(worst.items()):
            print(f"ragged {key:16} {count[key]} checks, worst error over tolerance {error:.2f} at {text}")
        for m in (65, 66, 100, 127, 128, 1000, 1001, 4000):
            call = call_of(m, 512, 1096, torch.bfloat16, False, True)
            first = call.replace(m=96)
            for key in ("gemm_persistent", "gemm_wgmma", "gemm_mma"):
                identity, _ = GEMM_IMPLEMENTATIONS[key].entry_for(first)
                self.judge(f"one kernel, any m: {key} m={m}", check(call, self._built(key, identity)), call.dtype)

    def _built(self, key: str, identity: Any) -> Any:
        if (key, identity) not in self.kernels:
            self.kernels[key, identity] = GEMM_IMPLEMENTATIONS[key](identity)
        return self.kernels[key, identity]

    def _ragged(self, key: str, call: GemmCall, kernel: Any, worst: dict, count: dict) -> None:
        what = f"{key} {call.text()}"
        try:
            error = check(call, kernel())
        except Exception as problem:  # noqa: BLE001  # one shape must not end the run
            self.failures.append(f"{what}: {type(problem).__name__}: {str(problem)[-300:]}")
            return
        self.judge(what, error, call.dtype)
        self.record(kind="ragged", key=key, call=call.text(), error=error)
        share = error / TOLERANCE[call.dtype]
        count[key] = count.get(key, 0) + 1
        if not share <= worst.get(key, (-1.0, ""))[0]:
            worst[key] = share, call.text()

    def large(self) -> None:
        """Checks products whose a, b or d has more than 2**31 elements, and one dimension of more than 2**31."""
        shapes = [(65544, 32776, 64), (65544, 32777, 64), (70008, 16, 32768), (64, 70008, 32768), (2**31 + 8, 1, 1)]
        for shape in shapes:
            call = call_of(*shape, torch.bfloat16, False, True)
            a, b = operands(call)
            for key in serving(call)[0]:
                if key == "gemm_splitk":
                    continue
                what = f"large {key} {call.text()}"
                try:
                    d = self.kernel(key, call)(a, b)
                    error = 0.0
                    for start in (0, call.m // 2, max(0, call.m - 256)):
                        part = slice(start, start + 256)
                        error = max(error, relative_error(d[part], a[part].double() @ b.double().T))
                    del d
                except Exception as problem:  # noqa: BLE001  # one shape must not end the run
                    self.failures.append(f"{what}: {type(problem).__name__}: {str(problem)[-300:]}")
                    continue
                ok = self.judge(what, error, call.dtype)
                print(f"{what}: error {error:.2g} {'' if ok else 'WRONG'}", flush=True)
                self.record(kind="large", key=key, call=call.text(), error=error)
            del a, b
            torch.cuda.empty_cache()

    def host(self) -> None:
        """Prints the host time of a call, ours by name and torch's, best of five runs of 300."""
        call = call_of(64, 512, 1024, torch.bfloat16, False, True)
        a, b = operands(call)
        functions = {key: self.kernel(key, call) for key in ("gemm_mma", "gemm_wgmma", "gemm_swapped", "gemm_splitk")}
        functions["torch.matmul"] = lambda a, b: torch.matmul(a, b.T)
        for name, function in functions.items():
            best = math.inf
            for _ in range(5):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(300):
                    function(a, b)
                best = min(best, (time.perf_counter() - start) / 300 * 1e6)
                torch.cuda.synchronize()
            print(f"host {name:12} {best:.1f} us a call")
            self.record(kind="host", key=name, us=best)


def current_arch() -> int:
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


def main() -> int:
    """Runs the wanted parts; returns the exit status."""
    logging.disable(logging.INFO)
    run = Run()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for part in sys.argv[1:] or ["ragged", "large", "host", "rows"]:
        getattr(run, part)()
    print(f"{run.checks} checks, {len(run.failures)} failures")
    for failure in run.failures[:25]:
        print("FAILED", failure)
    for failure in run.failures:
        run.record(kind="failure", text=failure)
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
