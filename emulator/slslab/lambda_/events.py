"""Run asynchronous invocations: queue them, retry after failures and throttles, send records to their destinations.

https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html and
https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html. Texts of errors are measured
(recorded from AWS).
"""

import asyncio
import json
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError, invalid, missing
from slslab.aws.json_text import parse_json
from slslab.lambda_.api import Answer, Call
from slslab.lambda_.functions import FunctionResource, Functions, Target
from slslab.lambda_.references import LATEST, function_arn, parse
from slslab.lambda_.stack_client import StackClient

BUCKET, FUNCTION, QUEUE = "arn:aws:s3:::", "arn:aws:lambda:", "arn:aws:sqs:"
TOPIC = "arn:aws:sns:"
RETRYING = ("MaximumRetryAttempts", "MaximumEventAgeInSeconds")
LONGEST_THROTTLE_S = 300.0
# documented: invocation-async-retain-records.html, "the first 1 KB of the error message".
LONGEST_MESSAGE = 1024
LOG = logging.getLogger(__name__)


class Request(NamedTuple):
    """One invocation as it was requested; `kind` is `Event` or `RequestResponse`.

    `caller` is the function that waits for the answer, empty if none does or its keys don't identify it.
    """

    target: Target
    payload: bytes
    request_id: str
    trace_id: str
    kind: str
    client_context: str | None = None
    caller: str = ""


class Response(NamedTuple):
    """The result of an invocation, which the caller of Invoke receives with status 200 whatever the function did."""

    payload: bytes
    function_error: str | None
    version: str
    request_id: str = ""
    environment: str = ""
    log_tail: bytes = b""


class Asynchronous:
    """The events of one emulator.

    `invoke` runs one attempt; the `stack` has the buckets, queues and topics for their records.
    """

    def __init__(
        self,
        functions: Functions,
        invoke: Callable[[Request], Awaitable[Response]],
        stack: StackClient,
    ) -> None:
        self._functions = functions
        self._limits = functions.limits
        self._invoke = invoke
        self._stack = stack
        self._tasks: set[asyncio.Task[None]] = set()
        # Each function's events that found no concurrency wait here; the oldest is notified first.
        self._room: dict[str, asyncio.Condition] = defaultdict(asyncio.Condition)
        self._closing = False

    def accept(self, target: Target, payload: bytes, trace_id: str) -> str:
        """Queue an event and return its request id at once."""
        request = Request(target, payload, str(uuid.uuid4()), trace_id, "Event")
        task = asyncio.ensure_future(self._run(request))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return request.request_id

    def close(self) -> set[asyncio.Task[None]]:
        """Start no further attempts, and return the tasks of the attempts that still run."""
        self._closing = True
        return set(self._tasks)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Log why the emulator could not run an event: no caller waits for it."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._closing:
            LOG.error("an asynchronous invocation could not be carried out: %s", error)

    async def _run(self, request: Request) -> None:
        name, accepted = request.target.function.name, time.monotonic()
        attempts, throttles = 0, 0
        answer: Response | None = None
        condition = ""
        while True:
            request = request._replace(target=self._functions.route(name, request.target.qualifier))
            config = self._functions.entry(name).events.get(request.target.qualifier or LATEST, {})
            retries = config.get("MaximumRetryAttempts", self._limits.event_retries.default)
            age_s = config.get("MaximumEventAgeInSeconds", self._limits.event_age_s.default)
            try:
                answer = await self._invoke(request)
            except ServiceError as error:
                if error.status not in (429, 500) or self._closing:
                    raise
                if self._functions.entry(name).reserved == 0:
                    condition = "ZeroReservedConcurrency"
                delay_s = min(LONGEST_THROTTLE_S, self._limits.event_throttle_s * 2**throttles)
                throttles, throttled = throttles + 1, True
            else:
                attempts, throttled = attempts + 1, False
                async with self._room[name]:
                    self._room[name].notify()
                if answer.function_error is None:
                    condition = "Success"
                elif attempts > retries:
                    condition = "RetriesExhausted"
                delay_s = self._limits.event_retry_base_s * attempts
            if not condition and time.monotonic() - accepted + delay_s > age_s:
                condition = "EventAgeExceeded"
            if condition:
                break
            if self._closing:
                return
            await (self._wait_for_room(name, delay_s) if throttled else asyncio.sleep(delay_s))
        kind = "OnSuccess" if condition == "Success" else "OnFailure"
        destination = config.get("DestinationConfig", {}).get(kind, {}).get("Destination")
        letters = request.target.function.stored.get("DeadLetterConfig")
        try:
            if destination:
                await self._deliver(destination, request, _record(request, condition, attempts, answer))
        finally:
            if letters is not None and condition != "Success":
                letter = _dead_letter(request, answer)
                await asyncio.to_thread(
                    self._stack.send, letters["TargetArn"], request.payload, letter, request.trace_id
                )

    async def _wait_for_room(self, name: str, longest_s: float) -> None:
        """Wait until the function has room and older events have had their turn, or for `longest_s`.

        assumed: AWS reads a function's events from one queue, so that throttled ones don't each wait alone.
        """
        async with self._room[name]:
            with suppress(TimeoutError):
                async with asyncio.timeout(longest_s):
                    await self._room[name].wait()

    async def _deliver(self, destination: str, request: Request, record: bytes) -> None:
        if destination.startswith(FUNCTION):
            reference = parse(destination)
            self.accept(self._functions.route(reference.name, reference.qualifier), record, request.trace_id)
        elif destination.startswith(BUCKET):
            name, now = request.target.function.name, datetime.now(UTC)
            key = f"aws/lambda/async/{name}/{now:%Y/%m/%d}/{now:%Y-%m-%dT%H.%M.%S}-{uuid.uuid4()}"
            await asyncio.to_thread(self._stack.store, destination.removeprefix(BUCKET), key, record)
        else:
            await asyncio.to_thread(self._stack.send, destination, record, {}, request.trace_id)


