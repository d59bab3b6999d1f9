"""Winners and crossings of made-up points, and the whole grid in time."""

from pathlib import Path
from typing import Any

import pytest

from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import load_profile
from slslab.predict.uncertainty import Uncertainty
from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab_lab.commands.atlas import _parameters
from slslab_lab.pages.atlas import answers, strips
from slslab_lab.studies.atlas import grid
from slslab_lab.studies.atlas.document import _alone, _answers
from slslab_lab.studies.atlas.grid import Grid, Refusal, best, contests, crossings, least, pair_crossings
from slslab_lab.studies.atlas.points import Job, Point, megabytes
from slslab_lab.studies.atlas.recordings import Recordings
from slslab_lab.studies.atlas.systems import SYSTEMS, System

FIRST, SECOND = System("allreduce", "s3", "ga", equal=True), System("allreduce", "dynamodb", "ga", equal=True)
OTHER = System("mlless")
SIZES = (1_000, 10_000, 100_000)


def point(system: System, parameters: int, seconds: float, usd: float = 1.0, **more: Any) -> Point:
    """Return a point with 2 workers."""
    values = {"workers": 2, "memory_mb": 1769, "epoch_seconds": seconds, "epoch_usd": usd, "boot_s": 0.0, "reasons": ()}
    return Point(system, parameters, seconds=seconds, usd=usd, **{**values, "usd_alone": usd, **more})


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have three sizes and two workers."""
    monkeypatch.setattr(grid, "PARAMETERS", SIZES)
    monkeypatch.setattr(grid, "WORKERS", (2,))


def test_the_best_point_is_that_with_the_least_of_a_figure_and_of_equals_the_better_other_one() -> None:
    points = [point(FIRST, 1_000, 5, 2.0), point(FIRST, 1_000, 5, 1.0), point(SECOND, 1_000, 6, 0.5)]
    assert best(points, "seconds") is points[1]
    assert best(points, "usd") is points[2]


def test_a_model_of_ones_own_has_an_answer_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "PARAMETERS", (61_706, 3_217_226, 11_173_962))
    job = Job(1, load_profile(DEFAULT_PROFILE), load_book(DEFAULT_BOOK), "net:mlp", _parameters("lr", "breast-cancer"))
    assert job.parameters == 62
    assert grid.sizes(job) == [62, *grid.PARAMETERS]
    ranges = dict.fromkeys(("seconds", "usd"), Uncertainty({}, {"replay": 0.1}))
    made = Grid([point(FIRST, size, 5 + size, uncertainties=ranges) for size in grid.sizes(job)], ())
    document = {"answers": list(_answers(made, job))}
    (sentence,) = (text for text in answers(document, "all") if "net:mlp" in text)
    assert sentence.startswith("For a model of 0.000248 MB (net:mlp) the fastest is ")
    assert len(list(answers(document, "all"))) == 4


def test_groups_and_winners() -> None:
    every = Grid([point(FIRST, 1_000, 5), point(FIRST, 1_000, 4, memory_mb=3008), point(OTHER, 1_000, 1)], ())
    won = {(group, objective): best(those, objective) for group, objective, those in contests(every.points)}
    assert won["equal", "seconds"].memory_mb == 3008
    assert won["all", "seconds"].system is OTHER
    assert least(every.points, "seconds")["allreduce/s3/ga", 1_000, 2] == 4


def test_a_crossing_lies_where_the_logarithms_meet() -> None:
    # Twice as fast at one end, half as fast at the other one: in the middle of a logarithmic axis.
    points = [
        *(point(FIRST, size, seconds) for size, seconds in zip(SIZES, (1, 1, 2), strict=True)),
        *(point(SECOND, size, seconds) for size, seconds in zip(SIZES, (4, 2, 1), strict=True)),
    ]
    (found,) = crossings(Grid(points, ()), "equal", "seconds")
    assert found["megabytes"] == pytest.approx(megabytes(1) * 31622.8, rel=1e-4)
    assert (found["first"], found["second"], found["workers"]) == ("allreduce/s3/ga", "allreduce/dynamodb/ga", 2)
    assert not found["extrapolated"]
    figures = least(points, "seconds")
    assert pair_crossings(figures, FIRST.name, SECOND.name, 2) == [pytest.approx(found["megabytes"], rel=1e-5)]
    assert pair_crossings(figures, FIRST.name, OTHER.name, 2) == []


def test_where_a_node_of_its_own_makes_another_system_the_cheapest_the_atlas_says_so() -> None:
    points = [point(FIRST, size, 5, 0.5) for size in SIZES]
    assert "cheapest at 0 of 6 places." in _alone(Grid(points, ()))
    # It is cheaper with a share at all three sizes, and with a node of its own at two. Both groups have both systems.
    points += [point(SECOND, size, 6, 0.4, usd_alone=usd) for size, usd in zip(SIZES, (0.45, 0.45, 0.6), strict=True)]
    assert f"at 2 of 6 places (2 times {FIRST.name} instead of {SECOND.name})." in _alone(Grid(points, ()))


def test_a_system_that_is_refused_ends_at_its_limit() -> None:
    points = [
        *(point(FIRST, size, 2, reasons=("beyond",)) for size in SIZES),
        *(point(SECOND, size, 1) for size in SIZES[:2]),
    ]
    refused = Refusal(SECOND, 2, "too large", 50_000)
    assert list(crossings(Grid(points, [refused]), "equal", "seconds")) == [
        {
            **{"group": "equal", "objective": "seconds", "workers": 2, "megabytes": 0.2},
            **{"first": SECOND.name, "second": FIRST.name, "extrapolated": True},
        }
    ]


def test_where_the_anchors_of_a_gpu_end_it_is_unknown_and_no_crossing() -> None:
    functions = System("allreduce", "s3", "ga", equal=True, platform="modal-t4")
    points = [*(point(FIRST, size, 2) for size in SIZES), point(functions, SIZES[1], 1)]
    refused = [Refusal(functions, 2, "no anchor", largest) for largest in (0, 10_000)]
    made = Grid(points, refused)
    found = list(crossings(made, "equal", "seconds"))
    assert [(each["megabytes"], each["unknown"]) for each in found] == [(0.04, "below"), (0.04, "beyond")]
    won = [
        {"system": made.points[0].system.name, "megabytes": 0.4, "group": "equal", "objective": "seconds", "workers": 2}
    ]
    document = {"axes": {"workers": [2]}, "winners": won, "crossings": found}
    ((_, words),) = strips(document, "equal", "seconds").rows
    assert words == (
        "allreduce/s3/ga up to 0.0400 MB (allreduce/s3/ga on modal-t4: unknown below it), allreduce/s3/ga on modal-t4 "
        "up to 0.0400 MB (allreduce/s3/ga on modal-t4: unknown beyond it), then allreduce/s3/ga"
    )


def test_points_are_the_same_wherever_they_are_played(
    recordings: Recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    job = Job(10, load_profile(DEFAULT_PROFILE), load_book(DEFAULT_BOOK))
    monkeypatch.setattr(grid, "PARAMETERS", (61_706, 23_520_842))
    alone = grid.compute(recordings, job, lambda *_: None)
    assert {point.system for point in alone.points} == set(SYSTEMS)
    assert alone.refusals
    led = set(grid.leaders(alone.points))
    assert {point for point in alone.points if point.uncertainties} == led != set(alone.points)
    assert grid.compute(recordings, job, lambda *_: None, "local") == alone
