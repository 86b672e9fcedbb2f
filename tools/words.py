"""How the command lines write things: values, columns, spans of archs, counts. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch


def value(item: Any) -> str:
    """Write a fact's value as the command line reads it back: ``bfloat16``, ``2x3``, ``false``, ``none``."""
    if item is None:
        return "none"
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, torch.dtype):
        return str(item).removeprefix("torch.")
    if isinstance(item, tuple):
        return "x".join(value(part) for part in item)
    return str(item)


def fact(name: str, item: Any) -> str:
    """Write a fact as headings have it: ``m=1``, ``trans_a=False``, as a call spec writes it."""
    return f"{name}={item if item is None or isinstance(item, bool) else value(item)}"


def plain(item: Any) -> Any:
    """Turn a fact's value into what JSON holds: dtypes and devices by name, tuples as lists."""
    if isinstance(item, torch.dtype | torch.device):
        return str(item).removeprefix("torch.")
    if isinstance(item, tuple | list):
        return [plain(part) for part in item]
    return item


def columns(rows: Iterable[Sequence[str]], indent: str = "") -> list[str]:
    """Align rows into columns, two blanks between them; the last cell of a row is not padded."""
    table = [list(row) for row in rows]
    widths: dict[int, int] = {}
    for row in table:
        for place, cell in enumerate(row[:-1]):
            widths[place] = max(widths.get(place, 0), len(cell))
    lines = []
    for row in table:
        padded = [cell.ljust(widths[place]) for place, cell in enumerate(row[:-1])] + row[-1:]
        lines.append((indent + "  ".join(padded)).rstrip())
    return lines


def spans(answers: Sequence[tuple[int, str]]) -> str:
    """Fold answers per arch into spans: ``75 none; 80-89 gemm_mma; 90 gemm_wgmma``.

    The archs must be sorted; a span runs over neighbours in that order.
    """
    folded: list[tuple[int, int, str]] = []
    for arch, answer in answers:
        if folded and folded[-1][2] == answer:
            folded[-1] = (folded[-1][0], arch, answer)
        else:
            folded.append((arch, arch, answer))
    return "; ".join(f"{low if low == high else f'{low}-{high}'} {answer}" for low, high, answer in folded)


def one_line(text: str) -> str:
    """Write text in one line: every run of blanks and line breaks is one blank."""
    return " ".join(text.split())


def count(number: int, noun: str) -> str:
    """Write a count: ``1 table``, ``2 tables``, ``3 queries``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"
