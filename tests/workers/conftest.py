"""The message brokers, each started once, and clients that keep their events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from slslab.stack.queues import EmbeddedRabbitMQ, find_rabbitmq
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.queues import Queues, open_queues


@dataclass
class Client:
    """One worker's queues and what it told the trace."""

    queues: Queues
    events: list[dict[str, Any]] = field(default_factory=list)

    def told(self, op: str) -> list[dict[str, Any]]:
        """Its events of one kind."""
        return [event for event in self.events if event["op"] == op]


Connect = Callable[..., Client]


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a RabbitMQ."""
    if find_rabbitmq() is None:
        pytest.skip("RabbitMQ's server is not installed (apt-get install rabbitmq-server)")
    with EmbeddedRabbitMQ(Path(tmp_path_factory.mktemp("rabbitmq"), "data"), {}) as server:
        yield server.endpoint


@pytest.fixture(scope="session")
def lists() -> Iterator[str]:
    """The address of a database with lists as queues."""
    with EmbeddedTensorDatabases(1, password="secret") as databases:
        yield databases.endpoints[0]


@pytest.fixture(params=["rabbitmq", "lists"])
def broker(request: pytest.FixtureRequest) -> str:
    """The address of each kind of broker in turn; both run until the end of the session."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def connect(broker: str, slept: list[float]) -> Iterator[Connect]:  # noqa: ARG001 - pauses take no time
    """Makes a worker's client; retries follow at once."""
    clients: list[Client] = []

    def make(worker: int = 0, url: str = broker) -> Client:
        events: list[dict[str, Any]] = []
        tracer = Tracer(events.append, "run", worker, f"invocation {worker}")
        clients.append(Client(open_queues(url, tracer), events))
        return clients[-1]

    yield make
    for client in clients:
        client.queues.close()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What channels would have slept, s: their pauses take no time."""
    seconds: list[float] = []
    monkeypatch.setattr("slslab_workers.channels.channel.time", SimpleNamespace(sleep=seconds.append))
    return seconds


@pytest.fixture
def run() -> str:
    """A run of its own, so that no two tests meet."""
    return uuid4().hex[:8]
