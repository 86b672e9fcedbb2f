"""What a table could do without: implementations that can never win, preferences that decide nothing, archs lost.

None of these makes a call go wrong, so an import does not ask; `tools.check` does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tileops.rules.device import DeviceFacts, reference
from tileops.rules.domain import DEVICE_FACTS, Unstatable
from tileops.rules.errors import RuleError
from tileops.rules.proof import Proof, undecided
from tileops.rules.query import Answer, Confirm
from tileops.rules.report import WARNING, Finding
from tileops.rules.spaces import spaces
from tileops.rules.terms import Term

if TYPE_CHECKING:
    from tileops.rules.callspec import CallSpec
    from tileops.rules.table import RuleTable


def merits(proof: Proof) -> Iterator[Finding]:
    """Yield the dead implementations of a table and its idle preferences; a cycle or broken rule is left to `check`."""
    yield from dead(proof)
    yield from idle(proof)


# -- dead


def dead(proof: Proof) -> Iterator[Finding]:
    """Yield the implementations that win no call on any device, unless their declaration says why they are kept."""
    for key in proof.keys:
        declaration = proof.table.declarations[key]
        if declaration.dead_because is not None:
            continue
        answer = wins(proof, key)
        if answer.status == "none":
            yield Finding("dead", (key,), _why_dead(proof, key))
        elif answer.status == "undecided":
            yield undecided((key,), f"whether {key} can ever win", answer)


def wins(proof: Proof, key: str, *among: Term) -> Answer:
    """Look for a call, among those that meet some conditions, that an implementation wins."""
    return proof.prover.find([proof.served(key).serves, *among], _once(functools.partial(_shows_win, proof, key)))


def _once(confirm: Confirm) -> Confirm:
    """Return ``confirm`` for a question whose witness nobody sees: the first will do, it is not made smaller."""
    found: list[CallSpec] = []

    def first(call: CallSpec) -> Sequence[Term] | None:
        if found:
            raise Unstatable("one is enough")
        more = confirm(call)
        if more is None:
            found.append(call)
        return more

    return first


def _shows_win(proof: Proof, key: str, call: CallSpec) -> Sequence[Term] | None:
    negation = proof.domain.terms.negation
    try:
        trace = proof.table.explain(call)
    except RuleError as error:
        other = str(error.fields.get("key", ""))
        if other == key or other not in proof.keys:
            raise Unstatable(f"{other or 'the request'} raises on {call!r}") from error
        return [negation(proof.certain(other, call).raises)]
    if key in trace.contenders:
        return None
    if key not in trace.serving:
        why = "its opaque refusal does" if proof.served(key).opaque else "the solver's model does not hold"
        raise Unstatable(f"{key} should serve {call!r}, and refuses it: {why}")
    above = [other for other in trace.serving if proof.goes_before(other, key)]
    return [negation(proof.certain(other, call).serves) for other in above]


def _why_dead(proof: Proof, key: str) -> str:
    keep = "take it out, or say in dead_because why it is kept"
    served = proof.served(key).serves
    if served is False or proof.prover.find([served], _once(_anything)).status == "none":
        return f"no call on any device is served by {key}: its refusals and archs leave none; {keep}"
    above = [other for other in proof.keys if proof.goes_before(other, key)]
    return f"whatever {key} serves, one above it serves too ({', '.join(above)}); {keep}"


def _anything(call: CallSpec) -> Sequence[Term] | None:
    return None


# -- idle preferences


def idle(proof: Proof) -> Iterator[Finding]:
    """Yield the preferences between two implementations that never serve the same call."""
    for key in proof.keys:
        for other in sorted(proof.table.declarations[key].preferred_over & set(proof.keys) - {key}):
            found = together(proof, key, other)
            if found.status == "none":
                message = (
                    f"preferred_over={{{other!r}}} decides nothing: no call is served by both {key} and {other}; "
                    "take the preference away"
                )
                yield Finding("idle preference", (key, other), message, severity=WARNING)
            elif found.status == "undecided":
                yield undecided((key, other), f"whether {key} and {other} ever serve the same call", found)


def together(proof: Proof, key: str, other: str) -> Answer:
    """Look for a call that two implementations serve."""
    if proof.apart(key, other):
        return Answer("none")

    def shows(call: CallSpec) -> Sequence[Term] | None:
        return None if _serving(proof, call, (key, other)) else []

    return proof.prover.find([proof.served(key).serves, proof.served(other).serves], _once(shows))


def _serving(proof: Proof, call: CallSpec, keys: Sequence[str]) -> bool:
    try:
        return all(proof.table.explain(call, only=key).winner == key for key in keys)
    except RuleError:
        return False


# -- archs


def regressions(table: RuleTable, limit: int, kind: str = "cuda") -> Iterator[Finding]:
    """Yield, for each arch, a call that nobody serves there and somebody serves on an older arch's reference board."""
    if not any(kind in declaration.devices for declaration in table.declarations.values()):
        return
    every = spaces([kind])[kind]
    archs = sorted(int(found.arch.low) for found in every if found.arch.point is not None)
    for place, arch in enumerate(archs[1:], start=1):
        here = Proof(table, limit, {kind: tuple(found for found in every if found.arch.point == arch)})
        if unserved(here, lambda call: True).status == "none":
            continue
        for older in reversed(archs[:place]):
            answer = _lost(here, reference(older, kind))
            if answer.witness is not None:
                yield _regression(table, kind, older, arch, answer.witness)
                break
            if answer.status == "undecided":
                yield undecided((), f"whether arch {arch} serves all that arch {older} serves", answer)
                break


def unserved(proof: Proof, shows: Callable[[Any], bool], *among: Term) -> Answer:
    """Look for a call that no implementation serves and that ``shows`` confirms."""
    negation = proof.domain.terms.negation
    nobody = [negation(proof.served(key).serves) for key in proof.keys]

    def confirm(call: CallSpec) -> Sequence[Term] | None:
        try:
            trace = proof.table.explain(call)
        except RuleError as error:
            key = str(error.fields.get("key", ""))
            if key not in proof.keys:
                raise Unstatable(f"the request raises on {call!r}") from error
            return [negation(proof.served(key).raises)]
        return None if not trace.serving and shows(call) else []

    return proof.prover.find([*nobody, *among], confirm)


def _lost(here: Proof, older: DeviceFacts) -> Answer:
    domain, terms = here.domain, here.domain.terms
    constants = {name: domain.numbers.constant(getattr(older, name)) for name in DEVICE_FACTS}
    then = Proof(here.table, here.prover.limit, domain=domain.standing_on(constants))
    served = [then.served(key).serves for key in then.keys]

    def shows(call: CallSpec) -> bool:
        return bool(here.table.explain(call.replace(stated=older)).serving)

    return unserved(here, shows, terms.disjunction(served))


def _regression(table: RuleTable, kind: str, older: int, arch: int, witness: CallSpec) -> Finding:
    keys = table.explain(witness.replace(stated=reference(older, kind))).serving
    message = (
        f"nobody serves {witness.text()} on {kind} arch {arch}, and {' and '.join(keys)} on the older arch {older} do; "
        f"extend supported_archs, or add an implementation for arch {arch}"
    )
    return Finding("arch regression", keys, message, witness=witness, severity=WARNING)
