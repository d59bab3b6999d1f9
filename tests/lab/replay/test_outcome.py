"""What timelines of small programs add up to, calculated by hand on a platform with round figures."""

from decimal import Decimal

import pytest
from hypothesis import given
from tests.lab.replay.platform import platform
from tests.lab.replay.small_programs import MS, handing_over, programs

from slslab.aws.limits import billed_ms
from slslab.run.bill import compute_bill, load_book
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.outcome import outcome, waits
from slslab_lab.replay.whatif import over_timeout


def test_two_invocations_by_hand() -> None:
    found = outcome(play(handing_over(), platform()))
    # Cold start 100, init 50. Worker 0: 100 + put 10 + 1 MB at 100 MB/s 10 = 120.
    # Worker 1: at 30 a get of 5 that finds nothing, pause 10; 45: 5 + 15; 65: 5 + 22.5; 92.5: 5 + 33.75; 131.25 finds
    # it: 5 + 10, to 146.25.
    assert found.makespan_ns == 296_250_000
    assert found.seconds == pytest.approx(0.29625)
    assert found.cold_starts == 2
    assert [(one["init_ms"], one["duration_ms"], one["billed_ms"]) for one in found.invocations] == [
        (50.0, 120.0, 170),
        (50.0, 146.25, 197),
    ]
    assert found.billed_seconds == pytest.approx(0.367)
    assert found.gb_seconds == Decimal(1769 * 367) / 1_024_000
    first, second = found.workers
    parts = {"init": 0.05, "compute": 0.1, "transfer": 0.02, "waiting": 0.0}
    assert first == {"worker": 0, "seconds": 0.12, "billed_seconds": 0.17, "parts": parts}
    assert second["parts"] == {"init": 0.05, "compute": 0.03, "transfer": 0.015, "waiting": 0.10125}
    assert found.waiting_share == pytest.approx(0.10125 / 0.367)
    assert found.usage.object_requests == {"object.get": 5, "object.put": 1}, "a poll is a request"


def test_usage_is_billed_by_a_book() -> None:
    found = outcome(play(handing_over(), platform()), "arm64")
    book = load_book("aws-us-east-1")
    bill = compute_bill(found.as_usage(hosts=["m5.large"]), book)
    quantities = {line.item: line.quantity for line in bill.lines}
    assert quantities["Lambda duration, arm64"] == found.gb_seconds
    assert quantities["Lambda requests"] == 2
    assert quantities["S3 GET requests"] == 5
    assert quantities["S3 PUT requests"] == 1
    assert quantities["Host m5.large"] == 60, "as short as it was, EC2 bills a minute"
    usage = found.as_usage(hosts=["m5.large"])
    assert (usage.hosts, usage.service_hosts) == ((), (("m5.large", Decimal("0.297")),)), "a begun ms counts whole"
    assert [line.item for line in bill.lines if line.assumed] == ["Host m5.large"]


def test_what_the_driver_asked_for_is_billed_too() -> None:
    found = outcome(play(handing_over(), platform()))
    usage = found.as_usage(driver={"object.put": 3, "object.list": 2})
    assert usage.object_requests == {"object.get": 5, "object.put": 4, "object.list": 2}
    assert found.as_usage().object_requests == {"object.get": 5, "object.put": 1}


def test_what_lasts_longer_than_a_timeout() -> None:
    found = outcome(play(handing_over(), platform()))
    assert [one["worker"] for one in over_timeout(found.invocations, 0.12)] == [1]
    assert over_timeout(found.invocations, 0.14625) == []
    assert len(over_timeout(found.invocations, 0.1)) == 2, "init isn't part of it"


def test_of_several_requests_those_before_the_last_are_made_while_it_waits() -> None:
    put = Step("object.put", "synchronise", requests=1, opens=(0,))
    take = Step("object.get", "synchronise", requests=4, awaits=(0,))
    tracks = (
        Track("train", "invocation", 0, (Step("compute", "compute", 100 * MS), put), 1769),
        Track("train", "invocation", 1, (Step("compute", "compute", 50 * MS), take), 1769),
    )
    found = outcome(play(Program("spirt", 2, tracks, (1,)), platform()))
    # The put takes effect at 105; of 4 × 5 ms three were made in the 55 before, one comes after.
    assert found.workers[1]["seconds"] == 0.11
    assert found.workers[1]["parts"]["transfer"] == 0.02
    assert found.workers[1]["parts"]["waiting"] == 0.04
    assert found.usage.object_requests["object.get"] == 4


