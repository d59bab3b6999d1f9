"""Assemble the embedded stack: callers name the parts that they need, the emulator included; all end together."""

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from slslab.aws.keys import Keyring
from slslab.host.managed import Managed
from slslab.host.server_process import ServerProcess
from slslab.host.session import Session
from slslab.installation import ENDPOINTS, __version__, plugin
from slslab.lambda_.emulator import Emulator
from slslab.stack import Stack
from slslab.stack.channels import channel_server
from slslab.stack.object_store import AccessLog, EmbeddedObjectStore
from slslab.stack.queues import EmbeddedRabbitMQ, queue_kind
from slslab.stack.state_machines import EmbeddedStateMachines
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_workers.architecture import Requirements


class EmbeddedStack(Managed, Stack):
    """The embedded stack, a context manager with one session and its keys, new ones by default.

    Entering starts S3 and what is needed, except state machines and DynamoDB, which need the emulator first; without
    `needs` it starts nothing. `on_event` receives the trace records of the tensor databases, of a channel's server and
    of state machines, `on_request` the requests to S3 and SQS. `versions` has each part's name and version, `servers`
    its process. Starting raises HostError if a part doesn't start.
    """

    def __init__(
        self,
        needs: Requirements | None = None,
        *,
        session: Session | None = None,
        keys: Keyring | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        on_request: Callable[[dict[str, Any]], None] | None = None,
        s3_port: int = 0,
    ) -> None:
        super().__init__("")
        self.session, self.keys = session or Session(), keys or Keyring()
        self.access_log = None if on_request is None else AccessLog(on_request)
        self._needs, self._given_session, self._on_event, self._s3_port = needs, session, on_event, s3_port
        self.versions = {"lambda": f"slslab {__version__}"}
        self.servers: dict[str, ServerProcess] = {}

    def _enter(self, stack: ExitStack) -> None:
        if self._given_session is None:
            stack.enter_context(self.session)
        if self.access_log is not None:
            stack.enter_context(self.access_log)
        self._parts = stack.enter_context(ExitStack())  # some start later
        if self._needs is not None:
            self.start_object_store()
            self._start(self._needs)

    def settle(self) -> None:
        """Pass on the records of everything that the servers have done so far."""
        if self.access_log is not None:
            self.access_log.drain()
        for server in list(self.servers.values()):  # a thread may start another one meanwhile
            server.settle()

    def start_object_store(self) -> EmbeddedObjectStore:
        """Start the S3 server."""
        home, mark = self.session.home, self.session.mark
        store = EmbeddedObjectStore(home / "s3", self.keys, mark, self._s3_port, self.access_log)
        self._parts.enter_context(store)
        self.s3_endpoint, self.versions["s3"], self.servers["object_store"] = store.endpoint, store.name, store
        return store

    def _start(self, requirements: Requirements) -> None:
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
                version = f"hashes of {databases.version}, because redis-server is not installed"
                self.channel_url, self.versions["channel"] = databases.endpoints[requirements.tensor_databases], version

    def start_emulator(self, emulator: Emulator) -> Emulator:
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
        edge = plugin(ENDPOINTS, "aws").Edge(port, *reached, self.access_log)
        edge.lazy = edge.services.lazy = lazy
        return self._parts.enter_context(edge)
