"""Whether strangers load the host, by what the same work takes."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from slslab.host import probe as module
from slslab.host.probe import LEAST_TIMES, TIMES, Probe, probe, slowdown
from slslab.host.procfs import Pressure

QUIET = Probe([0.050, 0.051, 0.052], [0.050, 0.050, 0.051], 0.0)
HELD_UP = Probe([0.099, 0.100, 0.104], [0.050, 0.052, 0.052], 0.9)


def test_the_slowest_probe_counts_against_the_least_cpu_time_of_any() -> None:
    assert slowdown([QUIET, QUIET]) == pytest.approx(51 / 50)
    assert slowdown([HELD_UP, QUIET]) == slowdown([QUIET, HELD_UP]) == pytest.approx(2)


def test_a_single_hitch_is_no_load_and_more_cpu_time_than_before_is() -> None:
    hitch = Probe([0.050, 0.051, 0.500], [0.050, 0.050, 0.051], 0.0)
    assert slowdown([QUIET, hitch]) == pytest.approx(51 / 50)
    crowded = Probe([0.070, 0.071, 0.072], [0.070, 0.070, 0.071], 0.0)
    assert slowdown([QUIET, crowded]) == pytest.approx(71 / 50)


def test_every_processor_does_the_same_work() -> None:
    done, processors = probe(), len(os.sched_getaffinity(0))
    assert len(done.wall_s) == len(done.cpu_s)
    assert LEAST_TIMES * processors <= len(done.wall_s) <= TIMES * processors
    assert len(done.wall_s) % processors == 0
    assert min(done.cpu_s) > 0
    assert (done.stalled_share is not None) is Pressure().known


def test_a_busy_host_s_probe_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORK", b"")
    monkeypatch.setattr(module, "LIMIT_S", 0.0)
    assert len(probe().wall_s) == LEAST_TIMES * len(os.sched_getaffinity(0))


def test_an_interrupt_ends_it_although_a_thread_waits_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[threading.Barrier] = []

    class Barrier(threading.Barrier):
        def wait(self, timeout: float | None = None) -> int:
            waiting.append(self)
            return super().wait(timeout)

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *arguments: object) -> None:  # type: ignore[override]
            super().submit(*arguments)  # type: ignore[arg-type]
            while not waiting:
                pass
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "ThreadPoolExecutor", Interrupted)
    monkeypatch.setattr("threading.Barrier", Barrier)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    last_resort = threading.Timer(10, lambda: waiting[0].abort())
    last_resort.start()
    with pytest.raises(KeyboardInterrupt):
        probe()
    assert last_resort.is_alive()
    last_resort.cancel()
