"""The accounts of a control group: what the kernel says that its processes used, for cgroup v1 and v2 alike."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

ACCOUNT_BYTES = 1 << 16


def cgroup_mounts() -> Iterator[tuple[Path, set[str]]]:
    """Where control groups are mounted, each with its controllers; v2 counts as a controller `cgroup2`."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        if kind == "cgroup":
            yield Path(left.split(" ")[4]), set(options.split(","))
        elif kind == "cgroup2":
            yield Path(left.split(" ")[4]), {"cgroup2"}


def cgroups_of(process: int | str = "self") -> dict[str, str]:
    """Controller (the empty string for v2) → the group of a process, by default this one."""
    own: dict[str, str] = {}
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _number, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    return own


class GroupAccounts:
    """The accounts of one control group, whoever made it: `paths` has its directory under each controller."""

    def __init__(self, version: int, paths: Mapping[str, Path]) -> None:
        self.version = version
        self.paths = dict(paths)
        self._peak_file = "memory.max_usage_in_bytes" if version == 1 else "memory.peak"
        self._open: dict[Path, int] = {}

    @property
    def enforces_memory(self) -> bool:
        return "memory" in self.paths

    def pids(self) -> list[int]:
        """Every process in the group, also one that forked away from its parent."""
        # Opened anew each time: cgroup v1 may show an open file a list that is a second old.
        for path in self.paths.values():
            with contextlib.suppress(OSError):
                descriptor = os.open(path / "cgroup.procs", os.O_RDONLY)
                try:
                    return [int(line) for line in os.read(descriptor, ACCOUNT_BYTES).split()]
                finally:
                    os.close(descriptor)
        return []

    def anonymous_bytes(self) -> int:
        """Memory of the group's processes that no file stands behind (neither page cache nor a tmpfs), bytes."""
        return self._memory("total_rss", "anon")

    def shared_bytes(self) -> int:
        """Memory of the group's tmpfs files and shared mappings, bytes."""
        return self._memory("total_shmem", "shmem")

    def _memory(self, first: str, second: str) -> int:
        """A line of memory.stat, as v1 and as v2 name it."""
        if "memory" not in self.paths:
            return 0
        return self._keyed("memory", "memory.stat").get(first if self.version == 1 else second, 0)

    def out_of_memory_kills(self) -> int:
        """Processes that the kernel killed in this group for want of memory, since it was made."""
        if "memory" not in self.paths:
            return 0
        file = "memory.oom_control" if self.version == 1 else "memory.events"
        return self._keyed("memory", file).get("oom_kill", 0)

    def peak_bytes(self) -> int | None:
        """Peak memory charged to the group, bytes; None where the kernel does not tell."""
        if "memory" not in self.paths:
            return None
        try:
            return int(self._read("memory", self._peak_file))
        except (OSError, ValueError):
            return None

    def reset_peak(self) -> None:
        """Start a new peak at the present usage.

        Where the file cannot be written (v2 before Linux 6.12, control groups that are mounted read-only) the peak
        remains that of the whole life.
        """
        if "memory" in self.paths:
            # v2 starts the peak anew for one open file alone: the one that is kept.
            with contextlib.suppress(OSError):
                descriptor = self._descriptor("memory", self._peak_file)
                os.pwrite(descriptor, b"0" if self.version == 1 else b"reset", 0)

    def cpu_ns(self) -> int | None:
        """CPU time used by the group, nanoseconds; None where the kernel does not tell."""
        if self.version == 1 and "cpuacct" in self.paths:
            return int(self._read("cpuacct", "cpuacct.usage"))
        if self.version == 2:  # every group has it, with the controller or without
            return self._keyed(next(iter(self.paths)), "cpu.stat").get("usage_usec", 0) * 1000
        return None

    def throttled_ns(self) -> int:
        """Time the quota held the group's runnable threads back, nanoseconds summed over processors."""
        if "cpu" not in self.paths:
            return 0
        stat = self._keyed("cpu", "cpu.stat")
        return stat.get("throttled_time", stat.get("throttled_usec", 0) * 1000)

    def close(self) -> None:
        """Close the account files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, controller: str, name: str) -> int:
        """An account, kept open: they are read several times in every invocation, and the peak is written, too."""
        path = self.paths[controller] / name
        if path not in self._open and name == self._peak_file:
            with contextlib.suppress(OSError):
                self._open[path] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if path not in self._open:
            self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._open[path]

    def _read(self, controller: str, name: str) -> bytes:
        return os.pread(self._descriptor(controller, name), ACCOUNT_BYTES, 0)

    def _keyed(self, controller: str, name: str) -> dict[str, int]:
        pairs = (line.split() for line in self._read(controller, name).splitlines())
        return {pair[0].decode(): int(pair[1]) for pair in pairs if len(pair) == 2}
