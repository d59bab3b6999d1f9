"""Replay of recorded runs on the profile of the host that recorded them: it gives back what was measured.

The runs in `traces/` were recorded on 21 November 2026 on a virtual machine of two cores (Linux, control groups v1)
with little else on it. Runs of functions with LeNet have less than 2 % host delay; all others are marked
oversubscribed. They are the set that fits best of five (docs/replay.md, "How far to trust it"). They were made by

    slslab run ARCH --model lenet --dataset digits --workers 2 --memory 640 --epochs 6        (SPIRT with --batches 1)
    slslab run scatterreduce --model mobilenet --dataset synthetic --workers 2 --memory 1400 --batch-size 64 \
        --batches 6 --epochs 2

the second one twice: on the idle machine, and next to two busy loops.
"""

import random
from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from tests.lab.replay.recordings import TRACES

from slslab.aws.limits import billed_ms
from slslab.predict.profiles.profile import Profile, load_profile
from slslab.run.bill import Usage, compute_bill, load_book
from slslab.run.run import Run
from slslab_lab.replay.fitting import fit
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.recording import BESIDE, read_recording

ARCHITECTURES = ("allreduce", "scatterreduce", "mlless", "spirt", "gpu")
# The profile is fitted to these many epochs of six.
FITTED = 2
TOLERANCE = 0.03


def recording_of(architecture: str) -> Run:
    return read_recording(TRACES / architecture)


def fitted(recording: Run) -> Profile:
    return fit([recording], FITTED, date(2026, 11, 21))


def records(recording: Run) -> list[Mapping[str, Any]]:
    """Metered records in the order of the program's tracks; instances' records look like invocations'."""
    return [
        *recording.invocations,
        *(
            {
                "request_id": one["id"],
                # An instance has no Lambda clock, but what its threads waited for a processor is known.
                "duration_ms": (one["end_ns"] - one["start_ns"]) / 1e6 - one["host_delay_ms"],
                "init_ms": None,
                "billed_ms": 0,
            }
            for one in recording.instances
        ),
    ]


def by_worker(timeline: Timeline, values: list[float]) -> dict[int, float]:
    """A value of each track, added up by worker."""
    found: dict[int, float] = defaultdict(float)
    for track, value in zip(timeline.program.tracks, values, strict=False):
        found[track.worker] += value
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_worker_s_measured_duration_is_given_back(architecture: str) -> None:
    recording = recording_of(architecture)
    timeline = play(make_program(recording), fitted(recording))
    metered = records(recording)
    calls = timeline.calls[: len(metered)]
    measured = by_worker(timeline, [one["duration_ms"] for one in metered])
    modelled = by_worker(timeline, [(call.ended - call.began) / 1e6 for call in calls])
    assert modelled == pytest.approx(measured, rel=TOLERANCE)
    assert {worker for worker in measured if worker >= 0} >= {0, 1}


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name != "gpu"])
def test_the_bill_is_the_measured_one_to_the_cent(architecture: str) -> None:
    recording, book = recording_of(architecture), load_book("aws-us-east-1")
    timeline = play(make_program(recording), fitted(recording))
    priced = []
    for one, call in zip(recording.invocations, timeline.calls, strict=False):
        init_ms = call.init_ns / 1e6 if call.cold else None
        priced.append({**one, "billed_ms": billed_ms((call.ended - call.began) / 1e6, init_ms)})
    measured, modelled = (compute_bill(Usage(used), book).total for used in (recording.invocations, priced))
    assert abs(measured - modelled) < Decimal("0.01")
    # A cent is more than such a run costs, so that more is asked for.
    assert float(modelled) == pytest.approx(float(measured), rel=TOLERANCE)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_was_not_fitted_is_given_back_as_well(architecture: str) -> None:
    """Seconds from the first to the last event of the epochs that weren't fitted, over all invocations.

    Such a short time is only known as well as the host's delays: a peer's delays lengthen a wait, and the waiting
    function's own are subtracted from its clock.
    """
    recording = recording_of(architecture)
    timeline = play(make_program(recording), fitted(recording))
    measured: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for event in recording.events:
        if event["epoch"] >= FITTED and event["worker"] >= 0 and event["op"] not in BESIDE:
            measured[event["invocation"]].append((event["start_ns"], event["end_ns"], event["host_delay_ns"]))
    modelled: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for i, step in enumerate(timeline.steps):
        if step.epoch >= FITTED and timeline.program.tracks[timeline.track[i]].kind != "execution":
            modelled[timeline.track[i]].append((timeline.begin[i], timeline.end[i], 0))

    def total(spans: Mapping[Any, list[tuple[int, int, int]]]) -> float:
        return sum(own[-1][1] - own[0][0] - sum(delay for *_, delay in own) for own in spans.values()) / 1e9

    assert len(modelled) == len(measured)
    delay = sum(record["host_delay_ms"] for record in (*recording.invocations, *recording.instances)) / 1000
    expected = total(measured)
    assert total(modelled) == pytest.approx(expected, abs=TOLERANCE * expected + delay)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_recorded_wait_and_no_end_of_a_transfer_counts(architecture: str) -> None:
    recording = recording_of(architecture)
    dice = random.Random(7)
    events = [
        {**event, "end_ns": event["start_ns"] + dice.randrange(10**10)}
        if event["op"] == "wait" or "." in event["op"]
        else event
        for event in recording.events
    ]
    assert sum(new is not old for new, old in zip(events, recording.events, strict=True)) > len(events) / 3
    assert make_program(recording.replace(events=events)) == make_program(recording)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_same_again(architecture: str) -> None:
    recording = recording_of(architecture)
    first, second = (play(make_program(recording_of(architecture)), fitted(recording)) for _ in range(2))
    assert (first.end, first.calls) == (second.end, second.calls)


def test_contention_does_not_count() -> None:
    """A run next to busy loops takes half as long again; its model is within 5 % of the one on the idle machine."""
    idle, busy = (read_recording(TRACES / f"mobilenet-{name}") for name in ("idle", "busy"))
    walls = [
        max(one["end_ns"] for one in run.invocations) - min(e["start_ns"] for e in run.events if e["op"] == "invoke")
        for run in (idle, busy)
    ]
    assert walls[1] > 1.5 * walls[0]
    for profile in (fit([idle], 1, date(2026, 11, 21)), load_profile("aws-us-east-1")):
        calls = [play(make_program(run), profile).calls for run in (idle, busy)]
        durations = [sum(call.ended - call.began for call in own) for own in calls]
        assert durations[1] == pytest.approx(durations[0], rel=0.05)
