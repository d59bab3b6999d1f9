"""AllReduce compared with ScatterReduce: winners, what differs, in both variants; and the commands."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.lab.replay.platform import operation, platform
from tests.lab.studies.setups import setup

from slslab.errors import RequestError
from slslab.predict.profiles.profile import Operation, Profile
from slslab.report.terminal import render
from slslab_lab.pages.reproduction import reproduction, thresholds
from slslab_lab.papers.paper import Row, Table, load_paper
from slslab_lab.papers.recomputation import recompute
from slslab_lab.replay.crossings import Interval
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.documents import Estimate
from slslab_lab.studies.minibatches import ratio_of
from slslab_lab.studies.patterns import PATTERNS, TABLES, Comparison, Variant, build, compare_rounds, variants

INTERVALS = (
    Interval(0.001, 0.5, "scatterreduce"),
    Interval(0.5, 2.0, ""),
    Interval(2.0, 1000, "allreduce"),
)
CANONICAL, TOLD = Variant("canonical", "adaptive"), Variant("canonical", "none")
Run = Callable[..., tuple[int, str, str]]


def compared(
    published: tuple[str, str] | None, modelled: tuple[float, float], intervals: tuple[Interval, ...] = INTERVALS
) -> Comparison:
    """A row at a latency × bandwidth ÷ size of 0.1, with seconds of AllReduce and ScatterReduce."""
    printed = dict(zip(PATTERNS, map(Decimal, published), strict=True)) if published else {}
    seconds = dict(zip(PATTERNS, modelled, strict=True))
    return Comparison(Row(name="row", published=printed), CANONICAL, 4, 1000, seconds, 0.1, intervals)


def table(**inputs: Any) -> Table:
    row = Row(name="row", inputs=inputs, published={"allreduce": Decimal(1), "scatterreduce": Decimal(2)})
    return Table(title="Times", source="Table 1", units={"allreduce": "s", "scatterreduce": "s"}, rows=(row,))


def test_variants_are_slslabs_own_and_those_of_the_tables_code() -> None:
    one = table(workers=2, bytes=1, log_traffic="S3", deletes_at_once="allreduce")
    assert variants(one, one.rows[0]) == (CANONICAL, Variant("as released", "released", 0, "allreduce"))
    plain = table(workers=2, bytes=1)
    assert variants(plain, plain.rows[0]) == (CANONICAL, Variant("as released", "released"))


def test_a_row_is_played_with_its_workers_and_bytes() -> None:
    """As calculated in tests/lab/replay/test_rounds.py."""
    one = table(workers=2, bytes=1_000_000)
    found = compare_rounds(one, platform())(one.rows[0], TOLD)
    assert found.modelled == {"allreduce": pytest.approx(0.090), "scatterreduce": pytest.approx(0.055)}
    # 5 ms × 100 MB/s ÷ 1 MB
    assert found.share == pytest.approx(0.5)
    assert found.winners == {"published": "allreduce", "modelled": "scatterreduce"}
    released = compare_rounds(one, platform())(one.rows[0], replace(TOLD, deletes_at_once="allreduce"))
    assert released.modelled["allreduce"] == pytest.approx(0.085)


def test_log_traffic_is_played_as_released() -> None:
    """Lines of 15 ms and a few µs: three before AllReduce's sum is there, four before ScatterReduce's."""
    one = table(workers=2, bytes=1_000_000, log_traffic="S3")
    released = compare_rounds(one, platform())(one.rows[0], replace(TOLD, log_bytes=0))
    assert released.modelled == {
        "allreduce": pytest.approx(0.090 + 3 * 0.015, abs=2e-5),
        "scatterreduce": pytest.approx(0.055 + 4 * 0.015, abs=2e-5),
    }


def test_intervals_are_those_of_the_kernel() -> None:
    """With L of gets, puts of 2 L and deletes of L as on this platform, in units of m ÷ B and x = L·B ÷ m, 4 workers
    who are told take 2 (1 + 2x) + 5 (1 + x) + 4x - x = 7 + 12x in AllReduce and 4 (¼ + 2x) + 6 (¼ + x) + 3x =
    2.5 + 17x in ScatterReduce."""
    one = table(workers=4, bytes=1_000_000)
    canonical = compare_rounds(one, platform())(one.rows[0], TOLD)
    first, tie, last = canonical.intervals
    assert (first.winner, tie.winner, last.winner) == ("scatterreduce", "", "allreduce")
    assert first.end == pytest.approx((7 - 1.15 * 2.5) / (1.15 * 17 - 12), rel=0.005)
    assert tie.end == pytest.approx((1.15 * 7 - 2.5) / (17 - 1.15 * 12), rel=0.005)


def test_a_row_beyond_the_sweep_is_swept_to() -> None:
    one = table(workers=2, bytes=40)
    found = compare_rounds(one, platform())(one.rows[0], TOLD)
    assert found.intervals[-1].end == found.share == pytest.approx(12_500)


def test_a_profile_without_latency_is_refused() -> None:
    one = table(workers=2, bytes=1)
    objects = {name: Operation.model_validate(operation(0, 100)) for name in ("put", "get", "list", "delete")}
    store = platform().channels["object"].model_copy(update={"operations": objects})
    profile: Profile = platform().model_copy(update={"channels": {"object": store}})
    with pytest.raises(RequestError, match=r"The profile round has no latency for object\.get"):
        compare_rounds(one, profile)


def document(*found: Comparison) -> dict[str, Any]:
    """LambdaML's table, as if these were rows of it."""
    paper = load_paper("lambdaml-2021")
    rows = paper.table("table3").rows
    mine = [
        replace(one, row=row.model_copy(update={"published": one.row.published}))
        for one, row in zip(found, rows, strict=False)
    ]
    given = setup("lambdaml-table3", {"paper": with_rows(paper, mine), "profile": platform()})
    return build(given, mine)


