"""Ray nodes on one machine that see each other as machines do: each in a network namespace, joined by a bridge."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import distribution
from pathlib import Path

from tests.machines.cluster import namespace_reaper

from slslab.host.managed import Managed

BIN = Path(sys.executable).parent
PORT = 6379
# Set for tests that run on a node.
ON_NODE = "SLSLAB_ON_NODE"
LIMIT_S = 240.0
DELAY_LINE = Path(__file__).with_name("delay_line.py")
# The name of each node's device.
DEVICE = "node"


def missing() -> str:
    """Return why this machine can have no such nodes; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not (BIN / "ray").exists():
        return "Ray is not installed"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "network namespaces are not allowed"


def has_netem() -> bool:
    """Return whether the kernel can delay packets (`tc netem`), which some are built without."""
    space = f"sl{secrets.token_hex(3)}"
    _ip("netns", "add", space)
    try:
        command = ["tc", "-n", space, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    finally:
        _ip("netns", "del", space)


class Nodes(Managed):
    """A cluster of this many nodes; the first is its head. Packets between two take `delay_ms` more.

    They are delayed by `tc netem` if the kernel has it, otherwise by one process for all nodes (delay_line.py). The
    last `late` nodes are not started. Each node counts `memory_mb` for environments. Everything is removed at the end,
    also after a crash (namespace_reaper.py).
    """

    def __init__(self, count: int, *, late: int = 0, memory_mb: int = 2048, delay_ms: float = 0.0) -> None:
        self._name = f"sl{secrets.token_hex(3)}"
        self._network = f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(256)}"
        self.count = count
        self._late = late
        self._memory_mb = memory_mb
        self._delay_ms = delay_ms
        self.token = secrets.token_hex(16)

    def _enter(self, stack: ExitStack) -> None:
        self.folder = tempfile.mkdtemp(prefix="ray-")
        spaces = [*map(self.space, range(self.count)), self._name]
        # Its standard input is closed at the end of the block, and the block waits for it.
        stack.enter_context(
            subprocess.Popen(
                [sys.executable, namespace_reaper.__file__, self.folder, *spaces],
                stdin=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for those who use it
            )
        )
        for number in range(self.count):
            _ip("netns", "add", self.space(number))
            _ip("-n", self.space(number), "link", "set", "lo", "up")
        if self._delay_ms and not has_netem():
            self._join_by_delay_line(stack)
        else:
            self._join_by_bridge()
        for number in range(self.count):
            _ip("-n", self.space(number), "address", "add", f"{self.address(number)}/24", "dev", DEVICE)
            self.connect(number)
        for number in range(self.count - self._late):
            self.start(number)

    def start(self, number: int, *, before: Sequence[str] = (), variables: dict[str, str] | None = None) -> None:
        """Start a node's processes, by way of a command `before`, with these further variables."""
        own = self.address(number)
        place = ["--head", f"--port={PORT}", f"--temp-dir={self.folder}", "--include-dashboard=false", "--no-monitor"]
        if number:
            place = [f"--address={self.address(0)}:{PORT}"]
        memory = [f"--memory={self._memory_mb << 20}", f"--object-store-memory={100 << 20}", "--num-cpus=2"]
        command = [*before, str(BIN / "ray"), "start", *place, f"--node-ip-address={own}", *memory]
        # What slslab doesn't use costs a second of CPU time per node.
        unused = ["--disable-usage-stats", "--include-log-monitor=false"]
        done = self.run(number, [*command, *unused], variables=variables)
        if done.returncode != 0:
            raise RuntimeError(f"node {number} did not start: {done.stdout}{done.stderr}")

    def run(
        self, number: int, command: Sequence[str], *, variables: dict[str, str] | None = None, limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node to its end."""
        return subprocess.run(
            self._there(number, command),
            env=self.variables() | (variables or {}),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def popen(self, number: int, command: Sequence[str]) -> subprocess.Popen[str]:
        """Start a command on a node."""
        return subprocess.Popen(
            self._there(number, command),
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def variables(self) -> dict[str, str]:
        """Return the environment of the nodes' commands: only who knows the token is let in."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLSLAB_", "RAY_"))}
        return own | {
            "RAY_ADDRESS": f"{self.address(0)}:{PORT}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def pids(self, number: int) -> list[int]:
        """Return all processes in a node's network."""
        return namespace_reaper.pids(self.space(number))

    def space(self, number: int) -> str:
        """Return the name of a node's network namespace."""
        return f"{self._name}-{number}"

    def address(self, number: int) -> str:
        """Return the address of a node."""
        return f"{self._network}.{10 + number}"

    def lines(self, number: int) -> list[str]:
        """Return the command lines of a node's processes."""
        found = []
        for pid in self.pids(number):
            try:
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found

    def kill(self, number: int) -> None:
        """Kill everything on a node, as a machine is that loses its power."""
        namespace_reaper.kill(self.space(number))

    def kill_cluster(self, number: int) -> None:
        """Kill Ray's processes on a node, and leave those alone that outlive them in order to clean up."""
        for pid in self.pids(number):
            try:
                program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            except OSError:
                continue
            if b"raylet" in program:
                os.kill(pid, signal.SIGKILL)

    def connect(self, number: int) -> None:
        """Connect a node to the others."""
        _ip("-n", self.space(number), "link", "set", DEVICE, "up")

    def cut_off(self, number: int) -> None:
        """Cut a node off from the others without telling any of them."""
        _ip("-n", self.space(number), "link", "set", DEVICE, "down")

    def _join_by_bridge(self) -> None:
        # The bridge has a namespace, too: a host's own may drop what it forwards, as Docker has it do.
        _ip("netns", "add", self._name)
        _ip("-n", self._name, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._name, "link", "set", "bridge", "up")
        for number in range(self.count):
            port, space = f"port{number}", self.space(number)
            _ip("link", "add", port, "netns", self._name, "type", "veth", "peer", "name", DEVICE, "netns", space)
            _ip("-n", self._name, "link", "set", port, "master", "bridge", "up")
            if self._delay_ms:
                delay = ("netem", "delay", f"{self._delay_ms}ms")
                _run("tc", "-n", space, "qdisc", "add", "dev", DEVICE, "root", *delay)

    def _join_by_delay_line(self, stack: ExitStack) -> None:
        places = [f"{self.space(number)}={self.address(number)}" for number in range(self.count)]
        line = subprocess.Popen(
            [sys.executable, "-I", "-S", str(DELAY_LINE), str(self._delay_ms), DEVICE, *places],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for those who use it
        )
        # Its standard input is closed at the end of the block, and it ends.
        stack.enter_context(line)
        assert line.stdout is not None
        if not line.stdout.readline():
            raise RuntimeError("the delay line did not start")

    def _there(self, number: int, command: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.space(number)}", "--", *command]


def other_version(folder: Path) -> Path:
    """Return a folder of packages where slslab seems to have version 9."""
    other = folder / "packages" / "slslab-9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: slslab\nVersion: 9\n")
    # The architectures are entry points.
    (other / "entry_points.txt").write_text(distribution("slslab").read_text("entry_points.txt") or "")
    return other.parent


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
