"""The measures of the host's side of a call. Every time is the best or the median of several runs, on this machine.

A time is worth something only beside another: each is given as a ratio too, to a plain Python call of the same
stub kernel, or to what ``functools.singledispatch`` costs here.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Generator, Hashable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import attrs
import torch

import tileops
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.dispatcher import Dispatcher, Slot
from tileops.rules.errors import BackendError
from tileops.rules.facts import choice, dim
from tileops.rules.interface import KernelInterface
from tileops.rules.table import RuleTable

TABLE_SIZE = 1000
INSTANCES = 64
PROCESSES = 5
CPU = torch.device("cpu")

# Run for the peer too, whose package has our name: hence a process of its own, and the op's name as an argument.
OP_CALL = """
import json, sys, timeit
sys.path.insert(0, sys.argv[1])
import torch
import tileops.gemm
from tileops.backend import register_detector, register_kernel_builder
out = torch.empty(8, 8, dtype=torch.float16)
def stub(a, b):
    return out
register_detector("stub", lambda device: device.type == "cpu")
register_kernel_builder(sys.argv[2], "stub", lambda a, b, **params: stub)
op = getattr(tileops.gemm, sys.argv[2])(target="stub")
a, b = torch.randn(8, 16, dtype=torch.float16), torch.randn(8, 16, dtype=torch.float16)
op(a, b)
best = lambda call: min(timeit.repeat(call, number=20000, repeat=7)) / 20000
print(json.dumps([best(lambda: op(a, b)), best(lambda: stub(a, b))]))
"""
# The same call through the in-tree path: an implementation for the CPU joins the op, proved like any other.
IN_TREE = """
import json, sys, timeit
sys.path.insert(0, sys.argv[1])
import torch
from tileops.backend import BUILTIN, register_kernel_type
from tileops.gemm import GemmFwdOp
from tileops.kernels.gemm.interface import GemmInterface
from tileops.rules import Declaration
out = torch.empty(8, 8, dtype=torch.float16)
class Stub(GemmInterface):
    declaration = Declaration(devices={"cpu"})
    def forward(self, a, b):
        return out
    @classmethod
    def entry_for(cls, call):
        return "stub", cls
register_kernel_type("GemmFwdOp", "stub", Stub)
ops = [GemmFwdOp(target=BUILTIN) for _ in range(int(sys.argv[2]))]
a, b = torch.randn(8, 16, dtype=torch.float16), torch.randn(8, 16, dtype=torch.float16)
for op in ops:
    op(a, b)
stub = Stub()
best = lambda call: min(timeit.repeat(call, number=20000, repeat=7)) / 20000
builds = sum(GemmFwdOp.dispatcher.builds.values())
print(json.dumps([best(lambda: op(a, b)), best(lambda: stub(a, b)), builds]))
"""
_IMPORT = """
import sys, time
sys.path.insert(0, sys.argv[1])
import torch
start = time.perf_counter()
import tileops.gemm
print(time.perf_counter() - start)
"""
_EXPLAIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from tileops.tools.cli import main; main(['explain', 'GemmFwdOp'])"
)


@attrs.frozen
class Measure:
    """One line of the report: what was measured, the figure, what it is compared with, the figure to reach."""

    name: str
    what: str
    value: float
    figure: str
    against: str = ""
    reach: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the measure as plain data; times are in seconds."""
        return {"name": self.name, "value": self.value, "against": self.against, "reach": self.reach}


@call_spec()
class ProductCall(CallSpec):
    """The facts of the calls measured here: a matrix product's."""

    m: int = dim()
    n: int = dim()
    k: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16)


class ProductInterface(KernelInterface):
    """The interface of the stub kernel."""

    request: ClassVar[type[CallSpec]] = ProductCall

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return a matrix of the right shape, with nothing computed."""
        raise NotImplementedError


class Stub(ProductInterface):
    """Returns one tensor, whatever it is given: what remains of a call is dispatch."""

    declaration: ClassVar[Declaration] = Declaration(devices={"cpu"})

    def __init__(self) -> None:
        self.out = torch.empty(8, 8, dtype=torch.float16)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return the same tensor every time."""
        return self.out

    @classmethod
    def entry_for(cls, call: CallSpec) -> tuple[Hashable, Callable[[], Callable[..., Any]]]:
        """Return an identity that all calls share."""
        return "stub", cls


def measure(peer: Path | None) -> Generator[Measure, None, None]:
    """Yield every measure, the peer's too when its folder is given; takes about a minute."""
    yield from _op_calls(peer)
    yield from _resolve()
    yield from _imports(peer)
    yield _explain()
    yield _select()


