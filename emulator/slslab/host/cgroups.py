"""Limit each execution environment with a control group, where the host allows it.

One class serves cgroup v1 (one directory per controller) and v2 (one directory). A group limits memory (kill, no swap),
CPU time (a CFS quota) and processes to the values in `slslab.aws.limits`. It isn't a security boundary.
"""

import contextlib
import errno
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from slslab.host.cgroup_accounts import GroupAccounts, cgroup_mounts, cgroups_of
from slslab.host.priority import cpu_weight

CONTROLLERS = ("memory", "cpu", "cpuacct", "pids", "freezer")
CONTROLLERS_V2 = ("memory", "cpu", "pids")
LEAF = "slslab-command"


@dataclass(frozen=True)
class Hierarchy:
    """Where control groups can be made: a parent directory for each controller, and the cgroup version."""

    version: int
    parents: dict[str, Path]
    missing: tuple[str, ...]

    @property
    def description(self) -> str:
        """Return one line for `doctor` and for a run's document."""
        if not self.parents:
            return "none (no writable cgroup): resident-set watchdog every 10 ms, CPU share not enforced"
        lacking = f", without {', '.join(self.missing)}" if self.missing else ""
        return f"cgroup v{self.version} ({', '.join(sorted(self.parents))}{lacking})"

    def nested(self, name: str) -> "Hierarchy":
        """Make a group of this name below each parent, to hold the groups of one emulator.

        Its weight matches this thread's niceness, so that the group competes for processors like the thread.
        """
        for parent in set(self.parents.values()):
            (parent / name).mkdir()
            if self.version == 2:
                (parent / name / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in self.parents))
        nested = replace(self, parents={controller: parent / name for controller, parent in self.parents.items()})
        nested.weigh()
        return nested

    def weigh(self) -> None:
        """Give the groups that `nested` made the weight of this thread's niceness."""
        if "cpu" in self.parents:
            name, usual, most = ("cpu.shares", 1024, 1 << 18) if self.version == 1 else ("cpu.weight", 100, 10_000)
            (self.parents["cpu"] / name).write_text(str(cpu_weight(usual, most)))


def detect() -> Hierarchy:
    """Find out by trying in which control groups this process may create children."""
    mounts = list(cgroup_mounts())
    groups = cgroups_of()
    parents: dict[str, Path] = {}
    for mount, options in mounts:
        for controller in CONTROLLERS:
            if controller in options and (parent := _writable(mount, groups.get(controller, "/"))) is not None:
                parents[controller] = parent
    if "memory" in parents or "cpu" in parents:
        return Hierarchy(1, parents, tuple(c for c in CONTROLLERS if c not in parents))
    for mount, options in mounts:
        if "cgroup2" in options and (parent := _delegated_v2(mount, groups.get("", "/"))) is not None:
            parents = dict.fromkeys(_enabled_v2(parent), parent)
            return Hierarchy(2, parents, tuple(c for c in CONTROLLERS_V2 if c not in parents))
    return Hierarchy(0, {}, CONTROLLERS)


def _writable(mount: Path, group: str) -> Path | None:
    """Return this process's group below a mount, or else the mount's root, whichever accepts a child."""
    # In a container the mount's root is the container's own group, so the path from /proc/self/cgroup may not exist.
    for parent in (mount / group.lstrip("/"), mount):
        probe = parent / f"slslab-probe-{os.getpid()}"
        with contextlib.suppress(OSError):
            probe.mkdir()
            probe.rmdir()
            return parent
    return None


