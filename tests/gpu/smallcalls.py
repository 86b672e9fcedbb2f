"""Small calls of every implementation, for the scripts in this folder. Not a test."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from tileops.manifest.workload import Case, bind
from tileops.tools import prebuild, regret
from tileops.tools.catalogue import known
from tileops.tools.question import Place


@frozen
class Small:
    """Is the call that moves the fewest bytes among those that one implementation serves; it pickles."""

    interface: str
    key: str
    case: Case
    text: str
    moved: int
    program: prebuild.Program


def smallest(op: str, where: Place) -> list[Small]:
    """Returns the smallest call of each implementation of an op on a device.

    It is looked for among the workload rows, both sides of every limit and the neighbours of the rows.
    """
    about = known(op)
    found: dict[tuple[str, str], Small] = {}
    for origin, case in regret.sampled(about, where.facts):
        contest = regret.posed(about, case, origin, where)
        if contest is None:
            continue
        _, moved = about.entry.checker.roofline(bind(about.entry.checker, case, where.device))
        for key in contest.keys:
            place = (contest.asked.name, key)
            if place not in found or moved < found[place].moved:
                implementation: Any = contest.asked.implementations[key]
                program = prebuild.Program(implementation, implementation.entry_for(contest.call)[0])
                found[place] = Small(*place, case, contest.call.text(), moved, program)
    return list(found.values())
