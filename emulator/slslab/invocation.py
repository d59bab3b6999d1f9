"""Invocations: accept → lease an environment → run → answer; synchronous and asynchronous.

Failures have the shapes AWS recorded: status 200 with `FunctionError: Unhandled` and a payload that names the error
(https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html and the recordings that the design cites).
"""

import asyncio
import base64
import contextlib
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slslab.environments.process import (
    JOIN_FAILED,
    LOG_TAIL_BYTES,
    Ending,
    EnvironmentHost,
    Outcome,
    ProcessEnvironment,
    State,
    exit_reason,
    peak_mb,
)
from slslab.functions import EventInvokeConfig, Function, Functions, ServiceError
from slslab.metering import MB, InvocationRecord, billed_ms, cpu_share, report_line
from slslab.runtime_api import NextInvocation

INIT_LIMIT_S = 10.0  # documented: lambda-runtime-environment.html, "Init phase"
SYNC_PAYLOAD_BYTES = 6_291_456  # documented: gettingstarted-limits.html, 6 MB each for request and response
EVENT_PAYLOAD_BYTES = 1_048_576  # documented: AWS Compute blog, 2026-01-29
RESPONSE_PAYLOAD_BYTES = 6_291_556  # documented: the limit that AWS's own error message names
CLOSE_LIMIT_S = 5.0
EVENT_RETRY_BASE_S = 60.0  # documented: invocation-async-error-handling.html, one minute, then two


LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Response:
    """What the caller of Invoke receives."""

    status: int
    payload: bytes
    request_id: str
    function_error: str | None
    log_tail: bytes


@dataclass(frozen=True)
class Failure:
    """A failed invocation: error type, message, and the stack trace or other fields of its payload."""

    error_type: str
    payload: bytes
    status: str


