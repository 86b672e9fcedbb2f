"""Traces: what each implementation said to one call, who won, and why the others did not.

A trace is what selection leaves behind. It keeps the outcome of each implementation and renders reasons only when
they are asked for, so that selecting costs no text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import torch

from tileops.rules.device import DeviceFacts, describe
from tileops.rules.errors import AmbiguousDispatchError, BackendError, OpNotAvailableError, shown
from tileops.rules.types import dtype_name

if TYPE_CHECKING:
    from tileops.rules.callspec import CallSpec
    from tileops.rules.table import RuleTable

# What selection found per implementation; zero and more: the index of the first refusal that fired.
SERVES = -1
OTHER_DEVICE = -2
OTHER_ARCH = -3
FAULTY = -4


@attrs.frozen
class Reason:
    """Says why an implementation does not take a call: the message, the rule, and the rule with the values in it.

    ``values`` holds the facts that the rule reads. A reason that stems from availability has no rule.
    """

    text: str
    rule: str | None = None
    rendered: str | None = None
    values: Mapping[str, Any] = attrs.field(factory=dict)
    evaluated: bool = True

    def full(self) -> str:
        """Return the message with the rule and its values behind it."""
        return f"{self.text} [{self.rule}: {self.rendered}]" if self.rule is not None and self.evaluated else self.text

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "text": self.text,
            "rule": self.rule,
            "rendered": self.rendered,
            "values": {name: plain_value(value) for name, value in self.values.items()},
            "evaluated": self.evaluated,
        }


@attrs.frozen
class Verdict:
    """Holds one implementation's part in a trace.

    ``status`` is "wins", "serves", "refuses", "unavailable" (device or arch) or "error" (its rules are broken).
    ``beaten_by`` names the serving implementations that stand above it and below no other.
    """

    key: str
    status: str
    general: bool
    beaten_by: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "key": self.key,
            "verdict": self.status,
            "general": self.general,
            "beaten_by": list(self.beaten_by),
            "reasons": [reason.to_plain() for reason in self.reasons],
        }


@attrs.frozen
class Row:
    """Is one line of a trace's text: label, mark, verdict, lines of text. A row without verdict is a remark."""

    label: str
    text: Sequence[str]
    status: str = ""
    mark: str = " "


