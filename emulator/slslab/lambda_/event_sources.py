"""Event source mappings: messages of SQS queues invoke functions in batches.

https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html. Texts of errors are measured (recorded from AWS)
unless a comment says otherwise.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError, invalid, missing
from slslab.lambda_.api import Answer, Call, Operations
from slslab.lambda_.functions import Functions, check_tags
from slslab.lambda_.invocation import InvocationService
from slslab.lambda_.queue_poller import QUEUE_ERRORS, QueueClient, QueuePoller
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
        queue, function = str(request.get("EventSourceArn", "")), parse(request["FunctionName"])
        check_source(queue)
        self._resolve(function)
        for mapping in self._mappings.values():
            if (mapping["EventSourceArn"], mapping["FunctionArn"]) == (queue, function.arn):
                raise ServiceError(
                    409,
                    "ResourceConflictException",
                    f'An event source mapping with SQS arn (" {queue} ") and function (" {function.name} ") already '
                    f"exists. Please update or delete the existing mapping with UUID {mapping['UUID']}",
                )
        mapping = new_mapping(queue, function, request)
        check_tags(request.get("Tags") or {})
        if not self._stack.reaches("sqs"):
            raise invalid(
                f"The queue {queue} cannot be polled: this emulator has no SQS. `slslab up` has it with slslab[aws]."
            )
        return mapping

    def check_queue(self, arn: str, function: Reference) -> None:
        """Ask the queue whether it suits the function; blocks."""
        try:
            visible_s = int(self._queue(arn).attributes()["VisibilityTimeout"])
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
                self._queue(mapping["EventSourceArn"]),
                self._service,
                lambda: self._functions.route(function.name, function.qualifier),
                lambda size: self._bill(mapping["EventSourceArn"], function.name, size),
                mapping,
            )
        return {**mapping, "State": change}

    def _bill(self, queue: str, function: str, size: int) -> None:
        op = "sqs.fifo_poll" if queue.endswith(".fifo") else "sqs.poll"
        event = own_event(op, time.monotonic_ns(), "", resource="", function=function)
        self._on_event({**event, "bytes": size, "requests": 1, "overhead": False})

    def _resolve(self, function: Reference) -> Any:
        try:
            return self._functions.resolve(function.name, function.qualifier).function
        except ServiceError as error:
            raise invalid("Function does not exist") from error

    def _queue(self, arn: str) -> QueueClient:
        return QueueClient(self._stack, arn.rpartition(":")[2])

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


def check_source(arn: str) -> None:
    """Raise InvalidParameterValueException for an event source that is not a queue."""
    if not arn.startswith("arn:"):
        raise invalid("Unrecognized event source.")
    if not arn.startswith(QUEUE):
        raise invalid(f"slslab emulates event source mappings of SQS, not of {arn.split(':')[2]}.")


def new_mapping(queue: str, function: Reference, request: Mapping[str, Any]) -> Document:
    """Return the mapping that a request creates; InvalidParameterValueException for settings that aren't emulated."""
    identifier = str(uuid.uuid4())
    mapping = {
        "UUID": identifier,
        "BatchSize": BATCH_SIZE,
        "MaximumBatchingWindowInSeconds": 0,
        "EventSourceArn": queue,
        "EventSourceMappingArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:event-source-mapping:{identifier}",
        "FunctionArn": function.arn,
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
