"""Message queues for workers: RabbitMQ, or lists on a Redis-compatible server, with every message traced.

Messages are persistent and bodies are bytes. Once a publish returns, the message is safe. An unacknowledged message is
delivered again when its consumer's connection ends, so receivers must tolerate duplicates. Copies of one publish have
the same `id`.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from slslab_workers.channels.channel import Channel, retried
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.queues.broker import Broker, ConnectionLost, Message, NoQueue, QueueError
from slslab_workers.option import Option
from slslab_workers.trace.event import Event
from slslab_workers.trace.operations import SERVERS

__all__ = ["QUEUE", "Message", "NoQueue", "QueueError", "Queues", "acknowledge", "open_queues", "scoped"]

QUEUE = Option(
    "queue",
    str,
    "auto",
    "The embedded stack's queue: RabbitMQ if its server is installed, else the same interface over lists of the tensor "
    "database (auto); rabbitmq fails without the server.",
    ("auto", "rabbitmq", "embedded"),
)


def scoped(run: str, name: str, epoch: int | None = None) -> str:
    """Return the name of a queue or exchange of a run, or of one epoch; two runs never share a name."""
    return f"slslab.{run}.{name}" if epoch is None else f"slslab.{run}.e{epoch}.{name}"


class Queues(Channel):
    """One connection to the broker, for one thread.

    A broken connection is reopened and the request sent again, up to twice. After that it raises QueueError; its
    subclass NoQueue names a queue that doesn't exist.
    """

    name = "queue"
    server = SERVERS[name]

    def __init__(self, broker: Broker, tracer: Tracer) -> None:
        super().__init__(tracer)
        self._broker = broker

    def declare(self, queue: str) -> None:
        """Create a durable queue, unless it exists."""
        self._manage("queue.declare", queue, lambda: self._broker.declare(queue))

    def bind(self, queue: str, exchange: str) -> None:
        """Bind the queue to the exchange to receive its messages. The exchange exists as long as it has bindings."""
        self._manage("queue.bind", exchange, lambda: self._broker.bind(queue, exchange))

    def publish(self, queue: str, body: bytes, phase: str, *, overhead: bool = True) -> str:
        """Send a message to one queue, and return its id once the broker has stored it."""
        return self._send(self._broker.publish, uuid4().hex, queue, body, phase, overhead)

    def fan_out(self, exchange: str, body: bytes, phase: str, *, overhead: bool = True) -> str:
        """Send a message to every queue bound to the exchange with one publish; NoQueue if none is bound."""
        return self._send(self._broker.fan_out, uuid4().hex, exchange, body, phase, overhead)

    def consume(
        self, queue: str, timeout_s: float, phase: str, *, overhead: bool | Callable[[bytes], bool] = True
    ) -> Message | None:
        """Wait up to `timeout_s` seconds for the first message and take it; None without one. 0 doesn't wait.

        The waiting time is a `wait`. `overhead` may be a function of the body, if only the body tells whether a
        delivery is part of the training protocol.
        """
        return self._take(queue, time.monotonic() + timeout_s, phase, overhead)

    def await_content(
        self, queue: str, timeout_s: float, phase: str, is_awaited: Callable[[Any], bool], *, overhead: bool = False
    ) -> Any:
        """Wait up to `timeout_s` seconds in total for the first message with an awaited JSON content, and return the
        content; None without one. The messages before it are acknowledged, ignored, and count as overhead."""
        deadline = time.monotonic() + timeout_s

        def is_other(body: bytes) -> bool:
            return overhead or not is_awaited(json.loads(body))

        while message := self.consume(queue, max(0.0, deadline - time.monotonic()), phase, overhead=is_other):
            acknowledge(message)
            if is_awaited(content := json.loads(message.body)):
                return content
        return None

    def delete(self, queue: str) -> None:
        """Delete the queue with its messages and bindings, if it exists."""
        self._manage("queue.delete", queue, lambda: self._broker.delete(queue))

    def delete_exchange(self, exchange: str) -> None:
        """Delete the exchange, if it exists; its queues stay."""
        self._manage("queue.delete", exchange, lambda: self._broker.delete_exchange(exchange))

    def close(self) -> None:
        """Close the connection. Messages that were taken and not acknowledged are delivered again."""
        self._broker.close()

    def is_transient(self, error: Exception) -> bool:
        """Return whether the connection broke."""
        return isinstance(error, ConnectionLost)

    @retried
    def _send(
        self,
        send: Callable[[str, str, bytes], None],
        message_id: str,
        name: str,
        body: bytes,
        phase: str,
        overhead: bool,
    ) -> str:
        with self.request("queue.publish", phase, name, overhead=overhead) as event:
            event.etag = message_id
            for _ in range(1 if Channel.copies is None else Channel.copies(event)):
                send(name, message_id, body)
            event.bytes = len(body)
        return message_id

    @retried
    def _take(
        self, queue: str, deadline: float, phase: str, overhead: bool | Callable[[bytes], bool]
    ) -> Message | None:
        with self.request("queue.deliver", phase, queue, overhead=True) as event:
            message = self._broker.take(queue)
            if message is not None:
                _describe(event, message, overhead)
                return message
            # From here on this is a wait; a delivery that follows is a separate event.
            event.op, event.phase, event.resource, event.requests = "wait", "wait", "", 0
            left = deadline - time.monotonic()
            message = self._broker.wait(queue, left) if left > 0 else None
        if message is not None:
            with self.tracer.span("queue.deliver", phase, queue, requests=1) as event:
                _describe(event, message, overhead)
        return message

    @retried
    def _manage(self, op: str, name: str, request: Callable[[], None]) -> None:
        with self.request(op, "other", name, overhead=True):
            request()


def _describe(event: Event, message: Message, overhead: bool | Callable[[bytes], bool]) -> None:
    event.bytes = len(message.body)
    event.etag = message.id
    event.overhead = overhead(message.body) if callable(overhead) else overhead


def acknowledge(message: Message) -> None:
    """Acknowledge a message. If its connection has ended, it is delivered again, and receivers ignore it."""
    with suppress(QueueError):
        message.ack()


def open_queues(url: str, tracer: Tracer) -> Queues:
    """Return the queues at `amqp(s)://user:password@host:port/vhost` or `redis(s)://:password@host:port`.

    They connect when first used. ValueError for any other address.
    """
    scheme = url.partition("://")[0]
    broker: Broker
    if scheme in ("amqp", "amqps"):
        from slslab_workers.channels.queues.rabbitmq import RabbitMQ

        broker = RabbitMQ(url)
    elif scheme in ("redis", "rediss"):
        from slslab_workers.channels.queues.lists import RedisLists

        broker = RedisLists(url)
    else:
        raise ValueError(f"A queue's address begins with amqp:// or redis://, not {scheme}://.")
    return Queues(broker, tracer)
