"""Start the embedded stack's queue, one per run: RabbitMQ where its server is installed.

Debian's package is enough (`apt-get install rabbitmq-server`); its service, its user and Erlang's port mapper aren't
needed. Only the broker starts, without plugins, in about 2.5 s on two cores.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slslab.errors import HostError
from slslab.host.server_process import TAIL_CHARACTERS, free_port
from slslab.stack.channels import PackagedServer

START_LIMIT_S = 60.0
SEARCHED = ("/usr/lib/rabbitmq/bin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")
INSTALL = "install Debian's package `rabbitmq-server` (its service doesn't have to run), or choose --queue embedded."
# A node needs a name even if it talks to no other node. It doesn't need a listener, or the port mapper epmd, which
# would listen on a fixed port of every interface and stay. The broker checks epmd once a minute and starts it (in a
# whole Erlang machine), so we end that check as soon as everything else is up.
DISTRIBUTION = (
    "-noinput -sname slslab@localhost -start_epmd false -erl_epmd_port 1 -dist_listen false "
    "-eval supervisor:terminate_child(rabbit_sup,rabbit_epmd_monitor_sup)."
)
# Schedulers that spin while idle would use the workers' cores, and nearly double the time to start.
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
        """The server's name and version."""
        return f"RabbitMQ {_library_versions(self.plugins)['rabbit']}"


def find_rabbitmq() -> RabbitMQ | None:
    """Return the installed server, or None.

    The program on the PATH may be a wrapper that only root and the user `rabbitmq` may call, as in Debian; the script
    itself has its plugins next to it.
    """
    for folder in (*SEARCHED, *os.environ.get("PATH", "").split(os.pathsep)):
        # A link to the wrapper leads to the script's folder.
        script = Path(folder, "rabbitmq-server").resolve().with_name("rabbitmq-server").resolve()
        plugins = script.parent.parent / "plugins"
        if script.is_file() and plugins.is_dir() and "rabbit" in _library_versions(plugins):
            return RabbitMQ(script, plugins)
    return None


def queue_kind(kind: str) -> str:
    """Resolve `auto` to `rabbitmq` or `embedded`; HostError for `rabbitmq` if its server isn't installed."""
    if kind == "rabbitmq":
        _installed()
    if kind == "auto":
        return "embedded" if find_rabbitmq() is None else "rabbitmq"
    return kind


class EmbeddedRabbitMQ(PackagedServer):
    """RabbitMQ on its own loopback port, as a context manager.

    `data` is made and removed; `environment` is added to the server's own (the emulator's mark, by which its reaper
    finds it). Entered on the main thread, the server also ends when this process is killed, where util-linux's
    `setpriv` is installed. Raises HostError if the server isn't installed or doesn't start.

        with EmbeddedRabbitMQ(Path("data"), {}) as server:
            pika.BlockingConnection(pika.URLParameters(server.endpoint))
    """

    title = "RabbitMQ"
    hint = "choose --queue embedded; a full disk or too little memory are the usual causes."
    port_taken = "eaddrinuse"
    scheme, user = "amqp", "slslab"

    def __init__(self, data: Path, environment: Mapping[str, str]) -> None:
        self._installed = _installed()
        super().__init__(self._installed.script, data, environment)

    @property
    def version(self) -> str:
        """The server's name and version."""
        return self._installed.version

    @property
    def endpoint(self) -> str:
        """The AMQP address, with user and password; the virtual host is `/`."""
        return f"{super().endpoint}/%2F"

    def _start(self) -> None:
        self._port = free_port()
        self._prepare()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            # In the abstract name space, where the kernel chooses a free name and no path is too long.
            notices.bind("")
            address = "@" + notices.getsockname()[1:].decode()
            self._launch([str(self._program)], self._variables(address), self._data)
            self._wait(lambda: b"READY=1" in notices.recv(4096).split(b"\n"), START_LIMIT_S, notices.fileno())

    def _reason(self, output: str) -> str:
        _, marker, reason = output.rpartition("Error during startup:")
        return " ".join(reason.split())[:TAIL_CHARACTERS] if marker else super()._reason(" ".join(output.split()))

    def _prepare(self) -> None:
        self._data.mkdir(parents=True)
        (self._data / "enabled_plugins").write_text("[].\n")
        (self._data / "advanced.config").touch(0o600)
        (self._data / "advanced.config").write_text(
            CONFIGURATION.format(port=self._port, user=self.user, password=self._password)
        )
        # Otherwise the start would read every installed plugin, enabled or not, for 2 s. Keep the broker's libraries.
        (self._data / "plugins").mkdir()
        for library in self._installed.plugins.iterdir():
            if not library.name.startswith("rabbitmq_") or library.name.startswith("rabbitmq_prelaunch"):
                (self._data / "plugins" / library.name).symlink_to(library)

    def _variables(self, notify_socket: str) -> dict[str, str]:
        """Return the server's environment without the user's RABBITMQ_ variables, which configure another server."""
        return {
            "PATH": os.pathsep.join(filter(None, (os.environ.get("PATH"), os.defpath, "/usr/local/bin"))),
            "LANG": "C.UTF-8",
            # Erlang stores its cookie there.
            "HOME": str(self._data),
            "ERL_CRASH_DUMP_SECONDS": "0",
            # The socket on which systemd services report that they are ready; it also makes the script exec the server.
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
        }


def _installed() -> RabbitMQ:
    installed = find_rabbitmq()
    if installed is None:
        raise HostError("RabbitMQ's server is not installed.", INSTALL)
    return installed


def _library_versions(plugins: Path) -> dict[str, str]:
    """Return versions of the Erlang applications in a directory, by name; `rabbit-3.10.8` may also be a file `.ez`."""
    names = (entry.name.removesuffix(".ez").rpartition("-") for entry in plugins.iterdir())
    return {name: version for name, _, version in names if name}
