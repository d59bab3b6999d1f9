"""Published beside modelled: verdicts, what differs and why, and the command with the tables of docs/papers.md."""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tests.slslab.replay.platform import operation, platform
from tests.slslab.replay.recordings import make_plan, write_run

from slslab.communicating import EXPERIMENTS
from slslab.errors import RequestError
from slslab.execution import architectures
from slslab.papers import PaperError, Row, Table, load_paper
from slslab.replay import measured
from slslab.replay.crossings import Interval
from slslab.replay.profiles import Operation, Profile
from slslab.replay.rounds import without_compute
from slslab.reports import rounds
from slslab.reproductions.patterns import PATTERNS, Comparison, as_document, compare_rounds

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "papers.md"
INTERVALS = (
    Interval(0.001, 0.5, "scatterreduce"),
    Interval(0.5, 2.0, ""),
    Interval(2.0, 1000, "allreduce"),
)
COSTS = {name: without_compute(architectures()[name]) for name in PATTERNS}
Run = Callable[..., tuple[int, str, str]]


def compared(
    published: tuple[str, str] | None, modelled: tuple[float, float], intervals: tuple[Interval, ...] = INTERVALS
) -> Comparison:
    """A row at a latency × bandwidth ÷ size of 0.1, with seconds of AllReduce and ScatterReduce."""
    printed = dict(zip(PATTERNS, map(Decimal, published), strict=True)) if published else {}
    seconds = dict(zip(PATTERNS, modelled, strict=True))
    return Comparison(Row(name="row", published=printed), 4, 1000, seconds, seconds, 0.1, intervals, printed)


@pytest.mark.parametrize(
    ("published", "modelled", "verdict"),
    [
        (("2", "1"), (4.0, 3.0), "agrees"),
        (("1", "2"), (3.0, 4.0), "agrees"),
        (("3.3", "3.1"), (1.0, 1.1), "tie"),
        (("1", "1.14"), (1.14, 1.0), "tie"),
        (("1", "1.15"), (1.14, 1.0), "differs"),
        (("3.3", "3.1"), (4.0, 3.0), "differs"),
        (("1", "2"), (4.0, 3.0), "differs"),
        (None, (4.0, 3.0), ""),
    ],
)
def test_verdicts(published: tuple[str, str] | None, modelled: tuple[float, float], verdict: str) -> None:
    found = compared(published, modelled)
    assert found.verdict == verdict
    assert bool(found.reason) == (verdict == "differs")


def test_what_differs_says_where_the_model_would_say_what_was_published() -> None:
    assert compared(("1", "2"), (4.0, 3.0)).reason == (
        "published is AllReduce, modelled ScatterReduce; in the model that begins at a latency × bandwidth ÷ size of "
        "2, 20.0 times larger than this row's."
    )
    assert compared(("1", "1"), (4.0, 3.0)).reason.startswith(
        "published is a tie, modelled ScatterReduce; in the model"
    )
    assert compared(("1", "1"), (4.0, 3.0)).reason.endswith("size of 0.5, 5.0 times larger than this row's.")
    never = compared(("1", "2"), (4.0, 3.0), INTERVALS[:2])
    assert never.reason.endswith("the model says so at no latency × bandwidth ÷ size.")


def table(**inputs: Any) -> Table:
    row = Row(name="row", inputs=inputs, published={"allreduce": Decimal(1), "scatterreduce": Decimal(2)})
    return Table(title="Times", source="Table 1", units={"allreduce": "s", "scatterreduce": "s"}, rows=(row,))


def test_a_row_is_played_with_its_workers_and_bytes() -> None:
    """As calculated in tests/slslab/replay/test_rounds.py."""
    one = table(workers=2, bytes=1_000_000)
    found = compare_rounds(one, platform(), COSTS, "none")(one.rows[0])
    assert found.modelled == {"allreduce": pytest.approx(0.090), "scatterreduce": pytest.approx(0.055)}
    assert found.formula == {"allreduce": pytest.approx(0.085), "scatterreduce": pytest.approx(0.050)}
    # 5 ms × 100 MB/s ÷ 1 MB
    assert found.share == pytest.approx(0.5)
    assert found.verdict == "differs"
    at_once = table(workers=2, bytes=1_000_000, deletes_at_once="allreduce")
    assert compare_rounds(at_once, platform(), COSTS, "none")(at_once.rows[0]).modelled["allreduce"] == (
        pytest.approx(0.085)
    )


