"""Start the embedded S3 server, one per run, and read the log of requests; AWS bills each.

The log has the requests to it, and functions' requests to SQS.

docs/services.md lists what it supports.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from slslab.aws.keys import Keyring
from slslab.host.managed import Managed
from slslab.host.output import PipeReader
from slslab.host.server_process import ServerProcess, listening_socket
from slslab.installation import __version__
from slslab.run.events import own_event

START_LIMIT_S = 30.0


# Read the requests of this long together: each wake-up costs more than ten requests.
TOGETHER_S = 0.02


class AccessLog(Managed):
    """Reads a pipe on a thread of its own; a context manager around the servers.

    For each request a server writes a line to `writer` before the last part of its answer: a JSON list of the operation
    (`object.put`, `object.list`, `object.get`, `object.delete`, or one of SQS's), the name of the function that sent it
    (empty for other clients), when it began and when the last part of the answer was sent (ns of CLOCK_MONOTONIC), and
    the bytes of objects or messages that it moved. `on_request` is called with the trace event of each; the last call
    returns before the context ends.
    """

    def __init__(self, on_request: Callable[[dict[str, Any]], None]) -> None:
        self._on_request = on_request
        self._rest = b""

    def _enter(self, stack: ExitStack) -> None:
        self._pipe = PipeReader("access-log", self._feed, TOGETHER_S)
        self.writer = self._pipe.writing
        stack.callback(self._pipe.join)
        stack.callback(os.close, self.writer)

    def drain(self) -> None:
        """Pass on everything that the server has written so far."""
        self._pipe.settle()

    def take(self, record: dict[str, Any]) -> None:
        """Pass on the poll of an event source; ignore other trace records."""
        if record.get("op", "").startswith("sqs."):
            self._on_request(record)

    def _feed(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            operation, function, start_ns, end_ns, size = json.loads(line)
            event = own_event(operation, start_ns, "", resource="", function=function)
            self._on_request({**event, "end_ns": end_ns, "bytes": size, "requests": 1, "overhead": False})


class EmbeddedObjectStore(ServerProcess):
    """The S3 server of `slslab.object_store` on a loopback port, as a context manager.

    `data` is made and removed; clients sign with `keys`; `environment` is added to the server's own (the emulator's
    mark, by which its reaper finds it); `port` is any free one by default; `access_log` receives every request. The
    server also ends when this process is killed. Raises HostError if it doesn't start.

        with EmbeddedObjectStore(Path("data"), keys, {}) as store:
            boto3.client("s3", endpoint_url=store.endpoint)
    """

    title = "The embedded S3 server"
    hint = "run `slslab doctor`; a full disk or too little memory are the usual causes."

    def __init__(
        self,
        data: Path,
        keys: Keyring,
        environment: Mapping[str, str],
        port: int = 0,
        access_log: AccessLog | None = None,
    ) -> None:
        super().__init__(environment)
        self._data: Path = data
        self._port = port
        self._keys = keys
        self._access_log = access_log
        self.endpoint = self._server = ""

    @property
    def name(self) -> str:
        """The server's name and version."""
        return f"{self._server} {__version__}"

    def _start(self) -> None:
        # The server inherits the socket. It is closed here, so clients' connections break when the server ends.
        with listening_socket("127.0.0.1", self._port, "--s3-port") as listener:
            self._data.mkdir(mode=0o700, parents=True)
            log = None if self._access_log is None else self._access_log.writer
            self._launch_service(
                "slslab.object_store",
                listener,
                self._keys,
                {"data": str(self._data), "log": log},
                inherited=[log],
            )
        report = self._report(START_LIMIT_S)
        self.endpoint, self._server = report["endpoint"], report["server"]
