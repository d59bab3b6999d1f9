"""Assemble the embedded stack: callers start the parts that they need, the emulator included; all end together."""

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from slslab.aws.keys import Keyring
from slslab.host.server_process import ServerProcess
from slslab.host.session import Session
from slslab.installation import ENDPOINTS, __version__, plugin
from slslab.stack import Stack
from slslab.stack.access_log import AccessLog
from slslab.stack.channels import channel_server
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.stack.queues import EmbeddedRabbitMQ, queue_kind
from slslab.stack.state_machines import EmbeddedStateMachines
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_workers.architecture import Requirements

if TYPE_CHECKING:  # calibration measures a stack without an emulator
    from slslab.lambda_.emulator import Emulator


class EmbeddedStack(Stack):
    """The started parts, with one session and its keys, new ones by default; `parts` ends them.

    `on_event` receives the trace records of the tensor databases, of a channel's server and of state machines,
    `access_log` the requests to S3 and SQS. `versions` has each part's name and version, `servers` its process. Every
    method raises HostError if its part doesn't start.
    """

    def __init__(
        self,
        parts: ExitStack,
        *,
        session: Session | None = None,
        keys: Keyring | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        access_log: AccessLog | None = None,
    ) -> None:
        super().__init__("")
        self.session, self.keys = session or parts.enter_context(Session()), keys or Keyring()
        self._parts, self._on_event, self._access_log = parts, on_event, access_log
        self.versions = {"lambda": f"slslab {__version__}"}
        self.servers: dict[str, ServerProcess] = {}

    def start_object_store(self, port: int = 0) -> EmbeddedObjectStore:
        """Start the S3 server, at any free port by default."""
        store = EmbeddedObjectStore(self.session.home / "s3", self.keys, self.session.mark, port, self._access_log)
        self._parts.enter_context(store)
        self.s3_endpoint, self.versions["s3"], self.servers["object_store"] = store.endpoint, store.name, store
        return store

    def start(self, requirements: Requirements, *, s3_port: int = 0) -> None:
        """Start S3 and all requirements except state machines and DynamoDB, which need the emulator first."""
        self.start_object_store(s3_port)
        home, mark = self.session.home, self.session.mark
        kind = queue_kind(requirements.queue) if requirements.queue else ""
        if kind == "rabbitmq":
            rabbitmq = self._parts.enter_context(EmbeddedRabbitMQ(home / "rabbitmq", mark))
            self.queue_url, self.versions["queue"] = rabbitmq.endpoint, rabbitmq.version
            self.servers["queue"] = rabbitmq
        if (server := channel_server(requirements.channel, home, mark, self._on_event)) is not None:
            self._parts.enter_context(server)
            self.channel_url, self.versions["channel"] = server.endpoint, server.version
            self.servers[f"{requirements.channel.removesuffix('-server')}_server"] = server
        # The embedded queue has its own keyspace, and so has the substitute for a Redis that isn't installed.
        lists, hashes = kind == "embedded", requirements.channel == "redis" and server is None
        keyspaces = requirements.tensor_databases + lists + hashes
        if keyspaces:
            databases = EmbeddedTensorDatabases(
                keyspaces, password=secrets.token_hex(16), environment=mark, on_event=self._on_event
            )
            self._parts.enter_context(databases)
            self.tensor_urls = databases.endpoints[: requirements.tensor_databases]
            self.servers["tensor_databases"] = databases
            if self.tensor_urls:
                self.versions["tensors"] = databases.version
            if lists:
                self.queue_url, self.versions["queue"] = databases.endpoints[-1], f"lists of {databases.version}"
            if hashes:
                place = f"hashes of {databases.version}, because redis-server is not installed"
                self.channel_url, self.versions["channel"] = databases.endpoints[requirements.tensor_databases], place

    def start_emulator(self, emulator: "Emulator") -> "Emulator":
        """Start an emulator of this session and these keys."""
        self.emulator = self._parts.enter_context(emulator)
        return emulator

    def start_state_machines(self, *, lazy: bool = False) -> EmbeddedStateMachines:
        """Start Step Functions; functions find it from then on."""
        endpoint, mark, limits = self.emulator.endpoint, self.session.mark, self.emulator.limits
        states = EmbeddedStateMachines(endpoint, self.keys, mark, limits=limits, on_event=self._on_event, lazy=lazy)
        self._parts.enter_context(states)
        self.emulator.add_variables(states.client_environment())
        self.versions["states"] = states.name
        return states

    def start_edge(self, port: int = 0, *, lazy: bool = True) -> Any:
        """Start the single endpoint for all services that run so far, with its own further services."""
        emulator = self.emulator
        reached = emulator.home, emulator.endpoints, self.keys, emulator.mark
        edge = plugin(ENDPOINTS, "aws").Edge(port, *reached, self._access_log)
        edge.lazy = edge.services.lazy = lazy
        return self._parts.enter_context(edge)
