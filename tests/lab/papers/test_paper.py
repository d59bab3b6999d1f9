"""Published numbers: the digits of the papers, and which files are refused by which words."""

import tomllib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from slslab.errors import RequestError
from slslab_lab.papers import paper as papers
from slslab_lab.papers.paper import load_paper, paper_names

ROOT = Path(__file__).parents[3]
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
        nothing, nothing, nothing,
    ]  # fmt: skip
    table = load_paper("barrak-2025").table("fig2")
    assert [row.inputs["workers"] for row in table.rows] == [4, 8, 16] * 3
    # Float32 parameters of MobileNet, of ResNet-50 and of ResNet-18 with stems for CIFAR.
    assert [row.inputs["bytes"] for row in table.rows[::3]] == [4 * 3_217_226, 4 * 23_520_842, 4 * 11_173_962]


def test_section_4_2_has_the_digits_of_the_paper() -> None:
    assert digits("barrak-2025", "optimizations") == [
        {"without": "113379", "with": "8667", "ratio": "13"},
        {"without": "67.32", "with": "37.41"},
        {"without": "27.5", "with": "4.8"},
    ]


TABLE2 = """
    SPIRT         MobileNet  15.44  370.56  2685 0.000689 0.0165  0.0660
    ScatterReduce MobileNet  14.343 344.23  2048 0.000442 0.0106  0.0422
    AllReduce     MobileNet  14.382 345.17  2048 0.000445 0.0107  0.0427
    MLLess        MobileNet  69.425 1666.20 3024 0.003496 0.0839  0.3356
    GPU           MobileNet  -      92.00   -    -        0.01344 0.0538
    SPIRT         ResNet-18  28.55  685.20  3200 0.001523 0.0365  0.1460
    ScatterReduce ResNet-18  27.17  652.08  2880 0.001302 0.0312  0.1249
    AllReduce     ResNet-18  26.79  642.96  2986 0.001382 0.0332  0.1328
    MLLess        ResNet-18  78.39  1881.36 3630 0.004737 0.1137  0.4548
    GPU           ResNet-18  -      139.00  -    -        0.0203  0.0812
"""


def test_table_2_has_the_digits_of_the_paper() -> None:
    columns = ("function_seconds", "epoch_seconds", "memory_mb", "function_cost", "worker_cost", "total_cost")
    table = load_paper("barrak-2025").table("table2")
    expected = [line.split() for line in TABLE2.strip().splitlines()]
    found = [
        [row.name, row.group, *(str(row.published.get(column, "-")) for column in columns)] for row in table.rows
    ]  # fmt: skip
    assert found == expected
    assert {name: str(value) for name, value in table.inputs.items()} == {
        "dataset": "CIFAR-10", "workers": "4", "batches": "24", "batch_size": "512", "gb_second": "0.0000166667",
    }  # fmt: skip
    assert [str(row.inputs["instance_hour"]) for row in table.rows if row.name == "GPU"] == ["0.526", "0.526"]


def test_table_3_and_the_text_have_the_digits_of_the_paper() -> None:
    assert digits("barrak-2025", "table3") == [
        {"minutes": "84.96", "accuracy": "83.2"},
        {"minutes": "189.68", "accuracy": "83.48"},
        {"minutes": "1652.49", "accuracy": "82.1"},
        {"minutes": "1367.01", "accuracy": "85.05"},
        {"minutes": "70.33", "accuracy": "84.5"},
    ]
    assert digits("barrak-2025", "worked_example") == [{"cost": "0.000689"}]
    assert digits("barrak-2025", "models") == [{"parameters": "4.2"}, {"parameters": "11.7"}]
    assert digits("barrak-2025", "cited") == [{"amount": "26.6"}, {"share": "41.1"}, {"days": "14"}]


def test_lambdaml_tables_1_and_2_have_the_digits_of_the_paper() -> None:
    assert [list(row.values()) for row in digits("lambdaml-2021", "table1")] == [
        ["5", "4.17", "0.95", "0.83", "4.7", "3.85"],
        ["4.5", "3.70", "0.92", "0.81", "4.47", "3.70"],
        ["1.58", "1.32", "1.13", "0.93", "1.48", "1.23"],
        ["1.43", "1.19", "1.03", "0.90", "1.52", "1.27"],
        ["0.9", "0.77", "4.8", "4.01"],
        ["0.89", "0.75", "4.85", "4.03"],
    ]
    assert [list(row.values()) for row in digits("lambdaml-2021", "table2")] == [
        ["2.62", "21.8", "2.9", "0.5"],
        ["3.02", "34.4", "2.9", "0.5"],
        ["1.85", "19.7", "2.3", "0.4"],
        ["2.36", "32", "2.3", "0.4"],
        ["5.7", "68.5", "33", "13"],
        ["8.2", "82", "34", "13"],
        ["3.7", "52", "27", "6"],
        ["5.6", "84", "25", "6"],
    ]
    assert [list(row.values()) for row in digits("lambdaml-2021", "text")] == [
        ["7"], ["7.7"], ["2"], ["20"], ["70"], ["1.85"], ["2"],
    ]  # fmt: skip
    assert digits("lambdaml-2021", "sizes") == [{"bytes": "224"}, {"megabytes": "12"}, {"megabytes": "89"}]


