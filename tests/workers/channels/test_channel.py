"""Every request of every channel is one of its operations, and passes the place where faults are injected."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from botocore.exceptions import HTTPClientError

from slslab.run.bill import load_book
from slslab_workers.channels.channel import RETRY_DELAYS_S, Channel
from slslab_workers.channels.dynamodb import DynamoDB
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.memcached import Memcached
from slslab_workers.channels.objects import Objects
from slslab_workers.channels.parameter_server import ParameterServer
from slslab_workers.channels.queues import Queues
from slslab_workers.channels.queues.broker import ConnectionLost
from slslab_workers.channels.redis import Redis
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.trace.event import Event
from slslab_workers.trace.operations import OPERATIONS, WORK, Operation

# What is behind each channel: a request that reached it would raise TypeError or AttributeError.
NOTHING: Any = SimpleNamespace(publish=None)
REQUESTS: dict[type[Channel], dict[str, Callable[[Any], Any]]] = {
    Objects: {
        "object.put": lambda objects: objects.put("key", b"", "other", overhead=False),
        "object.get": lambda objects: objects.get("key", "other", overhead=False),
        "object.list": lambda objects: objects.list("key", "other"),
        "object.delete": lambda objects: objects.delete("key", "other", overhead=False),
    },
    TensorDatabase: {
        "tensor.set": lambda database: database.set("key", [0.0], "other", overhead=False),
        "tensor.get": lambda database: database.get("key", "other", overhead=False),
        "tensor.delete": lambda database: database.delete(["key"], "other", overhead=False),
        "tensor.script": lambda database: database.execute("average", ["in"], ["out"], "other", overhead=False),
        "tensor.command": lambda database: database.command("GET", "key"),
        "ping": lambda database: database.ping(),
    },
    Queues: {
        "queue.declare": lambda queues: queues.declare("queue"),
        "queue.bind": lambda queues: queues.bind("queue", "exchange"),
        "queue.publish": lambda queues: queues.publish("queue", b"", "other", overhead=False),
        "queue.deliver": lambda queues: queues.consume("queue", 0, "other", overhead=False),
        "queue.delete": lambda queues: queues.delete("queue"),
    },
}
# Whose operations begin with the channel's name.
KEYED: dict[type[Channel], Callable[[Tracer], Channel]] = {
    Memcached: lambda tracer: Memcached("memcached://127.0.0.1:1", tracer),
    Redis: lambda tracer: Redis("redis://127.0.0.1:1", tracer),
    DynamoDB: lambda tracer: DynamoDB(NOTHING, "table", tracer),
    ParameterServer: lambda tracer: ParameterServer("parameter://127.0.0.1:1", tracer),
}
for keyed in KEYED:
    REQUESTS[keyed] = {
        f"{keyed.name}.put": lambda channel: channel.put("key", b"", "other", overhead=False),
        f"{keyed.name}.get": lambda channel: channel.get("key", "other", overhead=False),
        f"{keyed.name}.delete": lambda channel: channel.delete("key", "other", overhead=False),
    }
REQUESTS[ParameterServer] |= {
    "parameter.push": lambda channel: channel.push("key", 0, 1, np.zeros(1, np.float32), "other", leaving=False),
    "parameter.pull": lambda channel: channel.pull("key", 1, "other"),
}


def opened(kind: type[Channel], tracer: Tracer) -> Channel:
    if kind is Objects:
        return Objects(NOTHING, "bucket", tracer)
    if kind in KEYED:
        return KEYED[kind](tracer)
    return TensorDatabase("redis://127.0.0.1:1", tracer) if kind is TensorDatabase else Queues(NOTHING, tracer)


@pytest.mark.parametrize(("kind", "op"), [(kind, op) for kind, requests in REQUESTS.items() for op in requests])
def test_a_fault_is_seen_by_every_request(kind: type[Channel], op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, str, int, int, int]] = []

    def fail(event: Event) -> None:
        requests.append((event.op, event.resource, event.worker, event.epoch, event.step))
        raise RuntimeError("as injected")

    monkeypatch.setattr(Channel, "fault", fail)
    records: list[dict[str, Any]] = []
    tracer = Tracer(records.append, "run", 2)
    tracer.epoch, tracer.step = 1, 3
    with pytest.raises(RuntimeError, match="as injected"):
        REQUESTS[kind][op](opened(kind, tracer))
    # A vector is written before it is pushed.
    records = [record for record in records if record["op"] not in WORK]
    assert [(record["op"], record["requests"], record["failed"], record["overhead"]) for record in records] == [
        (op, 1, True, True)
    ]
    assert requests == [(op, records[0]["resource"], 2, 1, 3)]
    assert records[0]["resource"]


def operations(kind: type[Channel]) -> dict[str, Operation]:
    return {op: meaning for op, meaning in OPERATIONS.items() if meaning.channel == kind.name}


@pytest.mark.parametrize("kind", REQUESTS)
def test_operations_are_what_a_channel_requests(kind: type[Channel]) -> None:
    assert operations(kind).keys() == REQUESTS[kind].keys()


@pytest.mark.parametrize("kind", REQUESTS)
def test_what_a_channel_is_billed_by_has_a_price(kind: type[Channel]) -> None:
    """Its requests, or its server by the second."""
    metered = {op for op, meaning in operations(kind).items() if meaning.billed}
    assert bool(metered) is (kind.server.instance_type is None)
    assert load_book("aws-us-east-1").prices.keys() >= (metered or {f"host.{kind.server.instance_type}"})


@pytest.mark.parametrize(
    ("kind", "error"), [(Objects, HTTPClientError(error=OSError("cut"))), (Queues, ConnectionLost("cut"))]
)
def test_a_fault_that_passes_is_retried(
    kind: type[Channel], error: Exception, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_event: Event) -> None:
        raise error

    monkeypatch.setattr(Channel, "fault", fail)
    records: list[dict[str, Any]] = []
    op = next(iter(operations(kind)))
    with pytest.raises(type(error)):
        REQUESTS[kind][op](opened(kind, Tracer(records.append)))
    assert tuple(slept) == RETRY_DELAYS_S
    assert [record["op"] for record in records] == [op, "wait", op, "wait", op]
