"""Read from /proc how much CPU time, waiting for a processor and memory an environment's processes used."""

import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from slslab.host.cgroup_accounts import GroupAccounts
from slslab.host.pressure import NONE, Stalls


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
    stalls: Stalls = NONE


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


def write_file(path: str, data: bytes) -> None:
    """Write to a file of a process, unless it has exited meanwhile."""
    with suppress(OSError), open(path, "wb", buffering=0) as file:
        file.write(data)


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
    wall_ns: int | None, threads: dict[int, ThreadTimes], group: GroupAccounts | None, stalls: Stalls = NONE
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


def reset_peak_resident(pids: Iterable[int], write: Callable[[str, bytes], object] = write_file) -> None:
    """Lower the peaks to the present resident memory (proc(5), `clear_refs` value 5)."""
    for pid in pids:
        write(f"/proc/{pid}/clear_refs", b"5")


def _threads(pid: int) -> list[str]:
    with suppress(OSError):
        return [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    return []
