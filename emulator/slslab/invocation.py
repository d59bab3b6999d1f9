"""Invocations: accept → lease an environment → run → answer; every one metered.

Failures have the shapes AWS recorded: status 200 with `FunctionError: Unhandled` and a payload that names the error
(https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html and the recordings that the design cites).
"""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slslab.asynchronous import Answer, Asynchronous, Event
from slslab.concurrency import Concurrency
from slslab.configuration import Function
from slslab.environments.environment import (
    Ending,
    Environment,
    EnvironmentHost,
    Outcome,
    exit_reason,
    peak_mb,
)
from slslab.environments.sandbox import StartFailed
from slslab.functions import Functions, Target
from slslab.metering import MB, InvocationRecord, billed_ms, cpu_share, report_line
from slslab.pool import Pool, own_event
from slslab.runtime_api import NextInvocation
from slslab.service_errors import ServiceError

CLOSE_LIMIT_S = 5.0


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
    """How an invocation ended: error type (empty after a success), payload, and the REPORT line's status."""

    error_type: str
    payload: bytes
    status: str


@dataclass(frozen=True)
class Request:
    """One invocation as it was asked for."""

    target: Target
    payload: bytes
    request_id: str
    trace_id: str
    kind: str
    client_context: str | None = None

    def handed_out(self, deadline_ms: int) -> NextInvocation:
        """What the runtime is given."""
        return NextInvocation(
            self.request_id, self.payload, self.target.arn, deadline_ms, self.trace_id, self.client_context
        )


@dataclass
class Metered:
    """An invocation under way: when it began, and what its phases came to."""

    started: datetime
    start_ns: int
    init: Outcome | None
    duration_ns: int = 0

    @property
    def init_ms(self) -> float | None:
        """Init duration as the REPORT line prints it; None when the environment was warm."""
        return round(self.init.lambda_ns / 1e6, 2) if self.init is not None else None


