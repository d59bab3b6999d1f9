"""Read the counters of a control group and change its CPU quota, in cgroup v1 and v2."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from slslab.aws.limits import QUOTA_PERIOD_NS

ACCOUNT_BYTES = 1 << 16
PERIOD_US = QUOTA_PERIOD_NS // 1_000
# The shortest quota that the kernel accepts.
LEAST_QUOTA_US = 1_000


def cgroup_mounts() -> Iterator[tuple[Path, set[str]]]:
    """Yield each cgroup mount point with its controllers; for v2 they include `cgroup2`."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            yield Path(left.split(" ")[4]), set(options.split(",")) if kind == "cgroup" else {"cgroup2"}


def cgroups_of(process: int | str = "self") -> dict[str, str]:
    """Return the control groups of a process, by default this one, by controller ("" for v2)."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{process}/cgroup").read_text().splitlines()]
    return {controller: path for _number, controllers, path in lines for controller in controllers.split(",")}


def quota_us(cpu_share: float) -> int:
    """Return the CPU time per period of a share of processors, µs."""
    return max(LEAST_QUOTA_US, round(cpu_share * PERIOD_US))


class GroupAccounts:
    """The counters of one control group; `paths` maps each controller to the group's directory."""

    def __init__(self, version: int, paths: Mapping[str, Path]) -> None:
        self.version = version
        self.paths = dict(paths)
        self.enforces_memory = "memory" in self.paths
        self._peak_file = "memory.max_usage_in_bytes" if version == 1 else "memory.peak"
        self._open: dict[tuple[str, str], int] = {}

    def pids(self) -> list[int]:
        """Return the ids of all processes in the group, even ones that forked away from their parent."""
        # Reopened each time: read through an open file, the list can be a second old on cgroup v1.
        for path in self.paths.values():
            with contextlib.suppress(OSError), open(f"{path}/cgroup.procs", "rb", buffering=0) as file:
                # Processes of other namespaces are listed as 0, which kill(2) takes as the caller's own group.
                return [pid for pid in map(int, file.readall().split()) if pid]
        return []

    def tasks(self) -> int | None:
        """Return the number of threads in the group, or None where the kernel doesn't count them."""
        try:
            return int(self._read("pids", "pids.current"))
        except (KeyError, OSError, ValueError):  # KeyError: no controller of processes
            return None

    def held_bytes(self) -> tuple[int, int]:
        """Return the group's memory that isn't backed by a disk, bytes: anonymous, and tmpfs with shared mappings.

        Each page counts once, however many processes map it.
        """
        if "memory" not in self.paths:
            return 0, 0
        stat = self._read("memory", "memory.stat")
        anonymous, shared = (b"total_rss", b"total_shmem") if self.version == 1 else (b"anon", b"shmem")
        return _value_of(anonymous, stat) or 0, _value_of(shared, stat) or 0

    def out_of_memory_kills(self) -> int:
        """Return how many processes of this group the kernel has killed for lack of memory."""
        return self._value("memory", "memory.oom_control" if self.version == 1 else "memory.events", b"oom_kill") or 0

    def peak_bytes(self) -> int | None:
        """Return the peak memory charged to the group, bytes, or None where the kernel doesn't report it."""
        try:
            return int(self._read("memory", self._peak_file))
        except (KeyError, OSError, ValueError):  # KeyError: no memory controller
            return None

    def reset_peak(self) -> None:
        """Reset the peak to the present usage.

        Where the file can't be written (v2 before Linux 6.12, control groups mounted read-only), the peak still counts
        from the group's creation.
        """
        # v2 resets the peak only for the open file that the reset is written to, so this file is kept.
        try:
            os.pwrite(self._descriptor("memory", self._peak_file), b"0" if self.version == 1 else b"reset", 0)
        except (KeyError, OSError):
            return

    def cpu_ns(self) -> int | None:
        """Return the CPU time used by the group, ns, or None where the kernel doesn't report it."""
        if self.version == 1 and "cpuacct" in self.paths:
            return int(self._read("cpuacct", "cpuacct.usage"))
        if self.version == 2:  # every group has this file, with or without the controller
            return (self._value(next(iter(self.paths)), "cpu.stat", b"usage_usec") or 0) * 1000
        return None

    def throttled_ns(self) -> int:
        """Return how long the quota held back runnable threads, ns summed over processors."""
        if self.version == 1:
            return self._value("cpu", "cpu.stat", b"throttled_time") or 0
        return (self._value("cpu", "cpu.stat", b"throttled_usec") or 0) * 1000

    def limit_cpu(self, share: float) -> None:
        """Limit the group to this many processors from now on; OSError if this process may not write the limit."""
        if "cpu" not in self.paths:
            return
        if self.version == 1:
            settings = {"cpu.cfs_period_us": f"{PERIOD_US}", "cpu.cfs_quota_us": f"{quota_us(share)}"}
        else:
            settings = {"cpu.max": f"{quota_us(share)} {PERIOD_US}"}
        for name, value in settings.items():
            (self.paths["cpu"] / name).write_text(value)

    def close(self) -> None:
        """Close the open files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, controller: str, name: str) -> int:
        """Open a file and keep it open: each invocation reads or writes some several times."""
        if (controller, name) not in self._open:
            path = self.paths[controller] / name
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._open[controller, name] = descriptor
        return self._open[controller, name]

    def _read(self, controller: str, name: str) -> bytes:
        descriptor = self._open.get((controller, name))
        return os.pread(self._descriptor(controller, name) if descriptor is None else descriptor, ACCOUNT_BYTES, 0)

    def _value(self, controller: str, name: str, key: bytes) -> int | None:
        return _value_of(key, self._read(controller, name)) if controller in self.paths else None


def _value_of(key: bytes, lines: bytes) -> int | None:
    _, found, rest = (b"\n" + lines).partition(b"\n%b " % key)
    return int(rest.split(None, 1)[0]) if found else None
