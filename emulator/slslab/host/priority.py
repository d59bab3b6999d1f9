"""Set how this process, and what it starts, compete with others for this host's processors: by niceness.

New threads and processes inherit it. It doesn't reach across control groups and sessions: those have weights of their
own, which follow the niceness of whoever makes them (`cpu_weight`, `weigh_session`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from slslab.host.procfs import write_file

HIGHEST = -20
# The kernel's weights: a niceness of one less is a quarter more (sched(7), kernel/sched/core.c).
STEP = 1.25


@contextmanager
def high_priority() -> Iterator[bool]:
    """Run this thread, and what it starts meanwhile, at the highest priority; yield whether the host allows that.

    Threads that are left over afterwards get the earlier priority back.
    """
    before = niceness()
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)
    except OSError:  # that takes root, or a limit (RLIMIT_NICE) that allows it
        yield False
        return
    try:
        yield True
    finally:
        for thread in map(int, os.listdir("/proc/self/task")):
            with suppress(OSError):  # it has ended meanwhile
                if os.getpriority(os.PRIO_PROCESS, thread) == HIGHEST:
                    os.setpriority(os.PRIO_PROCESS, thread, before)


def niceness() -> int:
    """Return the niceness of this thread, from -20 (highest priority) to 19."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def cpu_weight(usual: int, most: int) -> int:
    """Return the weight of a control group that competes as this thread does; `usual` is that of a niceness of 0."""
    return min(most, max(2, round(usual / STEP ** niceness())))


def weigh_session(pid: int) -> None:
    """Let the session that a process leads compete with other sessions as this thread does (autogroup, sched(7))."""
    if nice := niceness():
        write_file(f"/proc/{pid}/autogroup", str(nice).encode())