class InvocationService:
    """Runs invocations of one emulator's functions in environments that are reused while warm."""

    def __init__(
        self,
        functions: Functions,
        host: EnvironmentHost,
        budget_mb: int,
        on_record: Callable[[InvocationRecord], None],
        discarded: Callable[[], Awaitable[None]],
        store: Callable[[str, str, bytes], None],
    ) -> None:
        self._functions = functions
        self._discarded = discarded
        self._host = host
        self._limits = host.limits
        self._on_record = on_record
        self._concurrency = Concurrency(functions, host.limits)
        self.pool = Pool(functions, host, self._concurrency, budget_mb, discarded)
        self._asynchronous = Asynchronous(functions, host.limits, self._attempt, store)
        self._accepted: dict[asyncio.Task[Any], Function] = {}
        self._closing = False

    async def invoke(
        self, target: Target, payload: bytes, trace_id: str, client_context: str | None = None
    ) -> Response:
        """One synchronous invocation to its end, with a new request id."""
        if len(payload) > self._limits.request_bytes:
            raise _too_large(len(payload), "RequestResponse", self._limits.request_bytes)
        request_id = str(uuid.uuid4())
        return await self._run(
            Request(target, _checked(payload), request_id, trace_id, "RequestResponse", client_context)
        )

    def accept_event(self, target: Target, payload: bytes, trace_id: str) -> str:
        """Queue an asynchronous invocation; returns its request id at once."""
        if len(payload) > self._limits.event_bytes:
            raise _too_large(len(payload), "Event", self._limits.event_bytes)
        return self._asynchronous.accept(target, _checked(payload), trace_id)

    def functions(self) -> list[Function]:
        """The versions that environments or accepted invocations still need."""
        return [*(environment.function for environment in self.pool.environments()), *self._accepted.values()]

    async def retire_outdated(self) -> None:
        """End the environments of versions that are no more."""
        await self.pool.retire_outdated()

    async def end(self, names: Container[str]) -> None:
        """End what still runs of these functions, which have been deleted, and wait until it is metered."""
        await self.pool.end(names)
        ending = {task for task, function in self._accepted.items() if function.name in names}
        if ending:
            await asyncio.wait(ending, timeout=CLOSE_LIMIT_S)

    async def close(self) -> None:
        """End everything: queued events, running and idle environments."""
        self._closing = True
        self.pool.close()
        events = self._asynchronous.close()
        for task in events - self._accepted.keys():
            task.cancel()
        await self.pool.end()
        # What ran until now is metered and billed, so it is waited for.
        ending = events | self._accepted.keys()
        if ending:
            await asyncio.wait(ending, timeout=CLOSE_LIMIT_S)

    async def _attempt(self, target: Target, event: Event) -> Answer:
        response = await self._run(Request(target, event.payload, event.request_id, event.trace_id, "Event"))
        return Answer(response.payload, response.function_error, target.function.version)

    async def _run(self, request: Request) -> Response:
        if self._closing:
            raise ServiceError(503, "ServiceException", "The emulator is ending.")
        task = asyncio.current_task()
        assert task is not None
        self._accepted[task] = request.target.function
        try:
            return await self._run_leased(request)
        finally:
            del self._accepted[task]
            if not self._functions.is_current(request.target.function):
                await self._discarded()

    async def _run_leased(self, request: Request) -> Response:
        accepted_ns = time.monotonic_ns()
        function = request.target.function
        with self._concurrency.lease(function.name):
            async with self.pool.lease(function, request.request_id) as (environment, init):
                response = await self._execute(environment, init, request)
        self._host.record(
            own_event("invoke", accepted_ns, request.request_id, resource=function.name, function=function.name)
            | {"environment": environment.id, "failed": response.function_error is not None}
        )
        return response

    async def _execute(self, environment: Environment, init: Outcome | None, request: Request) -> Response:
        timeout_s = request.target.function.timeout_s
        metered = Metered(datetime.now(UTC), time.monotonic_ns(), init)
        if init is not None and init.ending is not Ending.RESPONSE:
            # documented: an Init phase that fails is reported by INIT_REPORT and repeated in the Invoke phase, under
            # the function's own time-out; assumed here: one that ended in the handler's own error is not repeated.
            status = "timeout" if init.ending is Ending.TIMEOUT else "error"
            suffix = "" if status == "timeout" else f"\tError Type: {self._failure(init, request).error_type}"
            report = f"INIT_REPORT Init Duration: {metered.init_ms:.2f} ms\tPhase: init\tStatus: {status}{suffix}\n"
            environment.log.write(report.encode())
            if init.ending is Ending.TIMEOUT:
                return await self._initialise_in_invoke(environment, request, metered)
            self._begin_log(environment, request)
            return self._conclude(environment, request, metered, init)
        deadline_ms = time.time_ns() // 1_000_000 + timeout_s * 1000
        self._begin_log(environment, request)
        self._record_begin(environment, request, metered)
        outcome = await environment.invoke(request.handed_out(deadline_ms), timeout_s)
        metered.duration_ns = outcome.lambda_ns
        return self._conclude(environment, request, metered, outcome)

    async def _initialise_in_invoke(self, environment: Environment, request: Request, metered: Metered) -> Response:
        """The Init phase exceeded 10 s: Lambda repeats it inside the invocation, as part of its duration."""
        timeout_s = request.target.function.timeout_s
        metered.started, metered.start_ns = datetime.now(UTC), time.monotonic_ns()
        await environment.restart()
        self._begin_log(environment, request)
        self._record_begin(environment, request, metered)
        try:
            outcome = await environment.start(timeout_s)
        except StartFailed as failure:
            raise ServiceError(500, "ServiceException", f"The environment could not start: {failure}.") from failure
        metered.duration_ns = outcome.lambda_ns
        if outcome.ending is Ending.RESPONSE:
            left_s = timeout_s - outcome.lambda_ns / 1e9
            deadline_ms = time.time_ns() // 1_000_000 + round(left_s * 1000)
            outcome = await environment.invoke(request.handed_out(deadline_ms), left_s)
            metered.duration_ns += outcome.lambda_ns
        return self._conclude(environment, request, metered, outcome)

    def _record_begin(self, environment: Environment, request: Request, metered: Metered) -> None:
        """Tell what the invocation is billed by as long as it runs; its metered record comes at its end."""
        function = request.target.function
        self._host.record(
            {
                "record": "begin",
                "of": "invocation",
                "id": request.request_id,
                "function": function.name,
                "environment": environment.id,
                "memory_mb": function.memory_mb,
                "architecture": function.architecture,
                "ephemeral_mb": function.ephemeral_mb,
                "init_ms": metered.init_ms,
                "start_ns": metered.start_ns,
            }
        )

    def _conclude(self, environment: Environment, request: Request, metered: Metered, outcome: Outcome) -> Response:
        """Write the log's last lines, hand the metered record on, and shape the answer."""
        function, request_id = request.target.function, request.request_id
        failure = self._failure(outcome, request)
        duration_ms = round(metered.duration_ns / 1e6, 2)
        if failure.error_type == "Sandbox.Timedout":
            # The clock is read a little after the limit; AWS reports the limit itself.
            duration_ms = float(function.timeout_s * 1000)
        init, init_ms = metered.init, metered.init_ms
        memory_mb = peak_mb(outcome, function.memory_mb)
        report = report_line(
            request_id, duration_ms, init_ms, function.memory_mb, memory_mb, failure.status, failure.error_type
        )
        lines = ""
        if outcome.ending in (Ending.EXIT, Ending.OUT_OF_MEMORY):
            lines = f"{json.loads(failure.payload)['errorMessage']}\n{failure.error_type}\n"
        lines += f"END RequestId: {request_id}\n{report}"
        if outcome.ending is Ending.TIMEOUT:
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
            lines += f"{stamp}Z {request_id} Task timed out after {function.timeout_s:.2f} seconds\n\n"
        environment.log.write(lines.encode())
        cgroup_peak = outcome.cgroup_peak_bytes
        # A failed initialisation is the outcome itself and must not count twice.
        phases = [outcome] if init is None or init is outcome else [init, outcome]
        record = InvocationRecord(
            request_id=request_id,
            function=function.name,
            version=function.version,
            environment=environment.id,
            memory_mb=function.memory_mb,
            cpu_share=cpu_share(function.memory_mb),
            architecture=function.architecture,
            ephemeral_mb=function.ephemeral_mb,
            invocation_type=request.kind,
            cold_start=init is not None,
            template=self._host.sandboxes.template,
            init_ms=init_ms,
            duration_ms=duration_ms,
            billed_ms=billed_ms(duration_ms, init_ms),
            max_memory_mb=memory_mb,
            cgroup_peak_mb=None if cgroup_peak is None else -(-cgroup_peak // MB),
            cpu_ms=round(sum(phase.cpu_ns for phase in phases) / 1e6, 3),
            host_delay_ms=round(sum(phase.host_delay_ns for phase in phases) / 1e6, 3),
            status=failure.status,
            error_type=failure.error_type or None,
            started_at=metered.started.isoformat(timespec="milliseconds"),
            start_ns=metered.start_ns,
            end_ns=time.monotonic_ns(),
            report=report,
        )
        self._on_record(record)
        return Response(
            status=200,
            payload=failure.payload,
            request_id=request_id,
            function_error="Unhandled" if failure.error_type else None,
            log_tail=environment.log.tail(),
        )

    def _failure(self, outcome: Outcome, request: Request) -> Failure:
        """The invocation's payload and status as AWS shapes them."""
        request_id, timeout_s = request.request_id, request.target.function.timeout_s
        if outcome.ending is Ending.TIMEOUT:
            message = f"RequestId: {request_id} Error: Task timed out after {timeout_s:.2f} seconds"
            return _shaped("Sandbox.Timedout", message, "timeout")
        if outcome.ending is Ending.OUT_OF_MEMORY:
            # assumed: the type is what AWS's telemetry names; the message is the one of public logs.
            message = f"RequestId: {request_id} Error: Runtime exited with error: signal: killed"
            return _shaped("Runtime.OutOfMemory", message, "error")
        if outcome.report is None:
            message = f"RequestId: {request_id} Error: {exit_reason(outcome.exit_status)}"
            return _shaped("Runtime.ExitError", message, "error")
        if outcome.report.kind == "response":
            size, limit = len(outcome.report.body), self._limits.response_bytes
            if size > limit:
                message = f"Response payload size ({size} bytes) exceeded maximum allowed payload size ({limit} bytes)."
                return _shaped("Function.ResponseSizeTooLarge", message, "error")
            return Failure("", outcome.report.body, "success")
        return Failure(outcome.report.error_type, outcome.report.body, "error")

    @staticmethod
    def _begin_log(environment: Environment, request: Request) -> None:
        environment.log.begin(request.request_id, request.target.function.version)


def _shaped(error_type: str, message: str, status: str) -> Failure:
    payload = json.dumps({"errorType": error_type, "errorMessage": message}, separators=(",", ":"))
    return Failure(error_type, payload.encode(), status)


def _too_large(size: int, kind: str, limit: int) -> ServiceError:
    message = f"{size} byte payload is too large for the {kind} invocation type (limit {limit} bytes)"
    return ServiceError(413, "RequestTooLargeException", message)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _checked(payload: bytes) -> bytes:
    """The payload, which must be JSON; an empty one is an empty object, as AWS treats it."""
    if not payload:
        return b"{}"
    try:
        json.loads(payload.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        message = f"Could not parse request body into json: {error}"
        raise ServiceError(400, "InvalidRequestContentException", message) from error
    return payload
