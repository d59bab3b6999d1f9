"""The broker over lists of a Redis-compatible server, for stacks without RabbitMQ.

A queue is a list of messages (32 bytes of id, then the body), an exchange the set of its queues' names. A consumer
moves the message that it takes to its own list, so that it isn't lost if the consumer fails: other consumers of the
queue put back the messages of connections that have ended. Messages last as long as the server. An acknowledgement
sends the message's text again, by which the server finds it in the list.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import redis
import redis.backoff
import redis.retry

from slslab_workers.channels.queues.broker import ConnectionLost, Message, NoQueue, QueueError

QUEUES = "queues"
ID_BYTES = 32
# How often a waiting consumer looks for ended connections, s; it can't wait for such an event.
LOOK_S = 1.0
ANSWER_S = 10.0


class RedisLists:
    """A broker (see `Broker`) at a `redis://:password@host:port` address."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None
        self._id = 0
        # Queues with messages that this connection may hold.
        self._held: set[str] = set()

    def declare(self, queue: str) -> None:
        with self._connected() as client:
            client.sadd(QUEUES, queue)

    def bind(self, queue: str, exchange: str) -> None:
        with self._connected() as client:
            self._require(client, queue)
            client.sadd(_bindings(queue), exchange)
            client.sadd(_exchange(exchange), queue)

    def publish(self, queue: str, message_id: str, body: bytes) -> None:
        with self._connected() as client:
            client.rpush(_ready(queue), message_id.encode() + body)
            if self._take_back(client, [queue]):
                raise NoQueue(f"Queue {queue} doesn't exist.")

    def fan_out(self, exchange: str, message_id: str, body: bytes) -> None:
        with self._connected() as client:
            queues = sorted(queue.decode() for queue in client.smembers(_exchange(exchange)))
            if not queues:
                raise NoQueue(f"No queue takes a message to {exchange}.")
            with client.pipeline(transaction=True) as together:
                for queue in queues:
                    together.rpush(_ready(queue), message_id.encode() + body)
                together.execute()
            self._take_back(client, queues)

    def take(self, queue: str) -> Message | None:
        with self._connected() as client:
            self._hold(client, queue)
            stored = client.lmove(_ready(queue), _taken(queue, self._id), "LEFT", "RIGHT")
            if stored is None:
                self._require(client, queue)
                return None
            return self._message(queue, stored)

    def wait(self, queue: str, timeout_s: float) -> Message | None:
        deadline = time.monotonic() + timeout_s
        with self._connected() as client:
            self._hold(client, queue)
            while True:
                _put_back_lost(client, queue)
                self._require(client, queue)
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                stored = client.blmove(_ready(queue), _taken(queue, self._id), min(left, LOOK_S), "LEFT", "RIGHT")
                if stored is not None:
                    return self._message(queue, stored)

    def delete(self, queue: str) -> None:
        with self._connected() as client:
            client.srem(QUEUES, queue)
            for exchange in client.smembers(_bindings(queue)):
                client.srem(_exchange(exchange.decode()), queue)
            for holder in client.smembers(_holders(queue)):
                client.delete(_taken(queue, int(holder)))
            client.delete(_ready(queue), _bindings(queue), _holders(queue))
            self._held.discard(queue)

    def delete_exchange(self, exchange: str) -> None:
        with self._connected() as client:
            for queue in client.smembers(_exchange(exchange)):
                client.srem(_bindings(queue.decode()), exchange)
            client.delete(_exchange(exchange))

    def close(self) -> None:
        if self._client is not None:
            # Otherwise the next consumer puts its messages back.
            with suppress(ConnectionLost), self._connected() as client:
                for queue in self._held:
                    _put_back(client, queue, self._id)
        self._drop()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            if self._client is None:
                self._connect()
            yield self._client
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            self._drop()
            raise ConnectionLost(f"The connection to the queue's server broke: {error}.") from error
        except redis.RedisError as error:
            raise QueueError(f"The queue's server refused: {error}.") from error

    def _connect(self) -> None:
        # A retry of redis-py would open a new connection, which counts as another consumer.
        self._client = redis.Redis.from_url(
            self._url,
            single_connection_client=True,
            protocol=2,
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            socket_keepalive=True,
        )
        self._id = int(self._client.client_id())
        self._held = set()

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _require(self, client: Any, queue: str) -> None:
        if not client.sismember(QUEUES, queue):
            raise NoQueue(f"Queue {queue} doesn't exist.")

    @staticmethod
    def _take_back(client: Any, queues: Sequence[str]) -> list[str]:
        """Remove new messages from queues that don't exist any more, and return these queues."""
        there = client.smembers(QUEUES)
        gone = [queue for queue in queues if queue.encode() not in there]
        if gone:
            client.delete(*map(_ready, gone))
        return gone

    def _hold(self, client: Any, queue: str) -> None:
        """Record in advance that this connection may hold messages of the queue."""
        if queue not in self._held:
            client.sadd(_holders(queue), self._id)
            try:
                self._require(client, queue)
            except NoQueue:
                client.srem(_holders(queue), self._id)
                raise
            self._held.add(queue)

    def _message(self, queue: str, stored: bytes) -> Message:
        holder = self._id

        def ack() -> None:
            if self._client is None or self._id != holder:
                raise ConnectionLost("The message can no longer be acknowledged: its connection ended.")
            with self._connected() as client:
                client.lrem(_taken(queue, holder), 1, stored)

        return Message(stored[:ID_BYTES].decode(), stored[ID_BYTES:], ack)


def _ready(queue: str) -> str:
    return f"queue:{queue}"


def _taken(queue: str, holder: int) -> str:
    return f"queue:{queue}:taken:{holder}"


def _holders(queue: str) -> str:
    return f"queue:{queue}:holders"


def _bindings(queue: str) -> str:
    return f"queue:{queue}:bindings"


def _exchange(exchange: str) -> str:
    return f"exchange:{exchange}"


def _put_back_lost(client: Any, queue: str) -> None:
    holders = {int(holder) for holder in client.smembers(_holders(queue))}
    if len(holders) > 1:
        for holder in sorted(holders - {int(entry["id"]) for entry in client.client_list()}):
            _put_back(client, queue, holder)


def _put_back(client: Any, queue: str, holder: int) -> None:
    # From the last one taken to the first, so that the queue begins with them in their published order.
    while client.lmove(_taken(queue, holder), _ready(queue), "RIGHT", "LEFT") is not None:
        pass
    client.srem(_holders(queue), holder)
