"""Tables: a benchmark's report for people, as text and as the marked tables of a page in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tileops.tools import words
from tileops.tools.figures import TIMED, Preference, Regret, Report, Row, by_op, mean, summaries
from tileops.tools.usage import UsageError

HEAD = ("row", "dtypes", "kernel", "timing", "latency us", "busy us", "host us", "its host us", "roofline")
LARGE_BYTES: Final = 64 * 2**20
_MARK = "<!-- bench: {} -->"
_END = "<!-- end -->"


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
    return lines


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
    return lines


def line(row: Row, baselines: Sequence[str]) -> tuple[str, ...]:
    """Write a row's cells; a baseline's cell is its time over ours."""
    served = row.target or row.implementation or "-"
    if row.reading is None:
        return (
            row.label,
            row.dtypes,
            served,
            "-",
            "-",
            "-",
            "-",
            "-",
            "-",
            *("-" for _ in baselines),
            row.outcome.upper(),
        )
    share = row.roofline
    return (
        row.label,
        row.dtypes,
        served,
        row.timing or "-",
        f"{row.reading.latency_ms * 1e3:.1f}",
        f"{row.reading.device_busy_ms * 1e3:.1f}",
        _us(row.host_us),
        _us(None if row.against is None else row.baselines[row.against].host_us),
        "-" if share is None else f"{share:.0%} {row.bound}",
        *(_ratio(row, name) for name in baselines),
        "lost" if row.lost else "",
    )


def _us(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{microseconds:.1f}"


def _ratio(row: Row, name: str) -> str:
    ratio = row.ratio(name)
    return "-" if ratio is None else f"{ratio:.2f}"


def _means(found: Iterable[Row]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("op", "baseline", "rows", "geometric mean", "worst", "lost", "host, mean", "host, worst", "worst at")
    ]
    for one in summaries(found):
        figures = str(one.rows), f"{one.mean:.3f}", f"{one.worst:.2f}", str(one.lost)
        hosts = ("-" if host is None else f"{host:.2f}" for host in (one.host_mean, one.host_worst))
        rows.append((one.op, one.baseline, *figures, *hosts, one.worst_label))
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
    lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def sections(report: Report) -> dict[str, str]:
    """Return what each marked place of a page is filled with; only of what the report holds."""
    found: dict[str, str] = {}
    if report.rows:
        found["about"] = "\n".join(f"- {one}" for one in about(report))
        found["means"] = markdown(_means(report.rows))
        found["small"] = markdown(_small(report))
        found["shares"] = markdown(_shares(report))
        parts = []
        for op, rows in by_op(report.rows).items():
            names = list(dict.fromkeys(name for row in rows for name in row.baselines))
            table = markdown([(*HEAD, *names, ""), *(line(row, names) for row in rows)])
            parts.append(f"**{op}**\n\n{table}")
        found["rows"] = "\n\n".join(parts)
        unwell = problems(report)
        found["problems"] = "\n".join(f"- {one}" for one in unwell) or "Nothing went wrong in this run."
    if report.regret:
        head = ("interface", "calls", "geometric mean", "worst", "at")
        shown = [head, *(_regret_row(one) for one in report.regret)]
        named = [(one.interface, *cells) for one in report.regret for cells in _preferences(one.preferences)[1:]]
        found["regret"] = markdown(shown)
        found["preferences"] = markdown([("interface", *_preferences(())[0]), *named])
        against = [
            f"- {one.over} over {one.under}: `{call}`"
            for regret in report.regret
            for one in regret.preferences
            for call in one.contradicted_by
        ]
        found["contradicted"] = "\n".join(against) or "No preference was contradicted."
    return found


def _regret_row(one: Regret) -> tuple[str, ...]:
    regrets = one.regrets
    if not regrets:
        return (one.interface, "0", "-", "-", "-")
    worst = max((s for s in one.samples if s.regret is not None), key=lambda s: s.regret or 0.0)
    return (one.interface, str(len(regrets)), f"{mean(regrets):.3f}", f"{max(regrets):.3f}", f"`{worst.call}`")


def fill(page: str, found: dict[str, str]) -> str:
    """Return a page with each marked place that ``found`` names filled anew; raises UsageError where it has none."""
    filled = page
    for name, content in found.items():
        mark = _MARK.format(name)
        place = re.compile(re.escape(mark) + r"\n.*?" + re.escape(_END), re.DOTALL)
        if not place.search(filled):
            continue
        filled = place.sub(lambda _, mark=mark, content=content: f"{mark}\n{content}\n{_END}", filled)  # type: ignore[misc]
    if _MARK.partition("{")[0] not in page:
        raise UsageError(f"the page has no marked place, such as {_MARK.format('rows')} ... {_END}")
    return filled


def fill_page(path: Path, report: Report) -> None:
    """Fill a page's marked places from a report."""
    try:
        page = path.read_text()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    path.write_text(fill(page, sections(report)))
