"""Message queues as workers use them: RabbitMQ, or lists of a Redis-compatible server, every message told to the trace.

Messages are persistent and bodies are bytes. A publish that returned is not lost, and a message that was not
acknowledged is delivered again when its consumer's connection ends, so receivers must tolerate duplicates. Those of one
publish have the same `id`.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar
from uuid import uuid4

from slslab_workers.architecture import Option
from slslab_workers.events import Span, Tracer
from slslab_workers.queues.broker import Broker, ConnectionLost, Delivery, NoQueue, QueueError

__all__ = ["QUEUE", "Message", "NoQueue", "QueueError", "Queues", "open_queues", "scoped"]

T = TypeVar("T")
RETRY_DELAYS_S = (0.1, 0.4)

QUEUE = Option(
    "queue",
    str,
    "auto",
    "The embedded stack's queue: RabbitMQ if its server is installed, else the same interface over lists of the tensor "
    "database (auto); rabbitmq fails without the server.",
    ("auto", "rabbitmq", "embedded"),
)


def scoped(run: str, name: str, epoch: int | None = None) -> str:
    """Name of a queue or exchange that belongs to a run, or to one epoch of it, so that no two ever meet."""
    return f"slslab.{run}.{name}" if epoch is None else f"slslab.{run}.e{epoch}.{name}"


class Message:
    """A message that was taken from a queue; until `ack` it is delivered again if this consumer ends."""

    def __init__(self, queue: str, delivery: Delivery) -> None:
        self.queue = queue
        self.id = delivery.id
        self.body = delivery.body
        self._acknowledge = delivery.acknowledge

    def ack(self) -> None:
        """Have the broker forget the message; QueueError if its connection ended and it is delivered again."""
        self._acknowledge()


class Queues:
    """One connection to the broker, used by one thread.

    `overhead=False` marks a message of the training protocol. A connection that broke is made anew, twice at most, and
    the request sent again: each attempt is an event of its own. QueueError is what remains; its NoQueue names a queue
    that does not exist.
    """

    def __init__(self, broker: Broker, tracer: Tracer, sleep: Callable[[float], None] = time.sleep) -> None:
        self._broker = broker
        self._sleep = sleep
        self.tracer = tracer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def declare(self, queue: str) -> None:
        """Have a durable queue; nothing changes if it is there."""
        self._manage("queue.declare", queue, lambda: self._broker.declare(queue))

    def bind(self, queue: str, exchange: str) -> None:
        """Have the queue get what is fanned out to the exchange, which lives from its first to its last binding."""
        self._manage("queue.bind", exchange, lambda: self._broker.bind(queue, exchange))

    def publish(self, queue: str, body: bytes, phase: str, *, overhead: bool = True) -> str:
        """Send a message to one queue; returns its id once the broker has it."""
        return self._send(self._broker.publish, queue, body, phase, overhead)

    def fan_out(self, exchange: str, body: bytes, phase: str, *, overhead: bool = True) -> str:
        """Send a message to every bound queue: one publish, however many they are; NoQueue if there is none."""
        return self._send(self._broker.fan_out, exchange, body, phase, overhead)

    def consume(
        self, queue: str, timeout_s: float, phase: str, *, overhead: bool | Callable[[bytes], bool] = True
    ) -> Message | None:
        """Take the first message as soon as there is one; None after `timeout_s` seconds, 0 for what is there now.

        The time until it is there is a `wait`. `overhead` may be a function of the body, where only that tells whether
        a delivery is part of the training protocol.
        """
        deadline = time.monotonic() + timeout_s
        delivery = self._retried(lambda: self._take(queue, deadline, phase, overhead))
        return None if delivery is None else Message(queue, delivery)

    def count(self, queue: str, phase: str) -> int:
        """Messages that are ready to be taken: a snapshot, with no promise of what a later call will find."""
        return self._manage("queue.count", queue, lambda: self._broker.count(queue), phase)

    def purge(self, queue: str) -> None:
        """Drop the messages that are ready; those taken and not acknowledged stay."""
        self._manage("queue.purge", queue, lambda: self._broker.purge(queue))

    def delete(self, queue: str) -> None:
        """Drop the queue with its messages and bindings, if it is there."""
        self._manage("queue.delete", queue, lambda: self._broker.delete(queue))

    def delete_exchange(self, exchange: str) -> None:
        """Drop the exchange, if it is there; its queues stay."""
        self._manage("queue.delete", exchange, lambda: self._broker.delete_exchange(exchange))

    def close(self) -> None:
        """End the connection; what was taken and not acknowledged is delivered again."""
        self._broker.close()

    def pause(self, seconds: float) -> None:
        """Sleep, as a `wait` event."""
        with self.tracer.span("wait", "wait"):
            self._sleep(seconds)

    def _send(self, send: Callable[[str, str, bytes], None], name: str, body: bytes, phase: str, overhead: bool) -> str:
        message_id = uuid4().hex

        def attempt() -> None:
            with self.tracer.request("queue.publish", phase, name, overhead=overhead) as span:
                span.etag = message_id
                send(name, message_id, body)
                span.bytes = len(body)

        self._retried(attempt)
        return message_id

    def _take(
        self, queue: str, deadline: float, phase: str, overhead: bool | Callable[[bytes], bool]
    ) -> Delivery | None:
        with self.tracer.request("queue.deliver", phase, queue, overhead=True) as span:
            delivery = self._broker.take(queue)
            if delivery is not None:
                _delivered(span, delivery, overhead)
                return delivery
            # From here on it is waiting, and whatever comes of that is told by an event of its own.
            span.op, span.phase, span.resource, span.requests = "wait", "wait", "", 0
            left = deadline - time.monotonic()
            delivery = self._broker.wait(queue, left) if left > 0 else None
        if delivery is not None:
            with self.tracer.request("queue.deliver", phase, queue, overhead=True) as span:
                _delivered(span, delivery, overhead)
        return delivery

    def _manage(self, op: str, name: str, request: Callable[[], T], phase: str = "other") -> T:
        def attempt() -> T:
            with self.tracer.request(op, phase, name, overhead=True):
                return request()

        return self._retried(attempt)

    def _retried(self, request: Callable[[], T]) -> T:
        for delay_s in RETRY_DELAYS_S:
            try:
                return request()
            except ConnectionLost:
                self.pause(delay_s)
        return request()


def _delivered(span: Span, delivery: Delivery, overhead: bool | Callable[[bytes], bool]) -> None:
    span.bytes = len(delivery.body)
    span.etag = delivery.id
    span.overhead = overhead(delivery.body) if callable(overhead) else overhead


def open_queues(url: str, tracer: Tracer, sleep: Callable[[float], None] = time.sleep) -> Queues:
    """The queues at `amqp(s)://user:password@host:port/vhost` or `redis(s)://:password@host:port`.

    Connects when first used. ValueError for any other address.
    """
    scheme = url.partition("://")[0]
    if scheme in ("amqp", "amqps"):
        from slslab_workers.queues.rabbitmq import RabbitMQ

        return Queues(RabbitMQ(url), tracer, sleep)
    if scheme in ("redis", "rediss"):
        from slslab_workers.queues.lists import RedisLists

        return Queues(RedisLists(url), tracer, sleep)
    raise ValueError(f"A queue's address begins with amqp:// or redis://, not {scheme}://.")
