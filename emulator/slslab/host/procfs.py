"""Read from /proc how much CPU time, waiting for a processor and memory an environment's processes used."""

import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from slslab.host.cgroup_accounts import GroupAccounts

PRESSURE_FILES = ("/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io")
# All environments share the last reading, because one takes half as long as all other counters of an invocation.
FRESH_NS = 10_000_000


class Stalls(NamedTuple):
    """How long something has waited since boot, ns: for a processor, or for memory or a disk."""

    cpu_ns: int
    disk_ns: int


NO_STALLS = Stalls(0, 0)


class Pressure:
    """The host's pressure; `known` is False where the kernel doesn't report it."""

    def __init__(self) -> None:
        self._files = KeptFiles()
        self._read_ns, self._stalls = 0, NO_STALLS
        self.known = self._read() is not None

    def stalls(self) -> Stalls:
        """Return the stalls until now, or up to 10 ms ago; zeros if they are unknown."""
        now = time.monotonic_ns()
        if self.known and now - self._read_ns > FRESH_NS:
            self._read_ns, self._stalls = now, self._read() or NO_STALLS
        return self._stalls

    def close(self) -> None:
        """Close the open files."""
        self._files.close()

    def _read(self) -> Stalls | None:
        """Return the totals of the lines `some avg10=… total=MICROSECONDS`; None if the kernel doesn't count them."""
        lines = [self._files.read(path).partition(b"\n")[0] for path in PRESSURE_FILES]
        if not all(lines):  # the kernel was started with psi=0, or lacks the files
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


KEPT_FILES = 64


class KeptFiles:
    """Files in /proc. They stay open, because opening one takes several times as long as reading it."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        """Return a file's content; empty if its process or thread has exited."""
        try:
            descriptor = self._open.get(path)
            return os.pread(self._descriptor(path, os.O_RDONLY) if descriptor is None else descriptor, 8192, 0)
        except OSError:
            self._forget(path)
            return b""

    def write(self, path: str, data: bytes) -> None:
        """Write to a file, unless its process has exited."""
        try:
            os.pwrite(self._descriptor(path, os.O_WRONLY), data, 0)
        except OSError:
            self._forget(path)

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, path: str, flags: int) -> int:
        descriptor = self._open.get(path)
        if descriptor is None:
            if len(self._open) >= KEPT_FILES:  # some may be of processes that have exited
                self.close()
            descriptor = self._open[path] = os.open(path, flags | os.O_CLOEXEC)
        return descriptor

    def _forget(self, path: str) -> None:
        if path in self._open:
            os.close(self._open.pop(path))


class Tasks:
    """The processes and threads of one environment at the last reading: `pids`, and the `times` of each thread.

    `find` lists the processes, and `count` returns the number of threads, where that is known. While that number stays
    the same and no thread has exited, nothing is listed again. `files` keeps the open files.
    """

    def __init__(self, find: Callable[[], list[int]], count: Callable[[], int | None]) -> None:
        self.pids: list[int] = []
        self.times: dict[int, ThreadTimes] = {}
        self.files = KeptFiles()
        self._find = find
        self._count = count
        self._schedstats: dict[int, str] = {}

    def read(self) -> None:
        """Read them now."""
        if self._count() == len(self._schedstats):
            self.times = thread_times(self._schedstats, self.files.read)
            if len(self.times) == len(self._schedstats):
                return
        self.pids = self._find()
        self._schedstats = schedstats(self.pids)
        self.times = thread_times(self._schedstats, self.files.read)


class ThreadTimes(NamedTuple):
    """One thread's `schedstat`, ns: time on a processor, and time runnable without one (including throttling)."""

    cpu_ns: int
    delay_ns: int


class ResidentSet(NamedTuple):
    """One process's memory, bytes: its peak (`VmHWM`), and the resident bytes by kind (`RssAnon` …)."""

    peak: int
    anonymous: int
    file: int
    shared: int


class Sample(NamedTuple):
    """An environment's counters and the host's stalls at one instant of CLOCK_MONOTONIC."""

    wall_ns: int
    cpu_ns: int
    throttled_ns: int
    threads: dict[int, ThreadTimes]
    stalls: Stalls = NO_STALLS


def processors() -> str:
    """Return the number and name of this host's processors, as Linux reports them."""
    with open("/proc/cpuinfo") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else platform.machine()


def read_file(path: str) -> bytes:
    """Read a file of a process or thread; empty if it has exited meanwhile."""
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        return file.read(8192)
    return b""


