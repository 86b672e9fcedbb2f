"""Maps: who wins where over two facts, as text or as a picture: ``tools.explain OP facts --map m=1:512 n=1:8192``."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tileops.rules.callspec import CallSpec
from tileops.rules.device import describe, device_kind
from tileops.rules.errors import FactError, RuleError, nearest
from tileops.rules.table import RuleTable
from tileops.tools import words
from tileops.tools.usage import UsageError

SCHEMA = "tileops.map/1"
NOBODY, AMBIGUOUS, NO_CALL = None, "ambiguous", "no call"
_MARKS = {NOBODY: ".", AMBIGUOUS: "!", NO_CALL: " "}
_WIDEST = 96  # columns of text
_FINE = 160  # cells of a picture along one axis


@attrs.frozen
class Axis:
    """Is one fact with its least and greatest value."""

    fact: str
    low: int
    high: int

    def points(self, most: int) -> tuple[int, ...]:
        """Return values from low to high, as many an octave as keeps them at most ``most``."""
        for parts in (16, 8, 4, 2, 1):
            found = {self.low, self.high} | {
                value
                for octave in range(self.high.bit_length())
                for part in range(parts)
                if self.low <= (value := (1 << octave) + ((part << octave) // parts)) <= self.high
            }
            if len(found) <= most:
                break
        return tuple(sorted(found))


@attrs.frozen
class Map:
    """Holds the winner of each pair of values; ``rows`` are workload rows that lie within, by their values."""

    op: str
    interface: str
    base: CallSpec
    x: Axis
    y: Axis
    xs: tuple[int, ...]
    ys: tuple[int, ...]
    winners: tuple[tuple[str | None, ...], ...]  # a tuple for each y
    rows: tuple[tuple[str, int, int], ...]  # label, value of x, value of y

    @property
    def keys(self) -> tuple[str, ...]:
        """Return who wins somewhere, sorted."""
        found = {key for row in self.winners for key in row}
        return tuple(sorted(key for key in found if key not in _MARKS and key is not None))

    @property
    def title(self) -> str:
        """Return what the map is of: the op, the facts that stay, the device."""
        rest = {name: value for name, value in self.base.facts().items() if name not in self._varied}
        facts = " ".join(words.fact(name, value) for name, value in rest.items())
        return (
            f"{self.op}.{self.interface}  {facts}   {describe(device_kind(self.base.device), self.base.device_facts)}"
        )

    @property
    def _varied(self) -> tuple[str, str]:
        return self.x.fact, self.y.fact

    def text(self) -> str:
        """Draw the map with a letter for each winner, capital where a workload row lies in the cell."""
        letters = dict(zip(self.keys, string.ascii_lowercase, strict=False))
        marked = {(_cell(self.xs, x), _cell(self.ys, y)) for _, x, y in self.rows}
        width = max(len(str(self.ys[-1])), len(self.y.fact))
        lines = [self.title, f"{self.y.fact:>{width}}"]
        for place in reversed(range(len(self.ys))):
            value, row = self.ys[place], self.winners[place]
            cells = [letters[key] if key in letters else _MARKS.get(key, "?") for key in row]
            cells = [cell.upper() if (at, place) in marked else cell for at, cell in enumerate(cells)]
            label = str(value) if value in (self.y.low, self.y.high) or _is_power(value) else ""
            lines.append(f"{label:>{width}} {''.join(cells)}".rstrip())
        lines += [" " * (width + 1) + line for line in self._ruler()]
        lines += [f"{letter}  {key}" for key, letter in letters.items()]
        told = {NOBODY: "nobody serves", AMBIGUOUS: "two serve, and none goes first", NO_CALL: "no such call"}
        seen = {key for row in self.winners for key in row}
        lines += [f"{mark}  {told[key]}" for key, mark in _MARKS.items() if key in seen]
        if self.rows:
            lines.append("capital: a workload row lies there; its other facts may differ")
        return "\n".join(lines)

    def _ruler(self) -> Iterator[str]:
        """Yield the marks under the columns that are powers of two, and their values, as many as have room."""
        marks = [" "] * len(self.xs)
        labels = ""
        for at, value in enumerate(self.xs):
            if not (_is_power(value) or at in (0, len(self.xs) - 1)):
                continue
            marks[at] = "|"
            if len(labels) <= at:
                labels = f"{labels:<{at}}{value} "
        yield "".join(marks)
        yield f"{labels}{self.x.fact}"

    def plain(self) -> dict[str, Any]:
        """Return the map as JSON can hold it."""
        return {
            "schema": SCHEMA,
            "op": self.op,
            "interface": self.interface,
            "title": self.title,
            "x": {"fact": self.x.fact, "values": list(self.xs)},
            "y": {"fact": self.y.fact, "values": list(self.ys)},
            "winners": [list(row) for row in self.winners],
            "rows": [{"label": label, "x": x, "y": y} for label, x, y in self.rows],
        }

    def save(self, path: Path) -> None:
        """Draw the map into a PNG or SVG file. Raises UsageError where matplotlib is not installed."""
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.colors import BoundaryNorm, ListedColormap
            from matplotlib.figure import Figure
            from matplotlib.patches import Patch
        except ImportError as error:
            raise UsageError("-o draws with matplotlib, which is not installed: pip install 'tileops[plot]'") from error
        kinds: list[str | None] = [*self.keys, NOBODY, AMBIGUOUS, NO_CALL]
        colours = [*(_COLOURS[at % len(_COLOURS)] for at in range(len(self.keys))), "#ffffff", "#000000", "#eeeeee"]
        figure = Figure(figsize=(8, 6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        codes = [[kinds.index(key) for key in row] for row in self.winners]
        norm = BoundaryNorm([edge - 0.5 for edge in range(len(kinds) + 1)], len(kinds))
        xs, ys = _edges(self.xs), _edges(self.ys)
        axes.pcolormesh(xs, ys, codes, cmap=ListedColormap(colours), norm=norm, rasterized=True)
        seen = {key for row in self.winners for key in row}
        if NOBODY in seen:
            nobody = [[0.0 if key is NOBODY else float("nan") for key in row] for row in self.winners]
            axes.pcolor(xs, ys, nobody, hatch="///", facecolor="none", edgecolor="#999999", linewidth=0, alpha=0)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xlabel(self.x.fact)
        axes.set_ylabel(self.y.fact)
        axes.set_title(self.title, fontsize=8, wrap=True)
        handles: list[Any] = [
            Patch(facecolor=colour, label=key) for key, colour in zip(self.keys, colours, strict=False)
        ]
        if NOBODY in seen:
            handles.append(Patch(facecolor="#ffffff", edgecolor="#999999", hatch="///", label="nobody serves"))
        if AMBIGUOUS in seen:
            handles.append(Patch(facecolor="#000000", label="ambiguous"))
        if self.rows:
            points = axes.scatter(
                [x for _, x, _ in self.rows], [y for _, _, y in self.rows], s=16, c="black", marker="x", linewidths=1
            )
            points.set_label("workload rows")
            handles.append(points)
        figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
        figure.savefig(path, dpi=150)


# Colours that differ for the colour-blind too, each winner's by its place among the keys.
_COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#994455",
    "#117733",
    "#ddaa33",
    "#88ccaa",
)


def axes(table: RuleTable, said: Sequence[str]) -> tuple[Axis, Axis]:
    """Read two axes such as ``m=1:512``; raises UsageError for another form, or a fact that is no integer."""
    found, faults = [], []
    integers = {fact: kind for fact, kind in table.request.kinds.items() if kind.type.kind == "int"}
    for word in said:
        name, _, span = word.partition("=")
        low, colon, high = span.partition(":")
        if not colon or not low.isdecimal() or not high.isdecimal():
            faults.append(f"--map takes two facts with their spans, such as m=1:512 n=1:8192, got {word!r}")
        elif name not in integers:
            faults.append(f"no integer fact {name!r}{nearest(name, integers)}; there are: {', '.join(integers)}")
        elif int(low) >= int(high):
            faults.append(f"{word}: a span goes from its least value to a greater one, and {low} is not below {high}")
        elif int(low) < 1:
            faults.append(f"{word}: the axes are logarithmic, so a span begins at 1 or above")
        elif not all(integers[name].admits(int(end)) for end in (low, high)):
            faults.append(f"{word}: {name} takes {integers[name].describe()}")
        else:
            found.append(Axis(name, int(low), int(high)))
    UsageError.check(faults)
    if len(found) != 2 or found[0].fact == found[1].fact:
        raise UsageError("--map takes two different facts, such as m=1:512 n=1:8192")
    return found[0], found[1]


def draw(
    op: str,
    interface: str,
    table: RuleTable,
    base: CallSpec,
    over: tuple[Axis, Axis],
    rows: Mapping[str, CallSpec],
    *,
    fine: bool = False,
) -> Map:
    """Ask the table at each point of a grid; ``fine`` for a picture, else as many points as text has room for."""
    x, y = over
    xs = x.points(_FINE if fine else _WIDEST)
    ys = y.points(_FINE if fine else _WIDEST // 3)
    call = base.replace(stated=base.device_facts)
    winners = tuple(tuple(_winner(table, call, {x.fact: at, y.fact: up}) for at in xs) for up in ys)
    inside = [
        (label, getattr(row, x.fact), getattr(row, y.fact))
        for label, row in rows.items()
        if x.low <= getattr(row, x.fact) <= x.high and y.low <= getattr(row, y.fact) <= y.high
    ]
    return Map(op, interface, call, x, y, xs, ys, winners, tuple(inside))


def _winner(table: RuleTable, base: CallSpec, facts: Mapping[str, int]) -> str | None:
    try:
        trace = table.explain(base.replace(**facts))
    except (FactError, RuleError):
        return NO_CALL
    return AMBIGUOUS if trace.outcome == "ambiguous" else trace.winner


def _cell(values: Sequence[int], value: int) -> int:
    """Return the place of the greatest grid value that is at most ``value``."""
    return max(place for place, each in enumerate(values) if each <= value)


def _is_power(value: int) -> bool:
    return value & (value - 1) == 0


def _edges(values: Sequence[int]) -> list[float]:
    """Return the edges of the cells: each holds the values from its own to the next."""
    return [*map(float, values), float(values[-1]) * 1.0625]
