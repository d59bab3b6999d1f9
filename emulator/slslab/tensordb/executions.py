"""How scripts are executed, and what one execution took."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """How scripts run: strict or not, and torch's threads for one operation."""

    strict: bool = True
    threads: int = 1


@dataclass(frozen=True)
class Usage:
    """What one execution took: CLOCK_MONOTONIC and CPU time in nanoseconds, bytes of its inputs."""

    start_ns: int
    end_ns: int
    cpu_ns: int
    bytes: int


class Clock:
    """Wall and CPU time of an execution.

    With one thread for an operation everything happens on the calling thread, whose CPU time is exact. With more,
    torch's pool works too, which only the process's CPU time includes; that also includes other connections' work
    meanwhile, and so is an upper bound.
    """

    def __init__(self, settings: Settings) -> None:
        self._cpu = time.thread_time_ns if settings.threads == 1 else time.process_time_ns
        self._cpu_start = self._cpu()
        self._start = time.monotonic_ns()

    def stop(self, size: int) -> Usage:
        """Return the times until now; `size` is the bytes of the inputs."""
        return Usage(self._start, time.monotonic_ns(), self._cpu() - self._cpu_start, size)
