"""The proof: over all call specs, on all devices, does a table always name one implementation, without raising?

`check` looks at a table alone: its graph, its expressions, every rule that may raise, every pair that may both serve.
What it reports is exact: a finding has a call that shows it through `RuleTable.explain`; where the solver cannot
decide, that is a finding of its own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from tileops.rules import box
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import unknown_device_type
from tileops.rules.domain import Domain, Unstatable
from tileops.rules.errors import RuleError, nearest
from tileops.rules.query import LIMIT, Answer, Prover
from tileops.rules.report import WARNING, Finding, Proved, Report, in_order
from tileops.rules.spaces import Spaces, overlap
from tileops.rules.symbolic import Unsupported
from tileops.rules.terms import Term

if TYPE_CHECKING:
    from tileops.rules.callspec import CallSpec
    from tileops.rules.table import RuleTable

__all__ = ["Finding", "Proof", "Proved", "Report", "check"]


def check(
    table: RuleTable, limit: int = LIMIT, over: Spaces | None = None, arguments: Iterable[Finding] = ()
) -> Report:
    """Prove a table and return the findings.

    ``limit`` bounds what one query may spend, in z3's resource units; ``over`` gives the devices of each kind (the
    boards known, where left out); ``arguments`` are findings of `interface.argument_findings` to report along.
    """
    findings = [*arguments, *graph_findings(table), *fault_findings(table)]
    proof = Proof(table, limit, over)
    findings += proof.raising()
    findings += proof.ambiguous()
    return Report(table.name, in_order(findings), proof.proved)


# -- what the declarations say -------------------------------------------------------------------------------------


def graph_findings(table: RuleTable) -> Iterator[Finding]:
    """Yield what is wrong with the precedence and the devices of the declarations."""
    precedence = table.precedence
    for key, names in precedence.unknown_keys().items():
        for name in names:
            known = ", ".join(other for other in table.declarations if other != key) or "no other"
            message = f"preferred_over names {name!r}{nearest(name, table.declarations)}; the table has {known}"
            yield Finding("unknown key", (key,), message)
    if any(key in above for key, above in table.above.items()):  # networkx costs 0.25 s: only where it is needed
        for cycle in precedence.cycles():
            path = " -> ".join((*cycle, cycle[0]))
            message = f"each is preferred over the next: {path}; take one of these preferences away"
            yield Finding("cycle", cycle, message)
    if len(precedence.generals) > 1:
        named = " and ".join(precedence.generals)
        yield Finding("two generals", precedence.generals, f"{named} are all general; at most one may be")
    for key, declaration in table.declarations.items():
        for kind in sorted(declaration.devices):
            if why := unknown_device_type(kind):
                message = f"{why}; right where a backend that is not imported here brings it, else nobody is served"
                yield Finding("unknown device type", (key,), message, severity=WARNING)
        if declaration.general and declaration.preferred_over:
            below = ", ".join(sorted(declaration.preferred_over))
            message = f"is general, below all others, and yet preferred over {below}; take one of the two away"
            yield Finding("general with a preference", (key,), message)
        if len(declaration.devices) > 1 and declaration.supported_archs is not None:
            kinds = ", ".join(sorted(declaration.devices))
            message = (
                f"runs on {kinds} and declares supported_archs {declaration.supported_archs.text()}; arch numbers "
                "compare within one device type only, so declare one implementation for each type"
            )
            yield Finding("several device types with supported_archs", (key,), message)


def fault_findings(table: RuleTable) -> Iterator[Finding]:
    """Yield the expressions that do not fit the facts of the request."""
    for key, faults in table.faults.items():
        for fault in faults:
            yield Finding("bad expression", (key,), fault)


# -- what the rules mean -------------------------------------------------------------------------------------------


@attrs.frozen
class _Rule:
    """Is a refusal as terms: whether it fires, whether it can be computed. ``text`` is as written.

    ``unsupported`` says why it has no translation; it is taken to accept everything then.
    """

    text: str
    fires: Term = False
    defined: Term = True
    unsupported: str | None = None


@attrs.frozen(slots=False)
class Served:
    """Says of one implementation, as terms, which calls it serves and on which it raises.

    ``opaque`` tells that a Python callable has a say too, which the terms leave out.
    """

    key: str
    declaration: Declaration
    available: Term
    rules: tuple[_Rule, ...]
    terms: Domain
    opaque: bool = False

    @property
    def unsupported(self) -> str | None:
        """Return which rule has no translation; the terms are wider than the truth then."""
        found = [f"{rule.text!r} of {self.key}: {rule.unsupported}" for rule in self.rules if rule.unsupported]
        return "; ".join(found) or None

    @functools.cached_property
    def serves(self) -> Term:
        """Return whether the implementation is available and refuses nothing."""
        return self.before(len(self.rules))

    def before(self, index: int) -> Term:
        """Return whether it is available and no refusal before ``index`` fires or raises."""
        terms = self.terms.terms
        parts = [part for rule in self.rules[:index] for part in (rule.defined, terms.negation(rule.fires))]
        return terms.conjunction((self.available, *parts))

    def raises_at(self, index: int) -> Term:
        """Return whether a call reaches the refusal at ``index`` and this one raises."""
        terms = self.terms.terms
        return terms.conjunction((self.before(index), terms.negation(self.rules[index].defined)))

    @property
    def raises(self) -> Term:
        """Return whether some refusal raises."""
        return self.terms.terms.disjunction(map(self.raises_at, range(len(self.rules))))


class Proof:
    """Asks about one table; what it asks can be asked by others too (coverage, dead implementations, differences)."""

    def __init__(
        self, table: RuleTable, limit: int = LIMIT, over: Spaces | None = None, domain: Domain | None = None
    ) -> None:
        """Prepare to ask about a table, over ``domain`` where given: another table's, or the calls of an op."""
        self.table = table
        self.keys = tuple(key for key in table.declarations if key not in table.faults)
        kinds = {kind for declaration in table.declarations.values() for kind in declaration.devices}
        self.domain = Domain(table.request, kinds if over is None else over.keys(), over) if domain is None else domain
        self.prover = Prover(self.domain, limit)
        self._served: dict[str, Served] = {}
        self._boxes = {key: self._box(table.declarations[key]) for key in self.keys}
        self._never = {key for key, found in self._boxes.items() if box.empty(found)}
        self._pairs = 0
        self._cheap = 0

    @property
    def proved(self) -> Proved:
        """Return what has been asked so far."""
        return Proved(self._pairs, self._cheap, self.prover.queries, self.prover.spent)

    def served(self, key: str) -> Served:
        """Return what an implementation serves, as terms."""
        if key not in self._served:
            self._served[key] = self._translated(key)
        return self._served[key]

    def _translated(self, key: str) -> Served:
        declaration, domain = self.table.declarations[key], self.domain
        archs = declaration.supported_archs
        on_arch = True if archs is None else domain.arch_in(archs.intervals())
        available = domain.terms.conjunction((domain.on(declaration.devices), on_arch))
        rules = tuple(map(self._rule, declaration.refusal))
        opaque = any(refusal.opaque is not None for refusal in declaration.refusal)
        return Served(key, declaration, available, rules, domain, opaque)

    def _rule(self, refusal: Refusal) -> _Rule:
        if refusal.rule is None:
            return _Rule(refusal.text)
        try:
            return _Rule(refusal.text, *self.domain.translator.condition(refusal.rule.root))
        except Unsupported as error:
            return _Rule(refusal.text, unsupported=str(error))

    def _box(self, declaration: Declaration) -> box.Box:
        scope = self.table.request.scope
        rules = [refusal.rule for refusal in declaration.refusal if refusal.rule is not None]
        return box.meet(box.narrow(rule.root, False, scope) for rule in rules)

    # -- may raise

    def raising(self) -> Iterator[Finding]:
        """Yield every rule that some call makes raise, and those about which nobody knows."""
        yield from self._raising_request()
        for key in self.keys:
            served = self.served(key)
            for index, rule in enumerate(served.rules):
                if rule.unsupported is not None:
                    answer = Answer("undecided", None, rule.unsupported)
                    yield undecided((key,), f"whether the rule {rule.text!r} can raise", answer)
                if rule.defined is True:
                    continue
                condition = served.raises_at(index)
                answer = self.prover.find([condition], functools.partial(self._shows_raise, key, rule.text))
                yield from self._raise_finding(key, rule.text, answer)

    def _shows_raise(self, key: str, text: str, call: CallSpec) -> Sequence[Term] | None:
        try:
            self.table.explain(call, only=key)
        except RuleError as error:
            if error.fields.get("rule") == text:
                return None
        raise Unstatable(f"{call!r} should make {text!r} raise, and does not")

    def _raise_finding(self, key: str, text: str, answer: Answer) -> Iterator[Finding]:
        if answer.witness is not None:
            cause = self._cause(key, answer.witness)
            message = (
                f"the rule {text!r} raises {cause} on {answer.witness!r}; put a refusal before it that keeps such "
                "calls out, or make the rule hold there without computing that"
            )
            yield Finding("may raise", (key,), message, witness=answer.witness)
        elif answer.status == "undecided":
            yield undecided((key,), f"whether the rule {text!r} can raise", answer)

    def _cause(self, key: str, call: CallSpec) -> str:
        try:
            self.table.explain(call, only=key)
        except RuleError as error:
            return repr(error.__cause__)
        return "an error"

    def _raising_request(self) -> Iterator[Finding]:
        """Yield the invariants and derived facts of the request that some call makes raise."""
        request, terms = self.table.request, self.domain.terms
        so_far = self.domain.ranges()
        for expression, (holds, defined) in zip(request.invariants, self.domain.invariants, strict=True):
            if defined is not True:
                yield from self._request_finding(f"the invariant {expression.text!r}", so_far, terms.negation(defined))
            so_far = [*so_far, defined, holds]
        for name, defined in self.domain.known.items():
            text = f"the derived fact {name} = {request.derived[name].text!r}"
            yield from self._request_finding(text, so_far, terms.negation(defined))
            so_far = [*so_far, defined]
        if request.invariants:
            yield from self._no_call()

    def _no_call(self) -> Iterator[Finding]:
        """Yield that no call meets the invariants of the request: whatever is asked of its tables holds of nothing."""
        keys, invariants = (self.table.request.__name__,), self.table.request.invariants
        kept = [part for pair in self.domain.invariants for part in pair]
        try:
            if self.prover.facts([*self.domain.ranges(), *kept]) is None:
                message = f"no call meets the invariants {' and '.join(repr(rule.text) for rule in invariants)}"
                yield Finding("no call", keys, f"{message}; take one of them away, or widen the facts")
        except Unstatable as error:
            yield undecided(keys, "whether any call meets the invariants", Answer("undecided", None, str(error)))

    def _request_finding(self, what: str, within: Sequence[Term], condition: Term) -> Iterator[Finding]:
        keys = (self.table.request.__name__,)
        try:
            found = self.prover.facts([*within, condition])
        except Unstatable as error:
            yield undecided(keys, f"whether {what} can raise", Answer("undecided", None, str(error)))
            return
        if found is not None:
            facts = ", ".join(f"{name}={value}" for name, value in found.items())
            message = f"{what} raises on {facts}; put an invariant before it that keeps such calls out"
            yield Finding("may raise", keys, message)

    # -- ambiguous

    def ambiguous(self) -> Iterator[Finding]:
        """Yield every pair of which both are maximal on some call, and those about which nobody knows."""
        above = self.table.above
        for a, b in itertools.combinations(self.keys, 2):
            if (b in above[a] or a in above[b]) and (self.goes_before(a, b) or self.goes_before(b, a)):
                continue
            self._pairs += 1
            if self.apart(a, b):
                self._cheap += 1
                continue
            answer = self.overlap(a, b)
            if answer.witness is not None:
                yield _ambiguous(a, b, answer.witness, circle=b in above[a] and a in above[b])
            elif answer.status == "undecided":
                yield undecided((a, b), f"whether {a} and {b} both serve a call with nothing above them", answer)

    def goes_before(self, above: str, below: str) -> bool:
        """Tell whether precedence decides for ``above``; on a cycle neither goes before the other."""
        return above in self.table.above[below] and below not in self.table.above[above]

    def apart(self, a: str, b: str) -> bool:
        """Tell whether two implementations share no call for a reason that needs no solver."""
        first, second = self.table.declarations[a], self.table.declarations[b]
        kinds = first.devices & second.devices
        if not kinds or a in self._never or b in self._never or box.disjoint(self._boxes[a], self._boxes[b]):
            return True
        regions = [found for kind in kinds for found in self.domain.spaces.get(kind, ())]
        shared = _both(first, second)
        return shared is not None and not overlap(regions, shared)

    def maximal(self, key: str) -> Term:
        """Return whether an implementation serves a call and nothing that serves it goes before."""
        terms = self.domain.terms
        above = [other for other in self.keys if self.goes_before(other, key)]
        return terms.conjunction(
            (self.served(key).serves, *(terms.negation(self.served(other).serves) for other in above))
        )

    def overlap(self, a: str, b: str) -> Answer:
        """Return whether some call has both among its maximal implementations."""
        first, second = self.served(a), self.served(b)
        answer = self.prover.find([first.serves, second.serves], functools.partial(self._shows_overlap, a, b))
        why = first.unsupported or second.unsupported
        if answer.status == "undecided" and why:
            return attrs.evolve(answer, why=f"{answer.why}; {why}")
        return answer

    def _shows_overlap(self, a: str, b: str, call: CallSpec) -> Sequence[Term] | None:
        """Return None where both are maximal, else the conditions that keep out what stands in the way here."""
        negation = self.domain.terms.negation
        try:
            trace = self.table.explain(call)
        except RuleError as error:
            key = str(error.fields.get("key", ""))
            if key in (a, b) or key not in self.keys:
                raise Unstatable(f"{key or 'the request'} raises on {call!r}") from error
            return [negation(self.certain(key, call).raises)]
        if a in trace.contenders and b in trace.contenders:
            return None
        for key in (a, b):
            if key not in trace.serving:
                why = "its opaque refusal does" if self.served(key).opaque else "the solver's model does not hold"
                raise Unstatable(f"{key} should serve {call!r}, and refuses it: {why}")
        above = [key for key in trace.serving if self.goes_before(key, a) or self.goes_before(key, b)]
        return [negation(self.certain(key, call).serves) for key in above]

    def certain(self, key: str, call: CallSpec) -> Served:
        """Return what an implementation serves; raises Unstatable where the terms do not say all of it."""
        served = self.served(key)
        if served.opaque:
            raise Unstatable(f"{key} settles {call!r}, but whether it always does depends on its opaque refusal")
        if served.unsupported:
            raise Unstatable(f"{key} settles {call!r}, but not every rule of it can be translated")
        return served


