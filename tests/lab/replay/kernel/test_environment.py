"""The CPU share in periods, and how many environments there may be, against hand calculation."""

import math

import pytest
from tests.lab.replay.platform import platform, with_network
from tests.lab.replay.small_programs import MS

from slslab.predict.environment import Environment
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import Figure, load_profile
from slslab_lab.replay.kernel.environment import Pool
from slslab_lab.replay.kernel.program import Track
from slslab_lab.replay.kernel.timeline import Call
from slslab_workers.plan import VCPU_MB
from slslab_workers.trace.kinds import COMPUTE, KINDS, REQUESTS

AS_RECORDED = dict.fromkeys(KINDS, 1.0)


def environment(share: float, parallel: float = 1.0) -> Environment:
    profile = platform()
    figure = profile.compute.parallel.model_copy(update={"value": parallel})
    compute = profile.compute.model_copy(update={"parallel": figure})
    return Environment(share, round(share * VCPU_MB), profile.model_copy(update={"compute": compute}), AS_RECORDED)


@pytest.mark.parametrize(
    ("share", "begin_ms", "cpu_ms", "end_ms"),
    [
        (1.0, 30, 100, 130),
        (0.25, 0, 25, 25),
        # 25 ms in each of two periods, and 10 ms of the third.
        (0.25, 0, 60, 210),
        # What is left of a period counts, not what is left of its share.
        (0.25, 90, 20, 110),
        (0.25, 50, 30, 105),
        (0.25, 0, 1_000, 3_925),
        (0.5, 1_000, 500, 1_950),
    ],
)
def test_a_share_of_one_processor(share: float, begin_ms: int, cpu_ms: int, end_ms: int) -> None:
    assert environment(share).compute(begin_ms * MS, cpu_ms * MS, REQUESTS) == end_ms * MS


def test_a_period_s_share_is_used_up_by_whoever_comes_first() -> None:
    one = environment(0.25)
    assert one.compute(0, 20 * MS, REQUESTS) == 20 * MS
    assert one.compute(40 * MS, 10 * MS, REQUESTS) == 105 * MS
    assert one.compute(300 * MS, 10 * MS, REQUESTS) == 310 * MS


@pytest.mark.parametrize(
    ("share", "parallel", "cpu_ms", "end_ms"),
    [
        (2.0, 1.0, 100, 50),
        # Half of it runs on one thread.
        (2.0, 0.5, 100, 75),
        # 150 ms in 75 ms of each period, and the last 100 ms in 50 ms.
        (1.5, 1.0, 400, 250),
    ],
)
def test_several_threads_share_what_runs_in_parallel(share: float, parallel: float, cpu_ms: int, end_ms: int) -> None:
    assert environment(share, parallel).compute(0, cpu_ms * MS, COMPUTE, True) == end_ms * MS
    if share == 2.0:
        assert environment(share, parallel).compute(0, cpu_ms * MS, REQUESTS) == cpu_ms * MS


# Seconds of 200 pbkdf2, one process at a time and two: jvroig/AWS-Experiments-Lambda-Multithreading, December 2022.
@pytest.mark.parametrize(
    ("memory_mb", "one_s", "two_s"),
    [
        (2048, 12.88, 11.03),
        (2816, 12.81, 8.13),
        (3072, 12.70, 7.57),
        (4096, 12.63, 6.79),
        (5376, 12.79, 6.54),
        (7168, 12.93, 6.58),
        (8960, 12.67, 6.75),
        (10240, 13.32, 6.57),
    ],
)
def test_two_processes_get_as_much_of_lambda_s_processors_as_was_measured(
    memory_mb: int, one_s: float, two_s: float
) -> None:
    profile = load_profile(DEFAULT_PROFILE)
    whole = profile.compute.parallel.model_copy(update={"value": 1.0})
    profile = profile.model_copy(update={"compute": profile.compute.model_copy(update={"parallel": whole})})
    # At this size a function has two threads; the share is that of the size of the row.
    function = Environment(memory_mb / VCPU_MB, 2 * VCPU_MB, profile, AS_RECORDED)
    took_s = function.compute(0, round(one_s * 1e9), COMPUTE, True) / 1e9
    assert took_s == pytest.approx(two_s, rel=0.06)
    # One process has a whole processor.
    assert function.compute(0, MS, REQUESTS) == MS