def test_kubeml_has_the_digits_of_the_paper() -> None:
    assert digits("kubeml-2023", "claims") == [
        {"speedup": "3.98"},
        {"speedup": "2.02"},
        {"speedup": "1.41", "models_per_gpu": "4"},
        {"speedup": "2.75", "models_per_gpu": "4"},
        {"utilisation": "6"},
        {"merge": "10"},
        {},
    ]
    assert [tuple(row.values()) for row in digits("kubeml-2023", "goals")] == [
        ("85.69", "31.17"), ("72.85", "51.43"), ("64.61", "43.31"), ("41.91", "100.97"),
        ("1818.2", "456.3"), ("661.2", "376.9"), ("573.9", "257.4"), ("519.9", "539.6"),
    ]  # fmt: skip
    assert [row["accuracy"] for row in digits("kubeml-2023", "accuracy")] == [
        "70.56", "70.46", "69.43", "67.11", "70.94", "70.86", "68.98", "65.98", "72.39", "68.53", "66.32", "65.50",
    ]  # fmt: skip
    assert [row["seconds"] for row in digits("kubeml-2023", "epochs")] == [
        "5220.6", "2970.1", "1860.6", "901.8", "2703.4", "1626.2", "1071.8", "628.4",
        "1493.8", "935.0", "675.1", "460.1", "890.0", "631.2", "463.2", "402.2",
    ]  # fmt: skip


def test_gradssharding_has_the_figures_of_the_released_measurements() -> None:
    assert [list(row.values()) for row in digits("gradssharding-2026", "rq2")] == [
        ["537", "188.8", "22", "181.9", "189.4", "0.008919", "176.1", "61.0", "101.1", "0.183"],
        ["269", "97.8", "13", "94.8", "100.8", "0.009313", "87.7", "61.3", "100.3", "0.184"],
        ["134", "59.8", "8", "57.3", "73.9", "0.011270", "52.2", "51.5", "87.7", "0.186"],
        ["67", "26.9", "5", "25.6", "41.5", "0.010131", "18.7", "71.9", "91.4", "0.189"],
        ["34", "22.3", "3.5", "11.2", "30.8", "0.009016", "8.7", "77.6", "83.2", "0.187"],
    ]
    assert [list(row.values()) for row in digits("gradssharding-2026", "rq3")] == [
        ["7.90", "0.000263"],
        ["10.40", "0.000269"],
        ["12.28", "0.000415"],
        ["67.25", "0.003383"],
        ["117.35", "0.010167"],
        ["126.59", "0.012919"],
        ["362.49", "0.058853"],
        ["299.44", "0.084800"],
    ]
    assert digits("gradssharding-2026", "claims") == [{"speedup": "16.2"}, {}]


