"""The marked places of a page: what is filled, what is left, and which pages are refused before anything is written."""

from pathlib import Path

import pytest

from tests.tools.reports import REPORT
from tileops.tools import page, tables
from tileops.tools.cli import main
from tileops.tools.figures import Report, write
from tileops.tools.usage import UsageError

TABLES = {"about": "- new about", "means": "new means", "regret": None}
PAGE = """# A page

<!-- bench: about -->
old about
<!-- end -->

By hand.

  <!-- bench: regret -->
old regret
<!-- end -->
"""


def test_what_stands_between_marks_is_filled_and_nothing_else() -> None:
    filled = page.fill(PAGE, TABLES)
    assert filled.text == PAGE.replace("old about", "- new about")
    assert filled.told() == "filled about; left as they were, for this report says nothing of them: regret"
    assert page.fill(filled.text, TABLES) == filled


def test_a_place_that_is_empty_yet_is_filled() -> None:
    text = "<!-- bench: means -->\n<!-- end -->"
    assert page.fill(text, TABLES).text == "<!-- bench: means -->\nnew means\n<!-- end -->"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# A page\n", "the page has no marked place"),
        (PAGE.replace("<!-- end -->\n\nBy", "By"), "line 7: <!-- bench: regret --> begins before about of line 3 ends"),
        ("<!-- bench: about -->\nold\n", "line 1: about has no <!-- end --> after it"),
        (PAGE + "<!-- end -->\n", "line 12: <!-- end --> ends no marked place"),
        (PAGE + "<!-- bench: about -->\n<!-- end -->\n", "line 12: <!-- bench: about --> stands in line 3 already"),
        (
            PAGE + "<!-- bench: meens -->\n<!-- end -->\n",
            "names no table (did you mean 'means'?); tables: about, means",
        ),
        (PAGE + "<!--bench means-->\n", "line 12: means has no <!-- end --> after it"),
        (PAGE + "See <!-- bench: means -->\n<!-- end -->\n", "line 12: <!-- bench: means --> does not stand alone"),
        ("<!-- bench: regret -->\n<!-- end -->\n", "the report holds nothing of what the page marks: regret"),
    ],
)
def test_a_page_whose_marks_are_not_whole_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        page.fill(text, TABLES)
    assert said in str(refused.value)


def test_every_fault_of_a_page_is_told_at_once() -> None:
    with pytest.raises(UsageError) as refused:
        page.places(PAGE.replace("<!-- end -->", "") + "<!-- bench: meens -->", TABLES)
    assert [line.strip().partition(":")[0] for line in str(refused.value).splitlines()] == ["line 9"] + ["line 12"] * 3


def test_a_refused_page_stays_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, path = tmp_path / "bench.json", tmp_path / "page.md"
    write(REPORT, figures)
    text = "<!-- bench: about -->\n\nprose\n\n## Heading\n\n<!-- bench: means -->\nold\n<!-- end -->\n"
    path.write_text(text)
    assert main(["bench", "--from", str(figures), "--page", str(path)]) == 2
    assert f"{path}: line 7: <!-- bench: means --> begins before about of line 1 ends" in capsys.readouterr().err
    assert path.read_text() == text


def test_the_command_says_what_it_filled_and_what_it_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, path = tmp_path / "regret.json", tmp_path / "page.md"
    write(Report(REPORT.about, (), REPORT.regret), figures)
    path.write_text("".join(f"<!-- bench: {name} -->\nold\n<!-- end -->\n" for name in ("rows", "problems", "regret")))
    assert main(["bench", "--from", str(figures), "--page", str(path)]) == 0
    assert (
        f"{path}: filled problems, regret; left as they were, for this report says nothing of them: rows"
        in capsys.readouterr().err
    )
    assert path.read_text().count("old") == 1


def test_a_page_of_which_the_report_says_nothing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("<!-- bench: regret -->\nold\n<!-- end -->\n")
    with pytest.raises(UsageError) as refused:
        page.fill_page(path, TABLES)
    assert str(refused.value) == f"{path}: the report holds nothing of what the page marks: regret"


def test_line_ends_and_letters_of_a_page_stay(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_bytes("Größe\r\n<!-- bench: about -->\r\nold\r\n<!-- end -->\r\nEnde\r\n".encode())
    page.fill_page(path, TABLES)
    assert path.read_bytes() == ("Größe\r\n<!-- bench: about -->\n- new about\n<!-- end -->\r\nEnde\r\n".encode())


def test_a_page_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_bytes(b"\xff<!-- bench: about -->\n<!-- end -->\n")
    with pytest.raises(UsageError, match="byte 0 of it is no UTF-8"):
        page.fill_page(path, TABLES)
    with pytest.raises(UsageError, match="cannot read"):
        page.read(tmp_path / "nowhere.md", tables.SECTIONS)