def _both(a: Declaration, b: Declaration) -> list[tuple[int, int | None]] | None:
    """Return the archs that two implementations support, None for every arch."""
    if a.supported_archs is None or b.supported_archs is None:
        one = a.supported_archs or b.supported_archs
        return None if one is None else list(one.intervals())
    shared = []
    for low, high in a.supported_archs.intervals():
        for other_low, other_high in b.supported_archs.intervals():
            ends = [end for end in (high, other_high) if end is not None]
            start, end = max(low, other_low), min(ends, default=None)
            if end is None or start <= end:
                shared.append((start, end))
    return shared


def _ambiguous(a: str, b: str, witness: CallSpec, circle: bool) -> Finding:
    write = (
        f"write preferred_over={{{b!r}}} in the declaration of {a} (or the other way round), or a refusal in one of "
        "them that keeps such calls out"
    )
    if circle:
        write = "each is preferred over the other, on a cycle: take that cycle apart (its own finding lists it)"
    message = f"{a} and {b} both serve {witness!r}, and none goes before the other; {write}"
    return Finding("ambiguous", (a, b), message, witness=witness)


def undecided(keys: tuple[str, ...], what: str, answer: Answer) -> Finding:
    """Return the finding about a question that the solver left open."""
    message = f"{what} is not decided: {answer.why}; docs/rules.md says how to rewrite such a rule"
    return Finding("undecided", keys, message, severity=WARNING)
