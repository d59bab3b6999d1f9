"""A message broker in memory; see `slslab_workers.channels.queues.broker.Broker`."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.memory.clock import Clock, wait_until
from tests.memory.stores import Wait

from slslab_workers.channels.queues.broker import Message, NoQueue

# A message's id and body.
Sent = tuple[str, bytes]


@dataclass
class Queue:
    """Messages that are ready to be taken, and what wakes those who wait for one."""

    ready: deque[Sent] = field(default_factory=deque)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def wake(self) -> None:
        """Wake all who wait: each looks what there is for it."""
        woken, self.waiting = self.waiting, []
        for wake in woken:
            wake()


@dataclass
class Server:
    """Queues, and exchanges with the names of the queues that are bound to them."""

    queues: dict[str, Queue] = field(default_factory=dict)
    exchanges: dict[str, list[str]] = field(default_factory=dict)


class Connection:
    """A connection to the server; what it has taken and not acknowledged is delivered again when it closes."""

    def __init__(self, server: Server, clock: Clock, wait: Wait) -> None:
        self._server = server
        self._clock = clock
        self._wait = wait
        self._held: list[tuple[str, Sent]] = []

    def declare(self, queue: str) -> None:
        self._wait()
        self._server.queues.setdefault(queue, Queue())

    def bind(self, queue: str, exchange: str) -> None:
        self._wait()
        self._queue(queue)
        self._server.exchanges.setdefault(exchange, []).append(queue)

    def publish(self, queue: str, message_id: str, body: bytes) -> None:
        self._wait()
        self._put(queue, (message_id, body))
        self._wait()

    def fan_out(self, exchange: str, message_id: str, body: bytes) -> None:
        self._wait()
        if exchange not in self._server.exchanges:
            raise NoQueue(f"No queue takes a message to {exchange}.")
        for queue in self._server.exchanges[exchange]:
            self._put(queue, (message_id, body))
        self._wait()

    def take(self, queue: str) -> Message | None:
        self._wait()
        return self._taken(queue)

    def wait(self, queue: str, timeout_s: float) -> Message | None:
        until_s = self._clock.monotonic() + timeout_s
        while (message := self._taken(queue)) is None:
            left_s = until_s - self._clock.monotonic()
            if left_s <= 0:
                return None
            wait_until(self._clock, left_s, self._queue(queue).waiting.append)
        return message

    def delete(self, queue: str) -> None:
        self._wait()
        for exchange, bound in list(self._server.exchanges.items()):
            self._server.exchanges[exchange] = [name for name in bound if name != queue]
            if not self._server.exchanges[exchange]:
                del self._server.exchanges[exchange]
        if queue in self._server.queues:
            self._server.queues.pop(queue).wake()

    def delete_exchange(self, exchange: str) -> None:
        self._wait()
        self._server.exchanges.pop(exchange, None)

    def close(self) -> None:
        for name, sent in reversed(self._held):
            if name in self._server.queues:
                self._server.queues[name].ready.appendleft(sent)
                self._server.queues[name].wake()
        self._held.clear()

    def _queue(self, name: str) -> Queue:
        if name not in self._server.queues:
            raise NoQueue(f"Queue {name} doesn't exist.")
        return self._server.queues[name]

    def _put(self, name: str, sent: Sent) -> None:
        queue = self._queue(name)
        queue.ready.append(sent)
        queue.wake()

    def _taken(self, name: str) -> Message | None:
        queue = self._queue(name)
        if not queue.ready:
            return None
        held = name, queue.ready.popleft()
        self._held.append(held)
        return Message(*held[1], partial(self._acknowledge, held))

    def _acknowledge(self, held: tuple[str, Sent]) -> None:
        if held in self._held:
            self._held.remove(held)
