"""Mutations: every refusal, preference, general mark and arch set, taken away or weakened, one at a time: who notices?

``python -m tools.mutation [OP ...]``. For each mutant either the check reports something that it does not report of the
table as it stands, or the comparison shows calls that move, or it proves that no winner changes.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import attrs

from tileops.coverage import gaps
from tileops.rules.archs import ArchSet
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.difference import Comparison, Open
from tileops.rules.errors import nearest
from tileops.rules.merits import merits
from tileops.rules.nodes import Compare, Const, Node
from tileops.rules.proof import Proof
from tileops.rules.table import RuleTable
from tileops.tools import words
from tileops.tools.audit import op_names
from tileops.tools.catalogue import Asked, Known, known
from tileops.tools.progress import progress
from tileops.tools.usage import NOT_SERVED, SERVED, Parser, UsageError, report

SCHEMA = "tileops.mutation/1"
REPORTED, MOVED, SAME, OPEN = "reported", "moved", "proved equal", "open"
OUTCOMES = {
    REPORTED: "the check reports it",
    MOVED: "the comparison shows calls that move",
    SAME: "proved that no winner changes",
    OPEN: "not decided",
}


@attrs.frozen
class Mutant:
    """Is one change of one declaration, and what came of it. ``detail`` is the first finding, region or question."""

    op: str
    interface: str
    key: str
    what: str
    outcome: str
    detail: str = ""

    def text(self) -> str:
        """Write the mutant in one line."""
        return f"{self.outcome:<12}  {self.op}.{self.interface} {self.key}: {self.what}" + (
            f": {self.detail}" if self.detail else ""
        )


def mutations(declaration: Declaration) -> Iterator[tuple[str, Declaration]]:
    """Yield every single thing of a declaration taken away or weakened, with what was done."""
    refusals = declaration.refusal
    for place, refusal in enumerate(refusals):
        others = (*refusals[:place], *refusals[place + 1 :])
        yield f"without the refusal {refusal.text}", attrs.evolve(declaration, refusal=others)
        for text in weaker(refusal):
            changed = (*refusals[:place], Refusal(text, refusal.why), *refusals[place + 1 :])
            yield f"{refusal.text} becomes {text}", attrs.evolve(declaration, refusal=changed)
    for other in sorted(declaration.preferred_over):
        fewer = declaration.preferred_over - {other}
        yield f"not preferred over {other}", attrs.evolve(declaration, preferred_over=fewer)
    if declaration.general:
        yield "not general", attrs.evolve(declaration, general=False)
    archs = declaration.supported_archs
    if archs is not None:
        yield "on every arch", attrs.evolve(declaration, supported_archs=None)
        for low, high in archs.intervals():
            rest = [pair for pair in archs.intervals() if pair != (low, high)]
            # One arch more on either side, and the first one less.
            yield f"from arch {low - 1} on", _on(declaration, [*rest, (low - 1, high)])
            if high is not None:
                yield f"up to arch {high + 1}", _on(declaration, [*rest, (low, high + 1)])
            if rest or high is None or high > low:
                less = [*rest, *([] if high == low else [(low + 1, high)])]
                yield f"not on arch {low}", _on(declaration, less)


def _on(declaration: Declaration, intervals: Sequence[tuple[int, int | None]]) -> Declaration:
    return attrs.evolve(declaration, supported_archs=ArchSet(intervals))


def weaker(refusal: Refusal) -> Iterator[str]:
    """Yield the rule with its limit one off either way: the mistakes that are made, ``>=`` for ``>`` among them."""
    if refusal.rule is None or refusal.when is None:
        return
    root: Node = refusal.rule.root
    if isinstance(root, Compare) and len(root.ops) == 1 and root.ops[0] in ("<", "<=", ">", ">="):
        left, right = refusal.when[: refusal.when.rindex(root.ops[0])].strip(), root.rights[0]
        if isinstance(right, Const) and type(right.value) is int:
            for value in (right.value - 1, right.value + 1):
                yield f"{left} {root.ops[0]} {value}"
        else:
            strict = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[root.ops[0]]
            yield f"{left} {strict} {refusal.when[refusal.when.rindex(root.ops[0]) + len(root.ops[0]) :].strip()}"


def mutants(op: Known, asked: Asked) -> Iterator[Mutant]:
    """Yield every mutant of one interface's table with what came of it."""
    table = asked.table
    before = told(op, asked, table)
    for key, declaration in table.declarations.items():
        for what, changed in mutations(declaration):
            mutant = table.with_declaration(key, changed)
            outcome, detail = judged(op, asked, mutant, before)
            yield Mutant(op.name, asked.name, key, what, outcome, detail)


