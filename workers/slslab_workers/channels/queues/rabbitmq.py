"""RabbitMQ through pika: durable queues, persistent messages, publisher confirms."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pika
import pika.exceptions
from pika.exchange_type import ExchangeType

from slslab_workers.channels.queues.broker import ConnectionLost, Message, NoQueue, QueueError

# A handler has one thread and answers heartbeats only while it waits for a message. So the interval is the longest time
# that a function can run: the server drops a connection after two silent intervals, which never happens to a running
# function, and pika answers in time while a function waits. TCP's keep-alive detects that the other machine is gone.
HEARTBEAT_S = 900
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 4}
# Give up if a server that lacks memory or disk blocks publishers for two minutes.
BLOCKED_S = 120
CONNECT_S = 10
NOT_FOUND = 404
BROKEN = (pika.exceptions.AMQPConnectionError, pika.exceptions.ChannelWrongStateError, OSError)

# pika would write errors, which are raised anyway, to the function's log with a traceback.
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
        # One for consuming and one for the rest: an error closes its channel, and messages taken through the consuming
        # channel would be delivered again.
        self._channels: dict[bool, Any] = {}

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

    def take(self, queue: str) -> Message | None:
        with self._channel(consuming=True) as channel:
            method, properties, body = channel.basic_get(queue)
            return None if method is None else self._message(channel, method, properties, body)

    def wait(self, queue: str, timeout_s: float) -> Message | None:
        arrived: list[Message] = []
        with self._channel(consuming=True) as channel:

            def arrive(_: Any, method: Any, properties: Any, body: bytes) -> None:
                arrived.append(self._message(channel, method, properties, body))

            # Only for this message: a lasting subscription would withhold messages from other consumers and from a
            # purge. A prefetch count of 1 means that only one message is on its way.
            subscription = channel.basic_consume(queue, arrive)
            deadline = time.monotonic() + timeout_s
            while not arrived and channel.consumer_tags and (left := deadline - time.monotonic()) > 0:
                self._connection.process_data_events(left)
            if not channel.consumer_tags:
                raise NoQueue(f"The queue {queue} was deleted.")
            channel.basic_cancel(subscription)
        return arrived[0] if arrived else None

    def delete(self, queue: str) -> None:
        with self._channel() as channel:
            channel.queue_delete(queue)

    def delete_exchange(self, exchange: str) -> None:
        with self._channel() as channel:
            channel.exchange_delete(exchange)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_open:
            with suppress(*BROKEN):
                connection.close()

    def _publish(self, exchange: str, queue: str, message_id: str, body: bytes) -> None:
        properties = pika.BasicProperties(message_id=message_id, delivery_mode=pika.DeliveryMode.Persistent.value)
        with self._channel() as channel:
            try:
                channel.basic_publish(exchange, queue, body, properties, mandatory=True)
            except pika.exceptions.UnroutableError:
                raise NoQueue(f"No queue takes a message to {exchange or queue}.") from None
            except pika.exceptions.NackError:
                raise QueueError(f"The server did not take a message to {exchange or queue}.") from None

    @contextmanager
    def _channel(self, consuming: bool = False) -> Iterator[Any]:
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
            self._channels = {}
        channel = self._channels.get(consuming)
        if channel is None or not channel.is_open:
            channel = self._channels[consuming] = self._connection.channel()
            if consuming:
                channel.basic_qos(prefetch_count=1)
            else:
                channel.confirm_delivery()
        return channel

    def _message(self, channel: Any, method: Any, properties: Any, body: bytes) -> Message:
        def ack() -> None:
            try:
                channel.basic_ack(method.delivery_tag)
            except BROKEN as error:
                raise ConnectionLost("The message can no longer be acknowledged: its connection ended.") from error

        return Message(properties.message_id or "", body, ack)
