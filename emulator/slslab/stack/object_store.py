"""Start the embedded S3 server, one per run; docs/services.md lists what it supports."""

from collections.abc import Mapping
from pathlib import Path

from slslab.aws.keys import Keyring
from slslab.host.server_process import ServerProcess, listening_socket
from slslab.installation import __version__
from slslab.stack.access_log import AccessLog

START_LIMIT_S = 30.0


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

    def _start(self) -> bool:
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
        if report is None:
            return False
        self.endpoint, self._server = report["endpoint"], report["server"]
        return True