def judged(op: Known, asked: Asked, mutant: RuleTable, before: frozenset[tuple[str, ...]]) -> tuple[str, str]:
    """Return what came of a mutant, with the first thing that tells."""
    new = sorted(told(op, asked, mutant) - before)
    if new:
        kind, *keys = new[0]
        return REPORTED, f"{kind} {', '.join(keys)}"
    questions = []
    for found in Comparison(asked.table, mutant).regions():
        if isinstance(found, Open):
            questions.append(f"{found.what}: {found.why}")
            continue
        old, after = (" and ".join(keys) or "nobody" for keys in (found.old, found.new))
        return MOVED, f"{old} -> {after} on {found.witness.text()}, arch {found.witness.arch}"
    return (OPEN, questions[0]) if questions else (SAME, "")


def told(op: Known, asked: Asked, table: RuleTable) -> frozenset[tuple[str, ...]]:
    """Return what the check says of a table, as kinds and keys: its proof, dead and idle ones, gaps in the claims."""
    found = {(one.kind, *one.keys) for one in table.check().findings}
    found |= {(one.kind, *one.keys) for one in merits(Proof(table))}
    tables = {**{name: each.table for name, each in op.interfaces.items()}, asked.name: table}
    uses = [use for use in op.op.blueprint.uses if use.name == asked.name]
    found |= {("gap", one.interface or "") for one in gaps(op.entry, uses, tables) if not one.undecided}
    return frozenset(found)


def main(argv: Sequence[str]) -> int:
    """Mutate, and return the exit status: 0 each mutant is accounted for, 1 some are not decided, 2 usage."""
    return report(_run, argv)


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(prog="python -m tools.mutation", description="Take each rule of each table away: who notices?")
    made.add_argument("ops", nargs="*", help="the ops whose tables are mutated (default: all)")
    made.add_argument("--list", action="store_true", help="print each mutant, not the counts alone")
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def _run(argv: Sequence[str]) -> int:
    options = parser().parse(argv)
    names = op_names()
    for name in options.ops:
        if name not in names:
            raise UsageError(f"there is no op {name!r}{nearest(name, names)}; ops: {', '.join(sorted(names))}")
    chosen, tell, start = sorted(options.ops or names), progress(sys.stderr), time.perf_counter()
    found: list[Mutant] = []
    for done, name in enumerate(chosen):
        tell(done, len(chosen), name)
        op = known(name)
        found += [mutant for asked in op.interfaces.values() for mutant in mutants(op, asked)]
    tell(len(chosen), len(chosen), "")
    seconds = time.perf_counter() - start
    counts = Counter(mutant.outcome for mutant in found)
    if options.json:
        plain = {"schema": SCHEMA, "counts": dict(counts), "mutants": [attrs.asdict(mutant) for mutant in found]}
        print(json.dumps(plain, indent=2))
    else:
        lines = [mutant.text() for mutant in found] if options.list else []
        lines += [mutant.text() for mutant in found if mutant.outcome == OPEN and not options.list]
        lines += words.columns([(str(counts[outcome]), what) for outcome, what in OUTCOMES.items()])
        lines.append(f"{words.count(len(found), 'mutant')} in {seconds:.0f} s")
        print("\n".join(lines))
    return NOT_SERVED if counts[OPEN] else SERVED


if __name__ == "__main__":
    from tileops.tools.mutation import main as run  # the module under its one name

    sys.exit(run(sys.argv[1:]))
