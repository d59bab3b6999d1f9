"""`slslab atlas`: the whole of it, its files, its page and its words; and wrong calls."""

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.commands import slslab
from tests.lab.studies.setups import Watching

from slslab.report.terminal import render
from slslab_lab.pages import atlas
from slslab_lab.studies import committed
from slslab_lab.studies.atlas.grid import GROUPS, OBJECTIVES, WORKERS
from slslab_lab.studies.atlas.recordings import JOBS, record_all
from slslab_lab.studies.saving import ATLAS


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The document of the whole atlas, and where its files are."""
    out = tmp_path_factory.mktemp("atlas")
    return slslab("atlas", "--out", out, "--json").document, out


@pytest.mark.exhaustive
def test_every_place_has_a_winner_and_every_point_a_basis(whole: tuple[dict[str, Any], Path]) -> None:
    document, _ = whole
    places = {(each["group"], each["objective"], each["megabytes"], each["workers"]) for each in document["winners"]}
    assert len(places) == len(GROUPS) * len(OBJECTIVES) * len(document["axes"]["megabytes"]) * len(WORKERS)
    assert len(document["points"]) > 1_500
    assert {point["system"] for point in document["points"]} == {one["name"] for one in document["axes"]["systems"]}
    for point in document["points"]:
        assert point["basis"] == "modelled"
        assert point["extrapolated"] == bool(point["reasons"])
        assert point["seconds"] > 0 < point["usd"]


@pytest.mark.exhaustive
def test_what_lies_beyond_the_recordings_is_marked(whole: tuple[dict[str, Any], Path]) -> None:
    document, _ = whole
    recorded = document["recorded"]
    # They have six digits.
    low, high = min(recorded["megabytes"].values()) * 0.999, max(recorded["megabytes"].values()) * 1.001
    for point in document["points"]:
        beyond = point["workers"] > recorded["workers"] or not low <= point["megabytes"] <= high
        assert point["extrapolated"] or not beyond, point
    assert not all(point["extrapolated"] for point in document["points"])


@pytest.mark.exhaustive
def test_a_winner_is_no_worse_than_any_point_of_its_place(whole: tuple[dict[str, Any], Path]) -> None:
    document, _ = whole
    for won in document["winners"]:
        rivals = [
            point
            for point in document["points"]
            if (point["megabytes"], point["workers"]) == (won["megabytes"], won["workers"])
            and (won["group"] == "all" or point["equal"])
        ]
        assert won[won["objective"]] == min(point[won["objective"]] for point in rivals)


@pytest.mark.exhaustive
def test_crossings_are_between_two_different_winners(whole: tuple[dict[str, Any], Path]) -> None:
    document, _ = whole
    assert document["crossings"]
    for each in document["crossings"]:
        won = atlas.winners(document, each["group"], each["objective"], each["workers"])
        names = {each["first"], each["second"]}
        below = [point for point in won if point["megabytes"] <= each["megabytes"]]
        above = [point for point in won if point["megabytes"] >= each["megabytes"]]
        assert {below[-1]["system"], above[0]["system"]} == names


@pytest.mark.exhaustive
def test_its_files(whole: tuple[dict[str, Any], Path]) -> None:
    document, out = whole
    saved = json.loads((out / ATLAS).read_text())
    assert saved == {name: value for name, value in document.items() if name != "points"}
    with (out / "points.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(document["points"])
    page = (out / "atlas.html").read_text()
    first = next(atlas.answers(document, "equal"))
    assert page.index(first.split(" the cheapest")[0]) < page.index("regions-equal-seconds")
    assert "regions-all-usd" in page
    assert r"allreduce/s3/ga \u2192 allreduce/memcached/ga" in page


@pytest.mark.exhaustive
def test_the_saved_atlas_is_that_of_the_recordings(whole: tuple[dict[str, Any], Path]) -> None:
    document, _ = whole
    kept = json.loads((committed("atlas") / ATLAS).read_text())
    assert kept["answers"] == document["answers"]
    assert kept["crossings"] == document["crossings"]


@pytest.mark.exhaustive
def test_the_terminal_answers_first(whole: tuple[dict[str, Any], Path]) -> None:
    document, _ = whole
    text = io.StringIO()
    Console(width=140, file=text).print(render(atlas.shown(document)))
    lines = text.getvalue().splitlines()
    assert lines[1].startswith("For a model of 0.247 MB (LeNet-5) the fastest is ")
    assert any("The papers' own crossings" in line for line in lines)


@pytest.mark.exhaustive
def test_every_winner_and_every_lead_has_its_range(whole: tuple[dict[str, Any], Path]) -> None:
    document, _ = whole
    for won in (
        *document["winners"],
        *(each[name] for each in document["answers"] for name in ("fastest", "cheapest")),
    ):
        assert won["seconds_low"] < won["seconds"] < won["seconds_high"]
        assert won["usd_low"] < won["usd"] < won["usd_high"]
        assert won["next_range"]["low"] < won["next_ratio"] < won["next_range"]["high"]
        assert ("can't be told apart" in atlas.following(won)) == (won["next_range"]["low"] <= 1)
    assert "80 % ranges allow for errors in " in atlas.job(document)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--epochs 0", "0 is not in the range"),
        ("--record", "--record needs a directory of recordings."),
        ("--check", "--check needs a directory for its runs."),
        ("--check --record --recordings x --out y", "--record and --check can't be combined."),
        ("--profile nowhere", "nowhere"),
        ("--prices nowhere", "There is no price book"),
        ("--platform lambda-managed", "lambda-managed has no functions with GPUs."),
        ("--platform modal-t4 --prices paper-2025", "The price book paper-2025 has no price for GPU T4, vCPUs of "),
    ],
)
def test_wrong_calls(options: str, says: str, tmp_path: Path) -> None:
    done = slslab("atlas", *options.split(), directory=tmp_path)
    assert done.code == 2
    assert says in done.err
    assert list(tmp_path.iterdir()) == []


def test_recordings_that_are_missing(tmp_path: Path) -> None:
    done = slslab("atlas", "--recordings", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert f"{tmp_path} has no recording lenet-allreduce." in done.err
    assert "Hint: record it: slslab atlas --record --recordings" in done.err


def test_what_was_recorded_on_a_quiet_host_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JOBS[0]
    made: list[str] = []

    def run_plan(name: str, *_: Any, out: Path, **__: Any) -> dict[str, Any]:
        made.append(name)
        shutil.copytree(committed("atlas") / job.name, out)
        document = json.loads((out / "run.json").read_text())
        document["alone"]["quiet"] = True
        (out / "run.json").write_text(json.dumps(document))
        return {**document, "error": None}

    monkeypatch.setattr("slslab_lab.studies.atlas.recordings.JOBS", (job,))
    monkeypatch.setattr("slslab_lab.studies.recording.run_plan", run_plan)
    watching = Watching()
    for _ in range(2):
        record_all(tmp_path, watching)
    lines = watching.said
    assert made == [job.architecture]
    assert lines[0] == "1 run to make, 0 of 1 are kept."
    assert "quiet; 1 of 1" in lines[1]
    assert lines[2] == "0 runs to make, 1 of 1 are kept."
