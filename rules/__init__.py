"""The rule engine: call specs, declarations, tables, their proof and the dispatcher. Knows no op and no kernel.

These names are enough to declare implementations, check them and select among them. z3 and networkx are imported
only when a table is proved or its graph drawn.
"""

from tileops.rules.archs import ArchSet, at_least, between, exactly, family
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.device import NO_FACTS, DeviceFacts, boards, device_kind, read_facts, reference
from tileops.rules.dispatcher import Dispatcher, Entry, Slot
from tileops.rules.expr import Expression, Template, parse
from tileops.rules.facts import choice, dim, dims, flag, integer, number
from tileops.rules.interface import KernelInterface, argument_findings, interface_of
from tileops.rules.precedence import Precedence
from tileops.rules.report import Finding, Report
from tileops.rules.table import RuleTable
from tileops.rules.trace import Reason, Row, Trace, Verdict

__all__ = [
    "NO_FACTS",
    "ArchSet",
    "CallSpec",
    "Declaration",
    "DeviceFacts",
    "Dispatcher",
    "Entry",
    "Expression",
    "Finding",
    "KernelInterface",
    "Precedence",
    "Reason",
    "Refusal",
    "Report",
    "Row",
    "RuleTable",
    "Slot",
    "Template",
    "Trace",
    "Verdict",
    "argument_findings",
    "at_least",
    "between",
    "boards",
    "call_spec",
    "choice",
    "device_kind",
    "dim",
    "dims",
    "exactly",
    "family",
    "flag",
    "integer",
    "interface_of",
    "number",
    "parse",
    "read_facts",
    "reference",
]
