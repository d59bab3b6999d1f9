"""A point's seconds and bill: what the replay of its own recording says, with the node's start, for any epochs."""

from dataclasses import replace

import pytest

from slslab.predict.profiles.profile import load_profile
from slslab.predict.uncertainty import HOST, REPLAY
from slslab.run.bill import load_book
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.ranges import with_processor
from slslab_lab.studies.atlas.costs import measure
from slslab_lab.studies.atlas.points import MEMORY_MB, Job, Point, points, refusal
from slslab_lab.studies.atlas.recordings import Recordings
from slslab_lab.studies.atlas.systems import System
from slslab_lab.studies.experiments import BATCH_SIZE

JOB = Job(2, load_profile("aws-us-east-1"), load_book("aws-us-east-1"))
MOBILENET = 3_217_226


def find(recordings: Recordings, system: System, workers: int, memory_mb: int, job: Job = JOB) -> Point:
    """Return the point of MobileNet."""
    costs = measure(system, recordings, BATCH_SIZE)
    return next(each for each in points(costs, MOBILENET, workers, job) if each.memory_mb == memory_mb)


@pytest.mark.parametrize("name", ["allreduce", "scatterreduce", "mlless", "spirt"])
def test_a_recorded_model_takes_what_its_own_recording_says(name: str, recordings: Recordings) -> None:
    channel = "s3" if name.endswith("reduce") else ""
    run = next(run for run in recordings.architectures[name] if int(run.document["parameters"]) == MOBILENET)
    system = System(name, channel, "ga" if channel else "")
    at = measure(system, recordings, BATCH_SIZE).at(MOBILENET).costs
    own = {key: at[key] if key[1] == "compute" else cost for key, cost in run.costs.costs.items()}
    profile = with_processor(JOB.profile, run.processor)
    played = outcome(play(generate(replace(run.costs, costs=own), 4, 24, 2), profile))
    point = find(recordings, system, 4, run.plan.memory_mb)
    # Requests are fitted over all models; forward and backward are AllReduce's, and all else the recording's.
    assert point.seconds == pytest.approx(played.seconds, rel=0.03)


def test_more_epochs_take_as_long_as_the_second(recordings: Recordings) -> None:
    system = System("allreduce", "s3", "ga")
    two, ten = (find(recordings, system, 4, 3008, replace(JOB, epochs=epochs)) for epochs in (2, 10))
    assert ten.seconds == pytest.approx(two.seconds + 8 * two.epoch_seconds)
    assert ten.usd == pytest.approx(two.usd + 8 * two.epoch_usd, rel=1e-3)


def test_a_node_is_started_and_billed(recordings: Recordings) -> None:
    memcached = System("allreduce", "memcached", "ga")
    profile = JOB.profile
    channel = profile.channels["memcached"]
    running = profile.model_copy(
        update={"channels": {**profile.channels, "memcached": channel.model_copy(update={"boot_s": None})}}
    )
    for epochs in (2, 10):
        started, ready = (
            find(recordings, memcached, 4, 3008, replace(JOB, epochs=epochs, profile=each))
            for each in (profile, running)
        )
        assert started.boot_s == 120
        assert started.seconds - ready.seconds == pytest.approx(120)
        # cache.t3.medium, by the hour.
        assert started.usd - ready.usd == pytest.approx(120 / 3600 * 0.068, rel=1e-3)
        # A node of its own is billed for the hour that has begun.
        assert started.usd_alone - started.usd == pytest.approx((1 - started.seconds / 3600) * 0.068, rel=1e-3)
        assert started.as_document()["usd_alone"] == pytest.approx(started.usd_alone, rel=1e-5)


def test_memory_sizes_below_the_peak_are_left_out(recordings: Recordings) -> None:
    costs = measure(System("allreduce", "s3", "ga"), recordings, BATCH_SIZE)
    sizes = [point.memory_mb for point in points(costs, MOBILENET, 4, JOB)]
    assert sizes == [size for size in MEMORY_MB if size >= costs.peak_memory_mb(MOBILENET)]
    assert 0 < len(sizes) < len(MEMORY_MB)
    gpu = measure(System("gpu", instances=True), recordings, BATCH_SIZE)
    assert [point.as_document()["memory_mb"] for point in points(gpu, MOBILENET, 4, JOB)] == [None]


def test_databases_and_caches_have_only_so_much_memory(recordings: Recordings) -> None:
    resnet50 = 23_520_842
    assert refusal(measure(System("kubeml"), recordings, BATCH_SIZE), resnet50, 96) == (
        "kubeml with 96 workers keeps 9.13 GB in one m5.large, which has 8 GiB"
    )
    memcached = measure(System("allreduce", "memcached", "ga"), recordings, BATCH_SIZE)
    # Not all gradients have to be there at once.
    assert refusal(memcached, resnet50, 96) == ""
    short, enough = (next(points(memcached, resnet50, workers, JOB)) for workers in (96, 2))
    assert (short.short, enough.short) == ("cache.t3.medium", "")
    assert short.as_document()["short"] == "cache.t3.medium"


def test_an_item_of_dynamodb_holds_400_kb(recordings: Recordings) -> None:
    whole = measure(System("allreduce", "dynamodb", "ga"), recordings, BATCH_SIZE)
    assert refusal(whole, 61_706, 4) == ""
    assert refusal(whole, MOBILENET, 4) == "messages of 12.9 MB are too large for dynamodb"
    cut = measure(System("scatterreduce", "dynamodb", "ga"), recordings, BATCH_SIZE)
    assert refusal(cut, MOBILENET, 16) == "messages of 0.804 MB are too large for dynamodb"
    assert refusal(cut, MOBILENET, 48) == ""


def test_a_point_has_80_percent_ranges(recordings: Recordings) -> None:
    plain = find(recordings, System("allreduce", "s3", "ga"), 4, 3008)
    assert (plain.as_document()["seconds_low"], plain.as_document()["usd_high"]) == (None, None)
    costs = measure(System("allreduce", "s3", "ga"), recordings, BATCH_SIZE)
    (point,) = points(costs, MOBILENET, 4, JOB, (3008,))
    assert replace(point, uncertainties={}) == plain
    document = point.as_document()
    for name in ("seconds", "usd"):
        assert document[f"{name}_low"] < document[name] < document[f"{name}_high"]
        error = point.uncertainties[name]
        assert (document[f"{name}_low"], document[f"{name}_high"]) == pytest.approx(
            error.around(document[name]), rel=1e-4
        )
        # The recordings name no processor.
        assert error.own[HOST] > error.own[REPLAY] > 0
