"""Published figures calculated anew: every value is typed in here as it was calculated by hand, to its last digit.

With the rate of 0.0000166667 that the paper prints; a rate of 1/60000 would change the eighth place of some."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from docs.pages.discrepancies import work_out
from hypothesis import given
from hypothesis import strategies as st

from slslab.errors import RequestError
from slslab_lab.papers.expressions import as_text
from slslab_lab.papers.paper import Paper, load_paper
from slslab_lab.papers.recomputation import (
    AGREES,
    CANNOT,
    DIFFERS,
    ROUNDING,
    Recomputed,
    rank,
    recompute,
    round_off,
)

DOCUMENTATION = (Path(__file__).parents[3] / "docs" / "papers.md").read_text(encoding="utf-8")
Cells = dict[tuple[str, str], Recomputed]
BARRAK = load_paper("barrak-2025")
LAMBDAML = load_paper("lambdaml-2021")
KUBEML = load_paper("kubeml-2023")


def cells(paper: Paper, table: str) -> dict[tuple[str, str], Cells]:
    """What is recomputed, by row's name and group, and by column and way."""
    rows = zip(paper.table(table).rows, recompute(paper, table), strict=True)
    return {(row.name, row.group): {(one.column, one.way): one for one in found} for row, found in rows}


def shown(one: Recomputed, places: int) -> str:
    assert one.value is not None
    return as_text(round_off(one.value, places))


TABLE2 = cells(BARRAK, "table2")
MOBILENET, RESNET18, SCATTER = "MobileNet", "ResNet-18", "ScatterReduce"
FUNCTIONS = [
    # seconds × 24 and its verdict, decimal and binary USD of a function with their verdicts, printed against decimal,
    # 24 and 96 times the printed cost of a function, and the GB that it is for
    ("SPIRT", MOBILENET, "370.56", "0.00069094", DIFFERS, "0.00067475", "-0.28 %", "0.016536", "0.066144", "2.677"),
    (SCATTER, MOBILENET, "344.232", "0.00048958", DIFFERS, "0.00047810", "-9.7 %", "0.010608", "0.042432", "1.849"),
    ("AllReduce", MOBILENET, "345.168", "0.00049091", DIFFERS, "0.00047940", "-9.4 %", "0.01068", "0.04272", "1.856"),
    ("MLLess", MOBILENET, "1666.2", "0.00349903", DIFFERS, "0.00341702", "-0.09 %", "0.083904", "0.335616", "3.021"),
    ("SPIRT", RESNET18, "685.2", "0.00152267", AGREES, "0.00148698", "+0.02 %", "0.036552", "0.146208", "3.201"),
    (SCATTER, RESNET18, "652.08", "0.00130416", DIFFERS, "0.00127360", "-0.17 %", "0.031248", "0.124992", "2.875"),
    ("AllReduce", RESNET18, "642.96", "0.00133325", DIFFERS, "0.00130200", "+3.7 %", "0.033168", "0.132672", "3.095"),
    ("MLLess", RESNET18, "1881.36", "0.00474260", DIFFERS, "0.00463145", "-0.12 %", "0.113688", "0.454752", "3.626"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "group", "seconds", "decimal", "verdict", "binary", "against", "worker", "total", "gigabytes"), FUNCTIONS
)
def test_table_2_functions(
    name: str, group: str, seconds: str, decimal: str, verdict: str, binary: str, against: str, worker: str,
    total: str, gigabytes: str,
) -> None:  # fmt: skip
    row = TABLE2[name, group]
    epoch = row["epoch_seconds", "product"]
    assert (epoch.value, epoch.verdict) == (Decimal(seconds), AGREES)
    function = row["function_cost", "decimal"]
    assert (shown(function, 8), function.verdict) == (decimal, verdict)
    assert function.published is not None
    assert function.value is not None
    share = 100 * (function.published / function.value - 1)
    assert f"{round_off(share, 1 if abs(share) >= 1 else 2):+f} %" == against
    assert (shown(row["function_cost", "binary"], 8), row["function_cost", "binary"].verdict) == (binary, DIFFERS)
    assert row["worker_cost", "of_printed"].value == Decimal(worker)
    assert row["total_cost", "of_printed"].value == Decimal(total)
    assert shown(row["implied_gb", "implied"], 3) == gigabytes
    assert (row["implied_gb", "implied"].published, row["implied_gb", "implied"].verdict) == (None, "")


