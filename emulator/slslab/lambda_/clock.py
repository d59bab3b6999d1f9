"""The Lambda clock: wall time less the time for which a busy host held up the environment.

It is *measured*: the kernel reports for each thread how long it was runnable without a processor (`schedstat`) and how
much of that was due to the environment's own CPU quota (`cpu.stat`); the rest is due to the host. One thing must be
added. An environment that a busy host slows down uses less than its share, so its quota never holds it back as Lambda's
would. The clock therefore simulates the quota (a bucket of one period's share that refills with Lambda time) and adds
the throttling that the host hid. On an idle host the kernel enforces the same quota and the addition is zero.
"""

import mmap
from pathlib import Path

from slslab.aws.limits import QUOTA_PERIOD_NS
from slslab.host.procfs import Sample, ThreadTimes

ACTIVE_FRACTION = 0.05
UNSTARTED = ThreadTimes(0, 0)


def host_delay_ns(before: Sample, after: Sample) -> int:
    """Return how long a busy host kept threads waiting between two samples, ns: the mean over active threads."""
    wall = after.wall_ns - before.wall_ns
    delays, active = 0, 0
    for thread, times in after.threads.items():
        earlier = before.threads.get(thread, UNSTARTED)
        delay = times.delay_ns - earlier.delay_ns
        delays += delay
        active += times.cpu_ns - earlier.cpu_ns + delay > ACTIVE_FRACTION * wall
    throttled = max(0, after.throttled_ns - before.throttled_ns)
    waited = max(0, delays - throttled)
    return min(wall, waited // max(1, active))


def busiest_ns(before: Sample, after: Sample) -> int:
    """Return the CPU time of the busiest thread between two samples, ns."""
    used = [times.cpu_ns - before.threads.get(thread, UNSTARTED).cpu_ns for thread, times in after.threads.items()]
    return max(used, default=0)


class LambdaClock:
    """Turns samples of an environment's accounts into time as Lambda would have counted it.

    For an environment with one busy thread the correction is exact up to the sampling. With several, the host's delay
    is the mean over the threads that were active in the interval: threads that wait in parallel delay the environment
    once, not twice.

    One delay is not corrected: the environment may wait for a file or a service that is itself held up, because this
    host is short of processors, memory or disks. `uncertain_ns` is the most of `elapsed_ns` that this can be, by the
    kernel's pressure stall information; `disk_ns` is the part from memory and disks.
    """

    def __init__(self, share: float, sample: Sample) -> None:
        self.share = share
        self._first = self._last = sample
        self._tokens = share * QUOTA_PERIOD_NS
        self.elapsed_ns = 0
        self.host_delay_ns = 0
        self.uncertain_ns = 0
        self.disk_ns = 0

    @property
    def cpu_ns(self) -> int:
        """CPU time of the environment at the latest sample, nanoseconds since it was made."""
        return self._last.cpu_ns

    def advance(self, sample: Sample) -> int:
        """Account for the time since the last sample, and return the Lambda nanoseconds that passed."""
        last, self._last = self._last, sample
        wall = max(0, sample.wall_ns - last.wall_ns)
        used = max(0, sample.cpu_ns - last.cpu_ns)
        passed = wall - host_delay_ns(last, sample)
        # No thread can have used more CPU time than has passed. (The kernel's accounts of a running thread lag by some
        # milliseconds, so don't check this for each interval.)
        busiest = busiest_ns(last, sample)
        in_all = busiest if last is self._first else busiest_ns(self._first, sample)
        passed = min(wall, max(passed, in_all - self.elapsed_ns))
        passed += self._throttle(wall, passed, used)
        self.elapsed_ns += passed
        self.host_delay_ns += wall - passed
        waited = max(0, passed - max(busiest, round(used / self.share)))
        cpu_ns = sample.stalls.cpu_ns - last.stalls.cpu_ns
        disk_ns = sample.stalls.disk_ns - last.stalls.disk_ns
        self.uncertain_ns += min(waited, cpu_ns + disk_ns)
        self.disk_ns += min(waited, disk_ns)
        return passed

    def _throttle(self, wall: int, passed: int, used: int) -> int:
        """Return the throttling that the host hid: at most its delay; the rest is added in later intervals.

        A busy emulator samples late. An interval longer than the quota's period is split into parts. A bucket holds at
        most one period's share, so it would overflow if it were refilled for the whole interval at once.
        """
        owed_ns, parts = 0, -(-wall // QUOTA_PERIOD_NS) or 1
        for _ in range(parts):
            filled = min(self.share * QUOTA_PERIOD_NS, self._tokens + self.share * passed / parts)
            self._tokens = filled - used / parts
            if self._tokens < 0:
                owed = min(round(-self._tokens / self.share), wall - passed - owed_ns)
                owed_ns += owed
                self._tokens += owed * self.share
        return owed_ns


class PublishedClock:
    """The clock of an environment's invocation in a file, where the worker reads it (SLSLAB_CLOCK_FILE).

    The runtime's own context counts wall time, and stops at zero.
    """

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(24)
            self._numbers = memoryview(mmap.mmap(file.fileno(), 24)).cast("Q")

    def publish(self, deadline_ns: int, delay_ns: int, faults: int) -> None:
        """Write the deadline (CLOCK_MONOTONIC) and the host's delay so far, ns.

        `faults` has a bit for each fault of a run's plan that has happened.
        """
        # Each number is one store. `struct.pack_into` would fill all with zeros first, and a worker that reads a
        # deadline of zero takes its time for over.
        self._numbers[0], self._numbers[1], self._numbers[2] = deadline_ns, delay_ns, faults

    def close(self) -> None:
        """Unmap the file."""
        self._numbers.release()
