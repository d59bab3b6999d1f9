"""The Lambda clock on made-up hosts, and the arithmetic of the REPORT line."""

import json
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab.aws.limits import billed_ms, cpu_share
from slslab.host.procfs import Sample, Stalls, ThreadTimes
from slslab.lambda_.clock import LambdaClock, PublishedClock
from slslab.run.records import InvocationRecord, report_line

SECOND = 1_000_000_000
TICK = 100_000_000
# Prints how many of 20,000 reads found another deadline than 7, or another last fault than the 64th.
READER = """
import sys
from pathlib import Path

path = Path(sys.argv[1])
reads = [path.read_bytes() for _ in range(20_000)]
print(sum((read[:8], read[16:]) != ((7).to_bytes(8, "little"), (1 << 63).to_bytes(8, "little")) for read in reads))
"""


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


def advance(clock: LambdaClock, sample: Sample) -> tuple[int, int]:
    """Lambda time and host delay of one interval, exact."""
    before = clock.host_delay_ns
    return clock.advance(sample), clock.host_delay_ns - before


def test_what_was_before_the_clock_began_is_not_counted() -> None:
    """Accounts of a warm environment are full of earlier invocations; only their growth is this one's."""
    history = {1: ThreadTimes(7 * SECOND, 3 * SECOND), 2: ThreadTimes(9 * SECOND, 0)}
    clock = LambdaClock(2.0, Sample(5 * SECOND, 16 * SECOND, 2 * SECOND, history))
    # Thread 1 waited 60 ms, 10 ms of them for the own quota; thread 2 rests, so that nothing is shared with it.
    later = {1: ThreadTimes(7 * SECOND + 40_000_000, 3 * SECOND + 60_000_000), 2: history[2]}
    sample = Sample(5 * SECOND + TICK, 16 * SECOND + 40_000_000, 2 * SECOND + 10_000_000, later)
    assert advance(clock, sample) == (50_000_000, 50_000_000)
    assert clock.cpu_ns == 16 * SECOND + 40_000_000


@pytest.mark.parametrize(
    ("waited", "stalled", "uncertain"),
    [(60, 10, 10), (60, 60, 60), (60, 300, 60), (0, 300, 0)],
)
def test_waits_under_pressure_are_uncertain(waited: int, stalled: int, uncertain: int) -> None:
    """At most what the thread waited for something else than a processor, and at most what the host was short."""
    clock = LambdaClock(1.0, Sample(0, 0, 0, {}, Stalls(7, 9)))
    busy, delay = (90 - waited) * 1_000_000, 10_000_000
    stalls = Stalls(7 + stalled * 800_000, 9 + stalled * 200_000)
    assert advance(clock, Sample(TICK, busy, 0, {1: ThreadTimes(busy, delay)}, stalls)) == (90_000_000, delay)
    assert (clock.uncertain_ns, clock.disk_ns) == (uncertain * 1_000_000, min(waited, stalled / 5) * 1_000_000)
    # Of an interval without threads all is a wait; what was uncertain before stays so.
    clock.advance(Sample(2 * TICK, busy, 0, {}, Stalls(stalls.cpu_ns, stalls.disk_ns + 2 * TICK)))
    assert clock.uncertain_ns == uncertain * 1_000_000 + TICK
    assert clock.disk_ns == min(waited, stalled / 5) * 1_000_000 + TICK


