"""Read for how long work on this host waited for processors, memory and disks: the kernel's pressure stall information.

https://docs.kernel.org/accounting/psi.html
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
