"""Meter the memory of an environment: what its processes hold at the same time, with each page counted once.

It includes the file-backed pages (programs and libraries) of the process with the most of them, and all anonymous and
shared memory, including memfd_create's. Files in /tmp don't count, as on Lambda. For one process, this is its resident
set, and the kernel keeps the high-water mark. For several processes, a control group is read, or without one their
proportional sets.
"""

import time
from collections.abc import Mapping

from slslab.aws.limits import MB
from slslab.host.cgroup_accounts import GroupAccounts
from slslab.host.procfs import (
    ResidentSet,
    Tasks,
    memory_files_bytes,
    proportional_bytes,
    reset_peak_resident,
    resident_sets,
)
from slslab.host.sandbox import Sandbox

TICK_S = 0.1
FINE_TICK_S = 0.01
# Walking through shared pages may take a tenth of the emulator's time.
PAUSES = 9


class MemoryMeter:
    """The memory of one environment with the limit `limit_bytes`.

    `peak_bytes` is the most that it held since `begin`, and `group_peak_bytes` the most that the kernel charged to its
    control group (None without one). `exceeded` is whether the limit was exceeded, or the kernel killed a process for
    lack of memory. `tick_s` is when to look again, because several processes can exceed the limit for moments, and the
    kernel keeps high-water marks for single processes only. `kills` is how many processes the kernel had killed before,
    when another runtime used the control group. `gpu` is the GPU that torch used since `begin`, and the most of its
    memory that was allocated, bytes; None if it used none.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.peak_bytes = 0
        self.group_peak_bytes: int | None = None
        self.exceeded = False
        self.kills = 0
        self.gpu: tuple[str, int] | None = None
        self.tick_s = TICK_S
        self._limit = limit_bytes
        self._several = False
        # The resident set of the largest process at the last look.
        self._present = 0
        # What the sum of the resident sets counts repeatedly, and when to measure that again.
        self._repeated = 0
        self._walk_ns = 0

    def begin(self, sandbox: Sandbox, tasks: Tasks) -> None:
        """Begin a new peak at what the environment holds now."""
        reset_peak_resident(tasks.pids, tasks.files.write)
        if sandbox.accounts is not None:
            sandbox.accounts.reset_peak()
        self.peak_bytes = 0
        self.gpu = None

    def look(self, sandbox: Sandbox, tasks: Tasks, *, thorough: bool) -> None:
        """Check what the processes hold now; unless `thorough`, only what can put one process over the limit."""
        accounts = sandbox.accounts
        sets = resident_sets(tasks.pids, tasks.files.read)
        file = self._take(sets, accounts)
        if accounts is not None and accounts.enforces_memory:
            self.exceeded = accounts.out_of_memory_kills() > self.kills
            self._look_at_group(sandbox, accounts, file, thorough)
        else:
            self._look_at_processes(sets, file, thorough)
        self.exceeded |= self.peak_bytes > self._limit

    def _take(self, sets: Mapping[int, ResidentSet], accounts: GroupAccounts | None) -> int:
        """Take the largest high-water mark, note whether there are several processes, and return the most file-backed
        bytes of one.

        Processes with almost no memory (a container's init, a shell) don't count.
        """
        present, most_file, large = 0, 0, 0
        for peak, anonymous, file, shared in sets.values():
            present, most_file = max(present, anonymous + file + shared), max(most_file, file)
            self.peak_bytes = max(self.peak_bytes, peak)
            large += anonymous > MB
        if sets:
            self._present = present
        else:  # a runtime that has exited since the last look held at least as much as then
            self.peak_bytes = max(self.peak_bytes, self._present)
        self._several = large > 1
        enforced = accounts is not None and accounts.enforces_memory
        self.tick_s = TICK_S if enforced and not self._several else FINE_TICK_S
        return most_file

    def _look_at_group(self, sandbox: Sandbox, accounts: GroupAccounts, file: int, thorough: bool) -> None:
        self.group_peak_bytes = charged = accounts.peak_bytes()
        # The kernel charges all that is counted here, and more: page cache, /tmp.
        matters = self.peak_bytes if thorough or self._several else self._limit
        if charged is not None and charged + file <= matters:
            return
        # /tmp may grow or shrink meanwhile.
        before = sandbox.files_bytes()
        anonymous, shared = accounts.held_bytes()
        after = sandbox.files_bytes()
        if before is not None and after is not None:
            held = file + anonymous + max(0, shared - max(before, after))
            self.peak_bytes = max(self.peak_bytes, held)

    def _look_at_processes(self, sets: Mapping[int, ResidentSet], file: int, thorough: bool) -> None:
        anonymous = sum(resident.anonymous for resident in sets.values())
        shared = sum(resident.shared for resident in sets.values())
        if self._several and file + anonymous + shared > self.peak_bytes:
            if time.monotonic_ns() < self._walk_ns and file + anonymous + shared - self._repeated <= self._limit:
                return
            counted = anonymous + shared
            # Count a walk's CPU time, so that a slow walk on a busy host doesn't delay the next one.
            began_ns = time.thread_time_ns()
            anonymous, shared = proportional_bytes(sets)
            self._repeated = counted - anonymous - shared
            self._walk_ns = time.monotonic_ns() + PAUSES * (time.thread_time_ns() - began_ns)
        if thorough:
            shared = max(shared, memory_files_bytes(sets))
        self.peak_bytes = max(self.peak_bytes, file + anonymous + shared)


def held_bytes(sandbox: Sandbox) -> int:
    """Return the memory that a resting environment occupies, bytes: everything that isn't on a disk, including /tmp."""
    if sandbox.accounts is not None and sandbox.accounts.enforces_memory:
        return sum(sandbox.accounts.held_bytes())
    pids = sandbox.pids()
    resident = sum(resident.anonymous + resident.shared for resident in resident_sets(pids).values())
    return resident + (sandbox.files_bytes() or 0)
