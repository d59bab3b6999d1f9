"""Run Lambda in a container for test suites: a module for testcontainers (extra `testcontainers`)."""

import os
import secrets
from typing import Any

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.errors import HostError
from slslab.installation import require

require("testcontainers")

from testcontainers.core.container import DockerContainer  # noqa: E402
from testcontainers.core.wait_strategies import LogMessageWaitStrategy  # noqa: E402

PORT = 9001
START_S = 60


class LambdaContainer(DockerContainer):
    """The emulator in a container, on a free port of this host's loopback, with its own keys.

    Functions run in processes in the container, with Lambda's limits as far as the container allows enforcing them.
    """

    def __init__(self, image: str | None = None) -> None:
        super().__init__(image or f"slslab/emulator:{os.environ.get('SLSLAB_TAG') or 'local'}")
        self._secret = secrets.token_urlsafe(24)
        # Not on all addresses of this host, as with_exposed_ports would.
        self.ports[f"{PORT}/tcp"] = ("127.0.0.1",)  # type: ignore[assignment]
        self.with_command(["python3", "-m", "slslab.compose", "lambda"])
        self.with_envs(SLSLAB_LISTEN=f"0.0.0.0:{PORT}", AWS_ACCESS_KEY_ID="slslab", AWS_SECRET_ACCESS_KEY=self._secret)
        self.waiting_for(LogMessageWaitStrategy('"endpoint"').with_startup_timeout(START_S))

    @property
    def endpoint(self) -> str:
        """The address of Lambda's API; HostError before the container has started."""
        if self._container is None:
            raise HostError("The container has not started.", "with LambdaContainer() as emulator: …")
        return f"http://127.0.0.1:{self.get_exposed_port(PORT)}"

    def lambda_client(self) -> Any:
        """Return a boto3 client of the emulator."""
        return aws_client("lambda", self.endpoint, Pair("slslab", self._secret))
