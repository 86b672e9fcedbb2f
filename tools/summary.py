"""Summary: what the rows of a benchmark say of each op: means against each baseline, and all that is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from tileops.tools.figures import PEER, Row, mean, slower


@attrs.frozen
class Loss:
    """Holds a row that is lost to a baseline; ``worst`` is the ratio that says so."""

    row: Row
    baseline: str
    ratio: float
    host: float | None

    @property
    def worst(self) -> float:
        """Return the least of the ratios that are lost."""
        return min(ratio for ratio in (self.ratio, self.host) if ratio is not None and slower(ratio))


def losses(rows: Sequence[Row]) -> list[Loss]:
    """List all that is lost, the worst first within an op: the time on the device, and to the peer also the host's."""
    found = []
    for ours in by_op(rows).values():
        lost = []
        for row in ours:
            for name in row.baselines:
                ratio, host = row.ratio(name), row.host_ratio(name)
                if ratio is not None and (slower(ratio) or (name == PEER and slower(host))):
                    lost.append(Loss(row, name, ratio, host))
        found += sorted(lost, key=lambda one: one.worst)
    return found


@attrs.frozen
class Summary:
    """Holds an op's ratios to one baseline over all rows that have it; the host's times have a mean and a worst too.

    ``without_best`` is the mean without the row that is best for us, which may carry it alone.
    """

    op: str
    baseline: str
    rows: int
    mean: float
    without_best: float | None
    worst: float
    worst_label: str
    lost: int
    host_mean: float | None
    host_worst: float | None
    host_worst_label: str | None


def summaries(rows: Iterable[Row]) -> list[Summary]:
    """Return a summary for each op and baseline, in the order of the rows."""
    found: dict[tuple[str, str], list[tuple[float, str]]] = {}
    hosts: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for row in rows:
        for name in row.baselines:
            for ratio, held in ((row.ratio(name), found), (row.host_ratio(name), hosts)):
                if ratio is not None:
                    held.setdefault((row.op, name), []).append((ratio, f"{row.label} {row.dtypes}"))
    told = []
    for (op, name), ratios in found.items():
        best_last = sorted(ratio for ratio, _ in ratios)
        host = hosts.get((op, name), [])
        host_worst, host_label = min(host, default=(None, None))
        told.append(
            Summary(
                op=op,
                baseline=name,
                rows=len(ratios),
                mean=mean(best_last) or 0.0,
                without_best=mean(best_last[:-1]),
                worst=min(ratios)[0],
                worst_label=min(ratios)[1],
                lost=sum(map(slower, best_last)),
                host_mean=mean(ratio for ratio, _ in host),
                host_worst=host_worst,
                host_worst_label=host_label,
            )
        )
    return told


def by_op(rows: Sequence[Row], chosen: Callable[[Row], bool] = lambda row: True) -> dict[str, list[Row]]:
    """Group rows by op, in order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if chosen(row):
            groups.setdefault(row.op, []).append(row)
    return groups
