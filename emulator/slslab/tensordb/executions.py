"""How scripts are executed, for how long, and what one execution took."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# A script runs longer than any that is meant to: the papers' largest averages take two minutes here.
LIMIT_S = 300.0
# What cannot be interrupted (TorchScript) has so much longer to end by itself.
GRACE_S = 5.0
_running: dict[int, float] = {}


@contextmanager
def limited() -> Iterator[None]:
    """Execute a script in the block, which `end_overdue` watches."""
    _running[threading.get_ident()] = time.monotonic()
    try:
        yield
    finally:
        del _running[threading.get_ident()]


def end_overdue() -> None:
    """End the process, with a sentence, when a script has run past its limit and cannot be interrupted."""
    while True:
        time.sleep(GRACE_S)
        if any(time.monotonic() - began > LIMIT_S + GRACE_S for began in list(_running.values())):
            print(f"A script ran for more than {LIMIT_S:g} s and cannot be interrupted.", file=sys.stderr, flush=True)
            os._exit(4)


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

    def stop(self, size: int, further_ns: int = 0) -> Usage:
        """Return the times until now; `size` is the bytes of the inputs, `further_ns` another process's CPU time."""
        return Usage(self._start, time.monotonic_ns(), self._cpu() - self._cpu_start + further_ns, size)
