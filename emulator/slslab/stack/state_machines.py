"""Start the embedded Step Functions: our API over moto's interpreter, in a process that ends with this one.

The process takes about two seconds to import its interpreter, but its address exists at once.
"""

import socket
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from slslab.aws.keys import Keyring
from slslab.aws.limits import Limits, lambda_limits
from slslab.host.server_process import LazyServer
from slslab.installation import require

PASSED_LIMITS = ("definition_bytes", "state_payload_bytes", "history_events", "map_concurrency")


class EmbeddedStateMachines(LazyServer):
    """Step Functions on its own loopback port, as a context manager.

    Tasks invoke functions at `lambda_endpoint`; clients sign with `keys`; `environment` is added to the process's own
    (the emulator's mark, by which its reaper finds it); `limits` are AWS's unless changed; `on_event` receives a trace
    record for every state transition, on a thread of its own. Entering starts the process, which gets ready in the
    background; with `lazy` it starts with the first request. Either way it ends with this process. HostError if
    its interpreter isn't installed.

        with EmbeddedStateMachines(emulator.endpoint, emulator.keys, emulator.mark) as states:
            boto3.client("stepfunctions", endpoint_url=states.endpoint)
    """

    title = "The embedded Step Functions"
    hint = "run `slslab doctor`."

    def __init__(
        self,
        lambda_endpoint: str,
        keys: Keyring,
        environment: Mapping[str, str],
        *,
        limits: Limits | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        lazy: bool = False,
    ) -> None:
        require("moto")
        super().__init__(environment, on_event)
        self._lambda_endpoint = lambda_endpoint
        self._keys = keys
        self._limits = limits if limits is not None else lambda_limits()
        self.lazy = lazy

    @property
    def name(self) -> str:
        """The interpreter's name and version."""
        return f"moto {version('moto')}"

    def client_environment(self) -> dict[str, str]:
        """Return the variable by which AWS's clients find it."""
        return {"AWS_ENDPOINT_URL_SFN": self.endpoint}

    def _launch_at(self, listener: socket.socket) -> None:
        limits = {name: getattr(self._limits, name) for name in PASSED_LIMITS}
        self._launch_service(
            "slslab.statemachines",
            listener,
            self._keys,
            {"lambda_endpoint": self._lambda_endpoint, "limits": limits},
            # Python's own allocator keeps a whole arena for a single history in it; malloc returns pages.
            {"PYTHONMALLOC": "malloc"},
        )
