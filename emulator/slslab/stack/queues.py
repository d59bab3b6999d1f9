"""The embedded stack's queue: RabbitMQ where its server is installed, one per run and gone with it.

Debian's package is enough (`apt-get install rabbitmq-server`); neither its service nor its user nor Erlang's port
mapper is needed. What starts is the broker alone, without plugins, in about 2.5 s on two cores.
"""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from slslab.errors import HostError
from slslab.stack.embedded import tied_to_this_process

START_LIMIT_S = 60.0
LOOK_S = 0.25
ATTEMPTS = 3
WORDS = 500
SEARCHED = ("/usr/lib/rabbitmq/bin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")
INSTALL = "install Debian's package `rabbitmq-server` (its service need not run), or choose --queue embedded."
# A node name is needed even by a node that talks to none: without a listener, and without the port mapper epmd, which
# would otherwise be started, on a fixed port of every interface, and stay. The broker looks after epmd once a minute
# and starts it (a whole Erlang machine comes up for that), so that watch is ended when everything else is up.
DISTRIBUTION = (
    "-noinput -sname slslab@localhost -start_epmd false -erl_epmd_port 1 -dist_listen false "
    "-eval supervisor:terminate_child(rabbit_sup,rabbit_epmd_monitor_sup)."
)
# Schedulers that spin while idle would take the workers' cores, and nearly double the time to start.
SCHEDULERS = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
CONFIGURATION = """[{{rabbit, [
  {{tcp_listeners, [{{"127.0.0.1", {port}}}]}},
  {{default_user, <<"{user}">>}},
  {{default_pass, <<"{password}">>}},
  {{log, [{{console, [{{enabled, true}}, {{level, warning}}]}}, {{file, [{{file, false}}]}}]}}
]}}].
"""


@dataclass(frozen=True)
class RabbitMQ:
    """An installed server: its start script and the directory of its libraries and plugins."""

    script: Path
    plugins: Path

    @property
    def version(self) -> str:
        """Name and version."""
        return f"RabbitMQ {_library_versions(self.plugins)['rabbit']}"


def find_rabbitmq() -> RabbitMQ | None:
    """The installed server, if there is one.

    What stands on the PATH may be a wrapper that serves root and the user `rabbitmq` alone, as Debian's: the script
    itself has its plugins beside it.
    """
    for folder in (*SEARCHED, *os.environ.get("PATH", "").split(os.pathsep)):
        # A link to the wrapper leads to the folder of the script.
        script = Path(folder, "rabbitmq-server").resolve().with_name("rabbitmq-server").resolve()
        plugins = script.parent.parent / "plugins"
        if script.is_file() and plugins.is_dir() and "rabbit" in _library_versions(plugins):
            return RabbitMQ(script, plugins)
    return None


def queue_kind(wanted: str) -> str:
    """`rabbitmq` or `embedded` for a wanted `auto`, `rabbitmq` or `embedded`; HostError if there is no server."""
    if wanted == "rabbitmq":
        _installed()
    if wanted == "auto":
        return "embedded" if find_rabbitmq() is None else "rabbitmq"
    return wanted


