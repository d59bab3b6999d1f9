"""Event source mappings: messages of SQS queues invoke functions in batches.

https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html. Texts of errors are measured (recorded from AWS)
unless a comment says otherwise.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from slslab.aws.errors import ServiceError, invalid, missing
from slslab.lambda_.api import Answer, Call, Operations
from slslab.lambda_.attachments import BATCH_SIZE, EventSourceMapping
from slslab.lambda_.functions import Functions, check_tags
from slslab.lambda_.invocation import InvocationService
from slslab.lambda_.queue_poller import QUEUE_ERRORS, QueueClient, QueuePoller
from slslab.lambda_.references import Reference, function_arn, parse
from slslab.lambda_.stack_client import StackClient
from slslab.run.events import own_event

QUEUE = "arn:aws:sqs:"
# documented: services-sqs-parameters.html: the parameters of an SQS mapping, except the last two lines.
EMULATED = frozenset(
    {
        *("EventSourceArn", "FunctionName", "UUID", "Enabled", "BatchSize", "MaximumBatchingWindowInSeconds"),
        *("FunctionResponseTypes", "ScalingConfig", "Tags"),
    }
)


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
        self._mappings: dict[str, EventSourceMapping] = {}
        self._pollers: dict[str, QueuePoller] = {}
        self._tags: dict[str, dict[str, str]] = {}

    def check(self, request: Mapping[str, Any]) -> QueueClient:
        """Check a request to create a mapping, and return its queue for `check_queue`."""
        queue, function = str(request.get("EventSourceArn", "")), parse(request["FunctionName"])
        check_source(queue)
        self._resolve(function)
        for mapping in self._mappings.values():
            if (mapping.queue, mapping.function) == (queue, _plain(function)):
                raise ServiceError(
                    409,
                    "ResourceConflictException",
                    f'An event source mapping with SQS arn (" {queue} ") and function (" {function.name} ") already '
                    f"exists. Please update or delete the existing mapping with UUID {mapping.id}",
                )
        with_request(EventSourceMapping("", queue, _plain(function)), request)
        check_tags(request.get("Tags") or {})
        return self._queue(queue)

    def check_queue(self, queue: QueueClient, function: Reference) -> None:
        """Ask the queue whether it suits the function; blocks."""
        try:
            visible_s = int(queue.attributes()["VisibilityTimeout"])
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
        return self._tags[self.get(mapping_id).id] if found and before.startswith("arn:") else None

    def get(self, mapping_id: str) -> EventSourceMapping:
        """Carry out GetEventSourceMapping."""
        if mapping_id not in self._mappings:
            raise missing("The resource you requested does not exist.")
        return self._mappings[mapping_id]

    async def close(self) -> None:
        """Stop polling; invocations under way end by themselves."""
        await asyncio.gather(*(poller.close() for poller in self._pollers.values()))

    def _start(self, mapping: EventSourceMapping) -> EventSourceMapping:
        self._mappings[mapping.id] = mapping = replace(mapping, modified=time.time())
        if mapping.enabled:
            self._pollers[mapping.id] = QueuePoller(
                self._queue(mapping.queue),
                self._service,
                lambda: self._functions.route(mapping.function.name, mapping.function.qualifier),
                lambda size: self._bill(mapping, size),
                mapping,
            )
        return mapping

    def _bill(self, mapping: EventSourceMapping, size: int) -> None:
        op = "sqs.fifo_poll" if mapping.queue.endswith(".fifo") else "sqs.poll"
        event = own_event(op, time.monotonic_ns(), "", resource="", function=mapping.function.name)
        self._on_event({**event, "bytes": size, "requests": 1, "overhead": False})

    def _resolve(self, function: Reference) -> Any:
        try:
            return self._functions.resolve(function.name, function.qualifier).function
        except ServiceError as error:
            raise invalid("Function does not exist") from error

    def _queue(self, arn: str) -> QueueClient:
        if not self._stack.reaches("sqs"):
            raise invalid(
                f"The queue {arn} cannot be polled: this emulator has no SQS. `slslab up` has it with slslab[aws]."
            )
        return QueueClient(self._stack, arn.rpartition(":")[2])

    async def _create_event_source_mapping(self, call: Call) -> Answer:
        assert call.function is not None
        queue = self.check(call.members)
        await asyncio.to_thread(self.check_queue, queue, call.function)
        self.check(call.members)  # another request may have created it meanwhile
        mapping = EventSourceMapping(str(uuid.uuid4()), call.members["EventSourceArn"], _plain(call.function))
        self._tags[mapping.id] = dict(call.members.get("Tags") or {})
        return self._start(with_request(mapping, call.members)).document("Creating")

    async def _get_event_source_mapping(self, call: Call) -> Answer:
        return self.get(call.members["UUID"]).document()

    async def _list_event_source_mappings(self, call: Call) -> Answer:
        queue, wanted = call.members.get("EventSourceArn"), _plain(call.function) if call.function is not None else None
        found = {
            mapping.id: mapping.document()
            for mapping in self._mappings.values()
            if queue in (None, mapping.queue) and wanted in (None, mapping.function)
        }
        return call.page("EventSourceMappings", found)

    async def _update_event_source_mapping(self, call: Call) -> Answer:
        """Settings that the request doesn't name stay. Once this returns, a disabled mapping takes no message."""
        mapping = self.get(call.members["UUID"])
        if call.function is not None:
            mapping = replace(mapping, function=_plain(call.function))
            self._resolve(mapping.function)
        mapping, before = with_request(mapping, call.members), self._pollers.pop(mapping.id, None)
        document = self._start(mapping).document("Updating")
        if before is not None:
            await before.close()
        return document

    async def _delete_event_source_mapping(self, call: Call) -> Answer:
        mapping = self.get(call.members["UUID"])
        del self._mappings[mapping.id], self._tags[mapping.id]
        if before := self._pollers.pop(mapping.id, None):
            await before.close()
        return mapping.document("Deleting")


