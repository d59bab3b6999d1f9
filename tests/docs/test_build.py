"""Pages that are built from data: the committed ones are what would be built, and show the arithmetic."""

import runpy
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from docs.build import build as build_page
from docs.pages import discrepancies
from docs.pages.markdown import WIDTH, code, paragraph, render
from tests import commands

from slslab.report.formats import MISSING
from slslab.report.page import Cell, Note, Table
from slslab_lab.papers.paper import Paper, load_paper, paper_names

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "what-the-paper-did-not-say.md"


Build = Callable[..., commands.Done]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Build:
    """`python -m docs.build` with arguments."""

    def call(*arguments: str) -> commands.Done:
        monkeypatch.setattr(sys, "argv", [str(DOCS / "build.py"), *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(sys.argv[0], run_name="__main__")
        assert isinstance(ended.value.code, int)
        return commands.Done(ended.value.code, *capsys.readouterr())

    return call


def test_committed_pages_are_what_would_be_built(build: Build) -> None:
    assert build("--check") == (0, "", "")


def test_a_page_that_is_missing_or_changed_is_found_and_built(build: Build, tmp_path: Path) -> None:
    missing = build("--check", "--to", str(tmp_path), PAGE)
    assert (missing.code, list(tmp_path.iterdir())) == (1, [])
    assert f"{tmp_path / PAGE} is not what would be built. Hint: python -m docs.build" in missing.err
    written = build("--to", str(tmp_path), PAGE)
    assert (written.code, f"{tmp_path / PAGE} is written." in written.out) == (0, True)
    page = tmp_path / PAGE
    assert page.read_text() == build_page(PAGE)
    page.write_text(page.read_text().replace("0.0660", "0.0661", 1))
    assert build("--check", "--to", str(tmp_path), PAGE).code == 1
    unknown = build("nowhere.md")
    assert (unknown.code, "there isn't a page nowhere.md" in unknown.err) == (2, True)


def test_every_discrepancy_stands_there_with_its_arithmetic() -> None:
    page = build_page(PAGE)
    lines = [line for line in page.splitlines() if line.startswith("|")]
    for paper in map(load_paper, paper_names()):
        for number, one in enumerate(paper.discrepancies, start=1):
            assert f"#### {number}. {one.title}\n" in page
            for working in one.workings:
                what, named, filled, value, printed = discrepancies.work_out(paper, working)
                (line, *_) = [line for line in lines if f"| {what} |" in line and f"| {filled} |" in line]
                assert f"| {value} |" in line
                assert all(f"| {text} |" in line for text in (named, printed) if text not in ("", MISSING))


def test_lines_of_the_page() -> None:
    page = build_page(PAGE)
    assert (
        "| SPIRT, a worker | `batches * function_cost` | `24 * 0.001523` | 0.036552 USD | 0.0365 |"
    ) in page  # fmt: skip
    assert "- `decimal`: from seconds and MB, with 1 GB = 1,000 MB as the paper calculates;" in page
    assert all(len(line) <= WIDTH for line in page.splitlines() if not line.startswith("|"))


def test_a_working_has_its_own_inputs_unit_and_printed_figure() -> None:
    paper = Paper.model_validate(
        {
            "name": "p", "title": "p", "authors": "p", "published": "p",
            "tables": {
                "t": {
                    "title": "t", "source": "t", "units": {"x": "s"}, "formulas": {"x": {"double": "2 * y"}},
                    "rows": [{"name": "r", "inputs": {"y": 3}, "published": {"x": Decimal("6.0")}}],
                }
            },
            "discrepancies": [{
                "title": "d", "topic": "d", "where": "d", "said": "d", "found": "d", "consequence": "d",
                "workings": [
                    {"what": "formula", "table": "t", "row": "r", "column": "x", "way": "double", "places": 2},
                    {"what": "own", "table": "t", "row": "r", "expression": "y / z", "inputs": {"z": 7}, "unit": "min",
                     "places": 3, "printed": Decimal("0.5")},
                    {"what": "alone", "expression": "0.5 + 0.125", "places": 2},
                ],
            }],
        }
    )  # fmt: skip
    assert [discrepancies.work_out(paper, working) for working in paper.discrepancies[0].workings] == [
        ("formula", "`2 * y`", "`2 * 3`", "6.00 s", "6.0"),
        ("own", "`y / z`", "`3 / 7`", "0.429 min", "0.5"),
        ("alone", "", "`0.5 + 0.125`", "0.63", MISSING),
    ]


def test_paragraphs_keep_code_together_and_tables_their_columns() -> None:
    text = paragraph("word " * 21 + "`python -m docs.build --check` and more")
    assert text.splitlines() == [("word " * 21).strip(), "`python -m docs.build --check` and more"]
    shown = Table(("a", "b"), [["x|y", Cell("1", "not shown")]], caption="C", note="N")
    assert render(shown) == "**C**\n\n| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n\nN"
    assert render(["# T", Note("one\ntwo"), "three"]) == "# T\n\n- one\n- two\n\nthree"
    assert (code("a * b"), code("")) == ("`a * b`", "")


def test_a_filled_table_lacks_its_empty_columns_in_totals_too() -> None:
    table = Table(("a", "b", "c"), [["1", MISSING, "x"], ["2", "", "y"]], totals=[["3", "", "z"]], words=(2,))
    assert render(table.filled()) == "| a | c |\n| ---: | --- |\n| 1 | x |\n| 2 | y |\n| 3 | z |"
