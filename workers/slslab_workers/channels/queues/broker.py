"""What `Queues` asks of a message broker, implemented by `rabbitmq.py` and `lists.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class QueueError(RuntimeError):
    """The broker refused, or cannot be reached."""


class NoQueue(QueueError):
    """The queue does not exist, or no queue is bound to the exchange."""


class ConnectionLost(QueueError):
    """The connection ended: messages not acknowledged are delivered again, and the next call connects anew."""


@dataclass(frozen=True)
class Message:
    """A message that was taken from a queue; until `ack`, it is delivered again if this consumer ends.

    `ack` raises QueueError if the consumer's connection has ended, so that the message is delivered again.
    """

    id: str
    body: bytes
    ack: Callable[[], None]


class Broker(Protocol):
    """One connection to a broker, made when first needed. Every call may raise NoQueue and ConnectionLost."""

    def declare(self, queue: str) -> None:
        """Make a durable queue, unless it is there."""

    def bind(self, queue: str, exchange: str) -> None:
        """Bind the queue to the exchange, which exists from its first to its last binding."""

    def publish(self, queue: str, message_id: str, body: bytes) -> None:
        """Return when the broker has the message."""

    def fan_out(self, exchange: str, message_id: str, body: bytes) -> None:
        """Return when every bound queue has the message; NoQueue if none is bound."""

    def take(self, queue: str) -> Message | None:
        """Return the first message if there is one now."""

    def wait(self, queue: str, timeout_s: float) -> Message | None:
        """Return the first message as soon as there is one, None after `timeout_s` seconds."""

    def count(self, queue: str) -> int:
        """Return how many messages are ready to be taken."""

    def purge(self, queue: str) -> None:
        """Delete the messages that are ready; those taken and not acknowledged stay."""

    def delete(self, queue: str) -> None:
        """Delete the queue with its messages and bindings, if it is there."""

    def delete_exchange(self, exchange: str) -> None:
        """Delete the exchange, if it is there; its queues stay."""

    def close(self) -> None:
        """End the connection; messages that were taken and not acknowledged are delivered again."""
