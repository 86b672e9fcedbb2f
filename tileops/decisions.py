"""The logger ``tileops.dispatch``: says once for each new decision what was chosen and why, at level INFO."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from tileops.rules.callspec import CallSpec
from tileops.rules.trace import plain_value

if TYPE_CHECKING:
    from tileops.plan import CallFacts
    from tileops.rules.table import RuleTable

LOGGER = logging.getLogger("tileops.dispatch")

#: Decisions remembered as told. Beyond it they are forgotten together, and told again when they come up.
LIMIT = 16384
_TOLD: dict[Hashable, None] = {}


def tell(facts: CallFacts, chosen: str, why: Callable[[], str]) -> None:
    """Log one decision, unless it was logged before; costs one test while nobody listens.

    Args:
        facts: the call that it was made for.
        chosen: what serves the call.
        why: gives the reasons; asked only when they are logged.
    """
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    asked = facts.call if facts.call is not None else _asked(facts)
    key = (facts.op, facts.interface, asked, chosen, facts.copies)
    if key in _TOLD:
        return
    if len(_TOLD) >= LIMIT:
        _TOLD.clear()
    _TOLD[key] = None
    name = facts.op if facts.interface is None else f"{facts.op}.{facts.interface}"
    text = asked.text() if isinstance(asked, CallSpec) else asked
    reasons = "; ".join(part for part in (why(), *facts.copies) if part)
    LOGGER.info("%s %s on %s: %s%s", name, text, facts.device, chosen, f": {reasons}" if reasons else "")


def reasons(table: RuleTable, call: CallSpec, only: str | None) -> Callable[[], str]:
    """Return a function that explains a selection in one line: whom the winner beat, why the others refuse."""

    def why() -> str:
        rows = sorted(table.explain(call, only).rows(), key=lambda row: row.mark != ">")
        return "; ".join(
            (f"{row.label} {row.status}: " if row.mark != ">" else "") + ", ".join(row.text) for row in rows
        )

    return why


def _asked(facts: CallFacts) -> str:
    values = {**facts.indices, **facts.params}
    return " ".join(f"{name}={plain_value(value)}" for name, value in values.items())
