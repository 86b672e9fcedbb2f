"""Turn a run of the op tests into a backend's claim: ``python -m tools.claim REPORT``.

The report is the JUnit file of ``pytest tests/ops --tileops-target=T --tileops-device=D --junitxml=REPORT``. An op is
claimed when a test of it compared outputs and passed, no test of it failed, and no test that belongs to no op failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tileops import backend
from tileops.catalog import op_names
from tileops.rules.errors import nearest
from tileops.tools import words
from tileops.tools.testrun import OUTCOMES, Case, Outcome, Run, address_of, collected, file_of, op_tests, read
from tileops.tools.usage import NOT_SERVED, SERVED, Parser, UsageError, report

SCHEMA = "tileops.claim/1"
QUOTED = 3  # failures shown of many

EPILOG = """\
pytest tests/ops --tileops-target=T --tileops-device=D --junitxml=R.xml
tileops claim R.xml

exit status: 0 every op is claimed, 1 an op is refused, 2 a mistake in the command line or the report
"""


@attrs.frozen
class OpClaim:
    """What a run shows for one op; ``reasons`` say why it is refused, empty when it is claimed."""

    op: str
    cases: tuple[Case, ...]
    reasons: tuple[str, ...]

    def count(self, outcome: Outcome) -> int:
        """Count the op's tests by outcome; one that compared no output is a skip."""
        return sum(counted(case) == outcome for case in self.cases)

    @property
    def checked(self) -> int:
        """Count the outputs compared by the tests that passed."""
        return sum(case.checked for case in self.cases if case.outcome == "passed")


@attrs.frozen
class Claim:
    """What a run of the op tests lets a target claim on a device.

    ``dropped`` counts, per test file, the tests that the options of the run leave out and the default ones do not;
    ``absent`` those that the run should hold and the report does not, as after ``-k`` or ``-x``.
    """

    target: str
    device: str
    run: Run
    ops: tuple[OpClaim, ...]
    behaviour: tuple[Case, ...]
    dropped: Mapping[str, int]
    absent: Mapping[str, int]

    @property
    def holds(self) -> bool:
        """Say whether there is an op and every one is claimed."""
        return bool(self.ops) and not any(one.reasons for one in self.ops)

    def text(self, *, every: bool = False) -> str:
        """Write the claim for people; ``every``: each test by itself, not each test function."""
        about = f"target {self.target!r} on {self.device}, {words.count(len(self.run.cases), 'test')}"
        lines = [about + (f", run {self.run.timestamp}" if self.run.timestamp else "")]
        lines += words.columns(_row(one) for one in self.ops)
        if not self.ops:
            lines.append("nothing to claim: no test of the report belongs to an op")
        ended = Counter(case.outcome for case in self.behaviour)
        counts = ", ".join(f"{ended[outcome]} {outcome}" for outcome in OUTCOMES)
        lines.append(f"behaviour tests  {counts}")
        broken = [case for case in self.behaviour if case.outcome == "failed"]
        lines += [f"  {case.name}: {case.why:.160}" for case in broken[:QUOTED]]
        if len(broken) > QUOTED:
            lines.append(f"  and {len(broken) - QUOTED} more")
        lines += _files("dropped, not about this run", self.dropped)
        lines += _files("not in the report, though the run collects them", self.absent)
        for one in (one for one in self.ops if one.cases):
            lines += [f"outputs checked for {one.op}", *words.columns(_checked(one.cases, every), indent="  ")]
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """Return the claim as the JSON schema ``claim-1.json`` has it."""
        return {
            "schema": SCHEMA,
            "ok": self.holds,
            "target": self.target,
            "device": self.device,
            "timestamp": self.run.timestamp,
            "ops": [
                {
                    "op": one.op,
                    "claimed": not one.reasons,
                    "reasons": list(one.reasons),
                    **{outcome: one.count(outcome) for outcome in OUTCOMES},
                    "tests": [
                        {"test": case.name, "outcome": counted(case), "checked_outputs": case.checked}
                        for case in one.cases
                    ],
                }
                for one in self.ops
            ],
            "behaviour": {
                **{outcome: sum(case.outcome == outcome for case in self.behaviour) for outcome in OUTCOMES},
                "failures": [{"test": c.name, "message": c.why} for c in self.behaviour if c.outcome == "failed"],
            },
            "dropped": dict(self.dropped),
            "absent": dict(self.absent),
        }


def main(argv: Sequence[str]) -> int:
    """Print the claim and return the exit status: 0 all claimed, 1 an op refused, 2 usage."""
    return report(_run, argv)


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        prog="tileops claim",
        description="Which ops may a backend claim, by the report of a run of the op tests on its device?",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("report", help="the JUnit report of the run")
    made.add_argument("ops", nargs="*", help="the ops (default: those in the report and those that the target serves)")
    made.add_argument("--target", help="the target of the run, where the report does not name it")
    made.add_argument("--device", help="the device of the run, where the report does not name it")
    made.add_argument("--tests", help="the folder of the op tests (default: tests/ops of this checkout)")
    made.add_argument("--list", action="store_true", help="list every test with its checked outputs")
    made.add_argument("--json", action="store_true", help="print JSON; docs/adding-a-backend.md describes it")
    return made


