"""Read how long work on this host waited: for processors, memory, disks, and a hypervisor's other guests.

Sources: the kernel's pressure stall information (https://docs.kernel.org/accounting/psi.html), and proc_stat(5).
"""

import os
import time
from contextlib import suppress
from typing import NamedTuple

FILES = ("/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io")
# All environments share the last reading, because one takes half as long as all other counters of an invocation.
FRESH_NS = 10_000_000


class Stalls(NamedTuple):
    """How long something has waited since boot, ns: for a processor, or for memory or a disk."""

    cpu_ns: int
    disk_ns: int


NONE = Stalls(0, 0)


class Pressure:
    """The host's pressure; `known` is False where the kernel doesn't report it."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        with suppress(OSError):
            for path in FILES:
                self._descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        self._read_ns, self._stalls = 0, NONE
        self.known = len(self._descriptors) == len(FILES) and self._read() is not None

    def stalls(self) -> Stalls:
        """Return the stalls until now, or up to 10 ms ago; zeros if they are unknown."""
        now = time.monotonic_ns()
        if self.known and now - self._read_ns > FRESH_NS:
            self._read_ns, self._stalls = now, self._read() or NONE
        return self._stalls

    def close(self) -> None:
        """Close the open files."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _read(self) -> Stalls | None:
        """Return the totals of the lines `some avg10=… total=MICROSECONDS`; None if the kernel doesn't count them."""
        try:
            lines = [os.pread(descriptor, 256, 0).partition(b"\n")[0] for descriptor in self._descriptors]
        except OSError:  # the kernel was started with psi=0
            return None
        cpu, memory, disk = (int(line.rpartition(b"total=")[2]) * 1000 for line in lines)
        return Stalls(cpu, memory + disk)


class Times(NamedTuple):
    """What this host's processors did since boot, clock ticks: work, and waiting while the hypervisor ran others."""

    busy: int
    stolen: int

    def stolen_share(self, before: "Times") -> float:
        """Return the share of the busy time since `before` in which the hypervisor ran others."""
        busy, stolen = self.busy - before.busy, self.stolen - before.stolen
        return stolen / (busy + stolen) if stolen > 0 else 0.0


def read_times() -> Times:
    """Return the times until now.

    The Lambda clock can't leave stolen time out: the kernel doesn't count it as a thread's waiting, nor, where the
    hypervisor reports it, as the thread's CPU time.
    """
    with open("/proc/stat") as lines:
        user, nice, system, _idle, _iowait, interrupts, soft, stolen, *_ = map(int, lines.readline().split()[1:])
    return Times(user + nice + system + interrupts + soft, stolen)
