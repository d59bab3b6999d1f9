"""Critical paths of small programs, by hand on a platform with round figures."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from tests.lab.replay.platform import platform
from tests.lab.replay.small_programs import MS, handing_over, programs

from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.path import Stretch, critical_path, describe, parts


def length(path: Sequence[Stretch]) -> int:
    return sum(stretch.ns for stretch in path)


def test_the_path_goes_through_the_worker_that_the_others_wait_for() -> None:
    path = critical_path(play(handing_over(), platform()))
    # Worker 0 puts at 100 to 120 after its beginning at 150, which takes effect half a latency before that; worker 1
    # asks at 131.25 and has it 15 later.
    assert path == (
        Stretch(0, "init", "cold start", 0, 100 * MS),
        Stretch(0, "init", "init", 100 * MS, 150 * MS),
        Stretch(0, "compute", "compute", 150 * MS, 250 * MS),
        Stretch(0, "synchronise", "object.put", 250 * MS, 265 * MS),
        Stretch(1, "wait", "poll", 265 * MS, 281_250_000),
        Stretch(1, "synchronise", "object.get", 281_250_000, 296_250_000),
    )
    assert describe(path) == (
        "The run's 0.296 s are 34 % compute of worker 0, 34 % cold start of worker 0, 17 % init of worker 0."
    )


def test_parts_are_added_up_over_workers() -> None:
    """Three workers hand one object from each to the next."""
    tracks = tuple(
        Track(
            "train",
            "invocation",
            worker,
            (
                Step("object.get", "fetch", requests=1, awaits=(worker - 1,) if worker else ()),
                Step("compute", "compute", 20 * MS),
                Step("object.put", "synchronise", requests=1, opens=(worker,)),
            ),
            1769,
        )
        for worker in range(3)
    )
    path = critical_path(play(Program("chain", 3, tracks, (1, 1, 1)), platform()))
    found = {part["op"]: part for part in parts(path)}
    assert (found["compute"]["seconds"]["value"], found["compute"]["stretches"]) == (0.06, 3)
    assert found["compute"]["workers"] == [{"worker": worker, "seconds": 0.02} for worker in range(3)]
    # Others see two of the three puts half a latency before their ends.
    assert [found[op]["seconds"]["value"] for op in ("object.get", "object.put")] == [0.015, 0.02]
    assert length(path) == (100 + 60 + 15 + 20) * MS
    assert "31 % compute of 3 workers" in describe(path)


def test_what_holds_an_invocation_back_is_on_the_path() -> None:
    scarce = platform(concurrency=1, warm_ms=2)
    tracks = tuple(Track("train", "invocation", 0, (Step("compute", "compute", 10 * MS),), 1769) for _ in range(2))
    path = critical_path(play(Program("two", 1, tracks, ()), scarce))
    # The first takes 100 + 2 + 10, and the second its environment after that.
    assert [(stretch.op, stretch.ns) for stretch in path] == [
        ("held", 112 * MS),
        ("accept", 2 * MS),
        ("compute", 10 * MS),
    ]


def test_a_state_machine_and_what_it_invokes() -> None:
    execution = Track(
        "epoch",
        "execution",
        -1,
        (Step("transition", "other", requests=1, opens=(0,)), Step("transition", "other", requests=1, awaits=(1,))),
    )
    task = Track("train", "invocation", 0, (Step("compute", "compute", 10 * MS),), 1769, awaits=(0,), opens=(1,))
    path = critical_path(play(Program("spirt", 1, (execution, task), (1, 1)), platform()))
    assert [(stretch.op, stretch.ns) for stretch in path] == [
        ("transition", 30 * MS),
        ("cold start", 100 * MS),
        ("compute", 10 * MS),
        ("transition", 30 * MS),
    ]


def test_a_track_without_steps_is_told_as_other() -> None:
    empty = Track("ping", "invocation", 0, (), 1769, opens=(0,))
    path = critical_path(play(Program("one", 1, (empty,), (1,)), platform()))
    assert [(stretch.op, stretch.ns) for stretch in path] == [("cold start", 100 * MS)]
    late = Track("train", "invocation", 1, (Step("compute", "compute", 10 * MS),), 1769, awaits=(0,))
    path = critical_path(play(Program("two", 1, (empty, late), (1,)), platform()))
    assert [(stretch.op, stretch.ns) for stretch in path] == [
        ("other", 100 * MS),
        ("cold start", 100 * MS),
        ("compute", 10 * MS),
    ]


def test_an_instance_boots() -> None:
    track = Track("g4dn.xlarge", "instance", 0, (Step("compute", "compute", 1000 * MS),), 1769)
    path = critical_path(play(Program("gpu", 1, (track,), ()), platform()))
    assert [(stretch.op, stretch.ns // MS) for stretch in path] == [("boot", 30_000), ("compute", 100)]


@given(programs())
def test_the_stretches_are_the_makespan_without_gaps(program: Program) -> None:
    timeline = play(program, platform())
    path = critical_path(timeline)
    found = outcome(timeline)
    assert length(path) == found.makespan_ns
    assert sum(part["seconds"]["value"] for part in parts(path)) == pytest.approx(found.seconds)
    ends = [stretch.end for stretch in path]
    assert [stretch.start for stretch in path] == [0, *ends[:-1]][: len(ends)]
    assert all(stretch.ns > 0 for stretch in path)
    assert found.seconds == length(path) / 1e9
