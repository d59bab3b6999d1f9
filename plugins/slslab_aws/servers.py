"""The one endpoint of all services, and moto's AWS services: two processes, which start on demand."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from slslab.aws.keys import Keyring
from slslab.host.server_process import LazyServer
from slslab.installation import __version__, require
from slslab.installation import installed as module_installed
from slslab.stack.object_store import AccessLog

PORT = 4566
# The services that are not moto's.
OWN = ("lambda", "s3", "states")
SOCKET = "aws-services.sock"
MODULES = ("aiohttp", "flask", "moto")


def installed() -> bool:
    """Return whether the packages of the extra `aws` are installed."""
    return all(module_installed(module) for module in MODULES)


class AwsServices(LazyServer):
    """IAM, CloudWatch Logs, SQS, SNS, DynamoDB and EventBridge by moto, at a Unix socket in a private directory.

    They start with the first request, which takes two seconds. `endpoints` are Lambda's and Step Functions'.
    """

    title = "The services of AWS around Lambda"
    hint = "run `slslab doctor`."

    def __init__(self, home: Path, endpoints: Mapping[str, str], keys: Keyring, environment: Mapping[str, str]) -> None:
        require("flask")
        super().__init__(environment)
        self._home = home
        self.directory = -1
        self._endpoints = endpoints
        self._keys = keys

    @property
    def path(self) -> str:
        """The socket's path for a process that inherits the directory's descriptor; the full path would be too long."""
        return f"/proc/self/fd/{self.directory}/{SOCKET}"

    def _start(self) -> None:
        self.directory = os.open(self._home, os.O_PATH)
        self._undo.callback(os.close, self.directory)
        self._undo.callback((self._home / SOCKET).unlink, missing_ok=True)
        super()._start()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(1024)
        return listener

    def _launch_at(self, listener: socket.socket) -> None:
        self._launch_service("slslab_aws.services", listener, self._keys, {"endpoints": self._endpoints})


class Edge(LazyServer):
    """The endpoint at `port` of loopback, or any free one for 0. HostError if another process uses it.

    `endpoints` are Lambda's, S3's and Step Functions'. `services` provides all others, with its socket in `home`, a
    private directory. `access_log` receives functions' requests to SQS.
    """

    name = f"slslab {__version__}"
    title = "The endpoint of all services"
    _port_option = "--edge-port"
    hint = "run `slslab doctor`."

    def __init__(
        self,
        port: int,
        home: Path,
        endpoints: Mapping[str, str],
        keys: Keyring,
        environment: Mapping[str, str],
        access_log: AccessLog | None = None,
    ) -> None:
        require("aiohttp")
        super().__init__(environment)
        self.services = AwsServices(home, endpoints, keys, environment)
        self._port = port
        self._access_log = access_log
        self._endpoints = endpoints
        self._keys = keys

    def client_environment(self) -> dict[str, str]:
        """Return the variable that points AWS's clients to it."""
        return {"AWS_ENDPOINT_URL": self.endpoint}

    def _start(self) -> None:
        self._undo.enter_context(self.services)
        super()._start()

    def _launch_at(self, listener: socket.socket) -> None:
        log = None if self._access_log is None else self._access_log.writer
        own = {name: url for name, url in self._endpoints.items() if name in OWN}
        options = {"endpoints": own, "path": self.services.path, "log": log}
        inherited = [self.services.directory, log]
        self._launch_service("slslab_aws.edge", listener, self._keys, options, inherited=inherited)
