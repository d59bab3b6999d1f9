"""Read from /proc what an environment's processes used: CPU time, waiting for a processor, resident peaks."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from slslab.host.cgroup_accounts import GroupAccounts
from slslab.host.pressure import NONE, Stalls


class ThreadTimes(NamedTuple):
    """One thread's `schedstat`: nanoseconds on a processor, and runnable without one (throttling included)."""

    cpu_ns: int
    delay_ns: int


class Sample(NamedTuple):
    """The state of an environment's accounts, and the host's stalls, at one instant of CLOCK_MONOTONIC."""

    wall_ns: int
    cpu_ns: int
    throttled_ns: int
    threads: dict[int, ThreadTimes]
    stalls: Stalls = NONE


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


def peak_resident_bytes(pids: list[int]) -> dict[int, int]:
    """Return the high-water mark of each process's resident set (`VmHWM`), bytes."""
    return _status_bytes(pids, "VmHWM:")


def resident_bytes(pids: list[int]) -> dict[int, int]:
    """Return the resident set of each process (`VmRSS`), bytes."""
    return _status_bytes(pids, "VmRSS:")


def files_bytes(pid: int) -> int:
    """Return what is used of the file system that a process sees as /tmp, bytes; 0 if the process has exited."""
    try:
        system = os.statvfs(f"/proc/{pid}/root/tmp")
    except OSError:
        return 0
    return (system.f_blocks - system.f_bfree) * system.f_frsize


def reset_peak_resident(pids: list[int]) -> None:
    """Lower the high-water marks to the present resident sets (proc(5), `clear_refs` value 5)."""
    for pid in pids:
        with suppress(OSError):  # the process has exited
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_bytes(pids: list[int], key: str) -> dict[int, int]:
    values: dict[int, int] = {}
    for pid in pids:
        status = _read(f"/proc/{pid}/status")
        start = status.find(key)
        if start >= 0:  # a zombie has no memory lines
            values[pid] = int(status[start + len(key) : status.index("kB", start)]) * 1024
    return values


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