def test_waits_for_the_own_quota_are_certain() -> None:
    clock = LambdaClock(0.5, Sample(0, 0, 0, {}))
    sample = Sample(TICK, TICK // 2, TICK // 2, {1: ThreadTimes(TICK // 2, TICK // 2)}, Stalls(TICK, TICK))
    assert advance(clock, sample) == (TICK, 0)
    assert clock.uncertain_ns == 0


def test_an_interval_has_at_least_the_cpu_time_of_its_busiest_thread() -> None:
    """Whatever the mean of the delays: no invocation takes no time."""
    clock = LambdaClock(2.0, Sample(0, 0, 0, {}))
    threads = {1: ThreadTimes(30_000_000, 70_000_000), 2: ThreadTimes(1_000_000, 900_000_000)}
    assert advance(clock, Sample(TICK, 31_000_000, 0, threads)) == (30_000_000, 70_000_000)


def test_cpu_time_that_the_kernel_booked_early_is_counted_in_the_next_interval() -> None:
    clock = LambdaClock(2.0, Sample(0, 0, 0, {}))
    assert advance(clock, Sample(10_000_000, 30_000_000, 0, {1: ThreadTimes(30_000_000, 0)})) == (10_000_000, 0)
    later = Sample(10_000_000 + TICK, 30_000_000, 0, {1: ThreadTimes(30_000_000, TICK)})
    assert advance(clock, later) == (20_000_000, TICK - 20_000_000)


def test_an_end_that_was_noticed_late_takes_nothing_back() -> None:
    """A sample of the clock was taken while the report lay unread."""
    clock = LambdaClock(1.0, Sample(0, 0, 0, {}))
    clock.advance(Sample(TICK, 0, 0, {}))
    assert advance(clock, Sample(TICK - 1, 0, 0, {})) == (0, 0)


def test_a_thread_that_began_within_the_interval_counts_whole() -> None:
    clock = LambdaClock(1.0, Sample(0, 0, 0, {}))
    assert advance(clock, Sample(TICK, 0, 0, {1: ThreadTimes(0, 50_000_001)})) == (49_999_999, 50_000_001)


@pytest.mark.parametrize(("busy", "delay"), [(5_000_000, 60_000_000), (5_000_001, 30_000_000)])
def test_a_thread_is_active_above_a_twentieth_of_the_interval(busy: int, delay: int) -> None:
    """Below, it does not halve the delay of the thread that works."""
    clock = LambdaClock(2.0, Sample(0, 0, 0, {}))
    threads = {1: ThreadTimes(40_000_000, 60_000_000), 2: ThreadTimes(busy, 0)}
    assert advance(clock, Sample(TICK, 40_000_000, 0, threads)) == (TICK - delay, delay)
    later = LambdaClock(2.0, Sample(SECOND, 0, 0, {}))
    assert advance(later, Sample(SECOND + TICK, 40_000_000, 0, threads)) == (TICK - delay, delay)


def test_time_is_whole_nanoseconds() -> None:
    """Two active threads and an odd sum of their delays: rounded in Lambda's favour, and nothing is lost."""
    clock = LambdaClock(2.0, Sample(0, 0, 0, {}))
    threads = {1: ThreadTimes(40_000_000, 50_000_000), 2: ThreadTimes(40_000_000, 50_000_001)}
    assert advance(clock, Sample(TICK, 80_000_000, 0, threads)) == (50_000_000, 50_000_000)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_an_interval_may_be_longer_than_the_quotas_period(share: float) -> None:
    """A busy emulator samples late, and the time is the same as if it had not."""
    intervals = [(round(share * TICK * 3 / 10), TICK - round(share * TICK * 3 / 10), 0)] * 40
    often, once = run_clock(share, intervals), LambdaClock(share, Sample(0, 0, 0, {1: ThreadTimes(0, 0)}))
    used, waited = (sum(interval[index] for interval in intervals) for index in (0, 1))
    once.advance(Sample(40 * TICK, used, 0, {1: ThreadTimes(used, waited)}))
    assert once.elapsed_ns == pytest.approx(often.elapsed_ns, abs=1000)


def test_in_an_interval_of_several_periods_no_more_is_hidden_than_the_host_held_up() -> None:
    """A tenth of a vCPU that is used up many times over: all of the delay is the quota's, and it is added once."""
    clock = LambdaClock(0.1, Sample(0, 0, 0, {}))
    sample = Sample(2 * TICK, 3 * TICK // 2, 0, {1: ThreadTimes(3 * TICK // 2, TICK // 2)})
    assert advance(clock, sample) == (2 * TICK, 0)


def test_a_quota_that_nobody_has_used_yet_hides_nothing() -> None:
    """The bucket is full at first, as Lambda's is: a short burst above the share is not throttled."""
    clock = LambdaClock(0.25, Sample(0, 0, 0, {}))
    sample = Sample(10_000_000, 5_000_000, 0, {1: ThreadTimes(5_000_000, 5_000_000)})
    assert advance(clock, sample) == (5_000_000, 5_000_000)


def test_what_is_used_beyond_the_quota_is_owed_at_the_share() -> None:
    """A period's quota is 5 ms; 1 ms more takes a quarter of a vCPU 4 ms, which the host hid."""
    clock = LambdaClock(0.25, Sample(0, 0, 0, {}))
    sample = Sample(20_000_000, 6_000_000, 0, {1: ThreadTimes(6_000_000, 14_000_000)})
    assert advance(clock, sample) == (10_000_000, 10_000_000)


def test_a_quota_used_to_its_last_nanosecond_owes_nothing() -> None:
    """Nor when a fraction of a nanosecond is left, or when the environment then does nothing at all."""
    share = 128 / 1769
    clock = LambdaClock(share, Sample(0, 0, 0, {}))
    assert 0 < share * TICK - int(share * TICK) < 1
    assert advance(clock, Sample(TICK, int(share * TICK), 0, {})) == (TICK, 0)
    whole = LambdaClock(1.0, Sample(0, 0, 0, {1: ThreadTimes(0, 0)}))
    assert advance(whole, Sample(TICK, TICK, 0, {1: ThreadTimes(TICK, 0)})) == (TICK, 0)
    assert advance(whole, Sample(2 * TICK, TICK, 0, {1: ThreadTimes(TICK, TICK)})) == (0, TICK)


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


def test_billed_duration_counts_hundredths_as_the_report_line_prints_them() -> None:
    """A thousandth that the line does not show must not cost a millisecond."""
    assert billed_ms(10.004, None) == 10
    assert billed_ms(10.006, None) == 11


def test_report_lines() -> None:
    ok = report_line("id", 3.01, 110.10, 128, 36, "success", None)
    assert ok == (
        "REPORT RequestId: id\tDuration: 3.01 ms\tBilled Duration: 114 ms\tMemory Size: 128 MB\t"
        "Max Memory Used: 36 MB\tInit Duration: 110.10 ms\t\n"
    )
    late = report_line("id", 31000.0, 3439.0, 512, 80, "timeout", "Sandbox.Timedout")
    assert "Billed Duration: 34439 ms" in late
    assert late.endswith("Init Duration: 3439.00 ms\tStatus: timeout\n")
    broken = report_line("id", 5.0, None, 512, 80, "error", "Runtime.ExitError")
    assert broken.endswith("Max Memory Used: 80 MB\tStatus: error\tError Type: Runtime.ExitError\n")


def test_an_error_without_a_type_has_no_status_in_its_report_line() -> None:
    assert report_line("id", 5.0, None, 512, 80, "error", None).endswith("Max Memory Used: 80 MB\n")


def test_a_record_is_json_with_every_field() -> None:
    fields: dict[str, Any] = {
        "request_id": "a", "function": "f", "version": "$LATEST", "environment": "f-0001", "memory_mb": 1769,
        "cpu_share": 1.0, "init_cpu_share": 1.0, "quota_period_ms": 20, "architecture": "x86_64", "ephemeral_mb": 512,
        "invocation_type": "RequestResponse",
        "cold_start": True, "template": "", "init_ms": None, "duration_ms": 1.25, "billed_ms": 2, "max_memory_mb": 40,
        "cgroup_peak_mb": None, "cpu_ms": 1.0, "host_delay_ms": 0.0, "uncertain_ms": None, "status": "success",
        "error_type": None, "started_at": "2026-11-21T10:00:00.000+00:00", "start_ns": 0, "end_ns": 1_250_000,
        "report": "REPORT\n", "requests": 13, "init_cpu_ms": None,
    }  # fmt: skip
    assert json.loads(json.dumps(InvocationRecord(**fields).as_document())) == fields


def test_a_worker_that_reads_while_its_clock_is_written_finds_its_deadline(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    with closing(PublishedClock(path)) as clock:
        clock.publish(7, 0, 1 << 63)
        with subprocess.Popen([sys.executable, "-c", READER, path], stdout=subprocess.PIPE, text=True) as reader:
            for delay_ns in range(100_000_000):
                clock.publish(7, delay_ns, 1 << 63)
                if delay_ns % 1000 == 0 and reader.poll() is not None:
                    break
            assert reader.stdout is not None
            assert reader.stdout.read() == "0\n"
    assert path.read_bytes() == struct.pack("<QQQ", 7, delay_ns, 1 << 63)
    with pytest.raises(ValueError, match="released"):
        clock.publish(7, 0, 1 << 63)
