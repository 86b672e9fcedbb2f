"""What the check asks beyond the proof of a table: gaps in claims, dead implementations, idle preferences."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs

from tileops.admitted import OpCall
from tileops.coverage import Effort, Gap, gaps
from tileops.manifest.record import OpEntry
from tileops.rules.merits import merits, regressions
from tileops.rules.proof import Proof
from tileops.rules.query import LIMIT
from tileops.rules.report import Finding
from tileops.rules.table import RuleTable
from tileops.rules.trace import plain_value
from tileops.tools import words
from tileops.tools.catalogue import Known
from tileops.tools.question import device_options


def of_table(table: RuleTable, counts: Counter[str]) -> list[Finding]:
    """Return the dead implementations, the idle preferences and the archs lost; adds the queries to ``counts``."""
    proof = Proof(table)
    found = list(merits(proof))
    found += regressions(table, LIMIT)
    counts["queries"] += proof.prover.queries
    return found


def of_claims(op: Known, counts: Counter[str]) -> Iterator[Gap]:
    """Yield the gaps in what an op claims; adds the queries to ``counts``."""
    effort = Effort()
    tables = {name: asked.table for name, asked in op.interfaces.items()}
    yield from gaps(op.entry, op.op.blueprint.uses, tables, effort=effort)
    counts["queries"] += effort.queries


def command_of(entry: OpEntry, call: OpCall) -> str:
    """Return the command line that asks about an op's call again, with every device fact said."""
    said = [f"{name}={_shape(size.shape)}" for name, size in call.tensors.items() if size is not None]
    dtypes = [name for name, index in entry.signature.forall.items() if index.kind == "dtype"]
    bound = {name: call.binding.values[name] for name in dtypes}
    said += [f"{name}={words.value(dtype)}" for name, dtype in bound.items() if dtype is not None]
    params = {name: value for name, value in call.params.items() if value != entry.signature.params[name].default}
    said += [f"{name}={words.value(_plain(value))}" for name, value in params.items()]
    asked = " ".join([*map(shlex.quote, said), *device_options(call.device, call.stated)])
    return f"python -m tools.explain {entry.name} --shapes {asked} --target builtin"


def plain_call(call: OpCall) -> dict[str, Any]:
    """Return a call's shapes, dtypes, params and device as JSON can hold them."""
    tensors = {
        name: None if size is None else {"shape": list(size.shape), "dtype": words.value(size.dtype)}
        for name, size in call.tensors.items()
    }
    params = {name: plain_value(_plain(value)) for name, value in call.params.items()}
    return {**tensors, **params, "device": str(call.device), **attrs.asdict(call.stated)}


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
