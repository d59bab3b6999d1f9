"""Random runs with random faults: some run here, and the committed ones (`python -m tests.random_faults`)."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests import random_faults
from tests.commands import forked_environments
from tests.random_plans import POSSIBLE, draw

from slslab_workers.faults.plan import KINDS

ROWS = json.loads(random_faults.DATA.read_text())["runs"]


@pytest.mark.server
@pytest.mark.parametrize("seed", [4, pytest.param(9, marks=pytest.mark.exhaustive), 59])
def test_a_random_run_ends_within_its_bound_by_name_and_holds(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with forked_environments():
        row = random_faults.make(seed, tmp_path)
    assert row["wrong"] == []
    committed = next(one for one in ROWS if one["seed"] == seed)
    same = ("architecture", "place", "faults", "options", "status", "error", "parameters", "bound")
    assert {name: row[name] for name in same} == {name: committed[name] for name in same}


@pytest.mark.exhaustive
def test_what_a_seed_gives_is_drawn_from_it_alone(tmp_path: Path) -> None:
    for row in ROWS:
        drawn = draw(row["seed"], tmp_path)
        assert (drawn.architecture, drawn.faults["fault"]) == (row["architecture"], row["faults"])
        assert (drawn.refused, round(random_faults.bound_s(drawn), 1)) == (row["refused"], row["bound"])


def test_all_committed_runs_held() -> None:
    assert [row["seed"] for row in ROWS] == list(range(len(ROWS)))
    assert [row for row in ROWS if row["wrong"]] == []
    assert all(row["seconds"] - row["delayed"] <= row["bound"] for row in ROWS)
    assert all(ending == random_faults.ENDINGS[kind] for row in ROWS for kind, ending in row["deaths"])


def test_they_are_of_every_architecture_channel_and_kind_of_fault() -> None:
    assert len(ROWS) >= 300
    places = {(name, next(iter(place.values()), None)) for name, place in POSSIBLE}
    assert {(row["architecture"], row["place"]) for row in ROWS} == places
    met = {fault["kind"] for row in ROWS for fault, times in zip(row["faults"], row["met"], strict=True) if times}
    assert met >= set(KINDS) - {"unreachable"}, "docs/reliability.md says which is lacking"
    assert {kind for row in ROWS for kind, _ in row["deaths"]} == set(random_faults.ENDINGS)


def test_the_page_has_their_number() -> None:
    page = (random_faults.DATA.parents[1] / "docs" / "reliability.md").read_text()
    assert f"{len(ROWS)} runs were made" in page


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"seconds": 100.0}, "it took 100.0 s"),
        ({"status": "interrupted"}, "the run is interrupted"),
        ({"error": None}, "has no name"),
        ({"met": [0]}, "no fault happened, and it failed"),
        ({"deaths": [["out-of-memory", "Runtime.ExitError"]]}, "out-of-memory is reported as Runtime.ExitError"),
    ],
)
def test_what_is_wrong_is_seen(change: dict[str, Any], wrong: str) -> None:
    right = {
        **{"seconds": 9.0, "delayed": 1.0, "bound": 80.0, "status": "failed", "error": "Runtime.OutOfMemory"},
        **{"met": [1], "deaths": [["out-of-memory", "Runtime.OutOfMemory"]]},
    }
    assert list(random_faults.wrong(right)) == []
    [said] = random_faults.wrong({**right, **change})
    assert wrong in said
