"""`slslab ask model`: its document, its tables and picture, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import commands
from tests.lab.commands.test_replay import OTHERS
from tests.lab.replay.recordings import TRACES, write_run

from slslab_lab.replay.measured import Measured

ROOT = Path(__file__).parents[3]
RUN = str(TRACES / "allreduce")
Slslab = Callable[..., commands.Done]


@pytest.fixture
def slslab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slslab:
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return commands.slslab


def test_four_ways_and_how_far_the_model_is_off(slslab: Slslab, tmp_path: Path) -> None:
    document = slslab("ask", "model", RUN, "--workers", "4,2", "--plot", "model.svg", "--json").document
    assert document["schema"] == 1
    assert document["transfers"] == "derived"
    four, two = document["rows"]
    assert (four["workers"], four["measured"]) == (4, None)
    for row in (four, two):
        for figure in ("seconds", "communication"):
            model, formula, replayed = (row[name][figure] for name in ("model", "closed_form", "replay"))
            assert {model["basis"], formula["basis"], replayed["basis"]} == {"modelled"}
            assert row["model_error"][figure]["value"] == pytest.approx(model["value"] / replayed["value"] - 1)
    slowest = json.loads((TRACES / "allreduce" / "run.json").read_text())["per_worker"][0]["phases"]
    assert two["measured"]["seconds"] == {"value": pytest.approx(sum(slowest.values())), "basis": "measured"}
    # The replay is that of `slslab replay`.
    replay = slslab("replay", RUN, "--workers", "4", "--json").document
    assert four["replay"]["seconds"] == replay["rows"][-1]["seconds"]
    assert document["errs_from"] == 2
    constants = document["constants"]
    assert (constants["rounds"]["value"], constants["message_bytes"]["value"]) == (30, 246_824)
    assert constants["put"]["op"] == "object.put"
    assert constants["put"]["latency_ms"]["source"]
    assert set(document["left_out"]) == {"closed_form", "replay", "neither"}
    assert (tmp_path / "model.svg").read_text().startswith("<svg")


def test_the_answer_comes_first(slslab: Slslab) -> None:
    said = " ".join(slslab("ask", "model", RUN, "--workers", "2,4").out.split())
    first = said.partition("Seconds of the run")[0]
    assert first.startswith("With 2 workers the analytic model is ≈")
    assert "The run's seconds are off by more than 10 % from 2 workers on." in first
    for text in (
        "w + 3 (3 for one worker) is derived",
        "- polls: ",
        "- additional rounds that more workers need",
        "this-host",
    ):
        assert text in said
    scattered = slslab("ask", "model", str(TRACES / "scatterreduce"), "--workers", "2", "--network", "this-host").out
    assert "(3w - 2) × (m ÷ w ÷ B + L)" in scattered
    assert "derived" not in scattered


def test_the_example_of_the_documentation(slslab: Slslab, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "replay.md").read_text()
    command, _, example = page.partition("$ slslab ask model")[2].partition("\n")
    monkeypatch.chdir(ROOT)
    said = slslab("ask", "model", *command.split()).out
    answer, *lines = example.partition("```")[0].strip().split("\n\n")
    rows = [line.split() for line in lines[0].splitlines() if "≈" in line]
    assert len(rows) == 3
    assert " ".join(answer.split()) in " ".join(said.split())
    assert [row for row in map(str.split, said.splitlines()) if row in rows] == rows


def test_by_default_the_run_s_own_workers_are_among_them(slslab: Slslab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slslab_lab.questions.model.FLEETS", (1, 3))
    rows = slslab("ask", "model", RUN, "--json").document["rows"]
    assert [(row["workers"], row["measured"] is not None) for row in rows] == [(1, False), (2, True), (3, False)]


def test_more_workers_than_may_run_at_once_are_not_replayed(slslab: Slslab, tmp_path: Path) -> None:
    short = write_run(tmp_path / "short", others=OTHERS)
    (row,) = slslab("ask", "model", short, "--workers", "1001", "--json").document["rows"]
    assert row["replay"] is None
    assert row["model"]["seconds"]["value"] > 0
    done = slslab("ask", "model", short, "--workers", "1001")
    assert "the model's error is unknown" in done.out
    assert "1001 workers: It never ends: with a concurrency of 1,000" in " ".join(done.out.split())
    for question in ("patterns", "gpu"):
        refused = slslab("ask", question, short, "--workers", "1001")
        assert (refused.code, refused.out) == (2, "")
        assert "It never ends: with a concurrency of 1,000" in refused.err


@pytest.mark.parametrize("name", ["gpu", "mlless", "spirt"])
def test_other_architectures_are_refused(slslab: Slslab, name: str) -> None:
    done = slslab("ask", "model", str(TRACES / name))
    assert (done.code, done.out) == (2, "")
    assert f"ran {name}, for which LambdaML has no analytic model." in done.err
    assert "Hint: name one of allreduce or scatterreduce." in done.err


def test_an_asynchronous_run_is_refused(slslab: Slslab, tmp_path: Path) -> None:
    run = tmp_path / "asynchronous"
    shutil.copytree(TRACES / "allreduce", run)
    document = json.loads((run / "run.json").read_text())
    document["plan"].setdefault("options", {})["synchronisation"] = "s-asp"
    (run / "run.json").write_text(json.dumps(document))
    done = slslab("ask", "model", str(run))
    assert (done.code, done.out) == (2, "")
    assert "the analytic model assumes that all workers wait" in done.err
    assert "Hint: name one with --synchronisation bsp." in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workers", "0"), "--workers 0 is out of range"),
        (("--workers", "4,,8"), "is not a list of whole numbers"),
        (("--workers", "2", "--plot", "model.txt"), "model.txt cannot be drawn"),
        (("--profile", "nowhere"), "There is no profile 'nowhere'"),
    ],
)
def test_wrong_requests(slslab: Slslab, arguments: tuple[str, ...], message: str) -> None:
    done = slslab("ask", "model", RUN, *arguments)
    assert (done.code, message in done.err) == (2, True), done.err


@pytest.mark.parametrize("question", ["model", "patterns", "gpu"])
def test_a_cache_that_is_too_small_is_named(slslab: Slslab, monkeypatch: pytest.MonkeyPatch, question: str) -> None:
    monkeypatch.setattr(Measured, "warnings", lambda _run, workers: (f"The cache is too small for {workers}.",))
    said = " ".join(slslab("ask", question, RUN, "--workers", "2,4").out.split())
    assert "The cache is too small for 2." in said
    assert "The cache is too small for 4." in said
