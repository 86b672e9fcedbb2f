"""Tables: a benchmark's report for people, as text and as the tables of a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tileops.tools import words
from tileops.tools.figures import TIMED, Preference, Regret, Report, Row, mean
from tileops.tools.summary import by_op, losses, summaries

HEAD = ("row", "dtypes", "kernel", "timing", "latency us", "busy us", "host us", "its host us", "roofline")
LARGE_BYTES: Final = 64 * 2**20
SECTIONS: Final = (  # the tables that a page may mark
    "about",
    "means",
    "small",
    "shares",
    "rows",
    "lost",
    "problems",
    "regret",
    "preferences",
    "contradicted",
)


def text(report: Report) -> str:
    """Write a report: where it was run, the rows by op, the means, the regret, what went wrong."""
    lines = [*about(report), *problems(report)]
    for op, rows in by_op(report.rows).items():
        names = list(dict.fromkeys(name for row in rows for name in row.baselines))
        lines += ["", op]
        lines += words.columns([(*HEAD, *names, ""), *(line(row, names) for row in rows)], indent="  ")
    if report.rows:
        lines += ["", "time of the baseline over ours", *words.columns(_means(report.rows), indent="  ")]
        small = _small(report)
        if len(small) > 1:
            lines += ["", "the same of calls that move less than 64 MiB", *words.columns(small, indent="  ")]
        lost = _lost(report)
        if len(lost) > 1:
            lines += ["", "lost", *words.columns(lost, indent="  ")]
        shares = _shares(report)
        if len(shares) > 1:
            lines += ["", "share of the roofline, calls that move 64 MiB and more", *words.columns(shares, indent="  ")]
    for one in report.regret:
        lines += ["", *_regret(one)]
    return "\n".join(lines)


def about(report: Report) -> list[str]:
    """Say on what, when and how a run was made, in a few lines."""
    said = report.about
    versions = ", ".join(f"{name} {version}" for name, version in said.versions.items())
    lines = [f"{said.device_name} ({said.device}), {said.date}, {versions}; timed by {said.timing}"]
    rates = [f"{dtype} {rate:.0f} TFLOP/s" for dtype, rate in said.matrix_tflops.items()]
    if said.copy_gb_s is not None:
        lines.append(f"copy {said.copy_gb_s:.0f} GB/s, matrix product " + (", ".join(rates) or "not measured"))
    lines += [f"no column {name}: {why}" for name, why in said.missing.items()]
    return [words.one_line(told) for told in (*lines, *said.notes)]


def problems(report: Report) -> list[str]:
    """List what went wrong, a line each."""
    lines = [*report.about.problems]
    for row in report.rows:
        lines += [f"{row.outcome}: {row.op} {row.label} {row.dtypes}: {row.why}"] if row.outcome != TIMED else []
        lines += [
            f"no {name} for {row.op} {row.label} {row.dtypes}: {one.why}"
            for name, one in row.baselines.items()
            if one.why is not None
        ]
    for one in report.regret:
        lines += [
            f"{one.op} {key} {sample.call}: {why}" for sample in one.samples for key, why in sample.problems.items()
        ]
    return [words.one_line(told) for told in lines]


def line(row: Row, baselines: Sequence[str]) -> tuple[str, ...]:
    """Write a row's cells; a baseline's cell is its time over ours."""
    named = row.label, row.dtypes, served(row)
    if row.reading is None:
        return (*named, *("-" for _ in (*HEAD[len(named) :], *baselines)), row.outcome.upper())
    share = row.roofline
    return (
        *named,
        row.timing or "-",
        f"{row.reading.latency_ms * 1e3:.1f}",
        f"{row.reading.device_busy_ms * 1e3:.1f}",
        _us(row.host_us),
        _us(None if row.against is None else row.baselines[row.against].host_us),
        "-" if share is None else f"{share:.0%} {row.bound}",
        *(_ratio(row, name) for name in baselines),
        "lost" if row.lost else "",
    )


def served(row: Row) -> str:
    """Name what served a row's call."""
    return row.target or row.implementation or "-"


def _us(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{microseconds:.1f}"


def _ratio(row: Row, name: str) -> str:
    ratio = row.ratio(name)
    return "-" if ratio is None else f"{ratio:.2f}"


def _means(found: Iterable[Row]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            *("op", "baseline", "rows", "geometric mean", "without its best row", "worst", "worst at", "lost"),
            *("host, mean", "host, worst", "host, worst at"),
        )
    ]
    for one in summaries(found):
        best = "-" if one.without_best is None else f"{one.without_best:.3f}"
        figures = str(one.rows), f"{one.mean:.3f}", best, f"{one.worst:.2f}", one.worst_label, str(one.lost)
        hosts = ("-" if host is None else f"{host:.2f}" for host in (one.host_mean, one.host_worst))
        rows.append((one.op, one.baseline, *figures, *hosts, one.host_worst_label or "-"))
    return rows