def test_intervals_are_those_of_the_kernel() -> None:
    """With L of gets, puts of 2 L and deletes of L as on this platform, in units of m ÷ B and x = L·B ÷ m, 4 workers
    who are told take 2 (1 + 2x) + 5 (1 + x) + 4x - x = 7 + 12x in AllReduce and 4 (¼ + 2x) + 6 (¼ + x) + 3x =
    2.5 + 17x in ScatterReduce."""
    one = table(workers=4, bytes=1_000_000)
    first, tie, last = compare_rounds(one, platform(), COSTS, "none")(one.rows[0]).intervals
    assert (first.winner, tie.winner, last.winner) == ("scatterreduce", "", "allreduce")
    assert first.end == pytest.approx((7 - 1.15 * 2.5) / (1.15 * 17 - 12), rel=0.005)
    assert tie.end == pytest.approx((1.15 * 7 - 2.5) / (17 - 1.15 * 12), rel=0.005)


def test_a_row_beyond_the_sweep_is_swept_to() -> None:
    one = table(workers=2, bytes=40)
    found = compare_rounds(one, platform(), COSTS, "none")(one.rows[0])
    assert found.intervals[-1].end == found.share == pytest.approx(12_500)


def test_a_row_without_workers_and_a_profile_without_latency_are_refused() -> None:
    one = table(bytes=1)
    with pytest.raises(PaperError, match="The row 'row' of Table 1 does not say its workers"):
        compare_rounds(one, platform(), COSTS, "none")(one.rows[0])
    objects = {name: Operation.model_validate(operation(0, 100)) for name in ("put", "get", "list", "delete")}
    store = platform().channels["object"].model_copy(update={"operations": objects})
    profile: Profile = platform().model_copy(update={"channels": {"object": store}})
    with pytest.raises(RequestError, match=r"The profile round gives object\.get no latency"):
        compare_rounds(one, profile, COSTS, "none")


def test_a_row_as_json_has_the_printed_digits_and_open_ends() -> None:
    document = as_document(compared(("1.50", "1.0"), (4.0, 3.0)))
    assert document["published"]["allreduce"] == {"value": "1.50", "basis": "published"}
    assert document["modelled"]["allreduce"] == {"value": 4.0, "basis": "modelled"}
    assert document["ratio"] == {"published": 1.5, "modelled": pytest.approx(4 / 3)}
    assert document["winner"] == {"published": "scatterreduce", "modelled": "scatterreduce"}
    assert [(one["begin"], one["end"], one["winner"]) for one in document["intervals"]] == [
        (None, 0.5, "scatterreduce"), (0.5, 2.0, None), (2.0, None, "allreduce"),
    ]  # fmt: skip
    unpublished = as_document(compared(None, (4.0, 3.0)))
    assert (unpublished["winner"], unpublished["verdict"]) == ({"modelled": "scatterreduce"}, None)
    json.dumps(unpublished)


def shown(rows: list[Mapping[str, Any]]) -> str:
    document = {
        "paper": {"published": "2025"},
        "table": {"title": "Times", "source": "Table 1", "notes": []},
        "profile": {"name": "round", "date": "2026-11-21"},
        "polling": "none",
        "run": "last",
        "rows": rows,
    }
    console = Console(width=140)
    with console.capture() as captured:
        console.print(rounds.rounds(document))
    return captured.get()


