"""Timelines in the Trace Event Format: keys, order, nesting and arrows, as Perfetto and Chrome read them."""

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.lab.replay.platform import platform
from tests.lab.replay.small_programs import MS, handing_over, programs

from slslab.errors import RequestError
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.perfetto import write_perfetto

REQUIRED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
    "M": {"name", "pid", "tid", "args"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
}
Events = Sequence[Mapping[str, Any]]


def read(path: Path) -> list[dict[str, Any]]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(raw)
    assert document["displayTimeUnit"] == "ms"
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def check(events: Events) -> None:
    """What the format asks for: known events with their keys, slices that nest, arrows with two ends, in any order.

    Viewers sort by time, and keep the order of events at the same time.
    """
    timed = sorted((event for event in events if event["ph"] != "M"), key=lambda event: float(event["ts"]))
    assert all(event.keys() >= REQUIRED[event["ph"]] for event in events)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    open_slices: dict[tuple[int, int], list[int]] = {place: [] for place in named}
    arrows: dict[int, dict[str, int]] = {}
    for event in timed:
        stack = open_slices[event["pid"], event["tid"]]
        start, lasted = round(event["ts"] * 1000), round(event.get("dur", 0) * 1000)
        while stack and (stack[-1] < start or (stack[-1] == start and lasted)):
            stack.pop()
        if event["ph"] == "X":
            assert lasted >= 0
            assert not stack or start + lasted <= stack[-1], "a slice ends within the one around it"
            stack.append(start + lasted)
        else:
            assert stack, "an arrow begins and ends in a slice"
            assert event["ph"] not in arrows.setdefault(event["id"], {})
            arrows[event["id"]][event["ph"]] = start
    assert all(ends.keys() == {"s", "f"} and ends["s"] <= ends["f"] for ends in arrows.values())


def test_slices_of_two_workers(tmp_path: Path) -> None:
    write_perfetto(play(handing_over(), platform()), tmp_path / "timeline.json")
    events = read(tmp_path / "timeline.json")
    check(events)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    slices = {
        (names[event["pid"]], event["name"]): (event["ts"] / 1000, event["dur"] / 1000)
        for event in events
        if event["ph"] == "X"
    }
    assert slices == {
        ("worker 0", "train"): (0, 270),
        ("worker 0", "cold start"): (0, 100),
        ("worker 0", "init"): (100, 50),
        ("worker 0", "compute"): (150, 100),
        ("worker 0", "object.put"): (250, 20),
        ("worker 1", "train"): (0, 296.25),
        ("worker 1", "cold start"): (0, 100),
        ("worker 1", "init"): (100, 50),
        ("worker 1", "compute"): (150, 30),
        ("worker 1", "wait"): (180, 101.25),
        ("worker 1", "object.get"): (281.25, 15),
    }
    (wait,) = [event for event in events if event["name"] == "wait"]
    assert wait["args"] == {"for": "object.get", "polls": 4}
    (get,) = [event for event in events if event["name"] == "object.get"]
    assert get["args"]["bytes"] == 1_000_000
    (begins, ends) = [event for event in events if event["ph"] in ("s", "f")]
    assert (names[begins["pid"]], begins["ts"]) == ("worker 0", 250_000)
    assert (names[ends["pid"]], ends["ts"]) == ("worker 1", 281_250)


def test_invocations_of_one_worker_that_run_at_once_are_threads_and_executions_have_a_process(tmp_path: Path) -> None:
    execution = Track(
        "epoch",
        "execution",
        0,
        (
            Step("transition", "other", requests=1, opens=(0,)),
            Step("join", "wait", awaits=(1,)),
            Step("transition", "other", requests=1, opens=(2,)),
        ),
    )
    task = Track("gradient", "invocation", 0, (Step("compute", "compute", 10 * MS),), 1769, awaits=(0,), opens=(1,))
    after = Track("update", "invocation", 0, (Step("compute", "compute", 10 * MS),), 1769, awaits=(2,))
    program = Program("spirt", 1, (execution, task, task, after), (1, 2, 1))
    write_perfetto(play(program, platform()), tmp_path / "timeline.json")
    events = read(tmp_path / "timeline.json")
    check(events)
    whole = [event for event in events if event["ph"] == "X" and event["cat"] in ("invocation", "execution")]
    places = {(event["name"], event["pid"], event["tid"]) for event in whole}
    assert len({place for place in places if place[0] == "gradient"}) == 2
    assert {place[1:] for place in places if place[0] == "update"} == {(3, 1)}, "a thread that is free again"
    (executed,) = [event for event in whole if event["name"] == "epoch"]
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes[executed["pid"]] == "state machines"
    # Two calls, the answer of the last one, and the call after that.
    assert Counter(event["ph"] for event in events)["s"] == 4


def test_equal_timelines_give_equal_files_packed_or_not(tmp_path: Path) -> None:
    timeline = play(handing_over(4), platform())
    for name in ("one.json", "one.json.gz", "two.json.gz"):
        write_perfetto(timeline, tmp_path / name)
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "two.json.gz").read_bytes()
    assert read(tmp_path / "one.json") == read(tmp_path / "one.json.gz")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be written: No such file or directory"):
        write_perfetto(play(handing_over(), platform()), tmp_path / "nowhere" / "timeline.json")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs())
def test_every_timeline_is_a_valid_trace(program: Program, tmp_path: Path) -> None:
    timeline = play(program, platform())
    write_perfetto(timeline, tmp_path / "timeline.json")
    events = read(tmp_path / "timeline.json")
    check(events)
    steps = [event for event in events if event["ph"] == "X" and "requests" in event["args"]]
    assert len(steps) == len(timeline.steps)
