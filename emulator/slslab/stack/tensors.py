"""Start the embedded tensor databases, one tensordb process per run."""

import os
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from slslab.host.server_process import ServerProcess
from slslab.installation import __version__, installed

START_LIMIT_S = 30.0


class EmbeddedTensorDatabases(ServerProcess):
    """RedisAI-compatible databases, each with its own loopback port and keyspace, as a context manager.

    `environment` is added to the process's own (the emulator's mark, by which its reaper finds it); `on_event` receives
    a trace record for every script execution, on a thread of its own, and the last one before the context ends. The
    process ends with this one. Raises HostError if it doesn't start.

        with EmbeddedTensorDatabases(4) as databases:
            redis.Redis.from_url(databases.endpoints[0])
    """

    title = "The embedded tensor databases"

    def __init__(
        self,
        peers: int,
        *,
        password: str | None = None,
        environment: Mapping[str, str] | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        super().__init__(environment or {}, on_event)
        self._peers = peers
        self._password = password
        self.endpoints: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The name and version, with torch's, which runs the scripts, where it is installed."""
        scripts = f"torch {version('torch')}" if installed("torch") else "without RedisAI's commands"
        return f"tensordb {__version__}, {scripts}"

    def _start(self) -> None:
        variables, user = dict(os.environ), ""
        variables.pop("TENSORDB_PASSWORD", None)  # meant for another database
        if self._password is not None:
            variables["TENSORDB_PASSWORD"] = self._password
            user = f":{quote(self._password, safe='')}@"
        self._launch_module(
            "slslab.tensordb",
            ["--parent-pipe", f"--peers={self._peers}"],
            variables,
        )
        endpoints = self._report(START_LIMIT_S)["endpoints"]
        self.endpoints = tuple(url.replace("://", f"://{user}") for url in endpoints)
