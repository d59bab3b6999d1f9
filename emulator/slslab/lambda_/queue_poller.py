"""Poll one queue: receive batches, invoke a function with each, and delete what it has processed.

https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html and services-sqs-errorhandling.html. Failed
and throttled messages stay in the queue until their visibility timeout, as on AWS. AWS then polls more slowly, which
isn't emulated. AWS bills the requests that move messages, and polls of an idle queue; both are reported.
"""

import asyncio
import base64
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from slslab.aws.arns import REGION
from slslab.aws.errors import ServiceError
from slslab.aws.limits import MB
from slslab.aws.queue_messages import message_bytes
from slslab.lambda_.attachments import EventSourceMapping
from slslab.lambda_.events import Response
from slslab.lambda_.functions import Target
from slslab.lambda_.invocation import InvocationService, new_trace_id
from slslab.lambda_.stack_client import StackClient

# documented: services-sqs-scaling.html: five batches at once, up to 300 more each minute, and 1,250 in all.
FIRST_AT_ONCE, MORE_PER_S, MOST_AT_ONCE = 5, 5, 1250
AGAIN_S = 1.0
# AWS asks an idle queue FIRST_AT_ONCE times at once, and waits 20 s for each answer: 15 requests a minute.
# assumed: services-sqs-scaling.html names long polls, and their length is the longest that SQS allows.
LONG_POLL_S = 20
LOG = logging.getLogger(__name__)
Message = dict[str, Any]


# documented: API_ReceiveMessage.html: at most ten messages.
MOST_MESSAGES = 10
# The length of a long poll, seconds. AWS allows 20, but a poll must not be interrupted: SQS doesn't notice that its
# client has gone, and still sends it the next message (reported for AWS: aws-sdk-java, issue 2083).
WAIT_S = 1
# Longer than the wait: a server that does not answer by then has a defect.
LIMIT_S = 60.0
# What a call raises if SQS refuses it (ClientError) or doesn't answer; ValueError for an endpoint that isn't a URL.
QUEUE_ERRORS = (ClientError, BotoCoreError, ValueError)


class QueueClient:
    """A queue of the stack by its name. Every call may raise one of QUEUE_ERRORS."""

    def __init__(self, stack: StackClient, name: str) -> None:
        self._stack = stack
        self._name = name

    def attributes(self) -> dict[str, str]:
        """Return the attributes of the queue."""
        found: dict[str, str] = self._call("get_queue_attributes", AttributeNames=["All"])["Attributes"]
        return found

    def receive(self, most: int) -> list[dict[str, Any]]:
        """Return up to ten messages, or an empty list after a second; binary attributes are Base64, as in events."""
        number = min(most, MOST_MESSAGES)
        every = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        answer = self._call("receive_message", MaxNumberOfMessages=number, WaitTimeSeconds=WAIT_S, **every)
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        for attribute in [each for message in messages for each in message.get("MessageAttributes", {}).values()]:
            if "BinaryValue" in attribute:
                attribute["BinaryValue"] = base64.b64encode(attribute["BinaryValue"]).decode()
        return messages

    def delete(self, receipts: list[str]) -> None:
        """Delete messages that were received."""
        for start in range(0, len(receipts), MOST_MESSAGES):
            chosen = receipts[start : start + MOST_MESSAGES]
            entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(chosen)]
            self._call("delete_message_batch", Entries=entries)

    @cached_property
    def _client(self) -> Any:
        return self._stack.client("sqs", read_timeout=LIMIT_S)

    @cached_property
    def _url(self) -> str:
        return str(self._client.get_queue_url(QueueName=self._name)["QueueUrl"])

    def _call(self, operation: str, **members: Any) -> dict[str, Any]:
        answer: dict[str, Any] = getattr(self._client, operation)(QueueUrl=self._url, **members)
        return answer


