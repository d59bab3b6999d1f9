"""Read for how long work on this host waited: for processors, memory and disks, and for a hypervisor's other guests.

The kernel's pressure stall information (https://docs.kernel.org/accounting/psi.html), and proc_stat(5).
"""

import os
import time
from contextlib import suppress
from typing import NamedTuple

FILES = ("/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io")
# All environments share what was read last: reading it takes as long as half an invocation's other accounts.
FRESH_NS = 10_000_000


class Stalls(NamedTuple):
    """For how long something has waited since the boot, nanoseconds: for a processor, or for memory or a disk."""

    cpu_ns: int
    disk_ns: int


NONE = Stalls(0, 0)


class Pressure:
    """The host's pressure; `known` is False where the kernel does not tell."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        with suppress(OSError):
            for path in FILES:
                self._descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        self._read_ns, self._stalls = 0, NONE
        self.known = len(self._descriptors) == len(FILES) and self._read() is not None

    def stalls(self) -> Stalls:
        """Return the stalls until now, or 10 ms ago; none if they are unknown."""
        now = time.monotonic_ns()
        if self.known and now - self._read_ns > FRESH_NS:
            self._read_ns, self._stalls = now, self._read() or NONE
        return self._stalls

    def close(self) -> None:
        """Close its files."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _read(self) -> Stalls | None:
        """Return the totals of the lines `some avg10=… total=MICROSECONDS`; None if the kernel keeps none."""
        try:
            lines = [os.pread(descriptor, 256, 0).partition(b"\n")[0] for descriptor in self._descriptors]
        except OSError:  # the kernel was started with psi=0
            return None
        cpu, memory, disk = (int(line.rpartition(b"total=")[2]) * 1000 for line in lines)
        return Stalls(cpu, memory + disk)


class Times(NamedTuple):
    """What this host's processors did since the boot, clock ticks: work, and wait while the hypervisor ran others."""

    busy: int
    stolen: int

    def stolen_share(self, before: "Times") -> float:
        """Return for how much of the time in which processors had work since `before` the hypervisor ran others."""
        busy, stolen = self.busy - before.busy, self.stolen - before.stolen
        return stolen / (busy + stolen) if stolen > 0 else 0.0


def read_times() -> Times:
    """Return the times until now.

    The Lambda clock doesn't leave stolen time out: the kernel counts it neither as a thread's wait nor, where the
    hypervisor reports it, as its CPU time.
    """
    with open("/proc/stat") as lines:
        user, nice, system, _idle, _iowait, interrupts, soft, stolen, *_ = map(int, lines.readline().split()[1:])
    return Times(user + nice + system + interrupts + soft, stolen)
