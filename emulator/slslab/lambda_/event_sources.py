"""Event source mappings: messages of SQS queues invoke functions in batches.

https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html, services-sqs-scaling.html, services-sqs-errorhandling.html.
Texts of errors are measured (recorded from AWS) unless a comment says otherwise. Failed and throttled messages stay in
the queue until their visibility timeout, as on AWS. AWS then polls more slowly, which isn't emulated. AWS bills the
requests that move messages, and polls of an idle queue; both are reported.
"""

import asyncio
import base64
import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError, conflict, invalid, missing
from slslab.aws.limits import MB
from slslab.aws.queue_messages import message_bytes
from slslab.lambda_.api import Answer, Call, Operations
from slslab.lambda_.events import Response
from slslab.lambda_.functions import Functions, Target, check_tags
from slslab.lambda_.invocation import InvocationService, new_trace_id
from slslab.lambda_.references import Reference, parse
from slslab.lambda_.stack_client import StackClient
from slslab.run.events import own_event

QUEUE = "arn:aws:sqs:"
# The messages of a batch, unless a mapping says otherwise.
BATCH_SIZE = 10
# documented: services-sqs-parameters.html.
SETTINGS = ("BatchSize", "MaximumBatchingWindowInSeconds", "FunctionResponseTypes", "ScalingConfig")
EMULATED = frozenset({*SETTINGS, "EventSourceArn", "FunctionName", "UUID", "Enabled", "Tags"})
# A mapping: the API's EventSourceMappingConfiguration.
Document = dict[str, Any]
Message = dict[str, Any]
# documented: services-sqs-scaling.html: five batches at once, up to 300 more each minute, and 1,250 in all.
FIRST_AT_ONCE, MORE_PER_S, MOST_AT_ONCE = 5, 5, 1250
AGAIN_S = 1.0
# AWS asks an idle queue FIRST_AT_ONCE times at once, and waits 20 s for each answer: 15 requests a minute.
# assumed: services-sqs-scaling.html names long polls, and their length is the longest that SQS allows.
LONG_POLL_S = 20
# documented: API_ReceiveMessage.html: at most ten messages.
MOST_MESSAGES = 10
# The length of a long poll, seconds. AWS allows 20, but a poll must not be interrupted: SQS doesn't notice that its
# client has gone, and still sends it the next message (reported for AWS: aws-sdk-java, issue 2083).
WAIT_S = 1
# Longer than the wait: a server that does not answer by then has a defect.
LIMIT_S = 60.0
# What a call raises if SQS refuses it (ClientError) or doesn't answer; ValueError for an endpoint that isn't a URL.
QUEUE_ERRORS = (ClientError, BotoCoreError, ValueError)
LOG = logging.getLogger(__name__)


class QueueClient:
    """A queue of the stack by its ARN. Every call may raise one of QUEUE_ERRORS."""

    def __init__(self, stack: StackClient, arn: str) -> None:
        self._stack = stack
        self._name = arn.rpartition(":")[2]

    def visibility_s(self) -> int:
        """Return the visibility timeout of the queue, s."""
        answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["VisibilityTimeout"])
        return int(answer["Attributes"]["VisibilityTimeout"])

    def receive(self, most: int) -> list[dict[str, Any]]:
        """Return up to ten messages, or an empty list after a second; binary attributes are Base64, as in events."""
        number = min(most, MOST_MESSAGES)
        every = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        answer = self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=number, WaitTimeSeconds=WAIT_S, **every
        )
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
            self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)

    @cached_property
    def _client(self) -> Any:
        return self._stack.client("sqs", read_timeout=LIMIT_S)

    @cached_property
    def _url(self) -> str:
        return str(self._client.get_queue_url(QueueName=self._name)["QueueUrl"])