class QueuePoller:
    """Polls from its creation until `close`, on its own thread. Everything else runs on the creator's event loop.

    `target` returns what to invoke, with batches of up to the mapping's `batch_size` messages or 6 MB, gathered for up
    to `window_s` after the first. `on_poll` is called for each request that AWS would bill, with its bytes; a batch's
    requests follow its invocation. With `reports_failures` the function's answer names the messages that failed.
    """

    def __init__(
        self,
        queue: QueueClient,
        service: InvocationService,
        target: Callable[[], Target],
        on_poll: Callable[[int], None],
        mapping: EventSourceMapping,
    ) -> None:
        self._queue = queue
        self._service = service
        self._target = target
        self._on_poll = on_poll
        self._mapping = mapping
        self._most = mapping.most_concurrent or MOST_AT_ONCE
        # For how long the queue has been idle since the last billed request, s.
        self._idle_s = 0.0
        # Since when at least FIRST_AT_ONCE invocations have been running.
        self._busy_s: float | None = None
        self._closed = threading.Event()
        # Set when a batch has been processed, or the poller is closed.
        self._changed = asyncio.Event()
        self._batches: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, f"poller of {mapping.queue}")
        self._polling = self._loop.create_task(self._poll())

    async def close(self) -> None:
        """Wait for the current poll to end; messages that it has received are still processed."""
        self._closed.set()
        self._changed.set()
        await self._polling

    async def _poll(self) -> None:
        with self._thread:
            while await self._wait_for_place():
                try:
                    batch = await self._loop.run_in_executor(self._thread, self._gather)
                except Exception as error:  # whatever fails, the next poll may succeed
                    if not self._closed.is_set():
                        LOG.error("%s cannot be polled: %s", self._mapping.queue, error)
                        await self._loop.run_in_executor(self._thread, self._closed.wait, AGAIN_S)
                    continue
                if batch:
                    task = self._loop.create_task(self._process(batch))
                    self._batches.add(task)
                    task.add_done_callback(self._end)

    def _gather(self) -> list[Message]:
        batch = self._receive(self._mapping.batch_size)
        end, size = time.monotonic() + self._mapping.window_s, sum(map(message_bytes, batch))
        while batch and len(batch) < self._mapping.batch_size and size < 6 * MB and not self._closed.is_set():
            if time.monotonic() >= end:
                break
            try:
                more = self._receive(self._mapping.batch_size - len(batch))
            except QUEUE_ERRORS:
                break  # process what was received; the next poll reports the error
            batch, size = batch + more, size + sum(map(message_bytes, more))
        return batch

    def _receive(self, most: int) -> list[Message]:
        messages = self._queue.receive(most)
        self._idle_s = 0.0 if messages else self._idle_s + WAIT_S
        if self._idle_s >= LONG_POLL_S / FIRST_AT_ONCE:
            self._idle_s = 0.0
            self._loop.call_soon_threadsafe(self._on_poll, 0)
        return messages

    async def _wait_for_place(self) -> bool:
        while not self._closed.is_set():
            running = len(self._batches)
            if running < FIRST_AT_ONCE:
                self._busy_s = None
            elif self._busy_s is None:
                self._busy_s = time.monotonic()
            extra = 0 if self._busy_s is None else MORE_PER_S * (time.monotonic() - self._busy_s)
            if running < min(self._most, FIRST_AT_ONCE + int(extra)):
                return True
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 1 / MORE_PER_S if running < self._most else None)
        return False

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._batches.discard(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None and not self._closed.is_set():
            LOG.error("a batch of %s stays in its queue: %s", self._mapping.queue, error)

    async def _process(self, batch: list[Message]) -> None:
        event = json.dumps({"Records": [_record(message, self._mapping.queue) for message in batch]}).encode()
        try:
            response = await self._service.invoke(self._target(), event, new_trace_id())
        except ServiceError as error:
            LOG.warning("a batch of %s stays in its queue: %s", self._mapping.queue, error.message)
            return
        finally:
            # A batch of several polls is billed as the fewest that could have received it.
            for start in range(0, len(batch), MOST_MESSAGES):
                self._on_poll(sum(map(message_bytes, batch[start : start + MOST_MESSAGES])))
        failed = self._failed(response, {message["MessageId"] for message in batch})
        done = [message["ReceiptHandle"] for message in batch if message["MessageId"] not in failed]
        for _ in range(0, len(done), MOST_MESSAGES):
            self._on_poll(0)
        await asyncio.to_thread(self._queue.delete, done)

    def _failed(self, response: Response, sent: set[str]) -> set[str]:
        """Return the ids of failed messages (documented: services-sqs-errorhandling.html, success conditions)."""
        if response.function_error is not None:
            return sent
        if not self._mapping.reports_failures:
            return set()
        try:
            answer = json.loads(response.payload)
            failures = ([] if answer is None else answer.get("batchItemFailures")) or []
            named = {failure["itemIdentifier"] for failure in failures}
        except (ValueError, LookupError, TypeError, AttributeError):
            return sent
        return named if named <= sent else sent


def _record(message: Message, queue_arn: str) -> dict[str, Any]:
    """Return a message as the function receives it (measured: recorded from AWS)."""
    attributes = {
        name: {
            **{kind[0].lower() + kind[1:]: value for kind, value in given.items()},
            "stringListValues": [],
            "binaryListValues": [],
        }
        for name, given in (message.get("MessageAttributes") or {}).items()
    }
    record = {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes") or {},
        "messageAttributes": attributes,
        "md5OfMessageAttributes": message.get("MD5OfMessageAttributes"),
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": REGION,
    }
    return record