def claim(
    run: Run, target: str, device: str, ops: Iterable[str], collects: Collection[str], default: Collection[str]
) -> Claim:
    """Judge a run for ``ops``.

    Args:
        run: what the report says.
        target: the target of the run.
        device: the device of the run.
        ops: the ops to judge.
        collects: the node ids that pytest collects with the options of the run.
        default: those that it collects without options.
    """
    behaviour = tuple(case for case in run.cases.values() if not case.ops)
    broken = [case for case in behaviour if case.outcome == "failed"]
    judged = []
    for op in sorted(ops):
        cases = tuple(case for case in run.cases.values() if op in case.ops)
        judged.append(OpClaim(op, cases, tuple(_reasons(cases, broken))))
    kept = set(collects)
    dropped = Counter(file_of(node) for node in default if node not in kept)
    absent = Counter(file_of(node) for node in collects if address_of(node) not in run.cases)
    return Claim(target, device, run, tuple(judged), behaviour, dropped, absent)


def counted(case: Case) -> Outcome:
    """Return how a test counts for its op: one that passed and compared nothing is a skip."""
    return "skipped" if case.outcome == "passed" and case.checked == 0 else case.outcome


def _reasons(cases: Sequence[Case], broken: Sequence[Case]) -> Iterable[str]:
    """Give the conditions of a claim that do not hold."""
    failed = [case for case in cases if case.outcome == "failed"]
    if failed:
        yield f"{words.count(len(failed), 'test')} failed: {_quoted(failed)}"
    if not any(counted(case) == "passed" for case in cases):
        skips = sum(counted(case) == "skipped" for case in cases)
        skipped = f"{words.count(skips, 'test')} skipped or compared nothing"
        ended = skipped if skips else "all failed" if cases else "the report has no test of it"
        yield f"no numerical evidence: no test of it passed with outputs checked ({ended})"
    if broken:
        yield f"behaviour: {words.count(len(broken), 'test')} of no op failed"


def _quoted(cases: Sequence[Case]) -> str:
    shown = "; ".join(f"{case.name}: {case.why:.160}" for case in cases[:QUOTED])
    return shown + (f"; and {len(cases) - QUOTED} more" if len(cases) > QUOTED else "")


def _row(one: OpClaim) -> tuple[str, ...]:
    counts = [f"{one.count('passed')} passed", f"{one.count('skipped')} skipped"]
    if one.count("failed"):
        counts.append(f"{one.count('failed')} failed")
    said = f"{', '.join(counts)}; {words.count(one.checked, 'output')} checked"
    return "refused" if one.reasons else "claimed", one.op, "; ".join([said, *one.reasons])


def _files(what: str, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return [f"{what}: none"]
    rows = [(file, f"{words.count(number, 'test')}") for file, number in sorted(counts.items())]
    return [f"{what}: {words.count(sum(counts.values()), 'test')}", *words.columns(rows, indent="  ")]


def _checked(cases: Sequence[Case], every: bool) -> list[tuple[str, str]]:
    """Give the checked outputs of each test, or folded by test function: ``1 each in 48 tests``."""
    if every:
        return [(case.name, f"{words.count(case.checked, 'output')}, {counted(case)}") for case in cases]
    functions: dict[str, list[int]] = {}
    for case in cases:
        functions.setdefault(case.function, []).append(case.checked)
    rows = []
    for function, numbers in functions.items():
        low, high = min(numbers), max(numbers)
        each = str(low) if low == high else f"{low} to {high}"
        rows.append((function, f"{each} each in {words.count(len(numbers), 'test')}"))
    return rows


def _run(argv: Sequence[str]) -> int:
    options = parser().parse(argv)
    run = read(Path(options.report))
    target = _said("target", options.target, run.target)
    device = _said("device", options.device, run.device)
    ops, tests = _ops(options.ops, run, target), op_tests(options.tests)
    collects = collected(tests, (f"--tileops-target={target}", f"--tileops-device={device}"))
    found = claim(run, target, device, ops, collects, collected(tests))
    print(json.dumps(found.plain(), indent=2) if options.json else found.text(every=options.list))
    return SERVED if found.holds else NOT_SERVED


def _said(what: str, given: str | None, reported: str | None) -> str:
    """Return the target or device of the run: the report's word, or the command line's where it has none."""
    if given is None and reported is None:
        raise UsageError(f"the report does not say which {what} the run was for: add --{what}")
    if given is not None and reported is not None and given != reported:
        raise UsageError(f"--{what} is {given!r}, but the report is of a run for {reported!r}")
    return given or reported or ""


def _ops(named: Sequence[str], run: Run, target: str) -> set[str]:
    """Return the ops to judge: those named, or those that the report and the target have."""
    known = op_names()
    for name in named:
        if name not in known:
            raise UsageError(f"there is no op {name!r}{nearest(name, known)}; ops: {', '.join(sorted(known))}")
    if named:
        return set(named)
    served = backend.served_ops(target) if target in backend.registered_targets() else []
    return {op for case in run.cases.values() for op in case.ops} | (set(served) & set(known))


if __name__ == "__main__":
    from tileops.tools.claim import main as run_main  # the module under its one name

    sys.exit(run_main(sys.argv[1:]))
