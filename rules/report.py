"""Reports: what a check of a table found, and how much it proved. Knows neither z3 nor networkx."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from tileops.rules.callspec import CallSpec

ERROR = "error"
WARNING = "warning"

# The kinds in the order in which a report lists them: first what the table says, then what its rules mean.
KINDS = (
    "unknown key",
    "cycle",
    "two generals",
    "general with a preference",
    "several device types with supported_archs",
    "unknown device type",
    "arguments",
    "bad expression",
    "no call",
    "may raise",
    "ambiguous",
    "gap",
    "dead",
    "arch regression",
    "idle preference",
    "undecided",
)


@attrs.frozen
class Finding:
    """Says one thing that is wrong with a table, or that could not be settled.

    ``kind`` is one of `KINDS`; ``keys`` are the implementations concerned; ``message`` says what was found and what to
    write; ``witness`` is a call that shows it, reproduced through `RuleTable.explain`.
    """

    kind: str
    keys: tuple[str, ...]
    message: str
    witness: CallSpec | None = attrs.field(default=None, kw_only=True)
    severity: str = attrs.field(default=ERROR, kw_only=True)

    def text(self) -> str:
        """Return severity, kind, keys and message."""
        return f"{self.severity}: {self.kind}: {', '.join(self.keys)}: {self.message}"

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for JSON; the witness by its facts in text form."""
        plain: dict[str, Any] = {
            "kind": self.kind,
            "keys": list(self.keys),
            "message": self.message,
            "severity": self.severity,
        }
        if self.witness is not None:
            plain["witness"] = repr(self.witness)
        return plain


@attrs.frozen
class Proved:
    """Counts what a check did: pairs looked at, those settled without the solver, queries, resource units spent."""

    pairs: int = 0
    cheap: int = 0
    queries: int = 0
    rlimit: int = 0

    def __add__(self, other: Proved) -> Proved:
        """Return both counts together."""
        return Proved(
            self.pairs + other.pairs,
            self.cheap + other.cheap,
            self.queries + other.queries,
            self.rlimit + other.rlimit,
        )

    def text(self) -> str:
        """Return the counts in words."""
        return f"{self.pairs} pairs ({self.cheap} without the solver), {self.queries} queries, {self.rlimit} units"


@attrs.frozen
class Report:
    """Holds the findings about one table, worst kinds first, and what was proved on the way."""

    table: str
    findings: tuple[Finding, ...] = ()
    proved: Proved = Proved()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that a table must not have."""
        return tuple(finding for finding in self.findings if finding.severity == ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Return the findings that a table may be used with."""
        return tuple(finding for finding in self.findings if finding.severity == WARNING)

    def of(self, kind: str) -> tuple[Finding, ...]:
        """Return the findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def joined(self, findings: Iterable[Finding]) -> Report:
        """Return the report with more findings, all in order."""
        return attrs.evolve(self, findings=in_order((*self.findings, *findings)))

    def text(self) -> str:
        """Return a line per finding, then the counts."""
        return "\n".join([*(finding.text() for finding in self.findings), f"{self.table}: {self.proved.text()}"])

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "table": self.table,
            "findings": [finding.to_plain() for finding in self.findings],
            "proved": attrs.asdict(self.proved),
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Report:
        """Make a report without witnesses of plain data; raises KeyError, TypeError or ValueError for anything else."""
        findings = []
        for item in data["findings"]:
            finding = Finding(
                str(item["kind"]), tuple(map(str, item["keys"])), str(item["message"]), severity=item["severity"]
            )
            if finding.kind not in KINDS or finding.severity not in (ERROR, WARNING) or "witness" in item:
                raise ValueError(f"no finding that can be kept: {item!r}")
            findings.append(finding)
        counts = {name: int(data["proved"][name]) for name in ("pairs", "cheap", "queries", "rlimit")}
        return cls(str(data["table"]), tuple(findings), Proved(**counts))


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings by kind, keys and message, whatever order they were found in."""
    return tuple(sorted(findings, key=lambda finding: (KINDS.index(finding.kind), finding.keys, finding.message)))