def test_a_pattern_that_wins_everywhere_and_intervals_that_come_back() -> None:
    assert "everywhere" in shown([as_document(compared(None, (2.0, 1.0), (Interval(0.1, 10, "scatterreduce"),)))])
    back = (*INTERVALS[:2], Interval(2.0, 3.0, "scatterreduce"))
    text = shown([as_document(compared(None, (2.0, 1.0), back))])
    assert "below 0.5, above 2" in text
    assert "0.5 to 2" in text
    assert "CPU seconds of last" in text


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_documentation_has_what_the_command_prints(slslab: Run, name: str) -> None:
    code, out, err = slslab("reproduce", name)
    assert (code, err.strip()) == (0, f"playing both patterns: {len(rows_of(name))} done")
    text = "\n".join(line.rstrip() for line in out.splitlines())
    block = f"```\n$ slslab reproduce {name}\n{text}\n```"
    assert block in DOCUMENTATION.read_text(), f"docs/papers.md should have\n{block}"


def rows_of(name: str) -> tuple[Row, ...]:
    experiment = EXPERIMENTS[name]
    return load_paper(experiment.paper).table(experiment.table).rows


def test_json_and_picture_of_figure_2(slslab: Run, tmp_path: Path) -> None:
    picture = tmp_path / "fig2.svg"
    code, out, _ = slslab("reproduce", "fig2", "--polling", "adaptive", "--json", "--plot", str(picture))
    document = json.loads(out)
    assert (code, document["reproduces"], document["polling"], document["run"]) == (0, "fig2", "adaptive", None)
    assert document["profile"]["name"] == "aws-us-east-1"
    assert [row["workers"] for row in document["rows"]] == [4, 8, 16] * 2
    assert document["rows"][2]["published"]["scatterreduce"]["value"] == "6.47"
    # In a picture of this kind, texts are drawn; their letters' names stand in comments.
    assert "<!-- ResNet-50, 16 workers -->" in picture.read_text()


def test_another_profile_changes_what_is_modelled_alone(slslab: Run) -> None:
    code, out, _ = slslab("reproduce", "fig2", "--profile", "lambdaml-2021", "--json")
    document = json.loads(out)
    assert (code, document["profile"]["name"]) == (0, "lambdaml-2021")
    # 80 ms × 65 MB/s
    assert document["rows"][0]["latency_bandwidth_size"] == pytest.approx(5.2e6 / 12_868_904)
    assert document["rows"][2]["published"]["allreduce"]["value"] == "4.77"


def test_a_run_gives_cpu_seconds_to_the_rows_of_its_model(
    slslab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_run(tmp_path / "run")
    run = SimpleNamespace(
        plan=make_plan(),
        document={"gradient_bytes": 94_083_368},
        costs=COSTS["allreduce"],
    )
    monkeypatch.setattr(measured, "read_measured", lambda path, rooms: run)  # noqa: ARG005
    monkeypatch.setattr("slslab.replay.transfers.transfer", lambda costs, room, plan: COSTS[room.name])  # noqa: ARG005
    code, out, _ = slslab("reproduce", "lambdaml-table3", "--run", str(directory), "--json")
    document = json.loads(out)
    assert (code, document["run"]) == (0, make_plan().run)
    assert [row["row"] for row in document["rows"]] == ["ResNet-50"]


def test_what_cannot_be_reproduced_is_refused(slslab: Run, tmp_path: Path) -> None:
    code, _, err = slslab("reproduce", "table99")
    assert code == 2
    assert "No such command 'table99'" in err
    code, _, err = slslab("reproduce", "fig2", "--profile", "nowhere")
    assert code == 2
    assert "There is no profile 'nowhere'" in err
    code, _, err = slslab("reproduce", "fig2", "--plot", str(tmp_path / "fig2.txt"))
    assert code == 2
    assert "cannot be drawn" in err
    code, _, err = slslab("reproduce", "fig2", "--run", str(write_run(tmp_path / "small")))
    assert code == 2
    assert "has gradients of 1,000,000 bytes, and no row of Figure 2 and Section 4.2 has" in err
    assert "Hint: name a run of a model with 12,868,904 or 94,083,368 bytes." in err
    code, _, err = slslab("reproduce", "fig2", "--run", str(write_run(tmp_path / "other", "spirt")))
    assert code == 2
    assert "is a run of spirt" in err