@pytest.mark.parametrize(
    ("name", "group", "worker", "total", "rounded", "total_of_rounded", "decimal", "total_decimal", "binary"),
    [
        # verdict of a worker's cost, total of the printed function with verdict, 4 × the printed worker with verdict,
        # total without rounding, decimal with verdict and binary
        ("SPIRT", MOBILENET, AGREES, ROUNDING, "0.066", AGREES, "0.0663", ROUNDING, "0.0648"),
        ("ScatterReduce", MOBILENET, AGREES, DIFFERS, "0.0424", DIFFERS, "0.0470", DIFFERS, "0.0459"),
        ("AllReduce", MOBILENET, AGREES, AGREES, "0.0428", ROUNDING, "0.0471", DIFFERS, "0.0460"),
        ("MLLess", MOBILENET, AGREES, AGREES, "0.3356", AGREES, "0.3359", ROUNDING, "0.3280"),
        ("SPIRT", RESNET18, ROUNDING, ROUNDING, "0.146", AGREES, "0.1462", ROUNDING, "0.1428"),
        ("ScatterReduce", RESNET18, AGREES, ROUNDING, "0.1248", DIFFERS, "0.1252", DIFFERS, "0.1223"),
        ("AllReduce", RESNET18, AGREES, ROUNDING, "0.1328", AGREES, "0.1280", DIFFERS, "0.1250"),
        ("MLLess", RESNET18, AGREES, AGREES, "0.4548", AGREES, "0.4553", DIFFERS, "0.4446"),
    ],
)
def test_table_2_totals(
    name: str, group: str, worker: str, total: str, rounded: str, total_of_rounded: str, decimal: str,
    total_decimal: str, binary: str,
) -> None:  # fmt: skip
    row = TABLE2[name, group]
    assert row["worker_cost", "of_printed"].verdict == worker
    assert row["total_cost", "of_printed"].verdict == total
    of_rounded = row["total_cost", "of_rounded"]
    assert (of_rounded.value, of_rounded.verdict) == (Decimal(rounded), total_of_rounded)
    exact = row["total_cost", "decimal"]
    assert (shown(exact, 4), exact.verdict) == (decimal, total_decimal)
    assert (shown(row["total_cost", "binary"], 4), row["total_cost", "binary"].verdict) == (binary, DIFFERS)


@pytest.mark.parametrize(
    ("group", "worker", "total"), [(MOBILENET, "0.0134422", "0.0537689"), (RESNET18, "0.0203094", "0.0812378")]
)
def test_table_2_instances(group: str, worker: str, total: str) -> None:
    row = TABLE2["GPU", group]
    assert (shown(row["worker_cost", "instance"], 7), row["worker_cost", "instance"].verdict) == (worker, AGREES)
    assert (shown(row["total_cost", "instance"], 7), row["total_cost", "instance"].verdict) == (total, AGREES)
    assert row["total_cost", "of_rounded"].verdict == AGREES
    assert row["epoch_seconds", ""].reason == "the row lacks function_seconds"
    assert not any(column in ("function_cost", "implied_gb") for column, _ in row)


def test_reasons_and_arithmetic_of_cells_that_disagree() -> None:
    spirt = TABLE2["SPIRT", MOBILENET]
    total = spirt["total_cost", "of_printed"]
    assert (total.expression, total.filled) == ("workers * batches * function_cost", "4 * 24 * 0.000689")
    assert total.reason == "of_rounded gives the printed digits, and rounding on the way explains the difference"
    assert spirt["worker_cost", "of_printed"].reason == ""
    assert spirt["function_cost", "decimal"].reason == "the printed value is 0.28 % smaller"
    cut = TABLE2["SPIRT", RESNET18]["worker_cost", "of_printed"]
    assert cut.reason == "cut off after the last printed digit"
    wrong = TABLE2["ScatterReduce", MOBILENET]["total_cost", "of_printed"]
    assert wrong.reason == "the printed value is 0.55 % smaller"
    assert TABLE2["AllReduce", RESNET18]["total_cost", "decimal"].reason == "the printed value is 3.8 % larger"
    assert spirt["function_seconds", ""] == Recomputed(
        "function_seconds", "", "", "", None, Decimal("15.44"), CANNOT, "the authors measured it"
    )