def with_rows(paper: Any, found: list[Comparison]) -> Any:
    here = paper.table("table3").model_copy(update={"rows": tuple(one.row for one in found)})
    return paper.model_copy(update={"tables": {**paper.tables, "table3": here}})


def test_cells_of_a_row() -> None:
    one = compared(("1.50", "1.0"), (4.0, 1.1))
    made = document(one)
    (row,) = made["rows"]
    first, second, ratio = (row["cells"][name] for name in (*PATTERNS, "ratio"))
    assert (row["name"], row["group"], row["variant"]) == ("4 workers", "LR, Higgs", "canonical")
    assert (first["published"], first["modelled"]["value"], first["verdict"]) == ("1.50", 4.0, "differs")
    # 2 puts and 5 gets in a row.
    assert (
        "AllReduce has 7 puts and gets in a row, of 1000 B each. The published 1.50 s leave 214 ms" in first["reason"]
    )
    assert "the model has 571 ms" in first["reason"]
    assert (second["verdict"], second["reason"]) == ("agrees", "")
    assert [(each["way"], each["verdict"]) for each in first["recomputed"]] == [("", "cannot")]
    # The same winner is what a ratio agrees by.
    assert (ratio["published"], ratio["verdict"], ratio["difference"]) == (
        None,
        "agrees",
        pytest.approx(4 / 1.1 / 1.5 - 1),
    )
    assert [each["way"] for each in ratio["recomputed"]] == ["allreduce_slower"]
    assert ratio["recomputed"][0]["value"] == "1.5"
    assert row["winner"] == {"published": "scatterreduce", "modelled": "scatterreduce"}
    assert [(one["begin"], one["end"], one["winner"]) for one in row["intervals"]] == [
        (None, 0.5, "scatterreduce"), (0.5, 2.0, None), (2.0, None, "allreduce"),
    ]  # fmt: skip
    json.dumps(made)


@pytest.mark.parametrize(
    ("published", "modelled", "verdict"),
    [
        (("2", "1"), (4.0, 3.0), "agrees"),
        (("1", "2"), (3.0, 4.0), "agrees"),
        (("3.3", "3.1"), (1.0, 1.1), "agrees"),
        (("1", "1.14"), (1.14, 1.0), "agrees"),
        (("1", "1.15"), (1.14, 1.0), "differs"),
        (("3.3", "3.1"), (4.0, 3.0), "differs"),
        (("1", "2"), (4.0, 3.0), "differs"),
        (None, (4.0, 3.0), ""),
    ],
)
def test_a_ratio_agrees_if_both_have_the_same_winner(
    published: tuple[str, str] | None, modelled: tuple[float, float], verdict: str
) -> None:
    (row,) = document(compared(published, modelled))["rows"]
    assert row["cells"]["ratio"]["verdict"] == verdict


def test_a_row_of_which_nothing_is_published_has_no_verdict() -> None:
    (row,) = document(compared(None, (4.0, 3.0)))["rows"]
    assert {cell["verdict"] for cell in row["cells"].values()} == {""}
    assert row["winner"] == {"modelled": "scatterreduce"}
    assert row["cells"]["ratio"]["difference"] is None


def test_the_interval_of_a_ratio() -> None:
    """Relative errors of 0.3 and 0.4 are together one of 0.5, of the logarithm."""
    found = ratio_of(Estimate(2.0, 1.4, 2.6, 3), Estimate(1.0, 0.6, 1.4, 5))
    assert found is not None
    assert (found.value, found.samples) == (2.0, 3)
    assert found.low == pytest.approx(2 / 1.6487, rel=1e-4)
    assert found.high == pytest.approx(2 * 1.6487, rel=1e-4)
    assert ratio_of(Estimate(2.0, None, None, 1), Estimate(1.0, None, None, 1)) == Estimate(2.0, None, None, 1)


