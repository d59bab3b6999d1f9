"""The interface between `Queues` and a message broker, implemented by `rabbitmq.py` and `lists.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class QueueError(RuntimeError):
    """The broker refused, or can't be reached."""


class NoQueue(QueueError):
    """The queue doesn't exist, or no queue is bound to the exchange."""


class ConnectionLost(QueueError):
    """The connection ended. Unacknowledged messages are delivered again, and the next call reconnects."""


@dataclass(frozen=True)
class Message:
    """A message taken from a queue. Until `ack`, it is delivered again if this consumer ends.

    `ack` raises QueueError if the consumer's connection has ended, so that the message is delivered again.
    """

    id: str
    body: bytes
    ack: Callable[[], None]


class Broker(Protocol):
    """One connection to a broker, opened when needed; `Queues` has the same calls and says what they do.

    Every call may raise NoQueue and ConnectionLost.
    """

    def declare(self, queue: str) -> None: ...
    def bind(self, queue: str, exchange: str) -> None: ...
    def publish(self, queue: str, message_id: str, body: bytes) -> None: ...
    def fan_out(self, exchange: str, message_id: str, body: bytes) -> None: ...
    def take(self, queue: str) -> Message | None:
        """Take the first message that is ready, or None."""

    def wait(self, queue: str, timeout_s: float) -> Message | None:
        """Wait up to `timeout_s` seconds for the first message and take it; None without one."""

    def delete(self, queue: str) -> None: ...
    def delete_exchange(self, exchange: str) -> None: ...
    def close(self) -> None: ...
