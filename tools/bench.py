"""Time ops beside what one calls in their place: ``python -m tools.bench [OP ...]``; ``--host`` costs dispatch."""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from tileops import backend
from tileops.catalog import op_names
from tileops.rules.errors import nearest
from tileops.tools import (
    baselines,
    benchrun,
    catalogue,
    chart,
    figures,
    hostcost,
    outputs,
    page,
    peer,
    recording,
    rows,
    tables,
    words,
)
from tileops.tools.figures import Report
from tileops.tools.usage import NOT_SERVED, SERVED, Parser, UsageError, report, taken

STDOUT = "-"
SAMPLES = 80
ROWS = "a run"
_OPTIONS = {
    "OP": "ops",
    "--rows": "rows",
    "--dtypes": "dtypes",
    "--tileops-target": "tileops_target",
    "--tileops-device": "tileops_device",
    "--tileops-allow-events-fallback": "tileops_allow_events_fallback",
    "--baselines": "baselines",
    "--samples": "samples",
    "--jobs": "jobs",
    "--seconds": "seconds",
    "--json": "json",
    "-o": "output",
    "--page": "page",
    "--peer": "peer",
}
_DEVICE = {"--tileops-target", "--tileops-device", "--tileops-allow-events-fallback", "--jobs", "--seconds"}
_QUESTIONS = {"--from": "recorded", "--regret": "regret", "--host": "host", "--proof": "proof"}
#: What each question takes; all but the last have an option of their own that asks them.
_TAKES = {
    "--from": {"OP", "--rows", "--dtypes", "--json", "-o", "--page", "--peer"},
    "--regret": {"OP", *_DEVICE, "--samples", "--json", "--page"},
    "--host": {"--json", "--peer"},
    "--proof": {"--json"},
    ROWS: {"OP", "--rows", "--dtypes", *_DEVICE, "--baselines", "--json", "-o", "--page", "--peer"},
}
EXITS = """exit status: 0 if all is well; 1 if something was measured and is wrong, failed or was not reached, or
cannot be measured here; 2 for a mistake in the command line and for a file that cannot be read or written; 130 after
Ctrl-C, with what was measured until then printed and in the file of --json"""


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return its exit status: 1 where a row is wrong or failed, 130 after Ctrl-C."""
    return report(_run, argv)


def _parser() -> Parser:
    parser = Parser(
        prog="tileops bench",
        description="Time ops on their manifest's workload rows, beside torch, torch.compile and cuBLAS.",
        epilog=EXITS,
    )
    parser.add_argument("ops", nargs="*", metavar="OP", help="ops to measure, or to show of figures; all without any")
    parser.add_argument("--rows", nargs="+", action="extend", default=[], metavar="LABEL", help="only these rows")
    parser.add_argument("--dtypes", nargs="+", action="extend", default=[], metavar="DTYPE", help="only these dtypes")
    parser.add_argument("--tileops-target", help="target that serves the ops (default: builtin)")
    parser.add_argument("--tileops-device", help="device of the run: CUDA or the accelerator (default: cuda)")
    parser.add_argument(
        "--tileops-allow-events-fallback", action="store_true", help="where CUPTI fails, time by CUDA events"
    )
    parser.add_argument(
        "--baselines",
        nargs="+",
        action="extend",
        metavar="NAME",
        help="a row fails where one of these cannot run; see docs",
    )
    parser.add_argument("--regret", action="store_true", help="time every implementation that serves a call, by name")
    parser.add_argument(
        "--samples", type=_number(int, 1), help=f"calls of an op that --regret times (default: {SAMPLES})"
    )
    parser.add_argument(
        "--jobs", type=_number(int, 0), help="processes that compile ahead (default: one a core; 0: none)"
    )
    parser.add_argument("--seconds", type=_number(float, 0), help="begin no row later than this after the start")
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE", help="write the figures; to stdout without FILE"
    )
    parser.add_argument("-o", "--output", metavar="FILE.svg", help="draw a chart of the ratios")
    parser.add_argument(
        "--from", nargs="+", action="extend", dest="recorded", metavar="FILE", help="measure nothing: read figures"
    )
    parser.add_argument("--page", metavar="FILE.md", help="fill the marked tables of a page with the figures")
    parser.add_argument("--host", action="store_true", help="the cost of dispatch itself; needs no GPU")
    parser.add_argument("--proof", action="store_true", help="the cost of proving large tables; needs no GPU")
    parser.add_argument(
        "--peer",
        nargs="+",
        action="extend",
        metavar="FILE",
        help="the peer's times, JSON lines of tests/gpu/peer_*.py; with --host its unpacked wheel's folder",
    )
    return parser


def _number(kind: type[int] | type[float], least: int) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"takes a {'whole ' * (kind is int)}number, got {text!r}") from error
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"takes a number from {least} on, got {text}")
        return value

    return number


def _run(argv: Sequence[str]) -> int:
    options = _parser().parse(argv)
    _check_together(options)
    if options.proof:
        from tileops.tools import proofcost  # imports the solver, which no other report needs

        return proofcost.main(["--json"] if options.json else [])
    if options.host:
        return _host(options)
    _check_outputs(options)
    beside = None if options.peer is None else peer.read(map(Path, options.peer))
    if not options.recorded:
        return _hand_out(options, *_measured(options, beside))
    found = _chosen(recording.joined([Path(name) for name in options.recorded]), options)
    if options.output is not None and not found.rows:
        raise UsageError(f"-o draws rows, and {', '.join(options.recorded)} holds none but of --regret")
    return _hand_out(options, found if beside is None else peer.joined(found, beside))


def _check_together(options: argparse.Namespace) -> None:
    """Raise UsageError for two questions at once, and for an option that the question asked does not look at."""
    asked = [name for name, value in _QUESTIONS.items() if getattr(options, value)]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} are questions of their own: ask one at a time")
    question = asked[0] if asked else ROWS
    values = {name: getattr(options, value) for name, value in _OPTIONS.items()}
    given = [name for name, value in values.items() if value is not None and value is not False and value != []]
    if extra := [name for name in given if name not in _TAKES[question]]:
        takes = ", ".join(name for name in _OPTIONS if name in _TAKES[question])
        raise UsageError(f"{question} does not take {', '.join(extra)}; it takes: {takes}")
    if question in ("--host", "--proof") and options.json not in (None, STDOUT):
        raise UsageError(f"{question} prints: --json takes no file with it, got {options.json!r}")


def _check_outputs(options: argparse.Namespace) -> None:
    """Raise UsageError for a file that could not be written in the end; writes nothing."""
    if options.output is not None and not options.output.endswith(".svg"):
        raise UsageError(f"-o takes a file of the kind .svg, got {options.output!r}")
    written = {"--json": options.json, "-o": options.output, "--page": options.page}
    places = {option: [Path(name)] for option, name in written.items() if name not in (None, STDOUT)}
    for (path,) in places.values():
        outputs.check(path)
    places |= {"--from": [*map(Path, options.recorded or ())], "--peer": [*map(Path, options.peer or ())]}
    outputs.check_apart(places, [option for option in written if option in places])
    if options.page is not None:
        page.read(Path(options.page), tables.SECTIONS)


def _measured(options: argparse.Namespace, beside: Mapping[peer.Key, peer.Record] | None) -> tuple[Report, bool]:
    """Return what was measured, and whether that came to its end."""
    names = options.ops or sorted(op_names())
    if options.regret and not options.ops:
        raise UsageError("--regret takes the ops whose implementations are to be timed: --regret OP ...")
    known = [catalogue.known(name) for name in dict.fromkeys(names)]
    chosen = [] if options.regret else rows.items(known, options.rows, options.dtypes)
    target: backend.Target = backend.BUILTIN if options.tileops_target in (None, "builtin") else options.tileops_target
    if options.regret and target is not backend.BUILTIN:
        raise UsageError(f"--regret times the in-tree implementations; the target {target} chooses its kernels itself")
    chosen_baselines = baselines.roles(options.baselines)
    device = benchrun.run_device(options.tileops_device or "cuda")
    logging.disable(logging.INFO)  # TileLang tells of each program that it loads
    plan = benchrun.Plan(
        device=device,
        target=target,
        baselines=chosen_baselines,
        allow_events=options.tileops_allow_events_fallback,
        jobs=benchrun.cores() if options.jobs is None else options.jobs,
        seconds=options.seconds,
    )
    timer = plan.timer()
    if beside is not None:
        peer.joined(benchrun.foreseen(plan, chosen, timer), beside)  # raises before the run what it would after it
    if options.regret:
        reports = benchrun.run_regret(plan, known, options.samples or SAMPLES, timer)
    else:
        reports = benchrun.run(plan, chosen, timer)
    path = Path(options.json) if options.json not in (None, STDOUT) else None
    found, whole = benchrun.keep(reports, path, plan.progress)
    if beside is not None:
        try:
            found = peer.joined(found, beside)
        except UsageError as problem:  # as where no row was reached: what was measured is told all the same
            found = benchrun.with_problem(found, f"without the peer: {problem}")
    return found, whole


def _chosen(found: Report, options: argparse.Namespace) -> Report:
    """Return what OP, --rows and --dtypes choose of recorded figures; raises UsageError where one names nothing."""
    if not (options.ops or options.rows or options.dtypes):
        return found
    ops = {row.op for row in found.rows} | {one.op for one in found.regret}
    labels = {label for row in found.rows for label in (row.label, f"{row.label}/{row.dtypes}")}
    dtypes = {row.dtypes.partition("-")[0] for row in found.rows}
    for what, wanted, held in (
        ("op", options.ops, ops),
        ("row", options.rows, labels),
        ("dtype", options.dtypes, dtypes),
    ):
        for name in wanted:
            if name not in held:
                raise UsageError(f"no {what} {name!r} in {', '.join(options.recorded)}{nearest(name, held)}")
    chosen = tuple(
        row
        for row in found.rows
        if (not options.ops or row.op in options.ops)
        and (not options.rows or {row.label, f"{row.label}/{row.dtypes}"} & set(options.rows))
        and (not options.dtypes or row.dtypes.partition("-")[0] in options.dtypes)
    )
    # A regret run is of calls, whatever rows they come from.
    regret = () if options.rows or options.dtypes else tuple(one for one in found.regret if one.op in options.ops)
    if not chosen and not regret:
        raise UsageError("no figures are left: no row is of the ops, --rows and --dtypes all at once")
    return attrs.evolve(found, rows=chosen, regret=regret)


def _hand_out(options: argparse.Namespace, found: Report, whole: bool = True) -> int:
    """Write the files, then print, whatever could not be written; what was not measured whole changes no page."""
    made: list[Callable[[], object]] = []
    if options.json not in (None, STDOUT):
        made.append(lambda: figures.write(found, Path(options.json)))
    if options.output is not None and whole:
        made.append(lambda: outputs.write(Path(options.output), chart.svg(found)))
    if options.page is not None and whole:
        made.append(lambda: print(page.fill_page(Path(options.page), tables.sections(found)), file=sys.stderr))
    faults = []
    for make in made:
        try:
            make()
        except (UsageError, OSError) as problem:
            faults.append(str(problem))
    print(json.dumps(found.plain(), indent=1) if options.json == STDOUT else tables.text(found))
    UsageError.check(faults)
    if not whole:
        left = [name for name, given in (("-o", options.output), ("--page", options.page)) if given is not None]
        raise KeyboardInterrupt(
            "what was measured is told" + (f"; {' and '.join(left)} got nothing of it" if left else "")
        )
    return SERVED if found.ok else NOT_SERVED


def _host(options: argparse.Namespace) -> int:
    if options.peer is not None and len(options.peer) > 1:
        raise UsageError(f"with --host, --peer is one folder, got {len(options.peer)}")
    folder = None if options.peer is None else Path(options.peer[0])
    if folder is not None and not (folder / "tileops" / "_ops").is_dir():  # which a checkout of ours has not
        raise UsageError(f"--peer {folder} holds no tileops/_ops: give the folder of an unpacked tileops 0.1.0 wheel")
    measures = hostcost.measure(folder)
    if options.json:
        whole = taken(measures, lambda measure: print(json.dumps(measure.plain())))
    else:
        lines = [("what", "figure", "against", "reach")]
        whole = taken(measures, lambda m: lines.append((m.what, m.figure, m.against, m.reach)))
        print("\n".join(words.columns(lines)))
    if not whole:
        raise KeyboardInterrupt("what was measured is told")
    return SERVED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
