"""Start a server through which workers exchange vectors, one per run: Memcached, Redis or our parameter server.

Debian's packages are enough (`apt-get install memcached`, `redis-server`); their services don't have to run. Where
Redis isn't installed, the embedded tensor database, which speaks its protocol, replaces it, and the run says so.
"""

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slslab.errors import HostError
from slslab.host.server_process import ServerProcess, free_port
from slslab.installation import __version__
from slslab_workers.channels.choice import PARAMETER_SERVER
from slslab_workers.parameter_server import TOKEN

START_LIMIT_S = 15.0
SEARCHED = (*os.defpath.split(os.pathsep), "/usr/local/bin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
INSTALL = "install Debian's package: apt-get install memcached (its service needn't run), or choose another --channel."
# Items as large as Amazon ElastiCache allows (parameter max_item_size, at most 128 MB), and memory for some of them.
# documented: Amazon ElastiCache for Memcached user guide, "Memcached specific parameters".
ITEM_MB, MEMORY_MB = 128, 4096


def find_server(name: str) -> Path | None:
    """Return the installed program `memcached` or `redis-server`, or None."""
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *SEARCHED)))
    return None if found is None else Path(found)


class PackagedServer(ServerProcess):
    """A server from a package, on its own loopback port, with a password; `data` is made and removed."""

    scheme: str
    user = ""
    port_taken = "in use"

    def __init__(self, program: Path, data: Path, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self._program = program
        self._data: Path = data
        self._port = 0
        self._password = secrets.token_hex(16)

    @property
    def endpoint(self) -> str:
        """The address, with user and password."""
        return f"{self.scheme}://{self.user}:{self._password}@127.0.0.1:{self._port}"

    @property
    def version(self) -> str:
        """The server's name and version."""
        text = subprocess.run([self._program, "--version"], capture_output=True, text=True, check=True).stdout
        words = text.replace("v=", " ").split()
        return f"{self.title} {next(word for word in words if word[:1].isdigit())}"

    def _start(self) -> None:
        self._port = free_port()
        self._data.mkdir(parents=True)
        # Not on the command line, which every user of this host can read.
        settings = self._data / "settings"
        settings.touch(0o600)
        self._launch(self._command(settings), {"PATH": os.defpath}, self._data)
        self._wait(self._answers, START_LIMIT_S)

    def _command(self, settings: Path) -> list[str]:
        """Write the settings to a file for the server; return its command."""
        raise NotImplementedError

    def _answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self._port)) == 0


class EmbeddedMemcached(PackagedServer):
    """Memcached with items of up to 128 MB, as a context manager. Raises HostError if it doesn't start."""

    title = "Memcached"
    scheme, user = "memcached", "slslab"

    def _command(self, settings: Path) -> list[str]:
        settings.write_text(f"{self.user}:{self._password}\n")
        # It refuses to start as root without this option.
        account = ["-u", "root"] if os.geteuid() == 0 else []
        address = ["-l", "127.0.0.1", "-p", str(self._port), "-U", "0", "-Y", str(settings)]
        return [str(self._program), *address, "-I", f"{ITEM_MB}m", "-m", str(MEMORY_MB), "-t", "1", *account]


class EmbeddedRedis(PackagedServer):
    """Redis without persistence, as a context manager. Raises HostError if it doesn't start."""

    title = "Redis"
    scheme = "redis"

    def _command(self, settings: Path) -> list[str]:
        # Changing its title would overwrite its environment, by which the reaper finds it.
        settings.write_text(
            f"bind 127.0.0.1\nport {self._port}\nrequirepass {self._password}\n"
            'save ""\nappendonly no\nset-proc-title no\n'
        )
        return [str(self._program), str(settings)]


class EmbeddedParameterServer(ServerProcess):
    """A parameter server, as a context manager. Raises HostError if it doesn't start.

    `on_event` receives a trace record for each computation, on a thread of its own.
    """

    title = "The parameter server"
    version = f"slslab {__version__}"

    def __init__(
        self, environment: Mapping[str, str], on_event: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        super().__init__(environment, on_event)
        self._token = secrets.token_hex(16)
        self.endpoint = ""

    def _start(self) -> None:
        variables = {**os.environ, TOKEN: self._token}
        self._launch_module("slslab_workers.parameter_server", ["--parent-pipe"], variables)
        self.endpoint = self._report(START_LIMIT_S)["endpoint"].replace("://", f"://:{self._token}@")


def channel_server(
    channel: str,
    home: Path,
    environment: Mapping[str, str],
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> EmbeddedMemcached | EmbeddedRedis | EmbeddedParameterServer | None:
    """Return a channel's server, not yet started; None if the channel needs no server, or Redis isn't installed.

    HostError, with the command that installs it, if Memcached isn't installed.
    """
    if channel == PARAMETER_SERVER:
        return EmbeddedParameterServer(environment, on_event)
    if channel not in ("memcached", "redis"):
        return None
    if channel == "redis":
        program = find_server("redis-server")
        return None if program is None else EmbeddedRedis(program, home / channel, environment)
    program = find_server(channel)
    if program is None:
        raise HostError("Memcached is not installed.", INSTALL)
    return EmbeddedMemcached(program, home / channel, environment)