@attrs.frozen(eq=False)
class Trace:
    """Explains the selection for one call; ``winner`` is what runs.

    ``outcome`` is "served", "no device" (no implementation runs on the device kind), "no implementation" or
    "ambiguous". ``contenders`` are the serving implementations that stand below no other serving one.
    """

    table: RuleTable = attrs.field(repr=lambda table: repr(table.name))
    call: CallSpec
    only: str | None
    kind: str
    outcome: str
    winner: str | None
    contenders: tuple[str, ...]
    serving: tuple[str, ...]
    found: Mapping[str, int] = attrs.field(repr=False)

    @functools.cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Return the verdict of each implementation, sorted by key; with ``only``, of that one."""
        return tuple(self._verdict(key, code) for key, code in self.found.items())

    @property
    def beaten(self) -> tuple[str, ...]:
        """Return the keys that serve the call too and stand below the winner."""
        return tuple(key for key in self.serving if key != self.winner) if self.winner is not None else ()

    def verdict(self, key: str) -> Verdict:
        """Return the verdict of one implementation; raises KeyError for a key that was not considered."""
        return self._verdict(key, self.found[key])

    def _verdict(self, key: str, code: int) -> Verdict:
        declaration = self.table.declarations[key]
        if code == SERVES:
            if key == self.winner:
                return Verdict(key, "wins", declaration.general)
            above = self.table.above[key]
            by = tuple(other for other in self.contenders if other in above and key not in self.contenders)
            return Verdict(key, "serves", declaration.general, by)
        status = {OTHER_DEVICE: "unavailable", OTHER_ARCH: "unavailable", FAULTY: "error"}.get(code, "refuses")
        return Verdict(key, status, declaration.general, (), self._reasons(key, code))

    def _reasons(self, key: str, code: int) -> tuple[Reason, ...]:
        declaration = self.table.declarations[key]
        if code == OTHER_DEVICE:
            return (Reason(f"runs on {' and '.join(sorted(declaration.devices))}, not on {self.kind}"),)
        if code == FAULTY:
            return tuple(Reason(fault) for fault in self.table.faults[key])
        if code == OTHER_ARCH:
            archs = declaration.supported_archs
            wanted = f"runs on arch {archs.text() if archs is not None else 'any'}"
            unknown = self.call.arch < 0
            got = f"and the arch of {self.kind} is not known" if unknown else f"not on arch {self.call.arch}"
            first = Reason(f"{wanted}, {got}")
            return (first, *self.table.refusals_of(key, self.call, 0))
        return self.table.refusals_of(key, self.call, code)

    @functools.cached_property
    def facts(self) -> DeviceFacts | None:
        """Return the device facts of the call, or None where no implementation runs and nobody read them."""
        if self.outcome == "no device" and self.call.stated is None:
            return None
        return self.call.device_facts

    def device_text(self) -> str:
        """Return the device kind and its facts in words."""
        return self.kind if self.facts is None else describe(self.kind, self.facts)

    # Text -------------------------------------------------------------------------------------------------------

    def rows(self, *, rules: bool = False) -> list[Row]:
        """Return a row per implementation; with ``rules`` each reason shows its rule and values."""
        return [self._row(verdict, rules) for verdict in self.verdicts]

    def _row(self, verdict: Verdict, rules: bool) -> Row:
        mark = ">" if verdict.status == "wins" else " "
        if verdict.status == "wins":
            text = [self._why_wins()]
        elif verdict.status == "serves":
            text = [self._why_serves(verdict)]
        else:
            texts = (reason.full() if rules else reason.text for reason in verdict.reasons)
            text = [line for told in texts for line in told.splitlines()]
        return Row(verdict.key, text, verdict.status, mark)

    def _why_wins(self) -> str:
        if self.only is not None:
            return "asked for by name"
        if not self.beaten:
            return "the only one that serves this call"
        declarations = self.table.declarations
        others = [key for key in self.beaten if not declarations[key].general]
        general = [f"{key}, the general one" for key in self.beaten if declarations[key].general]
        return "above " + " and ".join(others + general)

    def _why_serves(self, verdict: Verdict) -> str:
        if verdict.general and self.winner is not None:
            return "general, below all others"
        if verdict.beaten_by:
            return f"below {' and '.join(verdict.beaten_by)}"
        return f"no precedence between it and {' and '.join(key for key in self.contenders if key != verdict.key)}"

    def heading(self, title: str | None = None) -> str:
        """Return the first line: who was asked, the call, the device."""
        return f"{title or self.table.name}  {self.call.text()}   {self.device_text()}"

    def text(
        self, title: str | None = None, *, before: Iterable[Row] = (), after: Iterable[Row] = (), rules: bool = False
    ) -> str:
        """Return the explanation for people; ``before`` and ``after`` are rows to put around the implementations'."""
        rows = [*before, *self.rows(rules=rules), *after]
        return "\n".join([self.heading(title), *layout(rows)])

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "interface": self.table.name,
            "call": {name: plain_value(value) for name, value in self.call.facts().items()},
            "device": {
                "device": str(self.call.device),
                "kind": self.kind,
                **(attrs.asdict(self.facts) if self.facts is not None else {}),
            },
            "only": self.only,
            "outcome": self.outcome,
            "implementations": [verdict.to_plain() for verdict in self.verdicts],
            "contenders": list(self.contenders),
            "winner": self.winner,
        }

    # Errors -----------------------------------------------------------------------------------------------------

    def error(self, op: str | None = None, targets: Iterable[str] | None = None) -> BackendError:
        """Return the error of an outcome that is not "served"; ``op`` names who was asked, ``targets`` who else could.

        Raises ValueError when the call is served.
        """
        name = op or self.table.name
        if self.outcome == "no device":
            return OpNotAvailableError(self._no_device(name, targets), trace=self, op=name)
        if self.outcome == "no implementation":
            return OpNotAvailableError(self._no_implementation(name), trace=self, op=name)
        if self.outcome == "ambiguous":
            return AmbiguousDispatchError(self._ambiguous(name), trace=self, op=name, keys=self.contenders)
        raise ValueError(f"{self.winner} serves the call: there is no error to tell of")

    def _no_device(self, name: str, targets: Iterable[str] | None) -> str:
        told = f"{name}'s in-tree kernels do not run on {self.kind}"
        if targets is not None:
            return f"{told}; known targets for this op: {sorted(targets)}"
        kinds = sorted({kind for declaration in self.table.declarations.values() for kind in declaration.devices})
        return f"{told}; they run on {kinds}"

    def _no_implementation(self, name: str) -> str:
        asked = f"{self.call.text()} on {self.device_text()}"
        head = f"no implementation serves this call of {name}: {asked}"
        if self.only is not None:
            others = sorted(set(self.table.declarations) - {self.only})
            named = f"{self.only} was asked for by name"
            head += f"\n{named}, so none of {', '.join(others)} was considered" if others else f"\n{named}"
        todo = "Change one of these facts, or add an implementation that serves them."
        return "\n".join([head, *layout(self.rows(rules=True), indent="  "), todo])

    def _ambiguous(self, name: str) -> str:
        first, *rest = self.contenders
        others = "{" + ", ".join(repr(key) for key in rest) + "}"
        return (
            f"dispatch is ambiguous: {' and '.join(self.contenders)} serve the same call of {name}, and none goes "
            f"before the others\n  {self.call.text()} on {self.device_text()}\n"
            f"Write preferred_over={others} in the declaration of {first} (or the other way round), or a refusal in "
            "all but one of them."
        )


def layout(rows: Sequence[Row], indent: str = "") -> list[str]:
    """Return the lines of a table of rows, columns aligned."""
    label_width = max((len(row.label) for row in rows), default=0)
    status_width = max((len(row.status) for row in rows), default=0)
    lines = []
    for row in rows:
        start = f"{indent}{row.label:<{label_width}} {row.mark} "
        if row.status:
            start += f"{row.status:<{status_width}} "
        first, *more = list(row.text) or [""]
        lines.append((start + first).rstrip())
        lines.extend(" " * len(start) + text for text in more)
    return lines


def plain_value(value: Any) -> Any:
    """Return a fact's value as JSON can hold it: dtypes by name, tuples as lists."""
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    return value if _printable(value) else shown(value)


def _printable(value: Any) -> bool:
    return type(value) is not int or value.bit_length() <= 4096  # json and Python print no more than 4,300 digits
