"""The end of a poller, at a queue that answers when the test says so."""

import asyncio
import json
import threading
from typing import Any

from slslab.lambda_.event_sources import QueuePoller, new_mapping
from slslab.lambda_.references import Reference

JOBS = "arn:aws:sqs:us-east-1:000000000000:jobs"
LIMIT_S = 60


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
        message = {"MessageId": "m", "ReceiptHandle": "receipt", "Body": "late", "MD5OfBody": "digest"}
        return [{**message, "MessageAttributes": {"kind": {"DataType": "String", "StringValue": "ü"}}}]

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
            new_mapping(JOBS, Reference("f"), {"MaximumBatchingWindowInSeconds": 20}),
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
            new_mapping(JOBS, Reference("f"), {}),
        )
        assert await asyncio.to_thread(queue.waiting.wait, LIMIT_S)
        queue.sent.set()
        await poller.close()

    asyncio.run(end())
    # Each poll lasts a second here. AWS makes five at once, of 20 s.
    assert billed == [0] * (queue.polls // 4)
