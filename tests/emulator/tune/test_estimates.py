"""Estimates of sizes that ran and of others, against cases that can be computed by hand."""

import math
from statistics import NormalDist

import pytest
from tests.metered import PROFILE, SAME, START_NS, record

from slslab.predict.invocation import Predictor, Request
from slslab.run.bill import load_book
from slslab.tune.estimates import Estimator, Measured, Sample, student

BOOK = load_book("aws-us-east-1")
GB_S = 0.0000166667
REQUEST = 0.0000002


def measured(memory_mb: int, *pairs: tuple[float, float]) -> Measured:
    """A size with a round for each pair of CPU time and duration, ms."""
    return Measured(memory_mb, [[Sample(record(cpu_ms, took_ms, memory_mb))] for cpu_ms, took_ms in pairs])


def estimator(*weights: float, cores: int = 2) -> Estimator:
    return Estimator(Predictor(SAME, PROFILE), BOOK, weights or (1.0,), cores)


def test_cpu_time_stretches_with_the_share_and_waits_do_not() -> None:
    found = estimator().estimate(measured(1769, (200, 300), (200, 300)), 442)
    assert not found.measured
    assert found.plain["seconds"] == pytest.approx(0.1 + 0.8, rel=0.02)
    assert found.plain["cost"] == pytest.approx(900 * GB_S * 442 / 1024 / 1000 + REQUEST, rel=0.02)


def test_a_size_that_ran_is_itself() -> None:
    found = estimator().estimate(measured(1769, (200, 300), (200, 310)), 1769)
    assert found.measured
    assert found.plain["seconds"] == pytest.approx(0.305)
    assert found.range("seconds")[1] > 0.31


def test_requests_to_s3_are_in_the_cost() -> None:
    made = [Request("object.put", START_NS, START_NS + 1_000_000, 10)] * 3
    rounds = [[Sample(record(1, 9), made)]] * 2
    with_requests = estimator().estimate(Measured(1769, [*rounds]), 1769)
    duration = math.ceil(1000 * with_requests.plain["seconds"])
    assert with_requests.plain["cost"] == pytest.approx(duration / 1000 * GB_S * 1769 / 1024 + REQUEST + 3 * 0.000005)


def test_payloads_count_by_their_weights() -> None:
    rounds = [[Sample(record(100, 100)), Sample(record(500, 500))]] * 2
    found = estimator(0.75, 0.25).estimate(Measured(1769, [*rounds]), 1769)
    assert found.plain["seconds"] == pytest.approx(0.2)


def test_noise_is_shared_by_sizes_that_were_modelled_from_the_same_invocations() -> None:
    noisy = measured(1769, (100, 100), (200, 200))
    one, other, apart = (
        estimator().estimate(noisy, 884),
        estimator().estimate(noisy, 442),
        estimator().estimate(measured(442, (150, 600), (150, 600)), 442),
    )
    # What is left is how far Lambda departs from the shares, at both sizes.
    low, high = one.ratio(other, "cheapest")
    assert high / low < 1.3
    low, high = one.ratio(apart, "cheapest")
    assert high / low > 2


def test_threads_that_a_quota_hid_are_in_the_range() -> None:
    one = estimator().estimate(measured(884, (500, 1000), (500, 1000)), 3538)
    assert one.range("seconds")[0] < 0.26
    assert one.range("seconds")[1] < 0.6


def test_sizes_with_more_processors_than_this_machine_are_modelled() -> None:
    found = estimator(cores=2).estimate(measured(7076, (2000, 1000), (2000, 1000)), 7076)
    assert not found.measured
    assert found.range("seconds")[0] < 0.55
    assert estimator(cores=4).estimate(measured(7076, (2000, 1000), (2000, 1000)), 7076).measured


def test_a_machine_that_drifts_widens_the_range() -> None:
    steady, drifting = (
        estimator().estimate(measured(1769, (100, 100), (100, 100)), 1769, drift) for drift in (0.0, 0.2)
    )
    assert drifting.range("cost")[1] > 1.1 * steady.range("cost")[1]
    # Waits don't depend on its speed.
    waiting = [estimator().estimate(measured(884, (1, 200), (1, 200)), 884, drift) for drift in (0.0, 0.2)]
    assert waiting[1].range("cost")[1] == pytest.approx(waiting[0].range("cost")[1], rel=0.01)


def test_the_interval_of_the_mean() -> None:
    """Of 90, 100 and 110 ms: the mean's deviation is 5.77 ms, and Student's 90 % quantile 1.886."""
    assert estimator().half_width(measured(1769, (90, 90), (100, 100), (110, 110))) == pytest.approx(0.109, rel=0.03)
    assert estimator().half_width(measured(1769, (90, 90))) == math.inf


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 3.078), (2, 1.886), (3, 1.638), (4, 1.533), (9, 1.383), (19, 1.328)]
)
def test_students_quantiles(degrees: int, quantile: float) -> None:
    assert student(degrees) == pytest.approx(quantile, rel=0.005)
    assert student(10**6) == pytest.approx(NormalDist().inv_cdf(0.9), rel=1e-4)


def test_a_cold_start_is_billed_with_its_init() -> None:
    cold = [Sample(record(100, 100, init=(200, 200)))] * 5
    found = estimator().cold(Measured(1769, [], cold))
    wait = PROFILE.functions.init_wait_ms
    assert wait is not None
    assert found.plain["seconds"] == pytest.approx(0.3 + wait.value / 1000)