def _dead_letter(request: Request, answer: Response | None) -> dict[str, tuple[str, str]]:
    """Return type and value of the attributes of a message in a dead letter queue (measured: recorded from AWS)."""
    text = _as_json(answer.payload) if answer is not None else b"null"
    failure = json.loads(text)
    message = str(failure.get("errorMessage", "")) if isinstance(failure, dict) else ""
    return {
        "RequestID": ("String", request.request_id),
        "ErrorCode": ("Number", "200"),
        **({"ErrorMessage": ("String", message[:LONGEST_MESSAGE])} if message else {}),
    }


def _record(request: Request, condition: str, attempts: int, answer: Response | None) -> bytes:
    """Return the invocation record that a destination receives; it contains payloads unchanged."""
    context = {
        "requestId": request.request_id,
        "functionArn": function_arn(request.target.function.name, request.target.qualifier or LATEST),
        "condition": condition,
        "approximateInvokeCount": attempts,
    }
    parts = {
        "version": b'"1.0"',
        "timestamp": json.dumps(datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")).encode(),
        "requestContext": json.dumps(context).encode(),
        "requestPayload": request.payload,
    }
    if answer is not None:
        response = {"statusCode": 200, "executedVersion": answer.version}
        if answer.function_error is not None:
            response["functionError"] = answer.function_error
        parts["responseContext"] = json.dumps(response).encode()
        parts["responsePayload"] = _as_json(answer.payload or b"null")
    return b"{%b}" % b", ".join(b'"%b": %b' % (name.encode(), part) for name, part in parts.items())


def _as_json(payload: bytes) -> bytes:
    """Return a response as part of a JSON document, as a string if it isn't JSON (assumed: AWS doesn't say)."""
    try:
        parse_json(payload)
    except (ValueError, RecursionError):
        return json.dumps(payload.decode(errors="replace")).encode()
    return payload


class EventInvokeConfigs(FunctionResource):
    """The operations on how events are retried, and where their records go."""

    async def _put_function_event_invoke_config(self, call: Call) -> Answer:
        return self.put(call.name, call.qualifier, call.members, keep=False)

    async def _update_function_event_invoke_config(self, call: Call) -> Answer:
        return self.put(call.name, call.qualifier, call.members, keep=True)

    async def _get_function_event_invoke_config(self, call: Call) -> Answer:
        return self.get(call.name, call.qualifier)

    async def _list_function_event_invoke_configs(self, call: Call) -> Answer:
        if not self._functions.exists(call.name):
            raise missing("The function doesn't exist.")
        return call.page("FunctionEventInvokeConfigs", self._functions.entry(call.name).events)

    async def _delete_function_event_invoke_config(self, call: Call) -> None:
        self.get(call.name, call.qualifier)  # raises if there is none
        del self._functions.entry(call.name).events[call.qualifier or LATEST]

    def put(self, name: str, qualifier: str | None, request: Mapping[str, Any], *, keep: bool) -> dict[str, Any]:
        """Carry out PutFunctionEventInvokeConfig, or with `keep` its Update, which keeps unnamed settings."""
        given = {setting: request[setting] for setting in RETRYING if setting in request}
        if not given and not request.get("DestinationConfig"):
            raise invalid("You must specify at least one of error handling or destination setting.")
        try:
            self._functions.resolve(name, qualifier)
        except ServiceError as error:
            raise missing("The function doesn't exist.") from error
        before = self.get(name, qualifier) if keep else {"DestinationConfig": {"OnSuccess": {}, "OnFailure": {}}}
        destinations = self._destinations(name, request.get("DestinationConfig") or {})
        config = self._functions.entry(name).events[qualifier or LATEST] = {
            **before,
            **given,
            "LastModified": datetime.now(UTC).timestamp(),
            "FunctionArn": function_arn(name, qualifier or LATEST),
            "DestinationConfig": before["DestinationConfig"] | destinations,
        }
        return config

    def get(self, name: str, qualifier: str | None) -> dict[str, Any]:
        """Carry out GetFunctionEventInvokeConfig."""
        configs = self._functions.entry(name).events if self._functions.exists(name) else {}
        if (qualifier or LATEST) not in configs:
            arn = function_arn(name, qualifier or LATEST)
            raise missing(f"The function {arn} doesn't have an EventInvokeConfig")
        return configs[qualifier or LATEST]

    def _destinations(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for kind in [kind for kind in ("OnSuccess", "OnFailure") if "Destination" in given.get(kind, {})]:
            arn = str(given[kind]["Destination"])
            if arn.startswith(FUNCTION):
                destination = parse(arn)
                where = (destination.account, destination.region)
                if not self._functions.exists(destination.name) or where != (ACCOUNT, REGION):
                    raise invalid(f"The destination ARN {arn} is invalid.")
                if destination.name == name:
                    raise invalid("You can't specify the function as a destination for itself.")
            elif arn and not (arn.startswith((QUEUE, TOPIC)) or (arn.startswith(BUCKET) and kind == "OnFailure")):
                raise invalid(
                    f"slslab can't send events to {arn}: name a function, an SQS queue, an SNS topic, or for failures "
                    "an S3 bucket (arn:aws:s3:::BUCKET)."
                )
            found[kind] = {"Destination": arn} if arn else {}
        return found
