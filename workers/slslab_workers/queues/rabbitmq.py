"""RabbitMQ through pika: durable queues, persistent messages, publisher confirms."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pika.exceptions
from pika.exchange_type import ExchangeType

from slslab_workers.queues.broker import ConnectionLost, Delivery, NoQueue, QueueError

# A handler has one thread and answers heartbeats only while it waits for a message. So the interval is the longest time
# that a function can compute: the server drops a connection after two silent intervals, which no live function reaches,
# and pika answers in time while a function waits. That the other machine is gone is for TCP to notice.
HEARTBEAT_S = 900
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 4}
# A server that has no memory or disk left for two minutes has none.
BLOCKED_S = 120
CONNECT_S = 10
NOT_FOUND = 404
BROKEN = (pika.exceptions.AMQPConnectionError, pika.exceptions.ChannelWrongStateError, OSError)

# What goes wrong is raised; pika's log would tell it a second time, with a traceback, in the function's own log.
logging.getLogger("pika").setLevel(logging.CRITICAL)


class RabbitMQ:
    """A broker (see `Broker`) at an `amqp://user:password@host:port/vhost` address."""

    def __init__(self, url: str) -> None:
        self._parameters = pika.URLParameters(url)
        self._parameters.heartbeat = HEARTBEAT_S
        self._parameters.blocked_connection_timeout = BLOCKED_S
        self._parameters.socket_timeout = self._parameters.stack_timeout = CONNECT_S
        self._parameters.tcp_options = KEEPALIVE
        self._connection: Any = None
        # Of their own, because an error closes a channel, and what the consuming one holds would be delivered again.
        self._publishing: Any = None
        self._consuming: Any = None

    def declare(self, queue: str) -> None:
        with self._channel() as channel:
            channel.queue_declare(queue, durable=True)

    def bind(self, queue: str, exchange: str) -> None:
        with self._channel() as channel:
            channel.exchange_declare(exchange, ExchangeType.fanout, durable=True, auto_delete=True)
            channel.queue_bind(queue, exchange)

    def publish(self, queue: str, message_id: str, body: bytes) -> None:
        self._publish("", queue, message_id, body)

    def fan_out(self, exchange: str, message_id: str, body: bytes) -> None:
        self._publish(exchange, "", message_id, body)

    def take(self, queue: str) -> Delivery | None:
        with self._channel(consuming=True) as channel:
            method, properties, body = channel.basic_get(queue)
            return None if method is None else self._delivery(channel, method, properties, body)

    def wait(self, queue: str, timeout_s: float) -> Delivery | None:
        arrived: list[Delivery] = []
        with self._channel(consuming=True) as channel:

            def arrive(_: Any, method: Any, properties: Any, body: bytes) -> None:
                arrived.append(self._delivery(channel, method, properties, body))

            # For this one message: a subscription that stayed would keep messages that others could have, and that a
            # purge would no longer find. With a prefetch count of 1, no more than one is on its way.
            subscription = channel.basic_consume(queue, arrive)
            self._wait_until(lambda: bool(arrived) or not channel.consumer_tags, timeout_s)
            if not channel.consumer_tags:
                raise NoQueue(f"The queue {queue} was deleted.")
            channel.basic_cancel(subscription)
        return arrived[0] if arrived else None

    def count(self, queue: str) -> int:
        with self._channel() as channel:
            count: int = channel.queue_declare(queue, passive=True).method.message_count
            return count

    def purge(self, queue: str) -> None:
        with self._channel() as channel:
            channel.queue_purge(queue)

    def delete(self, queue: str) -> None:
        with self._channel() as channel:
            channel.queue_delete(queue)

    def delete_exchange(self, exchange: str) -> None:
        with self._channel() as channel:
            channel.exchange_delete(exchange)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_open:
            try:
                connection.close()
            except BROKEN:
                return  # which is as closed as it can be

    def _publish(self, exchange: str, queue: str, message_id: str, body: bytes) -> None:
        properties = pika.BasicProperties(message_id=message_id, delivery_mode=pika.DeliveryMode.Persistent.value)
        with self._channel() as channel:
            try:
                channel.basic_publish(exchange, queue, body, properties, mandatory=True)
            except pika.exceptions.UnroutableError:
                raise NoQueue(f"No queue takes a message to {exchange or queue}.") from None
            except pika.exceptions.NackError:
                raise QueueError(f"The server did not take a message to {exchange or queue}.") from None

    def _wait_until(self, ended: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not ended() and (left := deadline - time.monotonic()) > 0:
            self._connection.process_data_events(left)

    @contextmanager
    def _channel(self, consuming: bool = False) -> Iterator[Any]:
        """The open channel of this purpose, and pika's errors as ours."""
        try:
            yield self._open(consuming)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code == NOT_FOUND:
                raise NoQueue(f"{error.reply_text}.") from None
            raise QueueError(f"RabbitMQ refused: {error.reply_text}.") from error
        except BROKEN as error:
            self.close()
            raise ConnectionLost(f"The connection to RabbitMQ broke: {str(error) or repr(error)}.") from error

    def _open(self, consuming: bool) -> Any:
        if self._connection is None or not self._connection.is_open:
            self._connection = pika.BlockingConnection(self._parameters)
            self._publishing = self._consuming = None
        if consuming:
            if self._consuming is None or not self._consuming.is_open:
                self._consuming = self._connection.channel()
                self._consuming.basic_qos(prefetch_count=1)
            return self._consuming
        if self._publishing is None or not self._publishing.is_open:
            self._publishing = self._connection.channel()
            self._publishing.confirm_delivery()
        return self._publishing

    def _delivery(self, channel: Any, method: Any, properties: Any, body: bytes) -> Delivery:
        def acknowledge() -> None:
            try:
                channel.basic_ack(method.delivery_tag)
            except BROKEN as error:
                raise ConnectionLost("The message can no longer be acknowledged: its connection ended.") from error

        return Delivery(properties.message_id or "", body, acknowledge)
