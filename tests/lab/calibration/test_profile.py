"""This host as a profile: the arithmetic on made-up measurements, and once the measurements themselves, in small."""

import re
from datetime import date

import pytest

from slslab.predict.profiles.profile import figures, load_profile
from slslab_lab.calibration import host
from slslab_lab.calibration.host import Exercise, Load, Request, StepTime, measure_step
from slslab_lab.calibration.profile import fit_host

DAY = date(2026, 11, 21)


@pytest.mark.parametrize(
    ("cpu_s", "wall_s", "parallel"),
    [
        ({1: 1.0}, {1: 1.0}, None),
        # 1.2 CPU seconds in 0.72 s: 0.6 = (1 − f) + f ÷ 2.
        ({1: 1.0, 2: 1.2}, {1: 1.0, 2: 0.72}, 0.8),
        ({1: 1.0, 2: 1.0}, {1: 1.0, 2: 0.5}, 1.0),
        # Measured beyond what can be.
        ({1: 1.0, 2: 1.0}, {1: 1.0, 2: 0.45}, 1.0),
        ({1: 1.0, 2: 1.0}, {1: 1.0, 2: 1.5}, 0.0),
        # 0.4 = (1 − f) + f ÷ 4.
        ({1: 1.0, 4: 1.0}, {1: 1.0, 4: 0.4}, 0.8),
    ],
)
def test_what_threads_do_at_once_is_amdahl_s_share(
    cpu_s: dict[int, float], wall_s: dict[int, float], parallel: float | None
) -> None:
    assert StepTime(cpu_s, wall_s, dict.fromkeys(wall_s, 0.01)).parallel == (
        None if parallel is None else pytest.approx(parallel)
    )


def test_a_busy_host_cannot_tell_what_threads_do_at_once() -> None:
    step = StepTime({1: 1.0, 2: 1.2}, {1: 1.0, 2: 0.72}, {1: 0.01, 2: 0.04})
    assert (step.busy, step.parallel) == (True, None)


IDLE = {1: 0.0, 2: 0.0}


def made_up() -> dict[str, Exercise]:
    """Empty puts take 5 ms, 2 of them the client's own; 10 MB take 100 ms more; lists take 1 ms."""
    puts = [Request(1000, 5, 2), Request(1000, 6, 2), Request(1000, 5, 2), Request(10_000_000, 103, 20)]
    loads = {1000: Load(40, 3000, 20), 10_000_000: Load(4, 10_000_000, 52)}
    return {"object": Exercise("a store", {"put": puts, "list": [Request(0, 2, 1)] * 3}, loads)}


def test_a_profile_is_fitted_to_what_was_measured() -> None:
    profile = fit_host(StepTime({1: 1.0, 2: 1.2}, {1: 1.0, 2: 0.72}, IDLE), made_up(), DAY)
    assert (profile.name, profile.date) == ("this-host", DAY)
    assert profile.compute.speed.value == 1
    assert profile.compute.parallel.value == pytest.approx(0.8)
    put, listed = profile.operation("object.put"), profile.operation("object.list")
    assert (put.latency_ms.value, listed.latency_ms.value) == (3, 1)
    assert put.bandwidth_mb_s is not None
    assert put.bandwidth_mb_s.value == 100
    assert listed.bandwidth_mb_s is None
    server = profile.channels["object"].server
    assert server is not None
    assert server.bandwidth_mb_s is not None
    # 20 ms of CPU time for 40 small requests; of the 52 ms for four large ones 50 moved their bytes.
    assert (server.service_ms.value, server.bandwidth_mb_s.value) == (0.5, 200)


def test_a_server_s_work_behind_its_answers_holds_up_nobody() -> None:
    loads = {1000: Load(40, 3000, 400), 10_000_000: Load(4, 10_000_000, 3)}
    exercises = {"object": Exercise("a store", made_up()["object"].requests, loads)}
    server = fit_host(StepTime({1: 1.0}, {1: 1.0}, IDLE), exercises, DAY).channels["object"].server
    assert server is not None
    assert server.service_ms.value == 1, "the shortest latency, of a list"
    assert server.bandwidth_mb_s is None


def test_what_was_not_measured_is_aws_s_and_says_so() -> None:
    base = dict(figures(load_profile("aws-us-east-1")))
    profile = dict(figures(fit_host(StepTime({1: 1.0}, {1: 1.0}, IDLE), made_up(), DAY)))
    assert profile["compute.parallel"] == base["compute.parallel"], "one processor cannot tell"
    own = {entry for entry in profile if profile[entry] != base.get(entry)}
    assert own == {
        "compute.speed",
        "compute.period_ms",
        "channels.object.operations.put.latency_ms",
        "channels.object.operations.put.bandwidth_mb_s",
        "channels.object.operations.list.latency_ms",
        "channels.object.server.servers",
        "channels.object.server.service_ms",
        "channels.object.server.bandwidth_mb_s",
    }
    for entry in own - {"compute.period_ms"}:
        assert profile[entry].status == "measured"
        assert re.match(r"slslab calibrate on \S+ \(\d+ processors\), 2026-11-21: .+", profile[entry].source), entry


def test_the_step_is_measured_on_every_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "BATCH", 4)
    told: list[tuple[str, int, int]] = []
    step = measure_step(lambda *progress: told.append(progress), steps=2)
    assert told == [("measuring training steps", 1, 2), ("measuring training steps", 2, 2)]
    assert step.cpu_s.keys() == step.wall_s.keys()
    assert min(*step.cpu_s.values(), *step.wall_s.values()) > 0