def test_rankings_of_table_2() -> None:
    def order(*ways: str) -> dict[str, list[tuple[str, str]]]:
        ranked = rank(BARRAK, "table2", "total_cost", ways)
        return {group: [(name, as_text(round_off(value, 4))) for name, value in rows] for group, rows in ranked.items()}

    assert order() == {
        MOBILENET: [
            ("ScatterReduce", "0.0422"), ("AllReduce", "0.0427"), ("GPU", "0.0538"), ("SPIRT", "0.0660"),
            ("MLLess", "0.3356"),
        ],
        RESNET18: [
            ("GPU", "0.0812"), ("ScatterReduce", "0.1249"), ("AllReduce", "0.1328"), ("SPIRT", "0.1460"),
            ("MLLess", "0.4548"),
        ],
    }  # fmt: skip
    assert order("decimal", "instance") == {
        MOBILENET: [
            ("ScatterReduce", "0.0470"), ("AllReduce", "0.0471"), ("GPU", "0.0538"), ("SPIRT", "0.0663"),
            ("MLLess", "0.3359"),
        ],
        RESNET18: [
            ("GPU", "0.0812"), ("ScatterReduce", "0.1252"), ("AllReduce", "0.1280"), ("SPIRT", "0.1462"),
            ("MLLess", "0.4553"),
        ],
    }  # fmt: skip
    assert [name for name, _ in order("binary")[MOBILENET]] == ["ScatterReduce", "AllReduce", "SPIRT", "MLLess"]


def test_the_worked_example_and_ratios_of_table_2() -> None:
    example = cells(BARRAK, "worked_example")["SPIRT", MOBILENET]["cost", "decimal"]
    assert (example.value, example.verdict) == (Decimal("0.00069094138188"), DIFFERS)
    ratios = cells(BARRAK, "ratios")
    assert {
        (name, *key): shown(one, 2) for (name, _), row in ratios.items() for key, one in row.items()
    } == {
        ("MLLess ÷ SPIRT", "time", "of_printed"): "4.50",
        ("MLLess ÷ SPIRT", "cost", "of_printed"): "5.08",
        ("GPU ÷ ScatterReduce", "cost", "of_printed"): "1.27",
        ("GPU ÷ ScatterReduce", "cost", "decimal"): "1.14",
        ("SPIRT ÷ GPU", "cost", "of_printed"): "1.80",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "seconds", "epochs", "places", "steps"),
    [
        ("SPIRT", "5097.6", "13.76", 2, "330"),
        ("MLLess", "11380.8", "6.83", 2, "164"),
        ("ScatterReduce", "99149.4", "288.0", 1, "6913"),
        ("AllReduce", "82020.6", "237.6", 1, "5703"),
        ("GPU", "4219.8", "45.9", 1, "1101"),
    ],
)
def test_table_3(name: str, seconds: str, epochs: str, places: int, steps: str) -> None:
    row = cells(BARRAK, "table3")[name, ""]
    assert row["seconds", "converted"].value == Decimal(seconds)
    assert shown(row["epochs", "sequential"], places) == epochs
    assert shown(row["steps", "sequential"], 0) == steps
    parallel = row.get(("epochs", "in_parallel"))
    assert (parallel and shown(parallel, 0)) == ("330" if name == "SPIRT" else None)


def test_section_4_2() -> None:
    found = cells(BARRAK, "optimizations")
    mlless, averaging, update = (row for _, row in sorted(found.items()))
    converged = mlless["ratio", "of_seconds"]
    assert (shown(converged, 2), converged.published, converged.verdict) == ("13.08", Decimal(13), AGREES)
    assert shown(mlless["steps", "sequential"], 0) == "1633"
    assert (shown(averaging["change", "of_seconds"], 1), shown(averaging["ratio", "of_seconds"], 2)) == (
        "-44.4",
        "1.80",
    )
    assert (shown(update["change", "of_seconds"], 1), shown(update["ratio", "of_seconds"], 2)) == ("-82.5", "5.73")
    drawn = cells(BARRAK, "fig2")
    assert shown(drawn["ResNet-50", "16 workers"]["ratio", "allreduce_slower"], 2) == "2.62"
    assert shown(drawn["MobileNet", "16 workers"]["ratio", "scatterreduce_slower"], 2) == "1.36"
    assert drawn["MobileNet", "4 workers"] == {}


