"""The Lambda clock, and what it says of an invocation: duration, billed duration, peak memory, the REPORT line.

The Lambda clock is wall time less the time in which the environment was held up by a busy host. It is *measured*: the
kernel tells for each thread how long it was runnable without a processor (`schedstat`) and how much of that was the
environment's own CPU quota (`cpu.stat`); what remains is the host's doing. One thing must be added. An environment
that a busy host slows down uses less than its share, so its quota never holds it back as Lambda's would; the clock
therefore keeps the quota's own account (a bucket of `share × 100 ms` that refills with Lambda time) and adds the
throttling that the host hid. On an idle host the kernel enforces the same quota and the addition is zero.
"""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slslab.environments.accounting import Sample
from slslab.limits import lambda_limits

MB = 1024 * 1024
VCPU_MB = lambda_limits().vcpu_mb
QUOTA_PERIOD_NS = 100_000_000
ACTIVE_FRACTION = 0.05


def cpu_share(memory_mb: int) -> float:
    """vCPUs of a function of this memory size: memory/1769 (AWS Lambda developer guide, "Configure memory")."""
    return memory_mb / VCPU_MB


class LambdaClock:
    """Turns samples of an environment's accounts into time as Lambda would have counted it.

    For an environment with one busy thread the correction is exact up to the sampling. With several, the host's delay
    is the mean over the threads that were active in the interval: parallel threads waiting at the same time hold the
    environment up once, not twice.
    """

    def __init__(self, share: float, sample: Sample) -> None:
        self.share = share
        self._last = sample
        self._tokens = share * QUOTA_PERIOD_NS
        self.elapsed_ns = 0
        self.host_delay_ns = 0

    @property
    def cpu_ns(self) -> int:
        """CPU time of the environment at the latest sample, nanoseconds since it was made."""
        return self._last.cpu_ns

    def advance(self, sample: Sample, held_ns: int = 0) -> int:
        """Account for the time since the last sample; returns the Lambda nanoseconds that passed.

        For `held_ns` of it the host held up the emulator, before which an answer of the environment lay unread.
        """
        wall = sample.wall_ns - self._last.wall_ns
        used = max(0, sample.cpu_ns - self._last.cpu_ns)
        passed = wall - min(wall, host_delay_ns(self._last, sample) + held_ns)
        self._tokens = min(self.share * QUOTA_PERIOD_NS, self._tokens + self.share * passed) - used
        if self._tokens < 0:
            # Throttling that the host hid: never more than the host's own delay, and what does not fit is still owed.
            owed = min(round(-self._tokens / self.share), wall - passed)
            passed += owed
            self._tokens += owed * self.share
        self._last = sample
        self.elapsed_ns += passed
        self.host_delay_ns += wall - passed
        return passed


def host_delay_ns(before: Sample, after: Sample) -> int:
    """Nanoseconds between two samples for which a busy host held up the threads, as the mean over the active ones."""
    wall = after.wall_ns - before.wall_ns
    delays, active = [], 0
    for thread, times in after.threads.items():
        earlier = before.threads.get(thread)
        cpu = times.cpu_ns - (earlier.cpu_ns if earlier else 0)
        delay = times.delay_ns - (earlier.delay_ns if earlier else 0)
        delays.append(delay)
        active += cpu + delay > ACTIVE_FRACTION * wall
    throttled = max(0, after.throttled_ns - before.throttled_ns)
    waited = max(0, sum(delays) - throttled)
    return min(wall, waited // max(1, active))


@dataclass(frozen=True)
class InvocationRecord:
    """The metered record of one invocation; durations in milliseconds, memory in MB as Lambda counts (MiB).

    `template` names the modules of the template that the environment was forked from, empty for one started afresh:
    a fork's memory is in part its template's, so that peaks and limits of such an invocation are not Lambda's.
    """

    request_id: str
    function: str
    version: str
    environment: str
    memory_mb: int
    cpu_share: float
    architecture: str
    ephemeral_mb: int
    invocation_type: str
    cold_start: bool
    template: str
    init_ms: float | None
    duration_ms: float
    billed_ms: int
    max_memory_mb: int
    cgroup_peak_mb: int | None
    cpu_ms: float
    host_delay_ms: float
    status: str
    error_type: str | None
    started_at: str
    start_ns: int
    end_ns: int
    report: str

    def as_document(self) -> dict[str, Any]:
        """The record as a JSON-safe mapping."""
        return asdict(self)


def billed_ms(duration_ms: float, init_ms: float | None) -> int:
    """Billed duration in ms: the sum of init and duration, rounded up once.

    Init is billed for every package kind since 2025-08-01 (AWS Compute blog, "AWS Lambda standardizes billing for
    INIT phase"); a REPORT line of 2026 with 31000.00 + 3439.00 ms billed 34440 (documented by observation).
    """
    # The printed durations have two decimals; rounding first keeps the line's own arithmetic consistent.
    return math.ceil(round(duration_ms + (init_ms or 0.0), 2))


def report_line(
    request_id: str,
    duration_ms: float,
    init_ms: float | None,
    memory_mb: int,
    max_memory_mb: int,
    status: str,
    error_type: str | None,
) -> str:
    """Lambda's REPORT log line, tab separated, newline at the end."""
    fields = [
        f"REPORT RequestId: {request_id}",
        f"Duration: {duration_ms:.2f} ms",
        f"Billed Duration: {billed_ms(duration_ms, init_ms)} ms",
        f"Memory Size: {memory_mb} MB",
        f"Max Memory Used: {max_memory_mb} MB",
    ]
    if init_ms is not None:
        fields.append(f"Init Duration: {init_ms:.2f} ms")
    if status == "timeout":
        fields.append("Status: timeout")
    elif status == "error" and error_type is not None:
        fields += ["Status: error", f"Error Type: {error_type}"]
    trailing = "\t" if status == "success" else ""
    return "\t".join(fields) + trailing + "\n"


def clock_domain() -> str:
    """Names the clock of this host since its boot; times of one domain can be compared."""
    return f"monotonic@{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
