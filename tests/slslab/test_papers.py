"""Published numbers: the digits of the papers, and which files are refused by which words."""

import tomllib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from slslab import papers
from slslab.papers import PaperError, load_paper, paper_names

ROOT = Path(__file__).parents[2]
SMALL = """
schema = 1
name = "small"
title = "A paper"
authors = "A. Author"
published = "2025"

[tables.one]
title = "Times"
source = "Table 1"
units = { time = "s" }
inputs = { channel = "S3", workers = 4 }

[[tables.one.rows]]
name = "first"
inputs = { workers = 8 }
published = { time = 0.0660 }
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "small.toml"
        path.write_text(text)
        return path

    return write


def digits(paper: str, table: str) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in row.published.items()} for row in load_paper(paper).table(table).rows]


def test_lambdaml_table_3_has_the_digits_and_sizes_of_the_paper() -> None:
    assert digits("lambdaml-2021", "table3") == [
        {"allreduce": "9.2", "scatterreduce": "9.8"},
        {"allreduce": "3.3", "scatterreduce": "3.1"},
        {"allreduce": "17.3", "scatterreduce": "8.5"},
    ]
    table = load_paper("lambdaml-2021").table("table3")
    inputs = [table.inputs_of(row) for row in table.rows]
    assert [one["workers"] for one in inputs] == [50, 10, 10]
    # 28 features of 8 bytes; float32 parameters of MobileNet, and of ResNet-50 with a stem for CIFAR.
    assert [one["bytes"] for one in inputs] == [28 * 8, 4 * 3_217_226, 4 * 23_520_842]
    assert [round(int(one["bytes"]) / 2**20, 2) for one in inputs[1:]] == [12.27, 89.72]


def test_figure_2_has_the_digits_that_the_text_gives_and_no_others() -> None:
    nothing: dict[str, str] = {}
    assert digits("barrak-2025", "fig2") == [
        nothing, nothing, {"allreduce": "4.77", "scatterreduce": "6.47"},
        nothing, nothing, {"allreduce": "21.88", "scatterreduce": "8.36"},
    ]  # fmt: skip
    table = load_paper("barrak-2025").table("fig2")
    assert [row.inputs["workers"] for row in table.rows] == [4, 8, 16] * 2


def test_section_4_2_has_the_digits_of_the_paper() -> None:
    assert digits("barrak-2025", "optimizations") == [
        {"without": "113379", "with": "8667"},
        {"without": "67.32", "with": "37.41"},
        {"without": "27.5", "with": "4.8"},
    ]


def test_all_papers_are_known_and_can_be_read() -> None:
    assert paper_names() == ("barrak-2025", "lambdaml-2021")
    assert [load_paper(name).name for name in paper_names()] == list(paper_names())


def test_numbers_keep_their_digits_and_rows_have_the_inputs_of_their_table(written: Callable[[str], Path]) -> None:
    table = load_paper(written(SMALL)).table("one")
    (row,) = table.rows
    assert row.published == {"time": Decimal("0.0660")}
    assert str(row.published["time"]) == "0.0660"
    assert table.inputs_of(row) == {"channel": "S3", "workers": 8}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 2", "has schema 2, and this version reads 1"),
        ("schema = 1", "", "does not say its schema"),
        ('name = "small"', "name = ", "is not TOML"),
        ('title = "Times"', "", "wrong at tables.one.title: Field required"),
        ('title = "Times"', 'title = "Times"\ncaption = ""', "wrong at tables.one.caption: Extra inputs"),
        ('units = { time = "s" }', "units = {}", "wrong at tables.one.units"),
        ("0.0660", '"6 s"', r"wrong at tables.one.rows.0.published.time: '6 s' is no number"),
        ("0.0660", "true", r"published.time: True is no number"),
        ("0.0660", "inf", "published.time: Input should be a finite number"),
        ("workers = 8", "workers = []", r"inputs.workers: \[\] is neither a number nor a text"),
        ("{ time = 0", "{ cost = 0", "tables.one: row 'first' has 'cost', which is none of the columns in units"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_by_its_entry(written: Callable[[str], Path], old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(PaperError, match=message):
        load_paper(written(SMALL.replace(old, new)))


def test_what_is_not_there_is_named(written: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(PaperError, match="There is no paper 'lambda': No such file") as error:
        load_paper("lambda")
    assert error.value.hint == "name one of barrak-2025, lambdaml-2021, or give the path of a TOML file."
    with pytest.raises(PaperError, match="small has no table 'two'") as error:
        load_paper(written(SMALL)).table("two")
    assert error.value.hint == "choose one of one."
    with pytest.raises(PaperError, match="Is a directory"):
        load_paper(tmp_path)


def test_a_wheel_has_the_papers_where_they_are_looked_for() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    included = {ROOT / source: target for source, target in wheel["force-include"].items()}
    installed, checked_out = papers.FOLDERS
    assert included[checked_out] == f"slslab/{installed.name}"
    assert installed.parent == Path(papers.__file__).parent