def check_source(arn: str) -> None:
    """Raise InvalidParameterValueException for an event source that is not a queue."""
    if not arn.startswith("arn:"):
        raise invalid("Unrecognized event source.")
    if not arn.startswith(QUEUE):
        raise invalid(f"slslab emulates event source mappings of SQS, not of {arn.split(':')[2]}.")


def with_request(before: EventSourceMapping, request: Mapping[str, Any]) -> EventSourceMapping:
    """Return a mapping changed by a request; InvalidParameterValueException for settings that aren't emulated."""
    if others := sorted(request.keys() - EMULATED):
        raise invalid(f"slslab does not emulate {', '.join(others)} of an event source mapping of SQS.")
    scaling = request.get("ScalingConfig", {"MaximumConcurrency": before.most_concurrent})
    types = request.get("FunctionResponseTypes", ["ReportBatchItemFailures"] * before.reports_failures)
    mapping = replace(
        before,
        enabled=request.get("Enabled", before.enabled),
        batch_size=request.get("BatchSize", before.batch_size),
        window_s=request.get("MaximumBatchingWindowInSeconds", before.window_s),
        reports_failures="ReportBatchItemFailures" in types,
        most_concurrent=scaling.get("MaximumConcurrency"),
    )
    if mapping.queue.endswith(".fifo"):
        # documented: services-sqs-parameters.html; assumed: the text.
        if mapping.window_s:
            raise invalid("Batching window is not supported for FIFO queues")
        if mapping.batch_size > BATCH_SIZE:
            raise invalid(f"The batch size of a FIFO queue must be at most {BATCH_SIZE}")
    elif mapping.batch_size > BATCH_SIZE and not mapping.window_s:
        raise invalid("Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than 10")
    return mapping


def _plain(function: Reference) -> Reference:
    """Return a reference of this account and Region, however it was written."""
    return parse(function_arn(function.name, function.qualifier))
