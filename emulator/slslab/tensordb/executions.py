"""Limit and measure the execution of scripts."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# Longer than any legitimate script: the papers' largest averages take two minutes here.
LIMIT_S = 300.0
# TorchScript can't be interrupted, so it gets this much longer to end by itself.
GRACE_S = 5.0
_running: dict[int, float] = {}


@contextmanager
def limited() -> Iterator[None]:
    """Execute a script in the block under `end_overdue`'s watch."""
    _running[threading.get_ident()] = time.monotonic()
    try:
        yield
    finally:
        del _running[threading.get_ident()]


def end_overdue() -> None:
    """End the process with a message when a script has passed its limit and can't be interrupted."""
    while True:
        time.sleep(GRACE_S)
        if any(time.monotonic() - began > LIMIT_S + GRACE_S for began in list(_running.values())):
            print(f"A script ran for more than {LIMIT_S:g} s and cannot be interrupted.", file=sys.stderr, flush=True)
            os._exit(4)


@dataclass(frozen=True)
class Settings:
    """How scripts run: strict or not, and torch's threads per operation."""

    strict: bool = True
    threads: int = 1


@dataclass(frozen=True)
class Usage:
    """What one execution used: CLOCK_MONOTONIC and CPU time, ns, and bytes of its inputs."""

    start_ns: int
    end_ns: int
    cpu_ns: int
    bytes: int


class Clock:
    """Wall and CPU time of an execution.

    With one thread per operation everything happens on the calling thread, so its CPU time is exact. With more, torch's
    pool works too, and only the process's CPU time includes it. That includes other connections' work as well, so it is
    an upper bound.
    """

    def __init__(self, settings: Settings) -> None:
        self._cpu = time.thread_time_ns if settings.threads == 1 else time.process_time_ns
        self._cpu_start = self._cpu()
        self._start = time.monotonic_ns()

    def stop(self, size: int, further_ns: int = 0) -> Usage:
        """Return the times so far; `size` is the inputs' bytes, and `further_ns` another process's CPU time."""
        return Usage(self._start, time.monotonic_ns(), self._cpu() - self._cpu_start + further_ns, size)
