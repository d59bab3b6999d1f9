"""Both brokers keep the same contract: nothing is lost, nothing doubled but by a death, and every message is traced."""

import json
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from tests.workers.conftest import Client, Connect

from slslab.run.log import LOG, TraceWriter, compact
from slslab.run.metrics import protocol
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.queues import QUEUE, NoQueue, QueueError, Queues, open_queues, scoped
from slslab_workers.channels.queues.broker import ConnectionLost, Message
from slslab_workers.channels.queues.lists import QUEUES

pytestmark = pytest.mark.server

PHASE = "synchronise"
PATIENCE_S = 20.0


class Relay:
    """A server in front of a broker that can cut connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self._target = ("127.0.0.1", parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = url.replace(f":{parts.port}", f":{port}")
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)

    def cut(self) -> None:
        """End every connection."""
        while self._sockets:
            connection = self._sockets.pop()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        """End everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()


@pytest.fixture
def relay(broker: str) -> Iterator[Relay]:
    """A relay to the broker."""
    with closing(Relay(broker)) as relay:
        yield relay


@pytest.fixture
def queue(connect: Connect, run: str) -> str:
    """A queue that is there."""
    name = scoped(run, "queue")
    connect().queues.declare(name)
    return name


def waits(client: Client) -> threading.Event:
    """Set once the client has found the queue empty and begins to wait."""
    begun, broker = threading.Event(), client.queues._broker
    wait = broker.wait

    def begin(queue: str, timeout_s: float) -> Message | None:
        begun.set()
        return wait(queue, timeout_s)

    broker.wait = begin  # type: ignore[method-assign]
    return begun


def take(client: Client, queue: str, timeout_s: float = PATIENCE_S) -> bytes:
    """The body of the next message, acknowledged."""
    message = client.queues.consume(queue, timeout_s, PHASE)
    assert message is not None
    message.ack()
    return message.body


@pytest.mark.parametrize("body", [b"", b"{}", bytes(range(256)) * 4096], ids=["0 B", "2 B", "1 MB"])
def test_a_body_comes_as_it_went(connect: Connect, queue: str, body: bytes) -> None:
    client = connect()
    sent = client.queues.publish(queue, body, PHASE)
    message = connect().queues.consume(queue, PATIENCE_S, PHASE)
    assert message is not None
    assert (message.id, message.body) == (sent, body)


def test_messages_come_in_the_order_of_their_publishing(connect: Connect, queue: str) -> None:
    client = connect()
    for number in range(20):
        client.queues.publish(queue, str(number).encode(), PHASE)
    assert [int(take(client, queue)) for _ in range(20)] == list(range(20))


def test_a_fan_out_is_one_publish_and_reaches_every_bound_queue(connect: Connect, run: str) -> None:
    client, exchange = connect(), scoped(run, "exchange")
    names = [scoped(run, f"worker{rank}") for rank in range(4)]
    for name in names:
        client.queues.declare(name)
    for name in names[:3]:
        client.queues.bind(name, exchange)
    sent = client.queues.fan_out(exchange, b"update", PHASE, overhead=False)
    for name in names[:3]:
        message = client.queues.consume(name, PATIENCE_S, PHASE, overhead=False)
        assert message is not None
        assert (message.id, message.body) == (sent, b"update")
    assert client.queues.consume(names[3], 0, PHASE) is None
    published = client.told("queue.publish")
    assert [(event["requests"], event["bytes"], event["resource"]) for event in published] == [(1, 6, exchange)]
    assert protocol(client.events)["counts"] == {"queue.publish": 1, "queue.deliver": 3}


def test_a_time_out_is_a_wait_and_no_delivery(connect: Connect, queue: str) -> None:
    client = connect()
    assert client.queues.consume(queue, 0.2, PHASE, overhead=False) is None
    (event,) = client.events
    assert (event["op"], event["phase"], event["requests"], event["overhead"]) == ("wait", "wait", 0, True)
    assert event["end_ns"] - event["start_ns"] >= 190_000_000
    # Nobody subscribes behind the caller's back: the message is there for whoever comes.
    client.queues.publish(queue, b"later", PHASE)
    assert take(connect(), queue) == b"later"
    assert client.queues.consume(queue, 0, PHASE) is None


def test_a_wait_ends_with_the_message_and_both_are_told(connect: Connect, queue: str) -> None:
    consumer, producer = connect(0), connect(1)
    begun = waits(consumer)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.queues.consume, queue, PATIENCE_S, PHASE, overhead=False)
        assert begun.wait(PATIENCE_S)
        producer.queues.publish(queue, b"body", PHASE, overhead=False)
        message = waiting.result()
    assert message is not None
    wait, delivery = consumer.events
    assert (wait["op"], wait["phase"], delivery["op"], delivery["phase"]) == ("wait", "wait", "queue.deliver", PHASE)
    assert wait["end_ns"] <= delivery["start_ns"]
    assert (delivery["etag"], delivery["bytes"], delivery["overhead"]) == (message.id, 4, False)


