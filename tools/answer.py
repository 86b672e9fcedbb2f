"""One question answered: the target stage, every implementation's verdict, the winner and what is built for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tileops.backend import BUILTIN
from tileops.backend.settlement import Settlement
from tileops.rules.device import describe
from tileops.rules.trace import Trace
from tileops.tools import words
from tileops.tools.question import Place

SCHEMA = "tileops.explain/1"
SERVED_BY_TARGET = "served by target"
NO_TARGET = "no target"


@attrs.frozen(kw_only=True)
class Answer:
    """Holds what is to be told of one call.

    ``trace`` is None when a target serves the call or none could be settled; ``entry`` is the build identity of the
    winner; ``error`` what the call would raise.
    """

    op: str
    where: Place
    given: Mapping[str, Any]
    settlement: Settlement | None
    interface: str | None = None
    trace: Trace | None = None
    entry: Any = None
    error: str | None = None

    @property
    def outcome(self) -> str:
        """Return how the call ends, in the words of the JSON schema."""
        if self.trace is not None:
            return self.trace.outcome
        return SERVED_BY_TARGET if self.error is None else NO_TARGET

    @property
    def served(self) -> bool:
        """Say whether the call runs."""
        return self.error is None

    def text(self) -> str:
        """Write the answer for people, one line an implementation."""
        name = f"{self.op}.{self.interface}" if self.interface else self.op
        facts = " ".join(f"{fact}={words.value(value)}" for fact, value in self.given.items())
        lines = [f"{name}  {facts}   {describe(self.where.kind, self.where.facts)}"]
        rows = [("target", self.settlement.text)] if self.settlement is not None else []
        if self.trace is not None:
            lines += words.columns(rows) + self.trace.text().splitlines()
        if self.entry is not None and self.trace is not None:
            rows.append(("entry", f"{self.trace.winner}, {identity(self.entry)}"))
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """Return the answer as the JSON schema ``explain-1.json`` has it."""
        trace = self.trace
        facts = self.where.facts
        target = self.settlement
        return {
            "schema": SCHEMA,
            "op": self.op,
            "interface": self.interface,
            "call": {name: words.plain(value) for name, value in self.given.items()},
            "device": {
                "device": str(self.where.device),
                "kind": self.where.kind,
                **attrs.asdict(facts),
            },
            "target": {
                "name": None if target is None or target.target is BUILTIN else target.target,
                "origin": None if target is None else target.origin,
                "text": self.error if target is None else target.text,
            },
            "outcome": self.outcome,
            "implementations": [] if trace is None else trace.to_plain()["implementations"],
            "winner": None if trace is None else trace.winner,
            "beaten": [] if trace is None else sorted(trace.beaten),
            "entry": None
            if self.entry is None or trace is None
            else {"implementation": trace.winner, "identity": identity(self.entry)},
            "error": self.error,
        }


def identity(item: Any) -> str:
    """Write a build identity: an attrs class by its fields, a tuple by its items, the rest as values are."""
    if attrs.has(type(item)):
        fields = attrs.asdict(item, recurse=False)
        return ", ".join(f"{name}={words.value(value)}" for name, value in fields.items())
    if isinstance(item, tuple):
        return ", ".join(identity(part) for part in item)
    return words.value(item)