class QueuePoller:
    """Polls from its creation until `close`: requests on its own thread, everything else on the creator's event loop.

    `target` returns what to invoke. `mapping` is the API's EventSourceMappingConfiguration. `on_poll` is called for
    each request that AWS would bill, with its bytes; a batch's requests follow its invocation.

    A batch has up to the mapping's BatchSize messages or 6 MB, gathered for up to its window after the first message.
    """

    def __init__(
        self,
        queue: QueueClient,
        service: InvocationService,
        target: Callable[[], Target],
        on_poll: Callable[[int], None],
        mapping: Mapping[str, Any],
    ) -> None:
        self._queue = queue
        self._service = service
        self._target = target
        self._on_poll = on_poll
        self._mapping, self._arn, self._size = mapping, mapping["EventSourceArn"], mapping["BatchSize"]
        self._most = mapping.get("ScalingConfig", {}).get("MaximumConcurrency") or MOST_AT_ONCE
        # For how long the queue has been idle since the last billed request, s.
        self._idle_s = 0.0
        # Since when at least FIRST_AT_ONCE invocations have been running.
        self._busy_s: float | None = None
        self._closed = asyncio.Event()
        # Set when a batch has been processed, or the poller is closed.
        self._changed = asyncio.Event()
        self._batches: set[asyncio.Task[None]] = set()
        self._thread = ThreadPoolExecutor(1, f"poller of {self._arn}")
        self._polling = asyncio.create_task(self._poll())

    async def close(self) -> None:
        """Wait for the current poll to end; messages that it has received are still processed."""
        self._closed.set()
        self._changed.set()
        await self._polling

    async def _poll(self) -> None:
        with self._thread:
            while await self._wait_for_place():
                try:
                    batch = await self._gather()
                except Exception as error:  # whatever fails, the next poll may succeed
                    if not self._closed.is_set():
                        LOG.error("%s cannot be polled: %s", self._arn, error)
                        with suppress(TimeoutError):
                            await asyncio.wait_for(self._closed.wait(), AGAIN_S)
                    continue
                if batch:
                    task = asyncio.create_task(self._process(batch))
                    self._batches.add(task)
                    task.add_done_callback(self._end)

    async def _gather(self) -> list[Message]:
        batch = await self._receive(self._size)
        end, size = time.monotonic() + self._mapping["MaximumBatchingWindowInSeconds"], sum(map(message_bytes, batch))
        while batch and len(batch) < self._size and size < 6 * MB and not self._closed.is_set():
            if time.monotonic() >= end:
                break
            try:
                more = await self._receive(self._size - len(batch))
            except QUEUE_ERRORS:
                break  # process what was received; the next poll reports the error
            batch, size = batch + more, size + sum(map(message_bytes, more))
        return batch

    async def _receive(self, most: int) -> list[Message]:
        messages = await asyncio.get_running_loop().run_in_executor(self._thread, self._queue.receive, most)
        self._idle_s = 0.0 if messages else self._idle_s + WAIT_S
        if self._idle_s >= LONG_POLL_S / FIRST_AT_ONCE:
            self._idle_s = 0.0
            self._on_poll(0)
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
            LOG.error("a batch of %s stays in its queue: %s", self._arn, error)

    async def _process(self, batch: list[Message]) -> None:
        event = json.dumps({"Records": [_record(message, self._arn) for message in batch]}).encode()
        try:
            response = await self._service.invoke(self._target(), event, new_trace_id())
        except ServiceError as error:
            LOG.warning("a batch of %s stays in its queue: %s", self._arn, error.message)
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
        if not self._mapping["FunctionResponseTypes"]:
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


