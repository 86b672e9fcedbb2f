"""Time ops beside what one calls in their place: ``python -m tools.bench [OP ...]``; ``--host`` costs dispatch."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from tileops import backend
from tileops.catalog import op_names
from tileops.tools import (
    baselines,
    benchrun,
    catalogue,
    chart,
    figures,
    hostcost,
    page,
    peer,
    recording,
    rows,
    tables,
    words,
)
from tileops.tools.figures import Report
from tileops.tools.timing import Timer
from tileops.tools.usage import NOT_SERVED, SERVED, Parser, UsageError, report

STDOUT = "-"


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return its exit status: 1 where a row is wrong or failed."""
    return report(_run, argv)


def _parser() -> Parser:
    parser = Parser(
        prog="tileops bench",
        description="Time ops on their manifest's workload rows, beside torch, torch.compile and cuBLAS.",
    )
    parser.add_argument("ops", nargs="*", metavar="OP", help="ops to measure; all without any")
    parser.add_argument("--rows", nargs="+", action="extend", default=[], metavar="LABEL", help="only these rows")
    parser.add_argument("--dtypes", nargs="+", action="extend", default=[], metavar="DTYPE", help="only these dtypes")
    parser.add_argument("--tileops-target", default="builtin", help="target that serves the ops (default: builtin)")
    parser.add_argument("--tileops-device", default="cuda", help="device of the run: CUDA or the accelerator")
    parser.add_argument(
        "--tileops-allow-events-fallback", action="store_true", help="where CUPTI fails, time by CUDA events"
    )
    parser.add_argument(
        "--baselines", nargs="+", metavar="NAME", help="a row fails where one of these cannot run; see docs"
    )
    parser.add_argument("--regret", action="store_true", help="time every implementation that serves a call, by name")
    parser.add_argument("--samples", type=int, default=80, help="calls of an op that --regret times (default: 80)")
    parser.add_argument("--jobs", type=int, help="processes that compile ahead (default: one a core; 0: none)")
    parser.add_argument("--seconds", type=float, help="begin no row later than this after the start")
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE", help="write the figures; to stdout without FILE"
    )
    parser.add_argument("-o", "--output", metavar="FILE.svg", help="draw a chart of the ratios")
    parser.add_argument("--from", nargs="+", dest="recorded", metavar="FILE", help="measure nothing: read figures")
    parser.add_argument("--page", metavar="FILE.md", help="fill the marked tables of a page with the figures")
    parser.add_argument("--host", action="store_true", help="the cost of dispatch itself; needs no GPU")
    parser.add_argument("--proof", action="store_true", help="the cost of proving large tables; needs no GPU")
    parser.add_argument(
        "--peer",
        nargs="+",
        metavar="FILE",
        help="the peer's times, JSON lines of tests/gpu/peer_*.py; with --host its unpacked wheel's folder",
    )
    return parser


def _run(argv: Sequence[str], timer: Timer | None = None) -> int:
    options = _parser().parse(argv)
    if options.proof:
        from tileops.tools import proofcost  # imports the solver, which no other report needs

        return proofcost.main(["--json"] if options.json else [])
    if options.output is not None and not options.output.endswith(".svg"):
        raise UsageError(f"-o takes a file of the kind .svg, got {options.output!r}")
    if options.host:
        return _host(options)
    beside = None if options.peer is None else peer.read(map(Path, options.peer))
    if options.recorded:
        found = recording.joined([Path(name) for name in options.recorded])
    else:
        found = _measured(options, timer)
    return _hand_out(options, found if beside is None else peer.joined(found, beside))


def _measured(options: argparse.Namespace, timer: Timer | None) -> Report:
    names = options.ops or sorted(op_names())
    if options.regret and not options.ops:
        raise UsageError("--regret takes the ops whose implementations are to be timed: --regret OP ...")
    known = [catalogue.known(name) for name in dict.fromkeys(names)]
    chosen = [] if options.regret else rows.items(known, options.rows, options.dtypes)
    target: backend.Target = backend.BUILTIN if options.tileops_target == "builtin" else options.tileops_target
    if options.regret and target is not backend.BUILTIN:
        raise UsageError(f"--regret times the in-tree implementations; the target {target} chooses its kernels itself")
    chosen_baselines = baselines.roles(options.baselines)
    device = benchrun.run_device(options.tileops_device)
    logging.disable(logging.INFO)  # TileLang tells of each program that it loads
    plan = benchrun.Plan(
        device=device,
        target=target,
        baselines=chosen_baselines,
        allow_events=options.tileops_allow_events_fallback,
        jobs=benchrun.cores() if options.jobs is None else options.jobs,
        seconds=options.seconds,
        json=Path(options.json) if options.json not in (None, STDOUT) else None,
    )
    if options.regret:
        return benchrun.run_regret(plan, known, options.samples, timer)
    return benchrun.run(plan, chosen, timer)


def _hand_out(options: argparse.Namespace, found: Report) -> int:
    if options.json == STDOUT:
        print(json.dumps(found.plain(), indent=1))
    else:
        if options.json is not None:
            figures.write(found, Path(options.json))
        print(tables.text(found))
    if options.output is not None:
        Path(options.output).write_text(chart.svg(found))
    if options.page is not None:
        print(page.fill_page(Path(options.page), tables.sections(found)), file=sys.stderr)
    return SERVED if found.ok else NOT_SERVED


def _host(options: argparse.Namespace) -> int:
    if options.ops or options.json not in (None, STDOUT):
        raise UsageError("--host measures dispatch, no op, and prints: give neither OP nor a file to --json")
    if options.peer is not None and len(options.peer) > 1:
        raise UsageError(f"with --host, --peer is one folder, got {len(options.peer)}")
    folder = None if options.peer is None else Path(options.peer[0])
    if folder is not None and not (folder / "tileops" / "gemm.py").is_file():
        raise UsageError(
            f"--peer {folder} holds no tileops/gemm.py: give the folder of an unpacked tileops 0.1.0 wheel"
        )
    measures = hostcost.measure(folder)
    if options.json:
        for measure in measures:
            print(json.dumps(measure.plain()))
        return SERVED
    lines = [("what", "figure", "against", "reach")]
    lines += [(m.what, m.figure, m.against, m.reach) for m in measures]
    print("\n".join(words.columns(lines)))
    return SERVED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