def test_sizes_of_the_models() -> None:
    found = cells(BARRAK, "models")
    for name, ten, thousand in (("MobileNet", "3.217226", "4.231976"), ("ResNet-18", "11.181642", "11.689512")):
        row = found[name, ""]
        assert (row["parameters", "ten_classes"].value, row["parameters", "ten_classes"].verdict) == (
            Decimal(ten), DIFFERS,
        )  # fmt: skip
        assert row["parameters", "thousand_classes"].value == Decimal(thousand)
        assert row["parameters", "thousand_classes"].verdict == AGREES


def test_lambdaml_table_1_has_prices_of_1_14_to_1_22() -> None:
    prices = [
        shown(one, 2)
        for row in cells(LAMBDAML, "table1").values()
        for (_, way), one in row.items()
        if way == "per_hour"
    ]  # fmt: skip
    assert len(prices) == 6 * 3 - 2
    assert (min(prices), max(prices)) == ("1.14", "1.22")
    less = cells(LAMBDAML, "table1")["LR, Higgs", "50 workers"]["dynamodb_less_time", "of_slowdown"]
    assert less.value == Decimal(19)


def test_lambdaml_table_2_has_40_5_mb_per_second_at_best() -> None:
    found = cells(LAMBDAML, "table2")
    speeds = {name: shown(row["bandwidth_grpc", "one_function"], 1) for (name, _), row in found.items()}
    assert len(speeds) == 8
    assert max(speeds.items(), key=lambda one: Decimal(one[1])) == ("1 × 3 GB to c5.4xlarge", "40.5")
    assert shown(found["10 × 1 GB to c5.4xlarge", ""]["bandwidth_thrift", "one_function"], 2) == "0.89"


def test_lambdaml_table_3_and_its_sizes() -> None:
    found = cells(LAMBDAML, "table3")
    assert shown(found["LR, Higgs", ""]["ratio", "scatterreduce_slower"], 2) == "1.07"
    assert shown(found["MobileNet", ""]["ratio", "allreduce_slower"], 2) == "1.06"
    assert shown(found["ResNet-50", ""]["ratio", "allreduce_slower"], 2) == "2.04"
    text = cells(LAMBDAML, "text")
    assert text["ResNet-50, AllReduce ÷ ScatterReduce", ""]["ratio", "allreduce_slower"].verdict == AGREES
    assert text["75 MB to a parameter server", ""]["seconds", "of_table2"].verdict == AGREES
    sizes = cells(LAMBDAML, "sizes")
    assert {way: (one.value, one.verdict) for (_, way), one in sizes["LR, Higgs", ""].items()} == {
        "float64": (Decimal(224), AGREES), "float32": (Decimal(232), DIFFERS),
    }  # fmt: skip
    assert shown(sizes["MobileNet", ""]["megabytes", "mib"], 2) == "12.27"
    assert shown(sizes["ResNet-50", ""]["megabytes", "mib"], 3) == "89.725"
    assert shown(sizes["ResNet-50", ""]["megabytes", "mib_torchvision"], 3) == "89.754"


def test_kubemls_speed_ups_are_those_of_its_figures_and_one_is_cut_off() -> None:
    found = [one for row in recompute(KUBEML, "claims") for one in row]
    assert [one.verdict for one in found if one.column == "speedup"] == [AGREES, AGREES, ROUNDING, AGREES]
    of_goals = [one.value for row in recompute(KUBEML, "goals") for one in row if one.column == "speedup"]
    assert sum(value is not None and value < 1 for value in of_goals) == 2, "KubeML is slower in two of eight settings"
    assert [one.verdict for one in found if one.column == "models_per_gpu"] == [AGREES, AGREES]


PAPER = """
schema = 1
name = "small"
title = "A paper"
authors = "A. Author"
published = "2025"

[tables.one]
title = "Costs"
source = "Table 1"
units = { part = "USD", cost = "USD", other = "s", rest = "USD" }
inputs = { rate = RATE }

[tables.one.formulas]
part.alone = "rate"
cost.exact = "rate * number"
cost.of_printed = "part * number"
cost.whole = "part / zero"

[[tables.one.rows]]
name = "row"
inputs = { number = 4, zero = 0 }
published = { part = PART, cost = COST, other = 1, rest = 2 }
"""
Build = Callable[..., Cells]


@pytest.fixture
def small(tmp_path: Path) -> Build:
    def build(**numbers: str) -> Cells:
        text = PAPER
        for name, number in numbers.items():
            text = text.replace(f"= {name}", f"= {number}")
        path = tmp_path / "small.toml"
        path.write_text(text)
        return cells(load_paper(path), "one")["row", ""]

    return build