class Admission:
    """Memory of the host given out to environments: they start while their memory sizes fit."""

    def __init__(self, budget_mb: int) -> None:
        self.budget_mb = budget_mb
        self.used_mb = 0
        self._changed = asyncio.Event()

    def take(self, memory_mb: int) -> bool:
        """Reserve memory for an environment, if it fits now; ServiceException if it never can."""
        if memory_mb > self.budget_mb:
            raise ServiceError(
                500,
                "ServiceException",
                f"This host gives environments {self.budget_mb} MB in all, and the function needs {memory_mb} MB. "
                "Hint: lower MemorySize, or run on a host with more memory.",
            )
        if self.used_mb + memory_mb > self.budget_mb:
            return False
        self.used_mb += memory_mb
        return True

    def give_back(self, memory_mb: int) -> None:
        """The environment is gone."""
        self.used_mb -= memory_mb
        self.nudge()

    def nudge(self) -> None:
        """Something changed for those who wait: memory came back, or an environment became idle."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()


class InvocationService:
    """Runs invocations of one emulator's functions in environments that are reused while warm."""

    def __init__(
        self,
        functions: Functions,
        host: EnvironmentHost,
        budget_mb: int,
        on_record: Callable[[InvocationRecord], None],
        store_failure: Callable[[str, str, bytes], None] | None,
        event_retry_base_s: float = EVENT_RETRY_BASE_S,
    ) -> None:
        self.functions = functions
        self.admission = Admission(budget_mb)
        self._host = host
        self._on_record = on_record
        self._store_failure = store_failure
        self._event_retry_base_s = event_retry_base_s
        self._idle: list[ProcessEnvironment] = []
        self._all: set[ProcessEnvironment] = set()
        self._events: set[asyncio.Task[None]] = set()
        self._active: set[asyncio.Task[Any]] = set()
        self._number = 0
        self._closing = False

    async def invoke(self, function: Function, payload: bytes, trace_id: str, kind: str) -> Response:
        """One invocation to its end, with a new request id."""
        if len(payload) > SYNC_PAYLOAD_BYTES:
            raise _too_large(len(payload), "RequestResponse", SYNC_PAYLOAD_BYTES)
        return await self._invoke(function, _checked(payload), str(uuid.uuid4()), trace_id, kind)

    def accept_event(self, function: Function, payload: bytes, trace_id: str) -> str:
        """Queue an asynchronous invocation; returns its request id at once."""
        if len(payload) > EVENT_PAYLOAD_BYTES:
            raise _too_large(len(payload), "Event", EVENT_PAYLOAD_BYTES)
        request_id = str(uuid.uuid4())
        task = asyncio.ensure_future(self._run_event(function.name, _checked(payload), request_id, trace_id))
        self._events.add(task)
        task.add_done_callback(self._event_ended)
        return request_id

    def _event_ended(self, task: "asyncio.Task[None]") -> None:
        """An asynchronous invocation has nobody to tell but the log that the emulator itself could not run it."""
        self._events.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._closing:
            LOG.error("an asynchronous invocation could not be carried out: %s", error)

    async def retire(self, name: str) -> None:
        """Stop the idle environments of a function whose code or configuration changed; busy ones end later."""
        for environment in [e for e in self._idle if e.function.name == name]:
            self._idle.remove(environment)
            await self._discard(environment)

    async def close(self) -> None:
        """End everything: queued events, running and idle environments."""
        self._closing = True
        self.admission.nudge()
        for task in self._events - self._active:
            task.cancel()
        for environment in list(self._all):
            await self._discard(environment)
        # What ran until now is metered and billed, so it is waited for.
        ending = self._events | self._active
        if ending:
            await asyncio.wait(ending, timeout=CLOSE_LIMIT_S)

    async def _run_event(self, name: str, payload: bytes, request_id: str, trace_id: str) -> None:
        attempt = 0
        while True:
            function = self.functions.get(name)
            config = function.event_invoke or EventInvokeConfig()
            response = await self._invoke(function, payload, request_id, trace_id, "Event")
            if response.function_error is None:
                return
            attempt += 1
            if attempt > config.maximum_retry_attempts:
                break
            if self._closing:
                return
            await asyncio.sleep(self._event_retry_base_s * attempt)
        if config.on_failure is not None and self._store_failure is not None:
            bucket = config.on_failure.rpartition(":")[2]
            key, body = _failure_object(function, request_id, attempt, payload, response)
            await asyncio.to_thread(self._store_failure, bucket, key, body)

    async def _invoke(self, function: Function, payload: bytes, request_id: str, trace_id: str, kind: str) -> Response:
        if self._closing:
            raise ServiceError(503, "ServiceException", "The emulator is ending.")
        task = asyncio.current_task()
        assert task is not None
        self._active.add(task)
        try:
            return await self._run(function, payload, request_id, trace_id, kind)
        finally:
            self._active.discard(task)

    async def _run(self, function: Function, payload: bytes, request_id: str, trace_id: str, kind: str) -> Response:
        accepted_ns = time.monotonic_ns()
        async with self._lease(function, request_id) as (environment, init):
            response = await self._execute(environment, init, function, payload, request_id, trace_id, kind)
        self._host.record(
            _event("invoke", accepted_ns, request_id, resource=function.name, function=function.name)
            | {"environment": environment.id, "failed": response.function_error is not None}
        )
        return response

    @contextlib.asynccontextmanager
    async def _lease(
        self, function: Function, request_id: str
    ) -> AsyncIterator[tuple[ProcessEnvironment, Outcome | None]]:
        """A warm environment of exactly this revision, or a new one; it comes back however the invocation ends."""
        environment, init = await self._acquire(function, request_id)
        try:
            yield environment, init
        finally:
            if environment.state is State.READY and not self._closing:
                await environment.ready()
            current = self._is_current(environment.function)
            if environment.state is State.READY and current and not self._closing:
                self._idle.append(environment)
                self.admission.nudge()
            else:
                await self._discard(environment)

    async def _acquire(self, function: Function, request_id: str) -> tuple[ProcessEnvironment, Outcome | None]:
        """The warm environment used last, else a new one as soon as its memory fits; idle ones make room for it."""
        waited_ns = time.monotonic_ns()
        waited = False
        while True:
            warm = [e for e in self._idle if e.function.revision == function.revision]
            if warm:
                self._idle.remove(warm[-1])
                break
            if self.admission.take(function.memory_mb):
                break
            if self._idle:
                await self._discard(self._idle.pop(0))
                continue
            waited = True
            await self.admission.changed()
            if self._closing:
                raise ServiceError(503, "ServiceException", "The emulator is ending.")
        if waited:
            self._host.record(
                _event("host.wait", waited_ns, request_id, resource=function.name, function=function.name)
            )
        return (warm[-1], None) if warm else await self._start(function, request_id)

    def _is_current(self, function: Function) -> bool:
        try:
            return self.functions.get(function.name).revision == function.revision
        except ServiceError:
            return False

    async def _start(self, function: Function, request_id: str) -> tuple[ProcessEnvironment, Outcome]:
        """Start an environment whose memory has been taken."""
        self._number += 1
        environment = ProcessEnvironment(self._host, function, self._number)
        self._all.add(environment)
        start_ns = time.monotonic_ns()
        try:
            init = await environment.start(INIT_LIMIT_S)
        except BaseException:
            await self._discard(environment)
            raise
        self._host.record(
            _event("environment.start", start_ns, request_id, resource=environment.id, function=function.name)
            | {"phase": "init", "environment": environment.id, "cpu_ns": init.cpu_ns}
        )
        if init.ending is Ending.EXIT and init.exit_status == JOIN_FAILED:
            await self._discard(environment)
            raise ServiceError(
                500,
                "ServiceException",
                "The environment could not join its control group. Hint: run `slslab doctor` for what this host "
                "enforces.",
            )
        return environment, init

    async def _discard(self, environment: ProcessEnvironment) -> None:
        if environment not in self._all:
            return
        self._all.discard(environment)
        start_ns = time.monotonic_ns()
        await environment.stop()
        self._host.record(
            _event("environment.kill", start_ns, "", resource=environment.id, function=environment.function.name)
            | {"environment": environment.id}
        )
        self.admission.give_back(environment.function.memory_mb)

    async def _execute(
        self,
        environment: ProcessEnvironment,
        init: Outcome | None,
        function: Function,
        payload: bytes,
        request_id: str,
        trace_id: str,
        kind: str,
    ) -> Response:
        started = datetime.now(UTC)
        start_ns = time.monotonic_ns()
        init_ms = round(init.lambda_ns / 1e6, 2) if init is not None else None
        if init is not None and init.ending is not Ending.RESPONSE:
            # documented: an Init phase that fails is reported by INIT_REPORT and repeated in the Invoke phase, under
            # the function's own time-out; assumed here: one that ended in the handler's own error is not repeated.
            phase_status = "timeout" if init.ending is Ending.TIMEOUT else "error"
            failure = _failure(init, request_id, function.timeout_s, "init")
            suffix = "" if phase_status == "timeout" else f"\tError Type: {failure.error_type}"
            environment.write_log(
                f"INIT_REPORT Init Duration: {init_ms:.2f} ms\tPhase: init\tStatus: {phase_status}{suffix}\n"
            )
            if init.ending is Ending.TIMEOUT:
                return await self._initialise_in_invoke(
                    environment, init, function, payload, request_id, trace_id, kind
                )
            environment.begin_log(request_id)
            outcome, duration_ns = init, 0
        else:
            now_ms = time.time_ns() // 1_000_000
            invocation = NextInvocation(request_id, payload, function.arn, now_ms + function.timeout_s * 1000, trace_id)
            environment.begin_log(request_id)
            outcome = await environment.invoke(invocation, function.timeout_s)
            duration_ns = outcome.lambda_ns
        return self._conclude(
            environment, function, kind, request_id, started, start_ns, init, init_ms, outcome, duration_ns
        )

    async def _initialise_in_invoke(
        self,
        environment: ProcessEnvironment,
        first: Outcome,
        function: Function,
        payload: bytes,
        request_id: str,
        trace_id: str,
        kind: str,
    ) -> Response:
        """The Init phase exceeded 10 s: Lambda repeats it inside the invocation, as part of its duration."""
        started, start_ns = datetime.now(UTC), time.monotonic_ns()
        await environment.restart()
        environment.begin_log(request_id)
        outcome = await environment.start(function.timeout_s)
        duration_ns = outcome.lambda_ns
        if outcome.ending is Ending.RESPONSE:
            left_s = function.timeout_s - outcome.lambda_ns / 1e9
            deadline_ms = time.time_ns() // 1_000_000 + round(left_s * 1000)
            invocation = NextInvocation(request_id, payload, function.arn, deadline_ms, trace_id)
            outcome = await environment.invoke(invocation, left_s)
            duration_ns += outcome.lambda_ns
        first_ms = round(first.lambda_ns / 1e6, 2)
        return self._conclude(
            environment, function, kind, request_id, started, start_ns, first, first_ms, outcome, duration_ns
        )

    def _conclude(
        self,
        environment: ProcessEnvironment,
        function: Function,
        kind: str,
        request_id: str,
        started: datetime,
        start_ns: int,
        init: Outcome | None,
        init_ms: float | None,
        outcome: Outcome,
        duration_ns: int,
    ) -> Response:
        failure = _failure(outcome, request_id, function.timeout_s, "invoke")
        duration_ms = round(duration_ns / 1e6, 2)
        if failure.error_type == "Sandbox.Timedout":
            # The clock is read a little after the limit; AWS reports the limit itself.
            duration_ms = float(function.timeout_s * 1000)
        memory_mb = peak_mb(outcome, function.memory_mb)
        report = report_line(
            request_id, duration_ms, init_ms, function.memory_mb, memory_mb, failure.status, failure.error_type
        )
        if outcome.ending in (Ending.EXIT, Ending.OUT_OF_MEMORY):
            message = json.loads(failure.payload)["errorMessage"]
            environment.write_log(f"{message}\n{failure.error_type}\n")
        environment.write_log(f"END RequestId: {request_id}\n{report}")
        if outcome.ending is Ending.TIMEOUT:
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
            environment.write_log(f"{stamp}Z {request_id} Task timed out after {function.timeout_s:.2f} seconds\n\n")
        cgroup_peak = outcome.cgroup_peak_bytes
        init_counts = init if init is not None and init is not outcome else None
        record = InvocationRecord(
            request_id=request_id,
            function=function.name,
            environment=environment.id,
            memory_mb=function.memory_mb,
            cpu_share=cpu_share(function.memory_mb),
            architecture=function.architecture,
            ephemeral_mb=function.ephemeral_mb,
            invocation_type=kind,
            cold_start=init is not None,
            init_ms=init_ms,
            duration_ms=duration_ms,
            billed_ms=billed_ms(duration_ms, init_ms),
            max_memory_mb=memory_mb,
            cgroup_peak_mb=None if cgroup_peak is None else -(-cgroup_peak // MB),
            cpu_ms=round((outcome.cpu_ns + (init_counts.cpu_ns if init_counts else 0)) / 1e6, 3),
            host_delay_ms=round((outcome.host_delay_ns + (init_counts.host_delay_ns if init_counts else 0)) / 1e6, 3),
            status=failure.status,
            error_type=failure.error_type or None,
            started_at=started.isoformat(timespec="milliseconds"),
            start_ns=start_ns,
            end_ns=time.monotonic_ns(),
            report=report,
        )
        self._on_record(record)
        return Response(
            status=200,
            payload=failure.payload,
            request_id=request_id,
            function_error="Unhandled" if failure.error_type else None,
            log_tail=environment.log_tail()[-LOG_TAIL_BYTES:],
        )


def _failure(outcome: Outcome, request_id: str, timeout_s: int, phase: str) -> Failure:
    """The invocation's payload and status as AWS shapes them; `error_type` is empty after a success."""
    if outcome.ending is Ending.TIMEOUT:
        message = f"RequestId: {request_id} Error: Task timed out after {timeout_s:.2f} seconds"
        return _shaped("Sandbox.Timedout", message, "timeout")
    if outcome.ending is Ending.OUT_OF_MEMORY:
        # assumed: the type is what AWS's telemetry names; the message is the one of public logs.
        message = f"RequestId: {request_id} Error: Runtime exited with error: signal: killed"
        return _shaped("Runtime.OutOfMemory", message, "error")
    if outcome.report is None:
        if phase == "init" and outcome.ending is Ending.RESPONSE:
            return Failure("", b"", "success")
        message = f"RequestId: {request_id} Error: {exit_reason(outcome.exit_status)}"
        return _shaped("Runtime.ExitError", message, "error")
    if outcome.report.kind == "response":
        if len(outcome.report.body) > RESPONSE_PAYLOAD_BYTES:
            message = (
                f"Response payload size ({len(outcome.report.body)} bytes) exceeded maximum allowed payload size "
                f"({RESPONSE_PAYLOAD_BYTES} bytes)."
            )
            return _shaped("Function.ResponseSizeTooLarge", message, "error")
        return Failure("", outcome.report.body, "success")
    return Failure(outcome.report.error_type, outcome.report.body, "error")


def _shaped(error_type: str, message: str, status: str) -> Failure:
    payload = json.dumps({"errorType": error_type, "errorMessage": message}, separators=(",", ":"))
    return Failure(error_type, payload.encode(), status)


def _too_large(size: int, kind: str, limit: int) -> ServiceError:
    message = f"{size} byte payload is too large for the {kind} invocation type (limit {limit} bytes)"
    return ServiceError(413, "RequestTooLargeException", message)


def _checked(payload: bytes) -> bytes:
    """The payload, which must be JSON; an empty one is an empty object, as AWS treats it."""
    if not payload:
        return b"{}"
    try:
        json.loads(payload)
    except ValueError as error:
        message = f"Could not parse request body into json: {error}"
        raise ServiceError(400, "InvalidRequestContentException", message) from error
    return payload


def _event(op: str, start_ns: int, request_id: str, *, resource: str, function: str) -> dict[str, Any]:
    """An event of the emulator's own, from `start_ns` until now."""
    return {
        "record": "event",
        "op": op,
        "phase": "other",
        "start_ns": start_ns,
        "end_ns": time.monotonic_ns(),
        "cpu_ns": 0,
        "bytes": 0,
        "requests": 0,
        "resource": resource,
        "etag": None,
        "overhead": True,
        "failed": False,
        "run": "",
        "worker": -1,
        "epoch": -1,
        "step": -1,
        "invocation": request_id,
        "function": function,
        "environment": "",
    }


def _failure_object(
    function: Function, request_id: str, attempts: int, payload: bytes, response: Response
) -> tuple[str, bytes]:
    """Key and body of the record that Lambda stores in an on-failure S3 destination.

    documented: invocation-async-retain-records.html; the key is
    `aws/lambda/async/<function>/YYYY/MM/DD/YYYY-MM-DDTHH.MM.SS-<uuid>`.
    """
    now = datetime.now(UTC)
    key = f"aws/lambda/async/{function.name}/{now:%Y/%m/%d}/{now:%Y-%m-%dT%H.%M.%S}-{uuid.uuid4()}"
    document = {
        "version": "1.0",
        "timestamp": now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z",
        "requestContext": {
            "requestId": request_id,
            "functionArn": f"{function.arn}:$LATEST",
            "condition": "RetriesExhausted",
            "approximateInvokeCount": attempts,
        },
        "requestPayload": json.loads(payload),
        "responseContext": {
            "statusCode": 200,
            "executedVersion": "$LATEST",
            "functionError": response.function_error,
        },
        "responsePayload": json.loads(response.payload),
    }
    return key, json.dumps(document).encode()


def encoded_tail(tail: bytes) -> str:
    """The log tail as the header X-Amz-Log-Result carries it."""
    return base64.b64encode(tail).decode()