class EventSourceMappings(Operations):
    """The mappings of one emulator, and their pollers; `on_event` receives a trace event for each billed poll."""

    def __init__(
        self,
        functions: Functions,
        service: InvocationService,
        stack: StackClient,
        on_event: Callable[[dict[str, Any]], None],
    ) -> None:
        self._functions = functions
        self._service = service
        self._stack = stack
        self._on_event = on_event
        self._mappings: dict[str, Document] = {}
        self._pollers: dict[str, QueuePoller] = {}
        self._tags: dict[str, dict[str, str]] = {}

    def check(self, request: Mapping[str, Any]) -> Document:
        """Check a request to create a mapping, and return the mapping."""
        mapping, function = new_mapping(request), parse(request["FunctionName"])
        queue = mapping["EventSourceArn"]
        self._resolve(function)
        for other in self._mappings.values():
            if (other["EventSourceArn"], other["FunctionArn"]) == (queue, function.arn):
                raise conflict(
                    f'An event source mapping with SQS arn (" {queue} ") and function (" {function.name} ") already '
                    f"exists. Please update or delete the existing mapping with UUID {other['UUID']}"
                )
        check_tags(request.get("Tags") or {})
        if self._stack.endpoint("sqs") is None:
            raise invalid(
                f"The queue {queue} cannot be polled: this emulator has no SQS. `slslab up` has it with slslab[aws]."
            )
        return mapping

    def check_queue(self, arn: str, function: Reference) -> None:
        """Ask the queue whether it suits the function; blocks."""
        try:
            visible_s = QueueClient(self._stack, arn).visibility_s()
        except QUEUE_ERRORS as error:
            unanswered = {"Code": "", "Message": f"SQS does not answer: {error}"}
            answer = getattr(error, "response", {}).get("Error", unanswered)
            code, message = answer["Code"], answer["Message"]
            raise invalid(
                f"Error occurred while ReceiveMessage. SQS Error Code: {code}. SQS Error Message: {message}"
            ) from error
        timeout_s = self._resolve(function).timeout_s
        if visible_s < timeout_s:
            raise invalid(
                f"Queue visibility timeout: {visible_s} seconds is less than Function timeout: {timeout_s} seconds"
            )

    def tags(self, arn: str) -> dict[str, str] | None:
        """Return the tags of the mapping with this ARN, to read or change; None for any other ARN."""
        before, found, mapping_id = arn.partition(":event-source-mapping:")
        return self._tags[self.get(mapping_id)["UUID"]] if found and before.startswith("arn:") else None

    def get(self, mapping_id: str) -> Document:
        """Carry out GetEventSourceMapping."""
        if mapping_id not in self._mappings:
            raise missing("The resource you requested does not exist.")
        return self._mappings[mapping_id]

    async def close(self) -> None:
        """Stop polling; invocations under way end by themselves."""
        await asyncio.gather(*(poller.close() for poller in self._pollers.values()))

    def _start(self, mapping: Document, change: str) -> Answer:
        """Register a mapping, poll its queue if it is enabled, and return the answer to its change."""
        self._mappings[mapping["UUID"]] = mapping = {**mapping, "LastModified": time.time()}
        function = parse(mapping["FunctionArn"])
        if mapping["State"] == "Enabled":
            self._pollers[mapping["UUID"]] = QueuePoller(
                QueueClient(self._stack, mapping["EventSourceArn"]),
                self._service,
                lambda: self._functions.route(function.name, function.qualifier),
                lambda size: self._bill(mapping["EventSourceArn"], function.name, size),
                mapping,
            )
        return {**mapping, "State": change}

    def _bill(self, queue: str, function: str, size: int) -> None:
        op = "sqs.fifo_poll" if queue.endswith(".fifo") else "sqs.poll"
        counts = {"bytes": size, "requests": 1, "overhead": False}
        self._on_event(own_event(op, time.monotonic_ns(), "", resource="", function=function, **counts))

    def _resolve(self, function: Reference) -> Any:
        try:
            return self._functions.resolve(function.name, function.qualifier).function
        except ServiceError as error:
            raise invalid("Function does not exist") from error

    async def _create_event_source_mapping(self, call: Call) -> Answer:
        assert call.function is not None
        queue = self.check(call.members)["EventSourceArn"]
        await asyncio.to_thread(self.check_queue, queue, call.function)
        mapping = self.check(call.members)  # another request may have created it meanwhile
        self._tags[mapping["UUID"]] = dict(call.members.get("Tags") or {})
        return self._start(mapping, "Creating")

    async def _get_event_source_mapping(self, call: Call) -> Answer:
        return self.get(call.members["UUID"])

    async def _list_event_source_mappings(self, call: Call) -> Answer:
        queue, wanted = call.members.get("EventSourceArn"), call.function.arn if call.function is not None else None
        found = {
            identifier: mapping
            for identifier, mapping in self._mappings.items()
            if queue in (None, mapping["EventSourceArn"]) and wanted in (None, mapping["FunctionArn"])
        }
        return call.page("EventSourceMappings", found)

    async def _update_event_source_mapping(self, call: Call) -> Answer:
        """Settings that the request doesn't name stay. Once this returns, a disabled mapping takes no message."""
        mapping = self.get(call.members["UUID"])
        if call.function is not None:
            mapping = {**mapping, "FunctionArn": call.function.arn}
            self._resolve(call.function)
        mapping, before = with_request(mapping, call.members), self._pollers.pop(mapping["UUID"], None)
        document = self._start(mapping, "Updating")
        if before is not None:
            await before.close()
        return document

    async def _delete_event_source_mapping(self, call: Call) -> Answer:
        mapping = self.get(call.members["UUID"])
        del self._mappings[mapping["UUID"]], self._tags[mapping["UUID"]]
        if before := self._pollers.pop(mapping["UUID"], None):
            await before.close()
        return {**mapping, "State": "Deleting"}


def new_mapping(request: Mapping[str, Any]) -> Document:
    """Return the mapping that a request creates.

    Raises InvalidParameterValueException for a source that isn't a queue, and for settings that aren't emulated.
    """
    queue, identifier = str(request.get("EventSourceArn", "")), str(uuid.uuid4())
    if not queue.startswith("arn:"):
        raise invalid("Unrecognized event source.")
    if not queue.startswith(QUEUE):
        raise invalid(f"slslab emulates event source mappings of SQS, not of {queue.split(':')[2]}.")
    mapping = {
        "UUID": identifier,
        "BatchSize": BATCH_SIZE,
        "MaximumBatchingWindowInSeconds": 0,
        "EventSourceArn": queue,
        "EventSourceMappingArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:event-source-mapping:{identifier}",
        "FunctionArn": parse(request["FunctionName"]).arn,
        "State": "Enabled",
        "StateTransitionReason": "USER_INITIATED",
        "FunctionResponseTypes": [],
    }
    return with_request(mapping, request)


def with_request(before: Document, request: Mapping[str, Any]) -> Document:
    """Return a mapping changed by a request; InvalidParameterValueException for settings that aren't emulated."""
    if others := sorted(request.keys() - EMULATED):
        raise invalid(f"slslab does not emulate {', '.join(others)} of an event source mapping of SQS.")
    mapping = {**before, **{name: request[name] for name in SETTINGS if name in request}}
    if not mapping.get("ScalingConfig"):
        mapping.pop("ScalingConfig", None)
    if "Enabled" in request:
        mapping["State"] = "Enabled" if request["Enabled"] else "Disabled"
    size, window_s = mapping["BatchSize"], mapping["MaximumBatchingWindowInSeconds"]
    if mapping["EventSourceArn"].endswith(".fifo"):
        # documented: services-sqs-parameters.html; assumed: the text.
        if window_s:
            raise invalid("Batching window is not supported for FIFO queues")
        if size > BATCH_SIZE:
            raise invalid(f"The batch size of a FIFO queue must be at most {BATCH_SIZE}")
    elif size > BATCH_SIZE and not window_s:
        raise invalid("Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than 10")
    return mapping
