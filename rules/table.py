"""Rule tables: the declarations of one interface over one call spec class, and selection among them.

`RuleTable.explain` is the one place where selection happens; everything else asks it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from tileops.rules.archs import Interval
from tileops.rules.callspec import CallSpec, require_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import boards_digest, device_kind
from tileops.rules.errors import DeclarationError, ExpressionError, RuleError, nearest
from tileops.rules.precedence import Precedence
from tileops.rules.trace import FAULTY, OTHER_ARCH, OTHER_DEVICE, SERVES, Reason, Trace

if TYPE_CHECKING:
    from tileops.rules.proof import Report


@attrs.frozen
class _Compiled:
    """Is one declaration made ready for selection."""

    key: str
    devices: frozenset[str]
    intervals: tuple[Interval, ...] | None
    # None stands for an opaque refusal, which gets the call instead of the values.
    rules: tuple[Callable[..., Any] | None, ...]
    faulty: bool


def _request(instance: Any, attribute: Any, value: Any) -> None:
    require_spec(f"the rule table {instance.name!r}", value)


def _declarations(given: Mapping[str, Declaration]) -> dict[str, Declaration]:
    if not isinstance(given, Mapping):
        raise DeclarationError(f"a rule table takes a mapping of keys to declarations, got {given!r}")
    for key, declaration in given.items():
        if type(key) is not str or not key:
            raise DeclarationError(f"the key of an implementation is a name such as 'gemm_mma', got {key!r}")
        if not isinstance(declaration, Declaration):
            raise DeclarationError(f"{key} is no Declaration: {declaration!r}", key=key)
    return {key: given[key] for key in sorted(given)}


@attrs.frozen(eq=False)
class RuleTable:
    """Holds the declarations of one interface by key; pure data, whose order means nothing.

    Building it raises only for what is no table at all; everything that can be wrong with the declarations
    is a finding of `check`, and `explain` still answers.
    """

    name: str
    request: type[CallSpec] = attrs.field(validator=_request)
    declarations: dict[str, Declaration] = attrs.field(converter=_declarations)

    @functools.cached_property
    def precedence(self) -> Precedence:
        """Return who stands above whom."""
        return Precedence(self.declarations)

    @functools.cached_property
    def above(self) -> Mapping[str, frozenset[str]]:
        """Return, per key, the keys that stand above it, directly or through others."""
        return {key: self.precedence.above(key) for key in self.declarations}

    @functools.cached_property
    def faults(self) -> Mapping[str, tuple[str, ...]]:
        """Return, per key, what is wrong with its rules and messages over this request; only keys with faults."""
        found = {}
        for key, declaration in self.declarations.items():
            messages = tuple(fault for refusal in declaration.refusal for fault in self._faults_of(refusal))
            if messages:
                found[key] = messages
        return found

    def _faults_of(self, refusal: Refusal) -> list[str]:
        scope = self.request.scope
        checks: list[tuple[str, Callable[[], None]]] = []
        if refusal.rule is not None:
            checks.append((f"rule {refusal.when!r}", functools.partial(refusal.rule.require, "bool", scope)))
        checks.append((f"message {refusal.why!r}", functools.partial(refusal.message.check, scope)))
        messages = []
        for what, check in checks:
            try:
                check()
            except ExpressionError as error:
                messages.append(f"{what}: {error}")
        return messages

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.request.scope)

    @functools.cached_property
    def _compiled(self) -> tuple[_Compiled, ...]:
        compiled = []
        for key, declaration in self.declarations.items():
            archs = declaration.supported_archs
            faulty = key in self.faults
            rules = () if faulty else tuple(self._function(refusal) for refusal in declaration.refusal)
            intervals = None if archs is None else archs.intervals()
            compiled.append(_Compiled(key, declaration.devices, intervals, rules, faulty))
        return tuple(compiled)

    def _function(self, refusal: Refusal) -> Callable[..., Any] | None:
        return None if refusal.rule is None else refusal.rule.compile(self._names)

    @functools.cached_property
    def _by_key(self) -> Mapping[str, _Compiled]:
        return {compiled.key: compiled for compiled in self._compiled}

    @functools.cached_property
    def _cyclic(self) -> bool:
        return any(key in above for key, above in self.above.items())

    # Selection --------------------------------------------------------------------------------------------------

    def select(self, call: CallSpec, only: str | None = None) -> str:
        """Return the key of the implementation that serves ``call``.

        Raises OpNotAvailableError where none does and AmbiguousDispatchError where none wins, both with ``trace``.
        """
        trace = self.explain(call, only)
        if trace.winner is None:
            raise trace.error()
        return trace.winner

    def explain(self, call: CallSpec, only: str | None = None) -> Trace:
        """Select for ``call`` and return the whole account of it; ``only`` considers that one implementation.

        Raises RuleError when a rule raises with no refusal before it, DeclarationError for an unknown key and a call
        of another class, BackendError where the device facts are needed and cannot be read.
        """
        if not isinstance(call, self.request):
            raise DeclarationError(
                f"{self.name} is asked with {self.request.__name__}, got {type(call).__name__}", table=self.name
            )
        if only is not None and only not in self.declarations:
            known = ", ".join(self.declarations) or "none"
            raise DeclarationError(
                f"{self.name} has no implementation {only!r}{nearest(only, self.declarations)}; it has {known}",
                key=only,
            )
        kind = device_kind(call.device)
        candidates = self._compiled if only is None else (self._by_key[only],)
        arch: int | None = None
        values: tuple[Any, ...] | None = None
        found: dict[str, int] = {}
        serving: list[str] = []
        for candidate in candidates:
            if kind not in candidate.devices:
                code = OTHER_DEVICE
            elif candidate.faulty:
                code = FAULTY
            else:
                if candidate.intervals is not None and arch is None:
                    arch = call.arch
                if arch is not None and not _available(candidate.intervals, arch):
                    code = OTHER_ARCH
                elif not candidate.rules:
                    code = SERVES
                else:
                    if values is None:
                        values = self._values(call)
                    code = self._first_refusal(candidate, call, values)
            found[candidate.key] = code
            if code == SERVES:
                serving.append(candidate.key)
        contenders = self._maximal(serving)
        winner = contenders[0] if len(contenders) == 1 else None
        outcome = "served" if winner is not None else "ambiguous" if contenders else self._unserved(kind)
        return Trace(self, call, only, kind, outcome, winner, contenders, tuple(serving), found)

    def _unserved(self, kind: str) -> str:
        runs = any(kind in declaration.devices for declaration in self.declarations.values())
        return "no implementation" if runs else "no device"

    def _values(self, call: CallSpec) -> tuple[Any, ...]:
        values = call.values()
        return tuple(values[name] for name in self._names)

    def _first_refusal(self, candidate: _Compiled, call: CallSpec, values: tuple[Any, ...]) -> int:
        index = 0
        try:
            for index, function in enumerate(candidate.rules):
                if function(*values) if function is not None else self._ask_opaque(candidate.key, index, call):
                    return index
        except Exception as error:
            raise self._rule_error(candidate.key, index, call, error) from error
        return SERVES

    def _ask_opaque(self, key: str, index: int, call: CallSpec) -> str | bool:
        """Return the own reason of an opaque refusal, True for its message, or False where it serves."""
        refusal = self.declarations[key].refusal[index]
        answer = refusal.opaque(call) if refusal.opaque is not None else None
        if answer is None or type(answer) is bool:
            return bool(answer)
        if type(answer) is str and answer:
            return answer
        raise TypeError(f"{refusal.text} returned {answer!r}, not True, False, None or a reason")

    def _rule_error(self, key: str, index: int, call: CallSpec, error: Exception) -> RuleError:
        text = self.declarations[key].refusal[index].text
        return RuleError(
            f"rule {text!r} of {key} in {self.name} raised {type(error).__name__}: {error}\n  on {call!r}\n"
            "A rule that raises is a bug, not a refusal: put a refusal before it that keeps such calls out.",
            key=key,
            rule=text,
            call=call,
        )

    def _maximal(self, serving: list[str]) -> tuple[str, ...]:
        above = self.above
        present = frozenset(serving)
        if not self._cyclic:
            return tuple(key for key in serving if above[key].isdisjoint(present))
        # On a cycle each stands above the other; neither goes before the other then.
        return tuple(key for key in serving if not any(key not in above[other] for other in above[key] & present))

    def refusals_of(self, key: str, call: CallSpec, start: int) -> tuple[Reason, ...]:
        """Return the reasons of all refusals of ``key`` that fire on ``call``, from index ``start`` on.

        A rule that raises here stands behind a reason already given, so it is reported as not evaluated.
        """
        values = call.values()
        positional = tuple(values[name] for name in self._names)
        reasons = []
        for index, function in enumerate(self._by_key[key].rules):
            if index < start:
                continue
            refusal = self.declarations[key].refusal[index]
            try:
                fired = self._ask_opaque(key, index, call) if function is None else function(*positional)
            except Exception as error:  # noqa: BLE001 - told as a reason, see above
                reasons.append(_not_evaluated(refusal, error))
                continue
            if fired:
                reasons.append(_reason(refusal, values, fired))
        return tuple(reasons)

    # Data -------------------------------------------------------------------------------------------------------

    def with_declaration(self, key: str, declaration: Declaration) -> RuleTable:
        """Return a table in which ``key`` has ``declaration``."""
        return RuleTable(self.name, self.request, {**self.declarations, key: declaration})

    def without(self, key: str) -> RuleTable:
        """Return a table without ``key``; raises DeclarationError where it has none."""
        if key not in self.declarations:
            raise DeclarationError(
                f"{self.name} has no implementation {key!r}{nearest(key, self.declarations)}", key=key
            )
        return RuleTable(self.name, self.request, {k: d for k, d in self.declarations.items() if k != key})

    def content(self) -> dict[str, Any]:
        """Return all that the proof looks at, as plain data; opaque callables by name."""
        return {
            "name": self.name,
            "request": self.request.content(),
            "declarations": {key: declaration.content() for key, declaration in self.declarations.items()},
            "boards": boards_digest(),
        }

    def content_hash(self) -> str:
        """Return the SHA-256 of `content`: equal for equal tables, whatever order they were written in."""
        text = json.dumps(self.content(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def check(self, limit: int | None = None) -> Report:
        """Prove the table over all call specs and return the findings; ``limit`` is z3's resource limit a query."""
        from tileops.rules import proof

        return proof.check(self) if limit is None else proof.check(self, limit)


def _available(intervals: tuple[Interval, ...] | None, arch: int) -> bool:
    if intervals is None:
        return True
    for low, high in intervals:  # noqa: SIM110 - any() over a generator costs 0.3 us more, for each implementation
        if low <= arch and (high is None or arch <= high):
            return True
    return False


def _reason(refusal: Refusal, values: Mapping[str, Any], fired: str | bool) -> Reason:
    rendered = "refused" if refusal.rule is None else refusal.rule.render(values)
    read = {} if refusal.rule is None else {name: values[name] for name in sorted(refusal.rule.facts)}
    if isinstance(fired, str):
        return Reason(fired, refusal.text, rendered, read)
    return Reason(refusal.message.fill(values), refusal.text, rendered, read)


def _not_evaluated(refusal: Refusal, error: Exception) -> Reason:
    return Reason(
        f"not evaluated: {refusal.text!r} raises {type(error).__name__} on this call, after an earlier reason",
        refusal.text,
        "not evaluated",
        evaluated=False,
    )