@pytest.mark.parametrize(
    ("rate", "part", "cost", "verdicts"),
    [
        # A tie rounds half up, or half to even.
        ("0.125", "0.13", "0.50", (AGREES, AGREES)),
        ("0.125", "0.12", "0.50", (AGREES, AGREES)),
        ("0.135", "0.13", "0.54", (ROUNDING, AGREES)),
        ("-0.125", "-0.13", "-0.50", (AGREES, AGREES)),
        # Cut off, and rounded up.
        ("0.1299", "0.12", "0.51", (ROUNDING, ROUNDING)),
        ("0.1201", "0.13", "0.48", (ROUNDING, AGREES)),
        # A whole unit away is no rounding, unless what was calculated with was rounded: 4 × 0.13.
        ("0.1299", "0.13", "0.53", (AGREES, DIFFERS)),
        ("0.1275", "0.13", "0.52", (AGREES, ROUNDING)),
        # 4 × 0.12 would be, but 0.15 is no rounding of 0.12.
        ("0.15", "0.12", "0.48", (DIFFERS, DIFFERS)),
    ],
)
def test_verdicts(small: Build, rate: str, part: str, cost: str, verdicts: tuple[str, str]) -> None:
    found = small(RATE=rate, PART=part, COST=cost)
    assert (found["part", "alone"].verdict, found["cost", "exact"].verdict) == verdicts


def test_what_cannot_be_calculated_says_why(small: Build) -> None:
    found = small(RATE="0", PART="1", COST="2")
    whole = found["cost", "whole"]
    assert (whole.value, whole.verdict, whole.reason) == (None, CANNOT, "it divides by zero")
    assert whole.filled == "1 / 0"
    assert found["other", ""].reason == "Table 1 doesn't say how to calculate it"
    # Nothing is a share of zero.
    exact = found["cost", "exact"]
    assert (exact.value, exact.verdict, exact.reason) == (Decimal(0), DIFFERS, "")


def test_the_documentation_has_what_its_code_prints() -> None:
    (found,) = re.finditer(r"```python\n(.*?)```\n\n```\n(.*?)```", DOCUMENTATION, re.DOTALL)
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(found[1], "papers.md", "exec"), {})
    assert printed.getvalue() == found[2]


def test_the_documentations_paper_can_be_read_and_recomputed(tmp_path: Path) -> None:
    path = tmp_path / "a-paper.toml"
    path.write_text(DOCUMENTATION.split("```toml\n")[1].split("```")[0])
    paper = load_paper(path)
    row = cells(paper, "table1")["MobileNet", "4 workers"]
    # 92 s of 0.526 USD an hour are 0.013442 USD.
    assert (shown(row["cost", "exact"], 6), row["cost", "exact"].verdict) == ("0.013442", AGREES)
    values = [work_out(paper, working).value for working in paper.discrepancies[0].workings]
    assert values == ["0.013442 USD", "0.1072 USD"]
    assert paper.values("table1", paper.row("table1", "MobileNet", "8 workers"))["hour"] == Decimal("0.526")


def test_a_table_that_is_not_there() -> None:
    with pytest.raises(RequestError, match="barrak-2025 has no table 'table9'"):
        recompute(BARRAK, "table9")


@given(st.decimals(min_value=-1000, max_value=1000, places=6), st.integers(0, 4))
def test_a_figure_agrees_with_what_it_was_rounded_from(value: Decimal, places: int) -> None:
    """And cutting it off is never worse than rounding."""
    printed = round_off(value, places)
    assert abs(Fraction(printed) - Fraction(value)) <= Fraction(1, 2 * 10**places)
    paper = Paper.model_validate(
        {
            "name": "p", "title": "p", "authors": "p", "published": "p",
            "tables": {
                "t": {
                    "title": "t", "source": "t", "units": {"x": "s"}, "formulas": {"x": {"same": "value"}},
                    "rows": [
                        {"name": "rounded", "inputs": {"value": value}, "published": {"x": printed}},
                        {"name": "cut", "inputs": {"value": value}, "published": {"x": cut_off(value, places)}},
                    ],
                }
            },
        }
    )  # fmt: skip
    (rounded,), (cut,) = recompute(paper, "t")
    assert (rounded.value, rounded.verdict) == (value, AGREES)
    assert cut.verdict in (AGREES, ROUNDING)


def cut_off(value: Decimal, places: int) -> Decimal:
    return Decimal(int(value * 10**places)).scaleb(-places)
