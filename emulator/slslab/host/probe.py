"""Find out whether other work loads this host: time a fixed amount of work on every processor, and read stalls."""

import hashlib
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from statistics import median

from slslab.host.procfs import Pressure

TIMES = 8
# On a busy host the probe stops earlier, because a few repetitions are enough to tell.
LEAST_TIMES, LIMIT_S = 3, 1.0
# About 50 ms of SHA-256, which releases the interpreter's lock.
WORK = bytes(1 << 26)


@dataclass(frozen=True)
class Probe:
    """The times of the same work, repeated on every processor at once, seconds, and the share of the time in which
    anything on the host waited for a processor (`stalled_share`; None where the kernel doesn't report it)."""

    wall_s: Sequence[float]
    cpu_s: Sequence[float]
    stalled_share: float | None


def probe() -> Probe:
    """Occupy all processors for half a second, or a little more than a second on a busy host."""
    processors = len(os.sched_getaffinity(0))
    together = threading.Barrier(processors)

    def work(_number: int) -> tuple[float, float]:
        together.wait()
        wall, cpu = time.monotonic(), time.thread_time()
        hashlib.sha256(WORK)
        return time.monotonic() - wall, time.thread_time() - cpu

    with closing(Pressure()) as pressure, ThreadPoolExecutor(processors) as threads, ExitStack() as undo:
        # After an interrupt, some may wait for others that never arrive.
        undo.callback(together.abort)
        before, began = pressure.stalls(), time.monotonic_ns()
        taken: list[tuple[float, float]] = []
        for number in range(TIMES):
            if number < LEAST_TIMES or time.monotonic_ns() - began < LIMIT_S * 1e9:
                taken += threads.map(work, range(processors))
        stalled, wall_ns = pressure.stalls().cpu_ns - before.cpu_ns, time.monotonic_ns() - began
    share = min(1.0, stalled / wall_ns) if pressure.known else None
    return Probe([wall for wall, _ in taken], [cpu for _, cpu in taken], share)


def slowdown(probes: Sequence[Probe]) -> float:
    """Return the slowest probe's slowdown: the median of its times over the work's least CPU time in any probe."""
    return max(median(one.wall_s) for one in probes) / min(min(one.cpu_s) for one in probes)
