"""The Lambda clock on made-up hosts, and the arithmetic of the REPORT line."""

from hypothesis import given
from hypothesis import strategies as st

from slslab.environments.accounting import Sample, ThreadTimes
from slslab.metering import LambdaClock, billed_ms, cpu_share, report_line

SECOND = 1_000_000_000
TICK = 100_000_000


def run_clock(share: float, ticks: list[tuple[int, int, int]], threads: int = 1) -> LambdaClock:
    """Feed a clock with (cpu, delay, throttled) nanoseconds per 100 ms tick and thread."""
    wall = cpu = delay = throttled = 0
    clock = LambdaClock(share, Sample(0, 0, 0, {n: ThreadTimes(0, 0) for n in range(threads)}))
    for more_cpu, more_delay, more_throttled in ticks:
        wall, cpu, delay, throttled = wall + TICK, cpu + more_cpu, delay + more_delay, throttled + more_throttled
        times = {n: ThreadTimes(cpu, delay) for n in range(threads)}
        clock.advance(Sample(wall, cpu * threads, throttled * threads, times))
    return clock


def test_on_an_idle_host_the_clock_is_the_wall() -> None:
    assert run_clock(1.0, [(TICK, 0, 0)] * 10).elapsed_ns == SECOND
    assert run_clock(1.0, [(0, 0, 0)] * 10).elapsed_ns == SECOND
    throttled_half = [(TICK // 2, TICK // 2, TICK // 2)] * 10
    assert run_clock(0.5, throttled_half).elapsed_ns == SECOND, (
        "throttling by the own quota is Lambda's, not the host's"
    )


def test_waiting_for_a_busy_host_is_not_counted() -> None:
    half_speed = [(TICK // 2, TICK // 2, 0)] * 20
    clock = run_clock(1.0, half_speed)
    assert clock.elapsed_ns == SECOND
    assert clock.host_delay_ns == SECOND


def test_sleeping_on_a_busy_host_is_counted() -> None:
    assert run_clock(1.0, [(0, 0, 0)] * 20).elapsed_ns == 2 * SECOND


def test_parallel_threads_that_wait_together_are_held_up_once() -> None:
    clock = run_clock(2.0, [(TICK // 2, TICK // 2, 0)] * 20, threads=2)
    assert clock.elapsed_ns == SECOND


def test_throttling_that_the_host_hid_is_added() -> None:
    """A share of a half on a host that gives half a core: the quota never binds, yet Lambda's would have."""
    clock = run_clock(0.5, [(TICK // 2, TICK // 2, 0)] * 20)
    assert abs(clock.elapsed_ns - 2 * SECOND) <= TICK
    thirds = [(TICK // 4, TICK * 3 // 4, 0)] * 40
    assert abs(run_clock(0.5, thirds).elapsed_ns - 2 * SECOND) <= TICK


@given(
    st.floats(0.07, 6.0),
    st.lists(st.tuples(st.integers(0, TICK), st.integers(0, TICK), st.integers(0, TICK)), min_size=1, max_size=50),
    st.integers(1, 8),
)
def test_the_clock_never_runs_backwards_nor_faster_than_the_wall(
    share: float, ticks: list[tuple[int, int, int]], threads: int
) -> None:
    clock = run_clock(share, ticks, threads)
    assert 0 <= clock.elapsed_ns <= len(ticks) * TICK
    assert clock.elapsed_ns + clock.host_delay_ns == len(ticks) * TICK


def test_share_of_one_vcpu() -> None:
    assert cpu_share(1769) == 1.0
    assert cpu_share(884) < 0.5 < cpu_share(885)


@given(st.integers(0, 90_000_000), st.none() | st.integers(0, 1_000_000))
def test_billed_duration_is_the_sum_rounded_up_once(duration: int, init: int | None) -> None:
    """Durations in hundredths of a millisecond, as printed."""
    billed = billed_ms(duration / 100, None if init is None else init / 100)
    assert billed == -(-(duration + (init or 0)) // 100)


def test_report_lines() -> None:
    ok = report_line("id", 3.01, 110.10, 128, 36, "success", None)
    assert ok == (
        "REPORT RequestId: id\tDuration: 3.01 ms\tBilled Duration: 114 ms\tMemory Size: 128 MB\t"
        "Max Memory Used: 36 MB\tInit Duration: 110.10 ms\t\n"
    )
    late = report_line("id", 31000.0, 3439.0, 512, 80, "timeout", "Sandbox.Timedout")
    assert "Billed Duration: 34439 ms" in late
    assert late.endswith("Init Duration: 3439.00 ms\tStatus: timeout\n")
