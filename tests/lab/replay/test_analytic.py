"""The analytic model and the closed form, calculated by hand on the platform with round figures.

There a put takes 10 ms, a get 5 ms, a list 20 ms, a delete 5 ms, and a megabyte 10 ms.
"""

from dataclasses import replace
from functools import cache

import pytest
from tests.lab.replay.platform import operation, platform
from tests.lab.replay.recordings import TRACES

from slslab.predict.profiles.profile import Channel, Profile
from slslab_lab.replay.analytic import Constants, analytic, closed_form, communication, constants
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.replay.programs.scaling import generate
from slslab_workers.architecture import architectures
from slslab_workers.patterns import Chain
from slslab_workers.plan import Value

# 30 steps of LeNet-5, of which a gradient has so many bytes, with 2 workers.
LENET, STEPS = 246_824, 30
KNOWN = Constants(1.0, 2_000_000, 3.0, 10, 1_000_000, "object.put", "object.get")


@cache
def recorded(name: str) -> Measured:
    return read_measured(TRACES / name)


def with_memcached() -> Profile:
    """The platform with a Memcached server that takes 1 ms a request and 1 ms a megabyte."""
    operations = {name: operation(1, 1000) for name in ("put", "get", "delete")}
    server = Channel.model_validate({"description": "Memcached", "operations": operations})
    return platform().model_copy(update={"channels": {**platform().channels, "memcached": server}})


def with_options(run: Measured, **options: Value) -> Measured:
    """The run as if its plan had these options."""
    plan = replace(run.plan, options={**run.plan.options, **options})
    return run.replace(plan=plan)


def chain(architecture: str, workers: int) -> Chain:
    longest = architectures()[architecture].longest_chain
    assert longest is not None
    return longest(workers)


@pytest.mark.parametrize(
    ("architecture", "workers", "round_ms"),
    [
        # 4 puts of 10 + 2.5 ms and 6 gets of 5 + 2.5 ms of a quarter of a megabyte.
        ("scatterreduce", 4, 95),
        # 2 puts of 20 ms and 5 gets of 15 ms of a megabyte.
        ("allreduce", 4, 115),
        ("scatterreduce", 1, 20),
        ("allreduce", 1, 55),
    ],
)
def test_the_model_by_hand(architecture: str, workers: int, round_ms: float) -> None:
    found = analytic(chain(architecture, workers), KNOWN, platform())
    assert found["communication"] == pytest.approx(10 * round_ms / 1e3)
    # The start, 2 MB at 100 MB/s, and compute.
    assert found["seconds"] == pytest.approx(1 + 0.02 + 10 * round_ms / 1e3 + 3)


@pytest.mark.parametrize("workers", [1, 2, 4, 64])
def test_transfers_are_those_of_the_patterns(workers: int) -> None:
    each = architectures()["scatterreduce"].counts(workers, 1, 1, 1000).operations
    found = chain("scatterreduce", workers)
    assert (found.puts * workers, found.gets * workers) == (each["object.put"], each.get("object.get", 0))
    assert found.puts + found.gets == 3 * workers - 2
    all_ = architectures()["allreduce"].counts(workers, 1, 1, 1000).operations
    found = chain("allreduce", workers)
    # All but one of the n first puts, and all but one of the last gets, happen at the same time as another.
    assert (found.puts, found.gets) == (all_["object.put"] - (workers - 1), all_["object.get"] - max(0, workers - 2))


def test_a_parameter_server_is_sent_one_message_and_sends_one_by_all_at_once() -> None:
    operations = {"push": operation(1, 1000), "pull": operation(2, 1000)}
    server = Channel.model_validate({"description": "a parameter server", "operations": operations})
    known = platform().model_copy(update={"channels": {**platform().channels, "parameter": server}})
    found = analytic(chain("allreduce", 4), replace(KNOWN, put="parameter.push", get="parameter.pull"), known)
    # Ten rounds of a megabyte each way.
    assert found["communication"] == pytest.approx(10 * (1 + 1 + 2 + 1) / 1e3)


def test_the_closed_form_of_allreduce_by_hand() -> None:
    costs, message_ms = recorded("allreduce").costs, LENET / 1e5
    found = closed_form(costs, 4, KNOWN, platform())
    # A put; rank 0 gets and deletes four, and puts their mean; a list, and a delete of the last mean, while others get.
    merged = (10 + message_ms) + 4 * (5 + message_ms + 5) + (10 + message_ms)
    assert found["communication"] == pytest.approx((STEPS * (merged + 20) + (STEPS - 1) * 5) / 1e3)
    other = closed_form(costs, 4, replace(KNOWN, start_s=2.0, compute_s=5.0), platform())
    assert other["seconds"] - found["seconds"] == pytest.approx(3)


def test_the_closed_form_of_scatterreduce_by_hand() -> None:
    found = closed_form(recorded("scatterreduce").costs, 2, KNOWN, platform())
    half_ms = LENET / 2 / 1e5
    exchange = (10 + half_ms) + (5 + half_ms + 5) + (10 + half_ms) + (5 + half_ms)
    # Rank 0 lists what has expired, and deletes two sums in all steps but the first.
    assert found["communication"] == pytest.approx((STEPS * (exchange + 20) + (STEPS - 1) * 10) / 1e3)


@pytest.mark.parametrize("name", ["allreduce", "scatterreduce"])
@pytest.mark.parametrize("workers", [2, 8])
def test_the_replay_has_all_that_the_closed_form_has(name: str, workers: int) -> None:
    run = recorded(name)
    known = constants(run, play(run.program, platform()))
    model = analytic(chain(name, workers), known, platform())
    formula = closed_form(run.costs, workers, known, platform())
    timeline = play(generate(run.costs, workers, 5, 6), platform())
    assert model["seconds"] < formula["seconds"] < timeline.end_ns / 1e9
    assert model["communication"] < formula["communication"] < communication(timeline)


@pytest.mark.parametrize(
    ("options", "rounds", "message"),
    [
        ({}, STEPS, LENET),
        ({"algorithm": "ma"}, 6, LENET),
        ({"algorithm": "ma", "local-passes": 3}, 2, LENET),
        ({"algorithm": "admm"}, 6, 2 * LENET - 8),
    ],
)
def test_constants_of_a_run(options: dict[str, Value], rounds: int, message: int) -> None:
    run = with_options(recorded("allreduce"), **options)
    known = constants(run, play(run.program, platform()))
    assert (known.rounds, known.message_bytes) == (rounds, message)
    assert (known.put, known.get) == ("object.put", "object.get")
    # 100 ms before init, and init.
    assert known.start_s > 0.1
    assert 0 < known.compute_s < run.span_s


def test_the_channel_is_the_pattern_s() -> None:
    run = with_options(recorded("allreduce"), channel="memcached")
    known = constants(run, play(run.program, platform()))
    assert (known.put, known.get) == ("memcached.put", "memcached.get")
    message_ms = LENET / 1e6
    model = analytic(chain("allreduce", 4), known, with_memcached())
    assert model["communication"] == pytest.approx(STEPS * 7 * (1 + message_ms) / 1e3)
    # As of S3, without its list: after the mean rank 0 deletes the last one, which is shorter than a get.
    exchange = 2 * (1 + message_ms) + 4 * (1 + message_ms + 1) + (1 + message_ms)
    formula = closed_form(run.costs, 4, known, with_memcached())
    assert formula["communication"] == pytest.approx(STEPS * exchange / 1e3)
    # Minibatches are S3's all the same.
    assert model["seconds"] == pytest.approx(
        known.start_s + known.data_bytes / 1e8 + model["communication"] + known.compute_s
    )