def process_tree(root: int) -> list[int]:
    """Return the process and its running descendants, except children of processes that have exited."""
    tree, frontier = [], [root]
    while frontier:
        pid = frontier.pop()
        if threads := _threads(pid):
            tree.append(pid)
        for thread in threads:
            frontier += map(int, read_file(f"{thread}/children").split())
    return tree


def take_sample(wall_ns: int, pids: list[int], group: GroupAccounts | None) -> Sample:
    """Read the counters of these processes now; `wall_ns` is CLOCK_MONOTONIC, which the caller just read."""
    return make_sample(wall_ns, thread_times(schedstats(pids)), group)


def make_sample(
    wall_ns: int | None, threads: dict[int, ThreadTimes], group: GroupAccounts | None, stalls: Stalls = NO_STALLS
) -> Sample:
    """Return a sample of thread times that were just read and of the group's counters now.

    Without `wall_ns` the sample's time is the moment after that.
    """
    cpu_ns = group.cpu_ns() if group is not None else None
    if cpu_ns is None:
        cpu_ns = sum(times.cpu_ns for times in threads.values())
    throttled_ns = group.throttled_ns() if group is not None else 0
    return Sample(time.monotonic_ns() if wall_ns is None else wall_ns, cpu_ns, throttled_ns, threads, stalls)


def schedstats(pids: Iterable[int]) -> dict[int, str]:
    """Return the text of each thread's schedstat."""
    threads = (thread for pid in pids for thread in _threads(pid))
    return {int(thread.rpartition("/")[2]): f"{thread}/schedstat" for thread in threads}


def thread_times(files: Mapping[int, str], read: Callable[[str], bytes] = read_file) -> dict[int, ThreadTimes]:
    """Return the times in these files, without threads that have exited."""
    times: dict[int, ThreadTimes] = {}
    for thread, path in files.items():
        if words := read(path).split(None, 2):
            times[thread] = ThreadTimes(int(words[0]), int(words[1]))
    return times


def resident_sets(pids: Iterable[int], read: Callable[[str], bytes] = read_file) -> dict[int, ResidentSet]:
    """Return the resident set of each process that has memory, without processes that have exited."""
    sets: dict[int, ResidentSet] = {}
    for pid in pids:
        status = read(f"/proc/{pid}/status")
        start = status.find(b"VmHWM:")
        if start >= 0:  # a zombie has no memory lines
            # VmHWM, VmRSS, RssAnon, RssFile and RssShmem follow each other, each as `name: number kB`.
            peak, _, anonymous, file, shared = [int(word) * 1024 for word in status[start:].split(None, 14)[1:14:3]]
            sets[pid] = ResidentSet(peak, anonymous, file, shared)
    return sets


def peak_resident_bytes(pids: list[int]) -> int:
    """Return the sum of the processes' peak resident memory, bytes."""
    return sum(resident.peak for resident in resident_sets(pids).values())


def proportional_bytes(pids: Iterable[int]) -> tuple[int, int]:
    """Return the processes' anonymous and shared memory, bytes. A page counts in parts if several processes map it.

    The kernel walks through all their pages (about 20 ms for a gigabyte).
    """
    rollups = [read_file(f"/proc/{pid}/smaps_rollup").decode() for pid in pids]
    anonymous, shared = (
        sum(int(found[1]) * 1024 for rollup in rollups if (found := re.search(rf"Pss_{kind}: +(\d+)", rollup)))
        for kind in ("Anon", "Shmem")
    )
    return anonymous, shared


def memory_files_bytes(pids: Iterable[int]) -> int:
    """Return the size of the memory-only files (memfd_create) that these processes have open, bytes."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{descriptor}"
                with suppress(OSError):  # closed meanwhile
                    if os.readlink(path).startswith("/memfd:"):
                        found = os.stat(path)
                        sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def files_bytes(pids: Iterable[int]) -> int | None:
    """Return the used space of the file system that these processes see as /tmp, bytes.

    None if they have exited, or this user may not look.
    """
    for pid in pids:
        with suppress(OSError):
            system = os.statvfs(f"/proc/{pid}/root/tmp")
            return (system.f_blocks - system.f_bfree) * system.f_frsize
    return None


def reset_peak_resident(pids: Iterable[int], write: Callable[[str, bytes], object]) -> None:
    """Lower the peaks to the present resident memory (proc(5), `clear_refs` value 5)."""
    for pid in pids:
        write(f"/proc/{pid}/clear_refs", b"5")


def _threads(pid: int) -> list[str]:
    with suppress(OSError):
        return [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    return []
