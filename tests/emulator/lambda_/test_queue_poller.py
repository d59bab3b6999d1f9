"""The end of a poller, at a queue that answers when the test says so."""

import asyncio
import json
import threading
import time
from typing import Any

from slslab.lambda_.event_sources import AGAIN_S, QueuePoller, new_mapping

SOURCE = {"EventSourceArn": "arn:aws:sqs:us-east-1:000000000000:jobs", "FunctionName": "f"}
LIMIT_S = 60
MESSAGE = {
    **{"MessageId": "m", "ReceiptHandle": "receipt", "Body": "late", "MD5OfBody": "digest"},
    "MessageAttributes": {"kind": {"DataType": "String", "StringValue": "ü"}},
}


class Queue:
    """Has one message, which it gives to the poll that waits when it is sent."""

    def __init__(self) -> None:
        self.polls = 0
        self.waiting, self.sent, self.deleted = threading.Event(), threading.Event(), threading.Event()
        self.receipts: list[str] = []

    def receive(self, _most: int) -> list[dict[str, Any]]:
        self.polls += 1
        self.waiting.set()
        assert self.sent.wait(LIMIT_S)
        return [MESSAGE]

    def delete(self, receipts: list[str]) -> None:
        self.receipts += receipts
        self.deleted.set()


class Service:
    """Takes invocations, which all succeed."""

    class Response:
        function_error = None

    def __init__(self) -> None:
        self.bodies: list[str] = []

    async def invoke(self, _target: object, event: bytes, _trace: object) -> Response:
        self.bodies += [record["body"] for record in json.loads(event)["Records"]]
        return self.Response()


def test_a_poller_that_ends_waits_for_its_poll_and_processes_what_this_receives() -> None:
    queue, service = Queue(), Service()
    billed: list[int] = []

    async def end() -> None:
        poller = QueuePoller(
            queue,  # type: ignore[arg-type]
            service,  # type: ignore[arg-type]
            lambda: None,  # type: ignore[arg-type,return-value]
            billed.append,
            new_mapping({**SOURCE, "MaximumBatchingWindowInSeconds": 20}),
        )
        assert await asyncio.to_thread(queue.waiting.wait, LIMIT_S)
        closing = asyncio.create_task(poller.close())
        await asyncio.sleep(0)  # it has begun
        assert not closing.done(), "the message of a poll in progress would be lost"
        queue.sent.set()
        await closing
        assert await asyncio.to_thread(queue.deleted.wait, LIMIT_S)

    asyncio.run(end())
    assert (queue.polls, service.bodies, queue.receipts) == (1, ["late"], ["receipt"])
    assert billed == [len("late" + "kind" + "String") + 2, 0], "the message, and its deletion"


class Idle(Queue):
    """Answers twenty polls at once, without a message; then there are no more."""

    def receive(self, _most: int) -> list[dict[str, Any]]:
        self.polls += 1
        if self.polls > 20:
            self.waiting.set()
            assert self.sent.wait(LIMIT_S)
        return []


def test_an_idle_queue_costs_fifteen_requests_a_minute() -> None:
    queue, billed = Idle(), list[int]()

    async def end() -> None:
        poller = QueuePoller(
            queue,  # type: ignore[arg-type]
            Service(),  # type: ignore[arg-type]
            lambda: None,  # type: ignore[arg-type,return-value]
            billed.append,
            new_mapping(SOURCE),
        )
        assert await asyncio.to_thread(queue.waiting.wait, LIMIT_S)
        queue.sent.set()
        await poller.close()

    asyncio.run(end())
    # Each poll lasts a second here. AWS makes five at once, of 20 s.
    assert billed == [0] * (queue.polls // 4)


class Failing(Queue):
    """Gives a message, then fails once."""

    def __init__(self) -> None:
        super().__init__()
        self.polled_s: list[float] = []

    def receive(self, most: int) -> list[dict[str, Any]]:
        self.polled_s.append(time.monotonic())
        if len(self.polled_s) == 2:
            raise OSError("no answer")
        return [MESSAGE] if len(self.polled_s) == 1 else super().receive(most)


class Slow(Service):
    """Its invocations end while the poller pauses."""

    async def invoke(self, target: object, event: bytes, trace: object) -> Service.Response:
        await asyncio.sleep(AGAIN_S / 5)
        return await super().invoke(target, event, trace)


def test_a_batch_that_ends_does_not_shorten_the_pause_after_a_failed_poll() -> None:
    queue = Failing()

    async def end() -> None:
        poller = QueuePoller(
            queue,  # type: ignore[arg-type]
            Slow(),  # type: ignore[arg-type]
            lambda: None,  # type: ignore[arg-type,return-value]
            lambda _size: None,
            new_mapping({**SOURCE, "BatchSize": 1}),
        )
        assert await asyncio.to_thread(queue.waiting.wait, LIMIT_S)
        queue.sent.set()
        await poller.close()

    asyncio.run(end())
    assert queue.polled_s[2] - queue.polled_s[1] >= 0.99 * AGAIN_S