def test_a_pattern_that_wins_everywhere_and_intervals_that_come_back() -> None:
    everywhere = compared(None, (2.0, 1.0), (Interval(0.1, 10, "scatterreduce"),))
    back = compared(("1", "2"), (2.0, 1.0), (*INTERVALS[:2], Interval(2.0, 3.0, "scatterreduce")))
    made = document(everywhere, replace(back, share=23214.2))
    first, second = next(thresholds(made)).rows
    assert first[3:] == ("–", "≈ScatterReduce", "0.1", "everywhere", "–", "–")
    assert second[3:] == ("AllReduce", "≈ScatterReduce", "23,214", "below 0.5, above 2", "0.5 to 2", "–")
    console = Console(width=140)
    with console.capture() as captured:
        console.print(render(reproduction(made)))
    assert "ScatterReduce wins" in captured.get()


@pytest.fixture
def unswept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without playing other sizes, which takes most of the time."""
    monkeypatch.setattr(
        "slslab_lab.studies.patterns.sweep", lambda _, begin, end, __: (Interval(begin, end, "scatterreduce"),)
    )


@pytest.mark.usefixtures("unswept")
def test_figure_2_is_printed_saved_and_drawn(slslab: Run, tmp_path: Path) -> None:
    picture, folder = tmp_path / "fig2.svg", tmp_path / "out"
    code, out, err = slslab("reproduce", "fig2", "--json", "--plot", picture, "--out", folder)
    made = json.loads(out)
    assert (code, made["reproduces"], made["fidelity"]) == (0, "fig2", "replayed")
    assert f"Saved: {folder / 'fig2.json'}" in err
    assert json.loads((folder / "fig2.json").read_text()) == made
    assert "<title>" in (folder / "fig2.html").read_text()
    with (folder / "fig2.csv").open() as file:
        records = list(csv.DictReader(file))
    assert {record["column"] for record in records} == {*PATTERNS, "ratio"}
    assert '<tspan>16 workers</tspan><tspan x="0" dy="12">as released</tspan>' in picture.read_text()
    rows = {(row["group"], row["name"], row["variant"]): row for row in made["rows"]}
    assert set(rows) == {
        (model, f"{workers} workers", variant)
        for model in ("MobileNet", "ResNet-50", "ResNet-18")
        for workers in (4, 8, 16)
        for variant in ("canonical", "as released")
    }
    canonical, released = (rows["MobileNet", "16 workers", variant] for variant in ("canonical", "as released"))
    assert released["cells"]["scatterreduce"]["published"] == "6.47"
    # Log traffic brings both nearer to each other, and does not turn them round.
    ratios = [row["cells"]["ratio"]["modelled"]["value"] for row in (canonical, released)]
    assert 1.15 < ratios[1] < ratios[0]


@pytest.mark.usefixtures("unswept")
def test_lambdamls_table_on_another_profile(slslab: Run, tmp_path: Path) -> None:
    code, out, _ = slslab("reproduce", "lambdaml-table3", "--profile", "aws-us-east-1", "--full", "--out", tmp_path)
    assert code == 0
    made = json.loads((tmp_path / "lambdaml-table3.json").read_text())
    assert made["profile"]["name"] == "aws-us-east-1"
    # 24.5 ms × 78.125 MB/s
    assert made["rows"][2]["latency_bandwidth_size"] == pytest.approx(24.5e-3 * 78.125e6 / 12_868_904)
    assert made["rows"][2]["cells"]["allreduce"]["published"] == "3.3"
    assert "Which pattern is faster, and at which latency × bandwidth ÷ size of a gradient" in out


def test_what_cannot_be_reproduced_is_refused(slslab: Run, tmp_path: Path) -> None:
    code, _, err = slslab("reproduce", "table99")
    assert code == 2
    assert "No such command 'table99'" in err
    code, _, err = slslab("reproduce", "fig2", "--profile", "nowhere")
    assert code == 2
    assert "There is no profile 'nowhere'" in err
    code, _, err = slslab("reproduce", "fig2", "--plot", tmp_path / "fig2.txt")
    assert code == 2
    assert "cannot be drawn" in err


@pytest.mark.parametrize("name", TABLES)
def test_a_ratio_is_recomputed_of_printed_seconds(name: str) -> None:
    paper, table = load_paper(STUDIES[name].paper), TABLES[name]
    for row, found in zip(paper.table(table).rows, recompute(paper, table), strict=True):
        ways = [one.way for one in found if one.column == "ratio"]
        assert ("allreduce_slower" in ways) == bool(row.published)