def test_several_requests_that_take_longer_than_what_they_wait_for_wait_for_nothing() -> None:
    put = Step("object.put", "synchronise", requests=1, opens=(0,))
    take = Step("object.get", "synchronise", requests=4, awaits=(0,))
    tracks = (
        Track("train", "invocation", 0, (put,), 1769),
        Track("train", "invocation", 1, (take,), 1769),
    )
    found = outcome(play(Program("spirt", 2, tracks, (1,)), platform()))
    assert found.workers[1]["seconds"] == 0.02
    assert found.workers[1]["parts"]["waiting"] == 0.0
    assert found.workers[1]["parts"]["transfer"] == 0.02


def test_a_warm_environment_has_no_init_and_executions_are_transitions() -> None:
    first = Track("train", "invocation", 0, (Step("compute", "compute", 10 * MS),), 1769, awaits=(0,), opens=(1,))
    second = Track("train", "invocation", 0, (Step("compute", "compute", 10 * MS),), 1769, awaits=(2,), opens=(3,))
    execution = Track(
        "epoch",
        "execution",
        0,
        (
            Step("transition", "other", requests=1, opens=(0,)),
            Step("transition", "other", requests=1, awaits=(1,), opens=(2,)),
            Step("wait", "wait", awaits=(3,)),
        ),
    )
    found = outcome(play(Program("spirt", 1, (first, second, execution), (1, 1, 1, 1)), platform()))
    assert [one["init_ms"] for one in found.invocations] == [0.0, None]
    assert found.cold_starts == 1
    assert found.usage.transitions == 2
    assert found.as_usage().transitions == 2
    assert found.makespan_ns == (30 + 100 + 10 + 30 + 10) * MS
    (worker,) = found.workers
    assert (worker["seconds"], worker["parts"]["waiting"]) == (0.02, 0.0), (
        "waits of a state machine belong to no duration"
    )


def test_an_instance_is_billed_from_its_launch() -> None:
    steps = (Step("compute", "compute", 400_000 * MS, parallel=True),)
    track = Track("g4dn.xlarge", "instance", 0, steps, memory_mb=1769)
    found = outcome(play(Program("gpu", 1, (track,), ()), platform()))
    (one,) = found.instances
    assert one["end_ns"] - one["start_ns"] == 70_000 * MS
    assert found.billed_seconds == 70.0
    assert found.gb_seconds == 0
    assert found.as_usage().hosts == (("g4dn.xlarge", Decimal(70)),)
    assert found.workers[0]["parts"] == {"init": 30.0, "compute": 40.0, "transfer": 0.0, "waiting": 0.0}


def test_nothing_played_is_nothing() -> None:
    found = outcome(Timeline(Program("allreduce", 0, (), ()), platform(), []))
    assert (found.seconds, found.billed_seconds, found.waiting_share) == (0.0, 0.0, 0.0)
    assert found.workers == ()


@given(programs())
def test_waiting_transfer_and_compute_are_the_whole_duration(program: Program) -> None:
    timeline = play(program, platform())
    found = outcome(timeline)
    lasted = {one["worker"]: one for one in found.invocations}
    assert sum(worker["billed_seconds"] for worker in found.workers) == pytest.approx(found.billed_seconds)
    for worker in found.workers:
        call, parts = timeline.calls[worker["worker"]], worker["parts"]
        assert round(worker["seconds"] * 1e9) == call.ended - call.began
        assert worker["seconds"] == pytest.approx(parts["waiting"] + parts["transfer"] + parts["compute"])
        assert lasted[worker["worker"]]["billed_ms"] == billed_ms(
            round((call.ended - call.began) / 1e6, 2), round(call.init_ns / 1e6, 2)
        )
    waited = waits(timeline)
    assert all(0 <= wait <= end - begin for wait, begin, end in zip(waited, timeline.begin, timeline.end, strict=True))