def _op_calls(peer: Path | None) -> Iterator[Measure]:
    runs = [json.loads(python(IN_TREE, str(root()), str(INSTANCES))) for _ in range(3)]
    plain = min(run[1] for run in runs)
    in_tree = min(run[0] for run in runs) - plain
    target, target_plain = _op_call(root(), "GemmFwdOp")
    target -= target_plain
    yield Measure("plain_call", "plain call of the stub kernel", plain, duration(plain))
    yield Measure(
        "op_call", "op call over it, two tensors, CPU", in_tree, duration(in_tree), _ratio(in_tree, plain), "2.0 us"
    )
    yield Measure("target_call", "the same through a target", target, duration(target), _ratio(target, target_plain))
    if peer is not None:
        theirs, their_plain = _op_call(peer, "GEMMFwdOp")
        theirs -= their_plain
        share = f"ours: 1/{theirs / in_tree:.1f} of it in-tree, 1/{theirs / target:.1f} through a target"
        yield Measure("peer_call", "the peer's, through a target", theirs, duration(theirs), share, "1/8")
    builds = max(run[2] for run in runs)
    yield Measure("builds", f"builds for {INSTANCES} instances of one shape", builds, str(builds), "", "1")


def _op_call(root: Path, op: str) -> tuple[float, float]:
    """Return seconds of an op call and of a plain call of the same stub, the best of three processes."""
    runs = [json.loads(python(OP_CALL, str(root), op)) for _ in range(3)]
    return min(run[0] for run in runs), min(run[1] for run in runs)


def _resolve() -> Iterator[Measure]:
    dispatcher = Dispatcher({"product": Slot("product", ProductInterface, {"stub": Stub})})
    call = ProductCall(device=CPU, m=8, n=8, k=16, dtype=torch.float16)
    kernel = dispatcher.resolve("product", call).kernel
    a = torch.empty(8, 16, dtype=torch.float16)
    single = functools.singledispatch(kernel)
    hit = _best(lambda: dispatcher.resolve("product", call), lambda: None)
    generic = _best(lambda: single(a, a), lambda: kernel(a, a))
    yield Measure(
        "resolve_hit",
        "Dispatcher.resolve, a hit",
        hit,
        duration(hit),
        f"{hit / generic:.1f} x singledispatch",
        "0.3 us",
    )
    yield Measure("singledispatch", "functools.singledispatch, beside it", generic, duration(generic))


def _imports(peer: Path | None) -> Iterator[Measure]:
    ours = _median(_IMPORT, root())
    yield Measure("import", "import tileops.gemm beyond torch", ours, f"{ours:.2f} s", "", "0.4 s")
    if peer is not None:
        theirs = _median(_IMPORT, peer)
        yield Measure("peer_import", "the peer's", theirs, f"{theirs:.2f} s", f"ours is 1/{theirs / ours:.1f} of it")


def _explain() -> Measure:
    def run() -> float:
        start = time.perf_counter()
        python(_EXPLAIN, str(root()))
        return time.perf_counter() - start

    seconds = statistics.median(run() for _ in range(PROCESSES))
    return Measure("explain", "explain GemmFwdOp, whole process", seconds, f"{seconds:.2f} s", "", "2.5 s")


def wide_table(size: int) -> RuleTable:
    """Return a table of ``size`` implementations, each for its own band of m, and a general one below them."""
    bands = {
        f"band_{low:05}": Declaration(
            devices={"cpu"},
            refusal=(
                Refusal(f"m < {low} or m > {low + 15}", f"serves {low} to {low + 15} rows, got m={{m}}"),
                Refusal("k * itemsize(dtype) % 16 != 0", "a row of k={k} {dtype} is no multiple of 16 bytes"),
            ),
        )
        for low in range(1, 16 * (size - 1), 16)
    }
    return RuleTable("wide", ProductCall, {"general": Declaration(devices={"cpu"}, general=True), **bands})


def _select() -> Measure:
    table = wide_table(TABLE_SIZE)
    calls = [ProductCall(device=CPU, m=m, n=8, k=64, dtype=torch.float16) for m in range(1, 2001)]
    table.select(calls[0])  # compiles the rules, once a table
    times = []
    for call in calls[1:]:
        start = time.perf_counter()
        table.select(call)
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    return Measure("select", f"select in a table of {TABLE_SIZE:,}, a miss", seconds, duration(seconds), "", "2 ms")


def _best(call: Callable[[], Any], base: Callable[[], Any], number: int = 50_000) -> float:
    """Return the seconds that ``call`` takes over ``base``, the best of nine runs of each, taken in turn."""
    runs = [(timeit.timeit(call, number=number), timeit.timeit(base, number=number)) for _ in range(9)]
    return max(min(run[0] for run in runs) - min(run[1] for run in runs), 0.0) / number


def _median(script: str, root: Path) -> float:
    return statistics.median(float(python(script, str(root))) for _ in range(PROCESSES))


def python(script: str, *arguments: str) -> str:
    """Run a script in a process of its own and return the last line it prints; raises BackendError if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise BackendError(f"a measure's process failed:\n{done.stderr}")
    return done.stdout.strip().splitlines()[-1]


def root() -> Path:
    """Return the folder that holds our package."""
    return Path(tileops.__file__).parent.parent


def _ratio(seconds: float, plain: float) -> str:
    return f"{seconds / plain:.0f} x a plain call"


def duration(seconds: float) -> str:
    """Write a time in the unit that leaves a few digits."""
    if seconds < 1e-6:
        return f"{seconds * 1e9:.0f} ns"
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
