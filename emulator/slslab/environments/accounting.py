"""What an environment's processes used, read from /proc: CPU time, waiting for a processor, resident peaks."""

import os
from dataclasses import dataclass
from pathlib import Path

from slslab.environments.groups import GroupAccounts


@dataclass(frozen=True)
class ThreadTimes:
    """One thread's `schedstat`: nanoseconds on a processor, and runnable without one (throttling included)."""

    cpu_ns: int
    delay_ns: int


@dataclass(frozen=True)
class Sample:
    """The state of an environment's accounts at one instant of CLOCK_MONOTONIC."""

    wall_ns: int
    cpu_ns: int
    throttled_ns: int
    threads: dict[int, ThreadTimes]


def process_tree(root: int) -> list[int]:
    """The process and its living descendants (those whose parents live)."""
    found, frontier = [], [root]
    while frontier:
        pid = frontier.pop()
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        found.append(pid)
        for task in tasks:
            try:
                frontier += [int(child) for child in _read(f"/proc/{pid}/task/{task}/children").split()]
            except OSError:
                continue  # the thread ended between the listing and the reading
    return found


def take_sample(wall_ns: int, pids: list[int], group: GroupAccounts | None) -> Sample:
    """Read the accounts of these processes now; `wall_ns` is CLOCK_MONOTONIC as the caller just read it."""
    threads: dict[int, ThreadTimes] = {}
    for pid in pids:
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                cpu, delay, _slices = _read(f"/proc/{pid}/task/{task}/schedstat").split()
            except OSError:
                continue
            threads[int(task)] = ThreadTimes(int(cpu), int(delay))
    cpu_ns = group.cpu_ns() if group is not None else None
    if cpu_ns is None:
        cpu_ns = sum(times.cpu_ns for times in threads.values())
    return Sample(wall_ns, cpu_ns, group.throttled_ns() if group is not None else 0, threads)


def peak_resident_bytes(pids: list[int]) -> dict[int, int]:
    """High-water mark of each process's resident set (`VmHWM`), bytes."""
    return _status_bytes(pids, "VmHWM:")


def resident_bytes(pids: list[int]) -> dict[int, int]:
    """Resident set of each process (`VmRSS`), bytes."""
    return _status_bytes(pids, "VmRSS:")


def files_bytes(pid: int) -> int:
    """What is used of the file system that a process sees as /tmp, bytes."""
    try:
        system = os.statvfs(f"/proc/{pid}/root/tmp")
    except OSError:
        return 0  # the process ended, and its file system with it
    return (system.f_blocks - system.f_bfree) * system.f_frsize


def reset_peak_resident(pids: list[int]) -> None:
    """Lower the high-water marks to the present resident sets (proc(5), `clear_refs` value 5)."""
    for pid in pids:
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        except OSError:
            continue  # the process ended: there is no mark to lower


def _status_bytes(pids: list[int], key: str) -> dict[int, int]:
    values: dict[int, int] = {}
    for pid in pids:
        try:
            status = _read(f"/proc/{pid}/status")
        except OSError:
            continue
        start = status.find(key)
        if start >= 0:  # a zombie has no memory lines
            values[pid] = int(status[start + len(key) : status.index("kB", start)]) * 1024
    return values


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 8192).decode()
    finally:
        os.close(descriptor)