def test_whether_a_delivery_is_protocol_can_depend_on_its_body(connect: Connect, queue: str) -> None:
    client = connect()
    for body in (b"I", b"debug", b"I"):
        client.queues.publish(queue, body, PHASE)
        client.queues.consume(queue, PATIENCE_S, PHASE, overhead=lambda taken: taken != b"I")
    assert [event["overhead"] for event in client.told("queue.deliver")] == [False, True, False]


def test_the_awaited_content_is_taken_with_what_came_before_it(connect: Connect, queue: str) -> None:
    client = connect()
    for step in (0, 1, 2, 3):
        client.queues.publish(queue, json.dumps({"step": step}).encode(), PHASE)
    assert client.queues.await_content(queue, PATIENCE_S, PHASE, lambda content: content["step"] == 2) == {"step": 2}
    assert [event["overhead"] for event in client.told("queue.deliver")] == [True, True, False]
    client.queues.close()
    other = connect()
    assert take(other, queue) == b'{"step": 3}', "the others were acknowledged"
    began = time.monotonic()
    assert other.queues.await_content(queue, 0.2, PHASE, lambda _content: True) is None
    assert time.monotonic() - began >= 0.19


def test_what_was_not_acknowledged_comes_again_in_its_place(connect: Connect, queue: str) -> None:
    client, other = connect(), connect()
    for number in range(5):
        client.queues.publish(queue, str(number).encode(), PHASE)
    taken = [client.queues.consume(queue, PATIENCE_S, PHASE) for _ in range(4)]
    for message in (taken[2], taken[0]):
        assert message is not None
        message.ack()
    third = connect()
    ready = third.queues.consume(queue, 0, PHASE)
    assert ready is not None
    assert (ready.body, third.queues.consume(queue, 0, PHASE)) == (b"4", None)
    third.queues.close()
    client.queues.close()
    assert [take(other, queue) for _ in range(3)] == [b"1", b"3", b"4"]
    assert other.queues.consume(queue, 0, PHASE) is None


def test_a_killed_consumers_messages_go_to_the_one_that_waits(broker: str, connect: Connect, queue: str) -> None:
    script = f"""
        import sys, time
        from slslab_workers.channels.events import Tracer
        from slslab_workers.channels.queues import open_queues
        queues = open_queues({broker!r}, Tracer(lambda event: None))
        assert queues.consume({queue!r}, 20, "other") is not None
        print("taken", flush=True)
        time.sleep(600)
    """
    client = connect()
    client.queues.publish(queue, b"mine", PHASE)
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"taken\n"
            begun = waits(client)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(take, client, queue)
                assert begun.wait(PATIENCE_S)
                process.kill()
                assert waiting.result() == b"mine"
        finally:
            process.kill()


def test_queues_outlive_their_connections(connect: Connect, run: str) -> None:
    first, name = connect(), scoped(run, "durable")
    first.queues.declare(name)
    first.queues.bind(name, scoped(run, "all"))
    first.queues.fan_out(scoped(run, "all"), b"kept", PHASE)
    first.queues.close()
    second = connect()
    second.queues.declare(name)
    second.queues.fan_out(scoped(run, "all"), b"bound", PHASE)
    assert [take(second, name), take(second, name)] == [b"kept", b"bound"]


def test_a_queue_that_is_not_there_is_an_error(connect: Connect, run: str, queue: str) -> None:
    client, absent, exchange = connect(), scoped(run, "absent"), scoped(run, "exchange")
    calls: list[Callable[[], Any]] = [
        lambda: client.queues.publish(absent, b"", PHASE, overhead=False),
        lambda: client.queues.fan_out(exchange, b"", PHASE, overhead=False),
        lambda: client.queues.consume(absent, 0, PHASE),
        lambda: client.queues.consume(absent, PATIENCE_S, PHASE),
        lambda: client.queues.bind(absent, exchange),
    ]
    for call in calls:
        with pytest.raises(NoQueue):
            call()
    assert [event["failed"] and event["overhead"] for event in client.events] == [True] * len(calls)
    # An error costs nothing but itself; to delete what is not there is none.
    client.queues.delete(absent)
    client.queues.delete_exchange(exchange)
    client.queues.publish(queue, b"after", PHASE)
    assert take(client, queue) == b"after"