def _lost(report: Report) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("op", "row", "dtypes", "kernel", "baseline", "baseline's time / ours", "host's time, the same")
    ]
    for one in losses(report.rows):
        host = "-" if one.host is None else f"{one.host:.2f}"
        row = one.row
        rows.append((row.op, row.label, row.dtypes, served(row), one.baseline, f"{one.ratio:.3f}", host))
    return rows


def _small(report: Report) -> list[tuple[str, ...]]:
    return _means(row for row in report.rows if row.bytes < LARGE_BYTES)


def _shares(report: Report) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("op", "rows", "share, mean", "least", "at")]
    for op, large in by_op(report.rows, lambda row: row.bytes >= LARGE_BYTES).items():
        shares = [(share, f"{row.label} {row.dtypes}") for row in large if (share := row.roofline) is not None]
        if shares:
            least, label = min(shares)
            rows.append((op, str(len(shares)), f"{mean(share for share, _ in shares):.0%}", f"{least:.0%}", label))
    return rows


def _regret(one: Regret) -> list[str]:
    regrets = one.regrets
    lines = [f"{one.op}.{one.interface}: {regret_in_words(one)}"] if regrets else [f"{one.op}.{one.interface}"]
    worst = sorted((s for s in one.samples if s.regret is not None), key=lambda s: -(s.regret or 0.0))[:5]
    rows = [("regret", "chosen", "best", "call")]
    rows += [(f"{s.regret:.3f}", s.chosen, s.best, s.call) for s in worst]
    lines += words.columns(rows, indent="  ")
    lines += words.columns(_preferences(one.preferences), indent="  ")
    for preference in one.preferences:
        lines += [
            f"  contradicted: {preference.over} over {preference.under} at {call}"
            for call in preference.contradicted_by
        ]
    return lines


def regret_in_words(one: Regret) -> str:
    """Write the figures of a regret run in one phrase."""
    regrets = one.regrets
    return f"regret over {len(regrets)} calls: geometric mean {mean(regrets):.3f}, worst {max(regrets):.3f}"


def _preferences(found: Iterable[Preference]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("preferred", "over", "said by", "calls", "gain, mean", "worst", "contradicted")]
    rows += [
        (
            one.over,
            one.under,
            one.declared,
            str(one.calls),
            f"{one.mean_gain:.2f}",
            f"{one.worst_gain:.2f}",
            str(len(one.contradicted_by)),
        )
        for one in found
    ]
    return rows


# -- a page


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Write rows as a Markdown table; the first one is its head."""
    lines = ["| " + " | ".join(plain(cell) for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def bullets(lines: Iterable[str], without: str) -> str:
    """Write lines as a Markdown list; ``without`` any of them, those words."""
    return "\n".join(f"- {plain(one)}" for one in lines) or without


def plain(text: str) -> str:
    """Write text so that it can neither end its line, nor its cell, nor the marked place that it stands in."""
    return words.one_line(text).replace("<", "&lt;").replace("|", r"\|")


def sections(report: Report) -> dict[str, str | None]:
    """Return what each marked place of a page is filled with, by name; None for that of which the report has nothing.

    A report of any kind says where it comes from and what went wrong.
    """
    found: dict[str, str | None] = dict.fromkeys(SECTIONS)
    found["about"] = bullets(about(report), "")
    found["problems"] = bullets(problems(report), "Nothing went wrong in this run.")
    if report.rows:
        found["means"] = markdown(_means(report.rows))
        found["small"] = markdown(_small(report))
        found["shares"] = markdown(_shares(report))
        lost = _lost(report)
        found["lost"] = markdown(lost) if len(lost) > 1 else "No row is lost."
        parts = []
        for op, rows in by_op(report.rows).items():
            names = list(dict.fromkeys(name for row in rows for name in row.baselines))
            table = markdown([(*HEAD, *names, ""), *(line(row, names) for row in rows)])
            parts.append(f"**{plain(op)}**\n\n{table}")
        found["rows"] = "\n\n".join(parts)
    if report.regret:
        head = ("interface", "calls", "geometric mean", "worst", "at")
        shown = [head, *(_regret_row(one) for one in report.regret)]
        named = [(one.interface, *cells) for one in report.regret for cells in _preferences(one.preferences)[1:]]
        found["regret"] = markdown(shown)
        found["preferences"] = markdown([("interface", *_preferences(())[0]), *named])
        against = [
            f"{one.over} over {one.under}: `{call}`"
            for regret in report.regret
            for one in regret.preferences
            for call in one.contradicted_by
        ]
        found["contradicted"] = bullets(against, "No preference was contradicted.")
    return found


def _regret_row(one: Regret) -> tuple[str, ...]:
    regrets = one.regrets
    if not regrets:
        return (one.interface, "0", "-", "-", "-")
    worst = max((s for s in one.samples if s.regret is not None), key=lambda s: s.regret or 0.0)
    return (one.interface, str(len(regrets)), f"{mean(regrets):.3f}", f"{max(regrets):.3f}", f"`{worst.call}`")
