"""The tables of a report: the means and what carries them, every lost row, and text that cannot break a page."""

import attrs
import pytest

from tests.tools.reports import ABOUT, FAILED, REGRET, REPORT, timed
from tileops.tools import page, tables
from tileops.tools.figures import Measured, Reading, Report, Row
from tileops.tools.summary import losses, summaries


def against(row: Row, **baselines: tuple[float, float]) -> Row:
    """Give a row baselines: the milliseconds and the host's microseconds of each."""
    held = {name: Measured("preferred", Reading(ms, ms, 30, 0.0), us) for name, (ms, us) in baselines.items()}
    return attrs.evolve(row, baselines=held)


def cells(table: str | None) -> list[list[str]]:
    """Return the cells below the head of a table in Markdown."""
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


# -- means


def test_a_mean_is_told_without_its_best_row_too() -> None:
    rows = [timed("a", 1.0, 1.0), timed("b", 1.0, 1.0), timed("c", 1.0, 8.0)]
    (found,) = summaries(rows)
    assert found.mean == pytest.approx(2.0)
    assert found.without_best == pytest.approx(1.0)
    assert [one.without_best for one in summaries(rows[:1])] == [None]


def test_the_worst_of_the_device_and_of_the_host_are_named_each() -> None:
    rows = (against(timed("a", 1.0, 1.0), torch=(0.5, 28.0)), against(timed("b", 1.0, 1.0), torch=(2.0, 7.0)))
    report = Report(ABOUT, rows)
    head = (tables.sections(report)["means"] or "").splitlines()[0]
    assert head == (
        "| op | baseline | rows | geometric mean | without its best row | worst | worst at | lost "
        "| host, mean | host, worst | host, worst at |"
    )
    assert cells(tables.sections(report)["means"]) == [
        ["GemmFwdOp", "torch", "2", "1.000", "0.500", "0.50", "a bfloat16", "1", "1.00", "0.50", "b bfloat16"]
    ]


# -- lost


def test_every_lost_row_is_listed_the_worst_first_within_its_op() -> None:
    rows = (
        against(timed("even", 1.0, 1.0), torch=(0.98, 14.0), compile=(1.5, 14.0)),
        against(timed("bad", 1.0, 1.0), torch=(0.9, 14.0), compile=(0.5, 14.0)),
        against(timed("other", 1.0, 1.0, "SoftmaxFwdOp"), torch=(0.1, 28.0)),
        against(timed("worse", 1.0, 1.0), torch=(0.7, 14.0), peer=(0.8, 14.0)),
        FAILED,
    )
    report = Report(ABOUT, rows)
    assert cells(tables.sections(report)["lost"]) == [
        ["GemmFwdOp", "bad", "bfloat16", "gemv", "compile", "0.500", "1.00"],
        ["GemmFwdOp", "worse", "bfloat16", "gemv", "torch", "0.700", "1.00"],
        ["GemmFwdOp", "worse", "bfloat16", "gemv", "peer", "0.800", "1.00"],
        ["GemmFwdOp", "bad", "bfloat16", "gemv", "torch", "0.900", "1.00"],
        ["SoftmaxFwdOp", "other", "bfloat16", "gemv", "torch", "0.100", "2.00"],
    ]
    listed = {one.row.key for one in losses(rows)}
    assert listed == {row.key for row in rows if row.lost}
    assert sum(one.lost for one in summaries(rows)) == len(losses(rows))


def test_a_row_whose_dispatch_the_peer_beats_is_lost_too() -> None:
    row = against(timed("slow call", 1.0, 1.0), torch=(2.0, 7.0), peer=(2.0, 7.0))
    (found,) = losses([row])
    assert (found.baseline, found.ratio, found.host, found.worst) == ("peer", 2.0, 0.5, 0.5)
    assert losses([against(row, peer=(2.0, 14.0))]) == []


def test_a_report_without_a_loss_says_so() -> None:
    report = Report(ABOUT, (timed("won", 1.0, 2.0),))
    assert tables.sections(report)["lost"] == "No row is lost."
    assert "\nlost\n" not in tables.text(report)
    assert "\nlost\n" in tables.text(REPORT)


# -- sections


def test_a_report_of_regret_alone_says_where_it_comes_from_and_what_went_wrong() -> None:
    found = tables.sections(Report(attrs.evolve(ABOUT, problems=("62 calls not reached",)), (), (REGRET,)))
    assert found["problems"] == "- 62 calls not reached"
    assert (found["about"] or "").startswith("- NVIDIA H200 (cuda:0)")
    assert {name for name, content in found.items() if content is None} == {"means", "small", "shares", "rows", "lost"}


def test_every_table_that_a_page_may_mark_is_filled_by_a_whole_report() -> None:
    found = tables.sections(REPORT)
    assert tuple(found) == tables.SECTIONS
    assert None not in found.values()


def test_notes_are_told() -> None:
    report = Report(attrs.evolve(ABOUT, notes=("2 rows are new",)), REPORT.rows)
    assert tables.about(report)[-1] == "2 rows are new"


BAD = "a | b\n<!-- end -->\nnew <class 'x'>"
DEFUSED = r"a \| b &lt;!-- end --> new &lt;class 'x'>"


def test_no_text_of_a_report_breaks_the_page() -> None:
    rows = (
        attrs.evolve(FAILED, why=BAD),
        attrs.evolve(timed("won", 1.0, 0.5), label=BAD, baselines={"compile": Measured("preferred", why=BAD)}),
    )
    about = attrs.evolve(ABOUT, device_name=BAD, problems=(BAD,), missing={"torch": BAD})
    sample = attrs.evolve(REGRET.samples[1], call=BAD, problems={"gemm_wgmma": BAD})
    report = Report(about, rows, (attrs.evolve(REGRET, samples=(sample,)).judged(),))
    found = tables.sections(report)
    assert f"- failed: GemmFwdOp odd float16: {DEFUSED}" in (found["problems"] or "").splitlines()
    assert f"- {DEFUSED}" in (found["problems"] or "").splitlines()
    text = "".join(f"<!-- bench: {name} -->\n<!-- end -->\n" for name in found)
    filled = page.fill(text, found)
    assert page.fill(filled.text, found) == filled
    for table in (found["rows"], found["regret"], found["contradicted"]):
        assert DEFUSED in (table or "")
