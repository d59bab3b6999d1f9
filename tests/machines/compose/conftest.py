"""A whole stack of the offline images, in a project and at ports of its own, by `slslab up` in the foreground."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests import commands
from tests.containers import need_containers

from slslab.compose.network import CHANNELS
from slslab.host.server_process import FIRST_PORT

ROOT = Path(__file__).resolve().parents[3]
SERVICE_PORTS = ("EMULATOR", "LOCALSTACK", "S3", "QUEUE", "QUEUE_UI", "DYNAMODB")
REPLICAS = 8
PROFILES = ",".join(CHANNELS)


@dataclass
class StackCommands:
    """`slslab` and `docker`, for one stack; `seconds` is how long it took from nothing to healthy,
    `environment` what `slslab env` has of it."""

    project: str
    variables: Mapping[str, str]
    seconds: float = 0.0
    described: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    def slslab(self, *arguments: str) -> commands.Done:
        """A command of slslab's that succeeds; where it runs in processes, these are forks."""
        with commands.own_variables(self.variables), commands.forked_environments():
            done = commands.slslab(*arguments, directory=ROOT)
        assert done.code == 0, done.out[-2000:] + done.err[-4000:]
        return done

    def docker(self, *arguments: str) -> list[str]:
        """A command of Docker's; its lines."""
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True)
        return done.stdout.split()

    def compose(self, *arguments: str) -> None:
        """A command of Compose's on this stack."""
        files = ["-f", str(ROOT / "docker-compose.yml"), "-f", str(ROOT / "compose" / "offline.yml")]
        # What is started by its name has a profile, which `down` wants to be told.
        variables = {**self.variables, **self.environment, "COMPOSE_PROFILES": PROFILES if "down" in arguments else ""}
        subprocess.run(["docker", "compose", *files, *arguments], env=variables, check=True, capture_output=True)

    def emulator(self) -> str:
        """The emulator's container."""
        (found,) = self.containers("--filter", "label=com.docker.compose.service=emulator")
        return found

    def containers(self, *filters: str) -> list[str]:
        """The stack's own containers."""
        project = f"label=com.docker.compose.project={self.project}"
        return self.docker("ps", "--all", "--quiet", "--filter", project, *filters)

    def siblings(self, status: str = "") -> list[str]:
        """Containers that an emulator started in the stack's network, in addition to compose's."""
        network = f"{self.project}_default"
        filters = ["--filter", "label=slslab.emulator", "--filter", f"network={network}"]
        return self.docker("ps", "--all", "--quiet", *filters, *(["--filter", f"status={status}"] if status else []))

    def up(self) -> None:
        """From nothing to healthy; it stays up until `interrupt`."""
        began = time.monotonic()
        command = [sys.executable, "-m", "slslab", "up", "--stack", "compose", "--offline", "--workers", "2", "--json"]
        errors = Path(self.variables["SLSLAB_STATE"]).with_name("errors")
        with errors.open("w") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=self.variables, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), errors.read_text()
        self.seconds = time.monotonic() - began
        self.described = self.slslab("status", "--json").document
        self.environment = self.slslab("env", "--json").document["variables"]

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait for the end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=120)
        assert self.process.returncode == 0

    def end(self) -> None:
        """Remove the stack, whatever of it is still there."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.compose("down", "--volumes", "--remove-orphans")

    def left(self) -> list[str]:
        """What of the stack the engine still has."""
        project = f"label=com.docker.compose.project={self.project}"
        found = self.containers() + self.docker("network", "ls", "--quiet", "--filter", project)
        # A container whose network is gone is found by its name for it, too.
        return found + self.docker("volume", "ls", "--quiet", "--filter", project) + self.siblings()


def make_stack(project: str, state: Path) -> StackCommands:
    """A stack that is not up yet. Skips where none can be; brings stale images up to date."""
    need_containers(compose=True)
    subprocess.run([sys.executable, ROOT / "images" / "build"], check=True, capture_output=True)
    first = free_ports(len(SERVICE_PORTS) + REPLICAS)
    ports = {f"SLSLAB_{name}_PORT": str(first + number) for number, name in enumerate(SERVICE_PORTS)}
    tensors = first + len(SERVICE_PORTS)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLSLAB_", "AWS_"))}
    kept = {name: os.environ[name] for name in ("SLSLAB_CIFAR10",) if name in os.environ}
    own = {
        "COMPOSE_PROJECT_NAME": project,
        "SLSLAB_STATE": str(state / "state"),
        "SLSLAB_RUNS": str(state / "runs"),
        "SLSLAB_TENSORS_PORTS": f"{tensors}-{tensors + REPLICAS - 1}",
    }
    return StackCommands(project, inherited | kept | ports | own)


def free_ports(count: int) -> int:
    """The first of this many free ports in a row, below the ports that other tests' servers choose.

    Containers bind them much later, so test processes that look at the same time begin at different ones.
    """
    rows = range(FIRST_PORT - 5_000, FIRST_PORT - count, count)
    for number in range(len(rows)):
        first = rows[(os.getpid() + number) % len(rows)]
        held = []
        try:
            for port in range(first, first + count):
                held.append(socket.create_server(("127.0.0.1", port)))
            return first
        except OSError:
            continue
        finally:
            for holder in held:
                holder.close()
    raise AssertionError("no ports are free")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackCommands]:
    """A stack that is up; it is gone after the module, whatever happened."""
    made = make_stack(f"slslab-test-{os.getpid()}", tmp_path_factory.mktemp("stack"))
    try:
        made.up()
        yield made
    finally:
        made.end()
