"""How a phase of an execution environment ended, and its measurements."""

import math
import signal
from dataclasses import dataclass
from enum import Enum

from slslab.aws.limits import MB
from slslab.lambda_.runtime_api import RuntimeReport

SIGNALS: dict[int, str] = {
    signal.SIGKILL: "killed",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "aborted",
    signal.SIGTERM: "terminated",
}


class State(Enum):
    """The state of an execution environment."""

    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    RESET = "reset"
    STOPPED = "stopped"


class Ending(Enum):
    """How an initialisation or an invocation ended."""

    RESPONSE = "response"
    ERROR = "error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"
    EXIT = "exit"


@dataclass(frozen=True)
class PhaseEnd:
    """The end of an initialisation or invocation, with its measurements.

    `began_ns` and `ended_ns` are wall time on CLOCK_MONOTONIC. `lambda_ns` is time on the Lambda clock, without the
    host's delay `host_delay_ns`; `uncertain_ns` is how much of `lambda_ns` the host may also have caused (None if the
    kernel doesn't report pressure). `peak_bytes` is the most memory that the processes held, and `cgroup_peak_bytes`
    the most that the kernel charged to the group.
    """

    ending: Ending
    report: RuntimeReport | None
    exit_status: int | None
    began_ns: int
    ended_ns: int
    lambda_ns: int
    host_delay_ns: int
    uncertain_ns: int | None
    cpu_ns: int
    peak_bytes: int
    cgroup_peak_bytes: int | None


def exit_reason(status: int | None) -> str:
    """Describe the end of the runtime process in Lambda's words (`RequestId: … Error: <reason>`)."""
    if not status:
        return "Runtime exited without providing a reason"
    if status < 0:
        return f"Runtime exited with error: signal: {SIGNALS.get(-status, str(-status))}"
    return f"Runtime exited with error: exit status {status}"


def peak_mb(outcome: PhaseEnd, memory_mb: int) -> int:
    """Return Max Memory Used, MB: the peak rounded up, or the whole memory size when it was exhausted."""
    if outcome.ending is Ending.OUT_OF_MEMORY:
        return memory_mb
    return math.ceil(outcome.peak_bytes / MB)