def test_an_exchange_ends_with_its_last_queue_or_when_it_is_deleted(connect: Connect, run: str) -> None:
    client, exchange = connect(), scoped(run, "exchange")
    names = [scoped(run, str(number)) for number in range(2)]
    for name in names:
        client.queues.declare(name)
        client.queues.bind(name, exchange)
    client.queues.delete(names[0])
    client.queues.fan_out(exchange, b"x", PHASE)
    client.queues.delete(names[1])
    with pytest.raises(NoQueue):
        client.queues.fan_out(exchange, b"x", PHASE)
    client.queues.declare(names[0])
    assert client.queues.consume(names[0], 0, PHASE) is None
    client.queues.bind(names[0], exchange)
    client.queues.delete_exchange(exchange)
    with pytest.raises(NoQueue):
        client.queues.fan_out(exchange, b"x", PHASE)
    client.queues.publish(names[0], b"y", PHASE)
    assert take(client, names[0]) == b"y"


def test_who_waits_at_a_queue_that_is_deleted_is_told(connect: Connect, queue: str) -> None:
    client = connect()
    begun = waits(client)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.queues.consume, queue, PATIENCE_S, PHASE)
        assert begun.wait(PATIENCE_S)
        connect().queues.delete(queue)
        with pytest.raises(NoQueue):
            waiting.result()


@pytest.mark.parametrize("broker", ["lists"], indirect=True)
def test_who_comes_after_a_queue_was_deleted_leaves_no_keys(
    connect: Connect, broker: str, run: str, queue: str
) -> None:
    """A worker of a run that has failed may come late, and in the middle of a deletion, too."""
    exchange = scoped(run, "exchange")
    connect().queues.bind(queue, exchange)
    with closing(redis.Redis.from_url(broker, protocol=2)) as server:
        server.srem(QUEUES, queue)  # what a deletion does first
        late = connect()
        late.queues.fan_out(exchange, b"late", PHASE)
        calls: list[Callable[[], Any]] = [
            lambda: late.queues.publish(queue, b"late", PHASE),
            lambda: late.queues.consume(queue, 0, PHASE),
            lambda: late.queues.consume(queue, PATIENCE_S, PHASE),
        ]
        for call in calls:
            with pytest.raises(NoQueue):
                call()
        assert {name.decode() for name in server.scan_iter(f"*{queue}*")} == {f"queue:{queue}:bindings"}
        connect().queues.delete(queue)
        assert list(server.scan_iter(f"*{queue}*")) == []


def test_many_producers_and_consumers_lose_and_double_nothing(connect: Connect, queue: str) -> None:
    clients = [connect(worker) for worker in range(8)]

    def produce(worker: int) -> None:
        for number in range(40):
            clients[worker].queues.publish(queue, f"{worker}.{number}".encode(), PHASE, overhead=False)

    def consume(worker: int) -> list[bytes]:
        taken: list[bytes] = []
        while (message := clients[worker].queues.consume(queue, PATIENCE_S, PHASE, overhead=False)) is not None:
            message.ack()
            if message.body == b"end":
                return taken
            taken.append(message.body)
        raise AssertionError("a message is missing")

    with ThreadPoolExecutor(8) as pool:
        consumed = [pool.submit(consume, worker) for worker in range(4, 8)]
        list(pool.map(produce, range(4)))
        for worker in range(4):
            clients[worker].queues.publish(queue, b"end", PHASE)
        bodies = Counter(body for future in consumed for body in future.result())
    assert bodies == Counter(f"{worker}.{number}".encode() for worker in range(4) for number in range(40))
    events = [event for client in clients for event in client.events]
    assert protocol(events)["counts"] == {"queue.publish": 160, "queue.deliver": 164}


def test_a_delivery_is_caused_by_its_publish(connect: Connect, run: str, tmp_path: Path) -> None:
    driver, producer, consumers = connect(-1), connect(0), [connect(1), connect(2)]
    exchange, names = scoped(run, "exchange"), [scoped(run, "1"), scoped(run, "2")]
    for name in names:
        driver.queues.declare(name)
        driver.queues.bind(name, exchange)
    producer.queues.publish(names[0], b"one", PHASE, overhead=False)
    producer.queues.fan_out(exchange, b"all", PHASE, overhead=False)
    taken = [take(consumers[0], names[0]), take(consumers[0], names[0]), take(consumers[1], names[1])]
    assert taken == [b"one", b"all", b"all"]
    with TraceWriter(tmp_path / LOG, run) as writer:
        for client in (producer, *consumers):
            for event in client.events:
                writer.write({**event, "record": "event", "function": "f", "environment": str(event["worker"])})
    events = compact(tmp_path).events
    first, second = (event["event"] for event in events if event["op"] == "queue.publish")
    causes = [
        (event["worker"], {cause for cause in event["causes"] if events[cause]["op"] == "queue.publish"})
        for event in events
        if event["op"] == "queue.deliver"
    ]
    assert causes == [(1, {first}), (1, {second}), (2, {second})]


