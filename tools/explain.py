"""Explain which implementation a call gets, and why: ``python -m tools.explain OP [facts] [--arch 90]``.

Needs no GPU and imports no device program: it asks the same selection that a call asks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tileops import backend
from tileops.manifest.workload import bind
from tileops.rules.errors import nearest
from tileops.tools import calls, maps
from tileops.tools.answer import answer
from tileops.tools.catalogue import Known, known
from tileops.tools.mermaid import graph
from tileops.tools.overview import Overview, mermaid_labels
from tileops.tools.question import Place, add_device_options, pairs, place
from tileops.tools.targets import TargetsView
from tileops.tools.usage import NOT_SERVED, SERVED, Parser, UsageError, report

EXAMPLES = """\
tileops explain GemmFwdOp
tileops explain GemmFwdOp m=1 n=4096 k=4096 dtype=bfloat16 --arch 90
tileops explain GemmFwdOp --shapes a=1x4096 b=4096x4096 dtype=bfloat16 --arch 80
tileops explain GemmFwdOp --workload LABEL --arch 90 --json
tileops explain GemmFwdOp m=1 n=4096 k=4096 dtype=bfloat16 --arch 90 --want gemm_wgmma
tileops explain GemmFwdOp k=4096 dtype=bfloat16 --arch 90 --map m=1:512 n=64:16384
tileops explain --targets