def test_each_thread_beyond_the_first_adds_a_part_of_a_processor() -> None:
    profile = platform()
    figure = Figure(value=0.9, status="assumed", source="made up for a test")
    profile = profile.model_copy(update={"compute": profile.compute.model_copy(update={"further_thread": figure})})

    def took_ms(share: float, threads: int, cpu_ms: int) -> float:
        return Environment(share, threads * VCPU_MB, profile, AS_RECORDED).compute(0, cpu_ms * MS, COMPUTE, True) / MS

    assert [took_ms(2.0, 2, 190), took_ms(6.0, 6, 550)] == pytest.approx([100, 100])
    # The CPU share is what two threads lack: 150 ms in 78.9 ms of each period, and the last 95 ms in 50 ms.
    assert [took_ms(1.5, 2, 150), took_ms(1.5, 2, 245)] == pytest.approx([150 / 1.9, 150])
    # A machine of its own isn't Lambda's.
    assert took_ms(math.inf, 2, 200) == 100


def test_speed_divides_cpu_seconds() -> None:
    fast = Environment(1.0, VCPU_MB, platform(), {**dict.fromkeys(KINDS, 2.0), COMPUTE: 4.0})
    assert fast.compute(0, 100 * MS, REQUESTS) == 50 * MS
    assert fast.compute(0, 100 * MS, COMPUTE) == 25 * MS


def take(pool: Pool, track: Track, now: int) -> Call:
    """Return a call that has just been given an environment."""
    call = Call()
    assert pool.take(track, call, now) is None
    return call


def test_environments_are_taken_warm_or_cold() -> None:
    pool = Pool(platform(concurrency=1, warm_ms=3))
    track = Track("train", "invocation", 0, (), VCPU_MB, init_cpu_ns=50 * MS)
    first = take(pool, track, 0)
    assert (first.began, first.init_ns, first.cold) == (153 * MS, 50 * MS, True)
    assert pool.free == 0
    assert first.environment is not None
    pool.give_back("train", 300 * MS, first.environment)
    assert pool.free == 0, "it is still busy"
    pool.release()
    assert pool.free == 1
    second = take(pool, track, 300 * MS)
    assert (second.environment, second.began, second.init_ns, second.cold) == (first.environment, 303 * MS, 0, False)
    assert pool.free == 0


def test_what_ends_later_is_still_busy() -> None:
    pool = Pool(platform())
    track = Track("train", "invocation", 0, (), VCPU_MB)
    first = take(pool, track, 0)
    assert first.environment is not None
    pool.give_back("train", 500 * MS, first.environment)
    assert take(pool, track, 499 * MS).cold


def test_new_environments_start_in_a_burst_and_then_at_a_rate() -> None:
    profile = platform()
    figures = {name: profile.functions.burst.model_copy(update={"value": value}) for name, value in
               {"burst": 2.0, "ramp_per_s": 100.0}.items()}  # fmt: skip
    pool = Pool(profile.model_copy(update={"functions": profile.functions.model_copy(update=figures)}))
    track = Track("train", "invocation", 0, (), VCPU_MB)
    assert [pool.take(track, Call(), 0) for _ in range(3)] == [None, None, 10 * MS]
    assert take(pool, track, 10 * MS).cold
    # Another function scales by itself.
    assert take(pool, Track("other", "invocation", 0, (), VCPU_MB), 10 * MS).cold
    # Its burst comes back with time.
    assert [pool.take(track, Call(), 1_000 * MS) for _ in range(2)] == [None, None]


def test_a_function_s_network_is_a_token_bucket_for_each_direction() -> None:
    """100 MB/s of a connection; the network refills at 50 MB/s and holds 100 MB."""
    profile = with_network(platform(), rate_mb_s=50, burst_mb=100)
    one = Environment(1.0, VCPU_MB, profile, AS_RECORDED)
    # While 200 MB come with 100 MB/s, the bucket loses 50 MB a second.
    assert one.transfer(0, 150_000_000, False, 1_500 * MS) == 1_500 * MS
    # 25 MB are left: then it takes (200 - 25) ÷ 50 seconds.
    assert one.transfer(1_500 * MS, 200_000_000, False, 2_000 * MS) == 3_500 * MS
    # What is sent has a bucket of its own.
    assert one.transfer(5_000 * MS, 200_000_000, True, 2_000 * MS) == 2_000 * MS
    # After a second 50 MB are there again; never more than the bucket holds.
    assert one.transfer(6_000 * MS, 150_000_000, False, 1_500 * MS) == 2_000 * MS
    assert one.transfer(100_000 * MS, 250_000_000, False, 2_500 * MS) == 3_000 * MS
    # A slow connection leaves it full, and no bytes take nothing.
    assert one.transfer(200_000 * MS, 100_000_000, False, 10_000 * MS) == 10_000 * MS
    assert one.transfer(210_000 * MS, 0, False, 0) == 0


def test_a_machine_of_its_own_has_its_connections_alone() -> None:
    one = Environment(math.inf, VCPU_MB, with_network(platform(), rate_mb_s=1, burst_mb=0), AS_RECORDED)
    assert one.transfer(0, 10**9, False, 10 * MS) == 10 * MS
