"""Set the niceness of this process and its children, which decides how they compete for this host's processors.

New threads and processes inherit it. It has no effect across control groups and sessions, which have their own weights:
the niceness of the thread that makes them sets these (`cpu_weight`, `weigh_session`).
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from slslab.host.procfs import process_tree

HIGHEST = -20
ATTEMPTS = 10
# The kernel's weights: one less niceness means a quarter more weight (sched(7), kernel/sched/core.c).
STEP = 1.25


@contextmanager
def high_priority(pids: Sequence[int] = ()) -> Iterator[bool]:
    """Run this process, the given ones, and all their children at the highest priority; yield whether that is allowed.

    At the end all of them get this thread's earlier priority.
    """
    before = niceness()
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)
    except OSError:  # needs root, or a limit (RLIMIT_NICE) that allows it
        yield False
        return
    try:
        _set_all(pids, HIGHEST)
        yield True
    finally:
        _set_all(pids, before)


def take_niceness(pid: int) -> bool:
    """Give this process the niceness of another one; return whether this user may."""
    try:
        _set_threads(os.getpid(), os.getpriority(os.PRIO_PROCESS, pid))
    except PermissionError:  # as in `high_priority`
        return False
    return True


def _set_all(pids: Sequence[int], nice: int) -> None:
    """Set the niceness of `pids`, this process and their descendants: of all their threads, and of sessions they
    lead."""
    _set_threads(os.getpid(), nice)
    for pid in chain.from_iterable(map(process_tree, pids)):
        with suppress(OSError):  # it has ended meanwhile
            _set_threads(pid, nice)
            if os.getsid(pid) == pid:
                _weigh_session(pid, nice)


def _set_threads(pid: int, nice: int) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.setpriority(os.PRIO_PROCESS, int(thread), nice)


def niceness() -> int:
    """Return the niceness of this thread, from -20 (highest priority) to 19."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def cpu_weight(usual: int, most: int) -> int:
    """Return the weight of a control group that competes like this thread; `usual` is the weight of niceness 0."""
    return min(most, max(2, round(usual / STEP ** niceness())))


def weigh_session(pid: int) -> None:
    """Make the session that a process leads compete with other sessions like this thread (autogroup, sched(7))."""
    if nice := niceness():
        _weigh_session(pid, nice)


def _weigh_session(pid: int, nice: int) -> None:
    for _ in range(ATTEMPTS):
        try:
            Path(f"/proc/{pid}/autogroup").write_bytes(str(nice).encode())
        except BlockingIOError:  # without CAP_SYS_ADMIN the kernel accepts one change every 100 ms
            time.sleep(0.1)
        except OSError:  # the process has ended, or this kernel doesn't group sessions
            return
        else:
            return
