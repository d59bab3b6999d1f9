"""The start of the required parts of the embedded stack, but for state machines, which need the emulator first."""

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from slslab.aws.keys import Keyring
from slslab.host.server_process import ServerProcess
from slslab.host.session import Session
from slslab.stack import Stack
from slslab.stack.access_log import AccessLog
from slslab.stack.channels import channel_server
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.stack.queues import EmbeddedRabbitMQ, queue_kind
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_workers.architecture import Requirements


def start_stack(
    parts: ExitStack,
    session: Session,
    requirements: Requirements,
    keys: Keyring,
    *,
    s3_port: int = 0,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    access_log: AccessLog | None = None,
) -> tuple[Stack, dict[str, ServerProcess]]:
    """Start the required parts, each entered into `parts`; returns the stack, and the server of each part.

    `on_event` receives the trace records of the tensor databases, `access_log` the requests to S3. Raises HostError if
    a part does not start.
    """
    store = EmbeddedObjectStore(session.home / "s3", keys, session.mark, s3_port, access_log)
    parts.enter_context(store)
    versions = {"s3": store.name}
    servers: dict[str, ServerProcess] = {"object_store": store}
    kind = queue_kind(requirements.queue) if requirements.queue else ""
    queue_url: str | None = None
    if kind == "rabbitmq":
        rabbitmq = EmbeddedRabbitMQ(session.home / "rabbitmq", session.mark)
        parts.enter_context(rabbitmq)
        queue_url, versions["queue"], servers["queue"] = rabbitmq.endpoint, rabbitmq.version, rabbitmq
    tensor_urls: tuple[str, ...] = ()
    channel_url: str | None = None
    if (server := channel_server(requirements.channel, session.home, session.mark, on_event)) is not None:
        parts.enter_context(server)
        channel_url, versions["channel"] = server.endpoint, server.version
        servers[f"{requirements.channel.removesuffix('-server')}_server"] = server
    # The embedded queue has a keyspace of its own, and so has what takes the place of a Redis that is not installed.
    lists, hashes = kind == "embedded", requirements.channel == "redis" and server is None
    keyspaces = requirements.tensor_databases + lists + hashes
    if keyspaces:
        databases = EmbeddedTensorDatabases(
            keyspaces, password=secrets.token_hex(16), environment=session.mark, on_event=on_event
        )
        parts.enter_context(databases)
        tensor_urls = databases.endpoints[: requirements.tensor_databases]
        servers["tensor_databases"] = databases
        if tensor_urls:
            versions["tensors"] = databases.version
        if lists:
            queue_url, versions["queue"] = databases.endpoints[-1], f"lists of {databases.version}"
        if hashes:
            place = f"hashes of {databases.version}, because redis-server is not installed"
            channel_url, versions["channel"] = databases.endpoints[requirements.tensor_databases], place
    return Stack(store.endpoint, versions, tensor_urls, queue_url, channel_url), servers
