"""What steps cost at any model size: what was recorded at the recorded sizes, a power of the size in between."""

import math

import pytest

from slslab.errors import RunError
from slslab_lab.replay.programs.step_costs import is_request
from slslab_lab.studies.atlas.costs import _line, measure, power
from slslab_lab.studies.atlas.recordings import Recordings
from slslab_lab.studies.atlas.systems import SYSTEMS, System
from slslab_lab.studies.experiments import BATCH_SIZE

ALLREDUCE = System("allreduce", "s3", "ga")
COMPUTE = ("invocation", "compute", "compute", False)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: str(system.name))
def test_a_recorded_model_costs_what_was_recorded(system: System, recordings: Recordings) -> None:
    costs = measure(system, recordings, BATCH_SIZE)
    for run in recordings.architectures[system.architecture]:
        if run.plan.batch_size == BATCH_SIZE:
            at = costs.at(int(run.document["parameters"]))
            for key, recorded in run.costs.costs.items():
                if not is_request(key[1]) and key[1] != "compute":
                    assert at.costs[key].fixed == pytest.approx(recorded.fixed), key
                    assert at.costs[key].per_work == pytest.approx(recorded.per_work), key


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: str(system.name))
def test_forward_and_backward_take_as_long_in_all_systems(system: System, recordings: Recordings) -> None:
    costs = measure(system, recordings, BATCH_SIZE)
    allreduce = measure(ALLREDUCE, recordings, BATCH_SIZE)
    for parameters in (1_000, 61_706, 1_000_000, 3_217_226, 20_000_000):
        (usual,) = (cost for key, cost in costs.at(parameters).costs.items() if key[1:] == COMPUTE[1:])
        assert usual.fixed == pytest.approx(allreduce.at(parameters).costs[COMPUTE].fixed)


def test_a_model_in_between_lies_on_the_power_through_its_neighbours(recordings: Recordings) -> None:
    costs = measure(ALLREDUCE, recordings, BATCH_SIZE)
    low, high = costs.models[1:]
    middle = round(math.sqrt(low.parameters * high.parameters))
    ends = [model.costs.costs[COMPUTE].fixed for model in (low, high)]
    assert costs.at(middle).costs[COMPUTE].fixed == pytest.approx(math.sqrt(math.prod(ends)), rel=1e-3)
    assert costs.at(middle).workload.parameters == middle


def test_minibatches_take_as_long_as_they_have_images(recordings: Recordings) -> None:
    small, large = (measure(ALLREDUCE, recordings, size) for size in (BATCH_SIZE // 2, BATCH_SIZE))
    parameters = large.models[-1].parameters
    halves, whole = (costs.at(parameters).costs[COMPUTE].fixed for costs in (small, large))
    assert whole == pytest.approx(2 * halves)
    first = (*COMPUTE[:3], True)
    beside = [
        costs.at(parameters).costs[first].fixed - costs.at(parameters).costs[COMPUTE].fixed for costs in (small, large)
    ]
    # What only a first minibatch takes does not grow.
    assert beside[0] == pytest.approx(beside[1])


def test_requests_grow_with_their_bytes(recordings: Recordings) -> None:
    costs = measure(System("allreduce", "memcached", "ga"), recordings, BATCH_SIZE)
    put = costs.requests["invocation", "memcached.put", "synchronise", False]
    recorded = {model.costs.costs["invocation", "memcached.put", "synchronise", False].bytes for model in costs.channel}
    assert len(recorded) == 2
    assert put.per_byte > 0
    assert put.fixed >= 0


def test_a_line_through_requests_of_two_sizes() -> None:
    assert _line([1e3, 1e6], [2e6 + 1e3, 2e6 + 1e6]) == pytest.approx((2e6, 1.0))
    # Larger requests that took less: no request takes less than nothing.
    fixed, slope = _line([1e3, 1e6], [2e6, 1e6])
    assert slope == 0
    assert 1e6 < fixed < 2e6


def test_powers() -> None:
    assert power([(10, 3.0)], 1000) == 3
    assert power([(10, 1.0), (100, 10.0), (1000, 10.0)], 50) == pytest.approx(5)
    assert power([(10, 1.0), (100, 10.0), (1000, 10.0)], 5000) == pytest.approx(10)
    assert power([(10, 1.0), (100, 10.0)], 1000) == pytest.approx(100)
    # Below the smallest, too; and a straight line where one is 0, never below 0.
    assert power([(10, 1.0), (100, 10.0)], 1) == pytest.approx(0.1)
    assert power([(100, 0.0), (10_000, 10.0)], 1000) == pytest.approx(5)
    assert power([(10, 0.0), (100, 10.0)], 1) == 0


def test_what_lies_beyond_the_recordings_says_so(recordings: Recordings) -> None:
    costs = measure(System("allreduce", "memcached", "ga"), recordings, BATCH_SIZE)
    lenet, mobilenet, resnet18 = (model.parameters for model in costs.models)
    assert costs.reasons(lenet, 2) == costs.reasons(mobilenet, 2) == []
    assert costs.reasons(resnet18, 2) == ["messages by memcached beyond the recorded 0.247 to 12.9 MB"]
    assert costs.reasons(mobilenet, 3) == ["more workers than the recorded 2"]
    assert [reason.partition(" ")[0] for reason in costs.reasons(lenet - 1, 64)] == ["model", "messages", "more"]


def test_memory_grows_with_the_model_and_not_below_the_smallest(recordings: Recordings) -> None:
    costs = measure(ALLREDUCE, recordings, BATCH_SIZE)
    peaks = [costs.peak_memory_mb(model.parameters) for model in costs.models]
    assert peaks == pytest.approx([model.run.peak_memory_mb for model in costs.models])
    assert costs.peak_memory_mb(1) == peaks[0] < peaks[1] < peaks[2] < costs.peak_memory_mb(100_000_000)


def test_a_system_of_which_nothing_was_recorded() -> None:
    with pytest.raises(RunError, match="Nothing was recorded for allreduce/s3/ga"):
        measure(ALLREDUCE, Recordings({"allreduce": ()}, {}), BATCH_SIZE)
