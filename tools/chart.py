"""Chart: a report as a picture, a bar a row and baseline. Written as SVG by hand: no plotting library is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from tileops.tools.figures import Report, Row
from tileops.tools.summary import by_op, summaries

LABELS: Final = 330  # pixels left of the bars
BARS: Final = 520
LINE: Final = 9
GAP: Final = 5
LOW, HIGH = 0.25, 8.0  # the ratios at the ends of the axis; bars beyond are cut and say so
COLOURS: Final = ("#1f6f8b", "#e0a030", "#7a5195", "#5a9e4b")
LOST: Final = "#c03028"
TICKS: Final = (0.25, 0.5, 1, 2, 4, 8)


def svg(report: Report) -> str:
    """Return the chart: for each row the time of each baseline over ours, on a logarithmic axis; losses are red."""
    names = list(dict.fromkeys(name for row in report.rows for name in row.baselines))
    parts: list[str] = []
    means = {(one.op, one.baseline): one.mean for one in summaries(report.rows)}
    y = 54
    for op, rows in by_op(report.rows, lambda row: row.reading is not None).items():
        told = ", ".join(f"{name} {means[op, name]:.2f}" for name in names if (op, name) in means)
        parts.append(_text(8, y + 10, f"{op}   geometric mean: {told or 'no baseline'}", weight="bold"))
        y += 18
        for row in rows:
            bars = _bars(row, names, y)
            parts.append(_text(LABELS - 8, y + LINE - 1, f"{row.label} {row.dtypes}", anchor="end"))
            parts += bars
            y += max(1, len(bars) // 2) * LINE + GAP
        y += 10
    return _frame(report, names, parts, y)


def _bars(row: Row, names: Sequence[str], y: float) -> list[str]:
    parts = []
    for place, name in enumerate(names):
        ratio = row.ratio(name)
        if ratio is None:
            continue
        colour = LOST if ratio < 1 else COLOURS[place % len(COLOURS)]
        one, end = _x(1.0), _x(ratio)
        parts.append(
            f'<rect x="{min(one, end):.1f}" y="{y:.0f}" width="{abs(end - one):.1f}" height="{LINE - 1}" '
            f'fill="{colour}" stroke="{COLOURS[place % len(COLOURS)]}" stroke-width="0.6"/>'
        )
        cut = "" if LOW <= ratio <= HIGH else " (cut)"
        anchor = "end" if ratio < 1 else "start"
        parts.append(_text(end + (-3 if ratio < 1 else 3), y + LINE - 1, f"{ratio:.2f}{cut}", anchor=anchor, size=8))
        y += LINE
    return parts


def _frame(report: Report, names: Sequence[str], parts: Sequence[str], height: float) -> str:
    width = LABELS + BARS + 60
    said = report.about
    title = f"Time over TileOps' (above 1: TileOps is faster) on {said.device_name}, {said.date}"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" '
        f'viewBox="0 0 {width} {height:.0f}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height:.0f}" fill="white"/>',
        _text(8, 16, title, size=12, weight="bold"),
    ]
    x = 8.0
    for place, name in enumerate(names):
        head.append(f'<rect x="{x:.0f}" y="25" width="9" height="9" fill="{COLOURS[place % len(COLOURS)]}"/>')
        head.append(_text(x + 13, 33, name))
        x += 26 + 7 * len(name)
    head += [f'<rect x="{x:.0f}" y="25" width="9" height="9" fill="{LOST}"/>', _text(x + 13, 33, "TileOps is slower")]
    for tick in TICKS:
        style = "#606060" if tick == 1 else "#e0e0e0"
        head.append(f'<line x1="{_x(tick):.1f}" x2="{_x(tick):.1f}" y1="48" y2="{height:.0f}" stroke="{style}"/>')
        head.append(_text(_x(tick), 45, f"{tick:g}", anchor="middle", size=9))
    return "\n".join([*head, *parts, "</svg>", ""])


def _x(ratio: float) -> float:
    share = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return LABELS + share * BARS


def _text(x: float, y: float, words: str, *, size: int = 10, anchor: str = "start", weight: str = "normal") -> str:
    style = f'font-size="{size}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.0f}" {style} fill="#202020">{escape(words)}</text>'
