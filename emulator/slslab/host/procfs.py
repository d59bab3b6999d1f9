"""Read from /proc what an environment's processes used: CPU time, waiting for a processor, memory."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slslab.host.cgroup_accounts import GroupAccounts


@dataclass(frozen=True)
class ThreadTimes:
    """One thread's `schedstat`: nanoseconds on a processor, and runnable without one (throttling included)."""

    cpu_ns: int
    delay_ns: int


@dataclass(frozen=True)
class ResidentSet:
    """One process's memory, bytes: its high-water mark, and what is resident by kind (`VmHWM`, `RssAnon` …)."""

    peak: int
    anonymous: int
    file: int
    shared: int


@dataclass(frozen=True)
class Sample:
    """The state of an environment's accounts at one instant of CLOCK_MONOTONIC."""

    wall_ns: int
    cpu_ns: int
    throttled_ns: int
    threads: dict[int, ThreadTimes]


def process_tree(root: int) -> list[int]:
    """Return the process and its running descendants (those whose parents run)."""
    tree, frontier = [], [root]
    while frontier:
        pid = frontier.pop()
        if threads := _threads(pid):
            tree.append(pid)
        for thread in threads:
            frontier += map(int, _read(f"{thread}/children").split())
    return tree


def take_sample(wall_ns: int, pids: list[int], group: GroupAccounts | None) -> Sample:
    """Read the accounts of these processes now; `wall_ns` is CLOCK_MONOTONIC as the caller just read it."""
    threads: dict[int, ThreadTimes] = {}
    for thread in (thread for pid in pids for thread in _threads(pid)):
        if times := _read(f"{thread}/schedstat").split():
            threads[int(thread.rpartition("/")[2])] = ThreadTimes(int(times[0]), int(times[1]))
    cpu_ns = group.cpu_ns() if group is not None else None
    if cpu_ns is None:
        cpu_ns = sum(times.cpu_ns for times in threads.values())
    return Sample(wall_ns, cpu_ns, group.throttled_ns() if group is not None else 0, threads)


def resident_sets(pids: list[int]) -> dict[int, ResidentSet]:
    """Return the resident set of each process that has memory; one that has exited has none."""
    sets: dict[int, ResidentSet] = {}
    for pid in pids:
        status = _read(f"/proc/{pid}/status")
        start = status.find("VmHWM:")
        if start >= 0:  # a zombie has no memory lines
            # VmHWM, VmRSS, RssAnon, RssFile and RssShmem follow one another, each as `name: number kB`.
            peak, _, anonymous, file, shared = (int(word) * 1024 for word in status[start:].split(None, 14)[1:14:3])
            sets[pid] = ResidentSet(peak, anonymous, file, shared)
    return sets


def peak_resident_bytes(pids: list[int]) -> int:
    """Return the sum of the processes' resident high-water marks, bytes."""
    return sum(resident.peak for resident in resident_sets(pids).values())


def proportional_bytes(pids: Iterable[int]) -> tuple[int, int]:
    """Return what processes hold of anonymous and of shared memory, bytes, each page divided by those that have it.

    The kernel walks through all their pages (about 20 ms for a gigabyte).
    """
    rollups = [_read(f"/proc/{pid}/smaps_rollup") for pid in pids]
    anonymous, shared = (
        sum(int(found[1]) * 1024 for rollup in rollups if (found := re.search(rf"Pss_{kind}: +(\d+)", rollup)))
        for kind in ("Anon", "Shmem")
    )
    return anonymous, shared


def memory_files_bytes(pids: Iterable[int]) -> int:
    """Return what the files hold that processes have open and that are in memory alone (memfd_create), bytes."""
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
    """Return what is used of the file system that these processes see as /tmp, bytes.

    None if they have exited, or this user may not look.
    """
    for pid in pids:
        with suppress(OSError):
            system = os.statvfs(f"/proc/{pid}/root/tmp")
            return (system.f_blocks - system.f_bfree) * system.f_frsize
    return None


def reset_peak_resident(pids: list[int]) -> None:
    """Lower the high-water marks to the present resident sets (proc(5), `clear_refs` value 5)."""
    for pid in pids:
        with suppress(OSError):  # the process has exited
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def _threads(pid: int) -> list[str]:
    """Return the directories of a process's threads; none if it has exited."""
    with suppress(OSError):
        return [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    return []


def _read(path: str) -> str:
    """Read a file of a process or thread; empty if it has exited meanwhile."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.read(descriptor, 8192).decode()
        finally:
            os.close(descriptor)
    return ""