exit status: 0 served, 1 not served, 2 a mistake in the command line
"""


# The options that a question may look at, by where the parser keeps them; the device options go together.
_OPTIONS = {
    "facts": "facts",
    "--shapes": "shapes",
    "--workload": "workload",
    "--interface": "interface",
    "--target": "target",
    "--rules": "rules",
    "--json": "json",
    "-o": "output",
}
_OVERVIEW = {"--interface", "--json", "the device options"}
_TAKES = {
    "--targets": {"--json", "the device options"},
    "--graph": {"--interface"},
    "--want": {"facts", "--shapes", "--workload", "--interface", "--json", "the device options"},
    "--map": {"facts", "--interface", "--json", "-o", "the device options"},
}


def main(argv: Sequence[str]) -> int:
    """Answer one question and return the exit status: 0 served, 1 not served, 2 usage."""
    return report(_run, argv)


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        prog="tileops explain",
        description="Which implementation does a call get, and why? Without facts: everything about an op.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("op", nargs="?", help="the op, such as GemmFwdOp")
    made.add_argument("facts", nargs="*", help="facts of the call spec, such as m=1; params have their defaults")
    made.add_argument("--shapes", nargs="+", help="the call's tensors, such as a=1x4096; dtypes and params too")
    made.add_argument("--workload", help="a workload row of the manifest, or one dtype case of it: LABEL/bfloat16")
    made.add_argument("--interface", help="the kernel interface, where the op has several")
    made.add_argument("--target", help="ask as an op constructed with target=; builtin: the in-tree kernels")
    made.add_argument("--targets", action="store_true", help="list the installed backends, in place of an op")
    made.add_argument("--rules", action="store_true", help="show each refusal's rule with the values in it")
    made.add_argument("--json", action="store_true", help="print JSON; docs/explain-json.md describes it")
    made.add_argument("--graph", choices=["mermaid"], help="print the precedence graph")
    made.add_argument("--want", metavar="KEY", help="the smallest change of the facts under which KEY wins")
    made.add_argument("--map", nargs=2, metavar="FACT=LOW:HIGH", help="who wins where over two facts: m=1:512 n=1:8192")
    made.add_argument("-o", "--output", metavar="FILE", help="with --map: draw it into a .png or .svg file")
    add_device_options(made)
    return made


def _run(argv: Sequence[str]) -> int:
    options = parser().parse(argv)
    _check_together(options)
    if options.targets:
        return _targets(options)
    if options.op is None:
        raise UsageError("name an op, such as GemmFwdOp, or give --targets")
    op = known(options.op)
    if options.graph:
        print(_graphs(op, options.interface))
        return SERVED
    if options.map:
        return _map(op, options)
    if options.want:
        return _want(op, options)
    if not (options.facts or options.shapes or options.workload):
        overview = Overview.of(op, options.interface, place(options) if _device_given(options) else None)
        print(json.dumps(overview.plain(), indent=2) if options.json else overview.text())
        return SERVED
    where = place(options)
    target = _target(options.target)
    answers = [answer(op, posed, where, target) for posed in _posed(op, options, where)]
    if options.json:
        plain: Any = [one.plain() for one in answers]
        print(json.dumps(plain[0] if len(plain) == 1 else plain, indent=2))
    else:
        print("\n\n".join(one.text(rules=options.rules) for one in answers))
    return SERVED if all(one.error is None for one in answers) else NOT_SERVED


def _check_together(options: argparse.Namespace) -> None:
    """Raise UsageError for two questions at once, and for an option that the question asked does not look at."""
    asked = [name for name in _TAKES if getattr(options, name.removeprefix("--"), None)]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} are questions of their own: ask one at a time")
    given = {name for name, value in _OPTIONS.items() if getattr(options, value)}
    given |= {"the device options"} if _device_given(options) else set()
    if asked:
        question, takes = asked[0], _TAKES[asked[0]]
    elif given & {"facts", "--shapes", "--workload"}:
        question, takes = "a call", given - {"-o"}
    else:
        question, takes = "an op without a call", _OVERVIEW
    extra = [name for name in (*_OPTIONS, "the device options") if name in given - takes]
    if extra == ["-o"]:
        raise UsageError("-o says where a map goes: give --map too")
    if extra:
        raise UsageError(f"{question} does not take {', '.join(extra)}; it takes: {', '.join(sorted(takes)) or 'none'}")
    if options.output and options.json:
        raise UsageError("-o draws the map and --json prints it: give one of them")


def _device_given(options: argparse.Namespace) -> bool:
    return any(
        value is not None
        for value in (options.arch, options.device, options.sm_count, options.smem, options.calibration)
    )


def _want(op: Known, options: argparse.Namespace) -> int:
    from tileops.tools.want import want  # asks the solver, which explain itself does without

    found = []
    for posed in _posed(op, options, place(options)):
        if posed.interface is None or posed.call is None:
            raise UsageError(
                f"this call asks no interface of {op.name}, so that none of its implementations can win it"
            )
        table = posed.interface.table
        if options.want not in table.declarations:
            listed = ", ".join(table.declarations) or "none"
            close = nearest(options.want, table.declarations)
            raise UsageError(f"no implementation {options.want!r}{close}; {posed.interface.name} has: {listed}")
        found.append(want(op.name, posed.interface.name, table, posed.call, options.want))
    if options.json:
        plain: Any = [one.plain() for one in found]
        print(json.dumps(plain[0] if len(plain) == 1 else plain, indent=2))
    else:
        print("\n\n".join(one.text() for one in found))
    return SERVED if all(one.answer.status == "found" for one in found) else NOT_SERVED


def _map(op: Known, options: argparse.Namespace) -> int:
    asked, where = op.interface(options.interface), place(options)
    over = maps.axes(asked.table, options.map)
    posed = calls.from_facts(op, asked.name, [*options.facts, *(f"{axis.fact}={axis.low}" for axis in over)], where)
    assert posed.call is not None, "facts make a call spec"
    rows = {}
    for case in calls.rows(op):
        row = calls.pose(op, None, bind(op.entry.checker, case, where.device), where)
        if row.call is not None and row.interface is not None and row.interface.name == asked.name:
            rows[case.label] = row.call
    found = maps.draw(op.name, asked.name, asked.table, posed.call, over, rows, fine=options.output is not None)
    if options.output is None:
        print(json.dumps(found.plain(), indent=2) if options.json else found.text())
        return SERVED
    path = Path(options.output)
    if path.suffix not in (".png", ".svg"):
        raise UsageError(f"-o takes a .png or .svg file, got {options.output!r}")
    found.save(path)
    print(f"wrote {path}")
    return SERVED


def _posed(op: Known, options: argparse.Namespace, where: Place) -> list[calls.Posed]:
    if options.workload is not None:
        if options.facts or options.shapes:
            raise UsageError("--workload states the whole call: give no facts or shapes beside it")
        return calls.from_workload(op, options.interface, options.workload, where)
    if options.shapes is not None:
        return [calls.from_shapes(op, options.interface, pairs([*options.shapes, *options.facts]), where)]
    return [calls.from_facts(op, options.interface, options.facts, where)]


def _targets(options: argparse.Namespace) -> int:
    if options.op is not None:
        raise UsageError("--targets lists the backends: name no op beside it")
    if any(value is not None for value in (options.arch, options.sm_count, options.smem, options.calibration)):
        raise UsageError("--targets asks detectors about devices: it takes --device, and no facts of one")
    view = TargetsView.here(options.device)
    print(json.dumps(view.plain(), indent=2) if options.json else view.text())
    return SERVED if view.sound else NOT_SERVED


def _target(name: str | None) -> backend.Target | None:
    if name is None:
        return None
    if name == "builtin":
        return backend.BUILTIN
    registered = backend.registered_targets()
    if name not in registered:
        listed = ", ".join(["builtin", *registered])
        raise UsageError(f"no target {name!r}{nearest(name, ['builtin', *registered])}; targets here: {listed}")
    return name


def _graphs(op: Known, interface: str | None) -> str:
    chosen = [op.interface(interface)] if interface is not None else list(op.interfaces.values())
    if not chosen:
        raise UsageError(f"{op.name} has no in-tree implementation, so no precedence to draw")
    return "\n\n".join(
        graph(f"{op.name}.{asked.name}", mermaid_labels(asked), asked.table.precedence.reduction()) for asked in chosen
    )


if __name__ == "__main__":
    from tileops.tools.explain import main as run  # the module under its one name

    sys.exit(run(sys.argv[1:]))