class EmbeddedRabbitMQ:
    """RabbitMQ on a loopback port of its own, as a context manager.

    `data` is made and removed; `environment` is added to the server's own (the emulator's mark, by which its reaper
    finds it); `port` is any free one by default. Entered on the main thread, the server also dies with this process
    where util-linux's `setpriv` is there. Raises HostError if the server is not installed or does not start.

        with EmbeddedRabbitMQ(Path("data"), {}) as server:
            pika.BlockingConnection(pika.URLParameters(server.endpoint))
    """

    def __init__(self, data: Path, environment: Mapping[str, str], port: int = 0) -> None:
        self._data = data
        self._environment = environment
        self._wanted_port = port
        self._port = 0
        self._user = f"slslab-{secrets.token_hex(4)}"
        self._password = secrets.token_hex(16)
        self._installed: RabbitMQ | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def version(self) -> str:
        """Name and version of the server."""
        assert self._installed is not None
        return self._installed.version

    @property
    def endpoint(self) -> str:
        """The AMQP address, with user and password; the virtual host is `/`."""
        return f"amqp://{self._user}:{self._password}@127.0.0.1:{self._port}/%2F"

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self._installed = _installed()
        log = ""
        for _ in range(ATTEMPTS):
            try:
                if self._start(self._installed):
                    return self
                log = self._read_log()
            except BaseException:
                self._stop()
                raise
            self._stop()
            # Another process may have taken the port between our choosing and the server's binding.
            if self._wanted_port or "eaddrinuse" not in log:
                break
        raise HostError(
            f"RabbitMQ did not start: {_last_words(log) or 'it said nothing'}.",
            "choose --queue embedded; a full disk or too little memory are the usual causes.",
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self, installed: RabbitMQ) -> bool:
        """Start the server and wait until it says that it is ready; False if it ended or the limit passed."""
        self._port = self._wanted_port or _free_port()
        self._prepare(installed)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices, (self._data / "log").open("wb") as log:
            # In the abstract name space, where the kernel chooses a free name and no path is too long.
            notices.bind("")
            address = "@" + notices.getsockname()[1:].decode()
            self._process = subprocess.Popen(
                [*tied_to_this_process(), str(installed.script)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._data,
                env=self._variables(address),
                start_new_session=True,
            )
            return self._ready(notices)

    def _prepare(self, installed: RabbitMQ) -> None:
        self._data.mkdir(parents=True)
        (self._data / "enabled_plugins").write_text("[].\n")
        configuration = CONFIGURATION.format(port=self._port, user=self._user, password=self._password)
        (self._data / "advanced.config").touch(0o600)
        (self._data / "advanced.config").write_text(configuration)
        # Every plugin that is there is read at the start, enabled or not, for 2 s. The broker's own libraries stay.
        (self._data / "plugins").mkdir()
        for library in installed.plugins.iterdir():
            if not library.name.startswith("rabbitmq_") or library.name.startswith("rabbitmq_prelaunch"):
                (self._data / "plugins" / library.name).symlink_to(library)

    def _variables(self, notify_socket: str) -> dict[str, str]:
        """The server's environment: nothing of the user's, whose RABBITMQ_ variables would lead elsewhere."""
        return {
            "PATH": os.pathsep.join(filter(None, (os.environ.get("PATH"), os.defpath, "/usr/local/bin"))),
            "LANG": "C.UTF-8",
            # Erlang keeps its cookie there.
            "HOME": str(self._data),
            "ERL_CRASH_DUMP_SECONDS": "0",
            # Read by systemd's services to tell when they are ready; it also makes the script become the server.
            "NOTIFY_SOCKET": notify_socket,
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(self._data / "none"),
            "RABBITMQ_CONFIG_FILES": str(self._data / "none.d"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self._data / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._data / "enabled_plugins"),
            "RABBITMQ_PLUGINS_DIR": str(self._data / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._data / "logs"),
            "RABBITMQ_SCHEMA_DIR": str(self._data / "schema"),
            "RABBITMQ_PID_FILE": str(self._data / "pid"),
            "RABBITMQ_NODENAME": "slslab@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_SERVER_ERL_ARGS": SCHEDULERS,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": DISTRIBUTION,
            **self._environment,
        }

    def _ready(self, notices: socket.socket) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        notices.settimeout(LOOK_S)  # only to see whether it has ended instead
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if b"READY=1" in notices.recv(4096).split(b"\n"):
                    return True
            except TimeoutError:
                continue
        return False

    def _stop(self) -> None:
        if self._process is not None:
            # The data is thrown away, so there is nothing to end in order. Its helpers end when their input closes.
            self._process.kill()
            self._process.wait()
            self._process = None
        shutil.rmtree(self._data, ignore_errors=True)

    def _read_log(self) -> str:
        log = self._data / "log"
        return log.read_text(errors="replace") if log.exists() else ""


def _last_words(log: str) -> str:
    """What a server that did not start gives as its reason, in one line; else the end of what it said."""
    _, told, reason = log.rpartition("Error during startup:")
    words = " ".join((reason if told else log).split())
    return words[:WORDS] if told else words[-WORDS:]


def _installed() -> RabbitMQ:
    installed = find_rabbitmq()
    if installed is None:
        raise HostError("RabbitMQ's server is not installed.", INSTALL)
    return installed


def _library_versions(plugins: Path) -> dict[str, str]:
    """Versions of the Erlang applications in a directory, by name; `rabbit-3.10.8` may also be a file `.ez`."""
    names = (entry.name.removesuffix(".ez").rpartition("-") for entry in plugins.iterdir())
    return {name: version for name, _, version in names if name}


def _free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port