def test_a_cut_connection_is_made_anew_and_what_it_held_comes_again(connect: Connect, queue: str, relay: Relay) -> None:
    client = connect(url=relay.url)
    client.queues.publish(queue, b"held", PHASE, overhead=False)
    held = client.queues.consume(queue, PATIENCE_S, PHASE)
    assert held is not None
    relay.cut()
    sent = client.queues.publish(queue, b"second", PHASE, overhead=False)
    with pytest.raises(QueueError, match="no longer be acknowledged"):
        held.ack()
    assert Counter(take(client, queue) for _ in range(2)) == Counter([b"held", b"second"])
    assert client.queues.consume(queue, 0, PHASE) is None
    failed = [event for event in client.told("queue.publish") if event["failed"]]
    assert [(event["etag"], event["overhead"]) for event in failed] == [(sent, True)]
    assert protocol(client.events)["counts"] == {"queue.publish": 2}


def test_a_connection_that_is_cut_while_it_waits_waits_on(connect: Connect, queue: str, relay: Relay) -> None:
    client = connect(url=relay.url)
    begun = waits(client)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, client, queue)
        assert begun.wait(PATIENCE_S)
        relay.cut()
        connect().queues.publish(queue, b"body", PHASE)
        assert waiting.result() == b"body"


@pytest.mark.usefixtures("slept")
def test_nobody_there_is_one_clear_error(broker: str) -> None:
    with closing(Relay(broker)) as relay:
        url = relay.url
    queues = open_queues(url, Tracer(lambda _event: None))
    with pytest.raises(QueueError, match="The connection to"):
        queues.declare("queue")
    queues.close()


class Flaky:
    """A broker with a connection that breaks on demand, before or after the broker has the message."""

    def __init__(self, breaks: int) -> None:
        self.breaks = breaks
        self.sent: list[str] = []

    def publish(self, _queue: str, message_id: str, _body: bytes) -> None:
        self.sent.append(message_id)
        if len(self.sent) <= self.breaks:
            raise ConnectionLost("cut")

    def take(self, _queue: str) -> Message | None:
        return None

    def wait(self, _queue: str, _timeout_s: float) -> Message | None:
        raise ConnectionLost("cut")


def flaky(breaks: int) -> tuple[Flaky, Queues, list[dict[str, Any]]]:
    """Queues over a flaky broker, and their events."""
    broker, events = Flaky(breaks), []  # type: ignore[var-annotated]
    return broker, Queues(broker, Tracer(events.append)), events  # type: ignore[arg-type]


def test_attempts_have_one_id_and_the_last_alone_is_protocol(slept: list[float]) -> None:
    broker, queues, events = flaky(breaks=2)
    sent = queues.publish("queue", b"body", PHASE, overhead=False)
    assert broker.sent == [sent] * 3
    assert slept == [0.1, 0.4]
    told = [(event["op"], event["failed"], event["overhead"]) for event in events]
    lost, pause = ("queue.publish", True, True), ("wait", False, True)
    assert told == [lost, pause, lost, pause, ("queue.publish", False, False)]


@pytest.mark.usefixtures("slept")
def test_three_breaks_are_an_error() -> None:
    broker, queues, _ = flaky(breaks=3)
    with pytest.raises(QueueError, match="cut"):
        queues.publish("queue", b"body", PHASE)
    assert len(broker.sent) == 3


@pytest.mark.usefixtures("slept")
def test_a_wait_that_breaks_is_a_failed_wait() -> None:
    _, queues, events = flaky(breaks=0)
    with pytest.raises(QueueError, match="cut"):
        queues.consume("queue", PATIENCE_S, PHASE, overhead=False)
    assert {event["op"] for event in events} == {"wait"}
    assert all(event["overhead"] and event["requests"] == 0 for event in events)


def test_names_of_runs_and_epochs_differ() -> None:
    names = [scoped("a", "q"), scoped("b", "q"), scoped("a", "q", 0), scoped("a", "q", 1), scoped("a", "r", 1)]
    assert len(set(names)) == len(names)


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="amqp:// or redis://"):
        open_queues("http://127.0.0.1", Tracer(lambda _event: None))


def test_the_option_offers_both_kinds() -> None:
    assert (QUEUE.default, QUEUE.choices) == ("auto", ("auto", "rabbitmq", "embedded"))