def test_all_papers_are_known_and_can_be_read() -> None:
    assert paper_names() == ("barrak-2025", "gradssharding-2026", "kubeml-2023", "lambdaml-2021", "spirt-2023")
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
        ("schema = 1", 'schema = 1\nbase = "barrak-2025"', "wrong at base: Extra inputs are not permitted"),
        ('name = "small"', "name = ", "is not TOML"),
        ('title = "Times"', "", "wrong at tables.one.title: Field required"),
        ('title = "Times"', 'title = "Times"\ncaption = ""', "wrong at tables.one.caption: Extra inputs"),
        ('units = { time = "s" }', "units = {}", "wrong at tables.one.units"),
        ("0.0660", '"6 s"', r"wrong at tables.one.rows.0.published.time: '6 s' is not a number"),
        ("0.0660", "true", r"published.time: True is not a number"),
        ("0.0660", "inf", "published.time: Input should be a finite number"),
        ("workers = 8", "workers = []", r"inputs.workers: \[\] is neither a number nor a text"),
        ("{ time = 0", "{ cost = 0", "tables.one: row 'first' has 'cost', which is not a column in units"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_by_its_entry(written: Callable[[str], Path], old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(RequestError, match=message):
        load_paper(written(SMALL.replace(old, new)))


MORE = """
[ways]
twice = "two of them"

[tables.two]
title = "Costs"
source = "Table 2"
units = { cost = "USD", time = "s" }
unexplained = { time = "it was measured" }
[tables.two.formulas.cost]
twice = "2 * seconds"
[[tables.two.rows]]
name = "first"
references = { seconds = { table = "one", row = "first", value = "time" } }
published = { cost = 0.13 }

[[discrepancies]]
title = "Costs"
topic = "Arithmetic"
where = "Table 2"
said = "Twice."
found = '''More
than that.'''
workings = [{ what = "cost", table = "two", row = "first", column = "cost", way = "twice", places = 3 }]
consequence = "None."
"""


def test_references_and_discrepancies_are_read(written: Callable[[str], Path]) -> None:
    paper = load_paper(written(SMALL + MORE))
    row = paper.row("two", "first")
    assert paper.values("two", row) == {"seconds": Decimal("0.0660"), "cost": Decimal("0.13")}
    (discrepancy,) = paper.discrepancies
    # Written in lines, read as one.
    assert discrepancy.found == "More than that."
    expression, operands = paper.operands(discrepancy.workings[0])
    assert (expression.text, operands) == ("2 * seconds", {"seconds": Decimal("0.0660")})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"2 * seconds"', '"2 ** seconds"', r"tables\.two\.formulas\.cost\.twice: '2 \*\* seconds' is neither"),
        ('"2 * seconds"', "2", r"tables\.two\.formulas\.cost\.twice: 2 is not arithmetic"),
        ("[tables.two.formulas.cost]", "[tables.two.formulas.price]", "formulas has 'price', which is not a column"),
        ("2 * seconds", "2 * minutes", r"formulas\.cost\.twice names 'minutes', which is neither"),
        (
            '"2 * seconds"\n',
            '"2 * seconds * x"\n[[tables.two.rows]]\nname = "b"\ninputs = { x = 1 }\n',
            r"formulas\.cost\.twice holds for no row",
        ),
        ("{ time = \"it was", "{ cost = \"it was", "unexplained has 'cost', which has formulas"),
        ("{ time = \"it was", "{ rest = \"it was", "unexplained has 'rest', which is not a column"),
        ("references = {", "inputs = { cost = 1 }\nreferences = {", "row 'first' has 'cost' twice"),
        ("[[disc", "[[tables.two.rows]]\nname = 'first'\n[[disc", "tables.two: two rows are 'first' of group ''"),
        ('table = "one", row', 'table = "three", row', "two, row 'first', 'seconds': small has no table 'three'"),
        ('row = "first", value', 'row = "last", value', "'seconds': small's one has no row 'last'"),
        ('value = "time"', 'value = "channel"', "'seconds': one's row 'first' has no number 'channel'"),
        ('row = "first", column', 'row = "last", column', r"discrepancies\.0\.workings\.0: small's two has no row"),
        ('way = "twice", p', 'way = "thrice", p', r"discrepancies\.0\.workings\.0: two has no formula cost\.thrice"),
        ('column = "cost", way = "twice"', 'expression = "x"', r"workings\.0: 'x' names 'x', which is not there"),
        ('column = "cost", way = "twice"', 'column = "cost"', r"workings\.0: it needs either an expression, or table"),
        ('"first", column', '"first", expression = "1", column', r"workings\.0: it needs either an expression"),
        ('table = "two", row', 'expression = "1", row', r"workings\.0: a row needs its table"),
        ('twice = "two of', 'thrice = "two of', "ways has 'thrice', and no formula has that name"),
    ],
)  # fmt: skip
def test_formulas_and_what_refers_to_them_are_refused_by_their_entry(
    written: Callable[[str], Path], old: str, new: str, message: str
) -> None:
    text = SMALL + MORE
    assert old in text
    with pytest.raises(RequestError, match=message):
        load_paper(written(text.replace(old, new)))


def test_what_is_not_there_is_named(written: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="There is no paper 'lambda': No such file") as error:
        load_paper("lambda")
    assert (
        error.value.hint
        == "use one of barrak-2025, gradssharding-2026, kubeml-2023, lambdaml-2021, spirt-2023, or give the path of a "
        "TOML file."
    )
    with pytest.raises(RequestError, match="small has no table 'two'") as error:
        load_paper(written(SMALL)).table("two")
    assert error.value.hint == "choose one of one."
    with pytest.raises(RequestError, match="small's one has no row 'first' of group 'b'") as error:
        load_paper(written(SMALL)).row("one", "first", "b")
    assert error.value.hint == "choose a name and group: first."
    with pytest.raises(RequestError, match="Is a directory"):
        load_paper(tmp_path)


def test_a_wheel_has_the_papers_where_they_are_looked_for() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    included = {ROOT / source: target for source, target in wheel["force-include"].items()}
    installed, checked_out = papers.FOLDERS
    assert included[checked_out] == f"slslab_lab/{installed.name}"
    assert installed.parent == Path(papers.__file__).parents[1]