def _delegated_v2(mount: Path, name: str) -> Path | None:
    group = mount / name.lstrip("/")
    if group.name == LEAF:
        group = group.parent  # this command or an earlier one has moved itself here
    for parent in dict.fromkeys((group, mount)):
        if not os.access(parent / "cgroup.subtree_control", os.W_OK):
            continue
        with contextlib.suppress(OSError):
            # Root can write everywhere, but must not rearrange groups that a service manager hasn't delegated.
            if _occupied(parent) and (parent == mount or os.geteuid() != 0 or _marked_delegated(parent)):
                _vacate(parent)
            offered = (parent / "cgroup.controllers").read_text().split()
            for controller in (controller for controller in CONTROLLERS_V2 if controller in offered):
                with contextlib.suppress(OSError):  # one by one, so that one refused controller doesn't stop the others
                    (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            if _enabled_v2(parent):
                return parent
    return None


def _enabled_v2(group: Path) -> list[str]:
    enabled = (group / "cgroup.subtree_control").read_text().split()
    return [controller for controller in CONTROLLERS_V2 if controller in enabled]


def _occupied(group: Path) -> bool:
    """Return whether a group contains processes and so can't pass on controllers (the root group always can)."""
    return (group / "cgroup.type").exists() and bool((group / "cgroup.procs").read_text())


def _marked_delegated(group: Path) -> bool:
    for name in ("trusted.delegate", "user.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def _vacate(group: Path) -> None:
    """Move all processes of a group into a leaf: this one, its reaper, and the shell or make that started it."""
    leaf = group / LEAF
    leaf.mkdir(exist_ok=True)
    try:
        for _ in range(100):  # a process may fork during its move
            pids = (group / "cgroup.procs").read_text().split()
            if not pids:
                return
            if "0" in pids:  # a process of another namespace; writing 0 would move this process
                raise OSError(errno.EBUSY, "processes of another namespace", str(group))
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    (leaf / "cgroup.procs").write_text(pid)
        raise OSError(errno.EBUSY, "still occupied", str(group))
    except OSError:
        with contextlib.suppress(OSError):
            leaf.rmdir()
        raise


class Cgroup(GroupAccounts):
    """The control group of one environment: its limits, its counters, and a way to kill all its processes.

    A `cpu_share` of 1.0 is one core; `processes` is the most processes it may have. A single-threaded process joins the
    group by writing 0 into each of `join_files`. `freezes` says whether the group can be frozen.
    """

    def __init__(self, hierarchy: Hierarchy, name: str, *, memory_mb: int, cpu_share: float, processes: int) -> None:
        super().__init__(
            hierarchy.version, {controller: parent / name for controller, parent in hierarchy.parents.items()}
        )
        # A write to cgroup.procs, the only way in v2, takes about 10 ms: the kernel must prevent new threads meanwhile.
        joined = "tasks" if self.version == 1 else "cgroup.procs"
        self.join_files = [path / joined for path in sorted(set(self.paths.values()))]
        self.freezes = self.version == 2 or "freezer" in self.paths
        try:
            for path in set(self.paths.values()):
                path.mkdir()
            self._limit(memory_mb << 20, cpu_share, processes)
        except OSError:
            self.remove()
            raise

    def _limit(self, memory_bytes: int, cpu_share: float, processes: int) -> None:
        if self.version == 1:
            memory = {"memory.limit_in_bytes": memory_bytes, "memory.memsw.limit_in_bytes": memory_bytes}
        else:
            memory = {"memory.max": memory_bytes, "memory.swap.max": 0, "memory.oom.group": 1}
        for name, value in {**memory, "pids.max": processes}.items():
            controller = name.partition(".")[0]
            if controller in self.paths:
                file = self.paths[controller] / name
                # Swap accounting is a kernel option; without it there is no file to write.
                if "sw" not in name or file.exists():
                    file.write_text(str(value))
        self.limit_cpu(cpu_share)

    def freeze(self) -> None:
        """Stop every process of the group; this takes effect within moments."""
        self._write_freezer(b"FROZEN", b"1")

    def thaw(self) -> None:
        """Resume the processes at once."""
        self._write_freezer(b"THAWED", b"0")

    def _write_freezer(self, state: bytes, flag: bytes) -> None:
        if self.version == 1:
            os.pwrite(self._descriptor("freezer", "freezer.state"), state, 0)
        else:
            os.pwrite(self._descriptor(next(iter(self.paths)), "cgroup.freeze"), flag, 0)

    def kill(self) -> None:
        """Kill every process of the group."""
        if self.version == 2:
            with contextlib.suppress(OSError):  # Linux 5.14 kills all at once, so that no process can fork meanwhile
                (next(iter(self.paths.values())) / "cgroup.kill").write_text("1")
                return
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self, patience_s: float = 5.0) -> None:
        """Kill the remaining processes and remove the group; OSError if it is still busy after `patience_s`."""
        self.close()
        deadline = time.monotonic() + patience_s
        for path in set(self.paths.values()):
            while path.exists():
                self.kill()
                try:
                    path.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.002)  # killed processes stay in their group until the kernel reaps them
