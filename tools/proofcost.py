"""What a proof costs as a table grows: synthetic tables of nonlinear rules, timed. ``python -m tools.proofcost``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Sequence
from typing import Any

import attrs
import torch

from tileops.rules.archs import at_least
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.facts import choice, dim, integer
from tileops.rules.merits import merits
from tileops.rules.proof import Proof, check
from tileops.rules.table import RuleTable
from tileops.tools import words
from tileops.tools.usage import SERVED, Parser, report, taken

SIZES = (10, 100, 1000)
_LIMITS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # tiles an SM, at which one implementation hands on to the next


@call_spec()
class TileCall(CallSpec):
    """States a batched product, with the stages of its pipeline."""

    batch: int = dim()
    m: int = dim()
    n: int = dim()
    k: int = dim()
    stages: int = integer(1, 8)
    dtype: torch.dtype = choice(torch.float16, torch.bfloat16, torch.float32)


@attrs.frozen
class Cost:
    """Holds what one table cost: the proof of `check`, and the search for what it could do without."""

    implementations: int
    pairs: int
    cheap: int
    queries: int
    units: int
    seconds: float
    merit_queries: int
    merit_seconds: float
    findings: int

    def plain(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        return attrs.asdict(self)


def table(size: int) -> RuleTable:
    """Return a table of ``size`` implementations: ten a range of k, told apart by rules over products and divisions.

    Ranges of k share nothing, which needs no solver. Within one, every implementation takes over from the one before
    it at a number of tiles an SM; each also has a limit of shared memory, looked up by dtype, and one of alignment.
    """
    declarations = {}
    for place in range(size):
        span, step = divmod(place, len(_LIMITS))
        tiles = f"ceildiv(m, 128) * ceildiv(n, {128 if span % 2 else 256}) * batch"
        refusals = [
            Refusal(f"k < {64 * span + 1}", "k={k} is below its range"),
            Refusal(f"k > {64 * span + 64}", "k={k} is above its range"),
            Refusal(
                f"{{float16: 2, bfloat16: 2, float32: 4}}[dtype] * stages * 64 * {16 + step} > smem_budget",
                "its stages do not fit",
            ),
            Refusal("m * n * itemsize(dtype) % 16 != 0", "its tiles are not aligned"),
        ]
        if step:
            refusals.append(Refusal(f"{tiles} <= {_LIMITS[step - 1]} * sm_count", "too few tiles"))
        if step < len(_LIMITS) - 1:
            refusals.append(Refusal(f"{tiles} > {_LIMITS[step]} * sm_count", "too many tiles"))
        declarations[f"tile_{span:03d}_{step}"] = Declaration(supported_archs=at_least(80), refusal=tuple(refusals))
    declarations["fallback"] = Declaration(supported_archs=at_least(80), general=True)
    return RuleTable(f"synthetic_{size}", TileCall, declarations)


def cost(size: int) -> Cost:
    """Prove a synthetic table and return what it took."""
    made = table(size)
    start = time.perf_counter()
    found = check(made)
    proved = time.perf_counter() - start
    proof = Proof(made)
    start = time.perf_counter()
    useless = list(merits(proof))
    sought = time.perf_counter() - start
    spent = found.proved
    return Cost(
        size,
        spent.pairs,
        spent.cheap,
        spent.queries,
        spent.rlimit,
        proved,
        proof.prover.queries,
        sought,
        len(found.findings) + len(useless),
    )


def costs(sizes: Sequence[int] = SIZES) -> Generator[Cost, None, None]:
    """Yield the cost of each size."""
    yield from map(cost, sizes)


def text(found: Sequence[Cost]) -> str:
    """Write the costs as a table, growth beside each: seconds over those of the table before it."""
    head = (
        "implementations",
        "pairs",
        "no solver",
        "queries",
        "units",
        "seconds",
        "growth",
        "dead and idle",
        "findings",
    )
    lines = [head]
    before: Cost | None = None
    for one in found:
        growth = "" if before is None else f"{one.seconds / before.seconds:.1f} x"
        lines.append(
            (
                f"{one.implementations:,}",
                f"{one.pairs:,}",
                f"{one.cheap:,}",
                f"{one.queries:,}",
                f"{one.units:,}",
                f"{one.seconds:.2f}",
                growth,
                f"{one.merit_queries:,} queries, {one.merit_seconds:.2f} s",
                str(one.findings),
            )
        )
        before = one
    return "\n".join(words.columns(lines))


def main(argv: Sequence[str]) -> int:
    """Measure, and return the exit status."""
    return report(_run, argv)


def _run(argv: Sequence[str]) -> int:
    parser = Parser(prog="python -m tools.proofcost", description="Time the proof of tables of 10, 100 and 1,000.")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="implementations of each table")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse(argv)
    found: list[Cost] = []
    whole = taken(costs(options.sizes), found.append)
    print(json.dumps([one.plain() for one in found], indent=2) if options.json else text(found))
    if not whole:
        raise KeyboardInterrupt("what was measured is told")
    return SERVED


if __name__ == "__main__":
    from tileops.tools.proofcost import main as run  # the module under its one name

    sys.exit(run(sys.argv[1:]))
