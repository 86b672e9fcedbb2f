"""Decisions: who wins each workload row on each arch, kept in a file, so that no change moves one unseen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
import yaml

from tileops.manifest.workload import bind
from tileops.rules.device import CUDA, boards, reference
from tileops.tools import calls
from tileops.tools.catalogue import Known
from tileops.tools.question import Place

ARCHS = (80, 86, 89, 90, 100, 120)
FILE = Path(__file__).resolve().parents[1] / "tests" / "decisions.yaml"
NOBODY = "none"
HEAD = """\
# Who wins each workload row, by arch of a reference board. Written by `tileops check --update`: review what changes.
"""


@attrs.frozen
class Difference:
    """Is a workload row whose winner is not the one that the file has."""

    op: str
    row: str
    message: str


def decided(op: Known) -> dict[str, dict[str, dict[int, tuple[str, ...]]]]:
    """Return the maximal implementations of each workload row, by interface, row and arch of every known board."""
    found: dict[str, dict[str, dict[int, tuple[str, ...]]]] = {}
    for case in calls.rows(op):
        where = Place(torch.device(CUDA, 0), reference(90))
        posed = calls.pose(op, None, bind(op.entry.checker, case, CUDA), where)
        if posed.interface is None or posed.call is None:
            continue
        table, call = posed.interface.table, posed.call
        found.setdefault(posed.interface.name, {})[case.label] = {
            arch: table.explain(call.replace(stated=reference(arch))).contenders for arch in sorted(boards())
        }
    return found


def winners(op: Known) -> dict[str, str]:
    """Return the winners of each workload row as the file has them: ``{row: "80 gemm_mma, 90 gemm_wgmma"}``."""
    told = {}
    for rows in decided(op).values():
        for row, by_arch in rows.items():
            if any(by_arch.values()):
                told[row] = _line({arch: by_arch[arch] for arch in ARCHS})
    return told


def _line(by_arch: Mapping[int, tuple[str, ...]]) -> str:
    """Fold neighbours with the same winner: ``80-89 gemm_mma, 90 gemm_wgmma, 100-120 gemm_mma``."""
    spans: list[tuple[int, int, str]] = []
    for arch, keys in by_arch.items():
        key = " or ".join(keys) or NOBODY
        if spans and spans[-1][2] == key:
            spans[-1] = (spans[-1][0], arch, key)
        else:
            spans.append((arch, arch, key))
    return ", ".join(f"{low if low == high else f'{low}-{high}'} {key}" for low, high, key in spans)


def stored(path: Path = FILE) -> dict[str, dict[str, str]] | None:
    """Return the decisions of a file by op and row; None where there is no file, as in an installed package."""
    if not path.exists():
        return None
    data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data or {}


def save(ops: Mapping[str, Known], path: Path = FILE) -> None:
    """Write the decisions of all ops."""
    data = {name: rows for name, op in sorted(ops.items()) if (rows := winners(op))}
    path.write_text(HEAD + yaml.safe_dump(data, sort_keys=False, width=1000), encoding="utf-8")


def differences(op: Known, kept: Mapping[str, Mapping[str, str]]) -> Iterator[Difference]:
    """Yield each workload row of an op that is decided otherwise than the file says, is new, or is gone."""
    before, now = kept.get(op.name, {}), winners(op)
    for row in [*now, *(row for row in before if row not in now)]:
        old, new = before.get(row, "not there"), now.get(row, "gone")
        if old != new:
            yield Difference(op.name, row, f"the row {row} is decided {new}, and {FILE.name} has {old}")
