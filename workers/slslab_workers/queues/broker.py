"""What a message broker must do for `Queues`; `rabbitmq.py` and `lists.py` do it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class QueueError(RuntimeError):
    """The broker refused, or cannot be reached."""


class NoQueue(QueueError):
    """There is no such queue, or no queue is bound to the exchange."""


class ConnectionLost(QueueError):
    """The connection ended; what it had not acknowledged is delivered again, and a new call connects anew."""


@dataclass(frozen=True)
class Delivery:
    """A message that a consumer took, and how it is acknowledged."""

    id: str
    body: bytes
    acknowledge: Callable[[], None]


class Broker(Protocol):
    """One connection to a broker, made when first needed. Every call may raise NoQueue and ConnectionLost."""

    def declare(self, queue: str) -> None:
        """Have a durable queue; nothing changes if it is there."""

    def bind(self, queue: str, exchange: str) -> None:
        """Have the queue get what is fanned out to the exchange, which lives from its first to its last binding."""

    def publish(self, queue: str, message_id: str, body: bytes) -> None:
        """Return when the broker has the message."""

    def fan_out(self, exchange: str, message_id: str, body: bytes) -> None:
        """Return when every bound queue has the message; NoQueue if none is bound."""

    def take(self, queue: str) -> Delivery | None:
        """The first message if there is one now."""

    def wait(self, queue: str, timeout_s: float) -> Delivery | None:
        """The first message as soon as there is one, None after `timeout_s` seconds."""

    def count(self, queue: str) -> int:
        """Messages that are ready to be taken."""

    def purge(self, queue: str) -> None:
        """Drop the messages that are ready; those taken and not acknowledged stay."""

    def delete(self, queue: str) -> None:
        """Drop the queue with its messages and bindings, if it is there."""

    def delete_exchange(self, exchange: str) -> None:
        """Drop the exchange, if it is there; its queues stay."""

    def close(self) -> None:
        """End the connection; what is taken and not acknowledged is delivered again."""
