"""Run invocations: accept → lease an environment → run → answer; meter each one.

Failures look as recorded from AWS: status 200 with `FunctionError: Unhandled` and a payload that names the error
(https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html and the recordings that the design cites).
"""

import asyncio
import base64
import json
import os
import struct
import time
import uuid
import zlib
from collections.abc import Callable, Container, Coroutine, Set
from datetime import UTC, datetime
from functools import partial
from typing import Any

from slslab.aws.errors import ServiceError
from slslab.aws.gate import WholeResponse
from slslab.aws.json_text import parse_json
from slslab.aws.limits import MB, billed_ms, cpu_share, init_share, lambda_limits
from slslab.aws.signatures import IndexedHeaders
from slslab.lambda_.api import Call, Operations
from slslab.lambda_.configuration import Function
from slslab.lambda_.events import Asynchronous, Request, Response
from slslab.lambda_.functions import Functions, Target
from slslab.lambda_.hosts import Ending, ExecutionEnvironment, Hosts, PhaseEnd, State, exit_reason
from slslab.lambda_.packages import Packages
from slslab.lambda_.pool import Pool
from slslab.lambda_.references import function_arn
from slslab.lambda_.runtime_api import NextInvocation
from slslab.lambda_.stack_client import StackClient
from slslab.run.events import own_event
from slslab.run.records import InvocationRecord, billed_requests, report_line

# https://smithy.io/2.0/aws/amazon-eventstream.html
MEDIA_TYPE = "application/vnd.amazon.eventstream"
EVENT_STRING = 7


def event_message(event: str, content_type: str, payload: bytes) -> bytes:
    """Return one event: its headers, its payload, and two checksums, of its lengths and of everything."""
    values = {":message-type": "event", ":event-type": event, ":content-type": content_type}
    headers = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", EVENT_STRING, len(value)) + value.encode()
        for name, value in values.items()
    )
    lengths = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = lengths + struct.pack("!I", zlib.crc32(lengths)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))


CLOSE_LIMIT_S = 5.0


class InvocationService(Operations):
    """Runs invocations of one emulator's functions in environments that are reused while warm.

    `on_event` receives trace records and `on_record` metered invocations; the `stack` receives the records of events.
    """

    def __init__(
        self,
        functions: Functions,
        packages: Packages,
        hosts: Hosts,
        on_event: Callable[[dict[str, Any]], None],
        on_record: Callable[[InvocationRecord], None],
        stack: StackClient,
    ) -> None:
        self._functions = functions
        self._packages = packages
        self._limits = functions.limits
        self._on_event = on_event
        self._on_record = on_record
        self.pool = Pool(functions, hosts, on_event, self.remove_unused_packages)
        self._asynchronous = Asynchronous(functions, self._run, stack)
        self._accepted: dict[asyncio.Task[Any], Function] = {}

    async def _invoke(self, call: Call) -> WholeResponse:
        target = self._functions.route(call.name, call.qualifier)
        headers = call.headers
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        trace_id = headers.get("x-amzn-trace-id") or new_trace_id()
        context = _client_context(headers)
        if kind == "DryRun":
            return WholeResponse(b"", 204)
        if kind == "Event":
            request_id = self.accept_event(target, call.body, trace_id)
            return WholeResponse(b"", 202, {"x-amzn-RequestId": request_id, "X-Amzn-Trace-Id": trace_id})
        result = await self.invoke(target, call.body, trace_id, context, call.caller.function)
        answered = _answered(result, trace_id)
        if result.function_error is not None:
            answered["X-Amz-Function-Error"] = result.function_error
        if headers.get("x-amz-log-type") == "Tail":
            answered["X-Amz-Log-Result"] = base64.b64encode(result.log_tail).decode()
        return WholeResponse(result.payload, 200, answered, "application/json")

    async def _invoke_with_response_stream(self, call: Call) -> WholeResponse:
        """Answer with a stream of events (recorded).

        A function's answer or error comes as one chunk when it is complete, with Invoke's size limit, because Python's
        runtimes don't stream. The client waits while the function runs, whatever the InvocationType.
        """
        target = self._functions.route(call.name, call.qualifier)
        headers = call.headers
        trace_id = headers.get("x-amzn-trace-id") or new_trace_id()
        result = await self.invoke(target, call.body, trace_id, _client_context(headers), call.caller.function)
        complete = {}
        if headers.get("x-amz-log-type") == "Tail":
            complete["LogResult"] = base64.b64encode(result.log_tail).decode()
        chunk = event_message("PayloadChunk", "application/octet-stream", result.payload) if result.payload else b""
        end = event_message("InvokeComplete", "application/json", json.dumps(complete).encode())
        answered = {**_answered(result, trace_id), "x-amzn-remapped-content-type": "application/json"}
        return WholeResponse(chunk + end, 200, answered, MEDIA_TYPE)

    def invoke(
        self,
        target: Target,
        payload: bytes,
        trace_id: str,
        client_context: str | None = None,
        caller: str = "",
        request_id: str = "",
    ) -> Coroutine[Any, Any, Response]:
        """Run a synchronous invocation to its end, with a new request id unless one is given."""
        kind = "RequestResponse"
        payload = _checked(payload, kind, self._limits.request_bytes)
        request_id = request_id or str(uuid.uuid4())
        return self._run(Request(target, payload, request_id, trace_id, kind, client_context, caller))

    def accept_event(self, target: Target, payload: bytes, trace_id: str) -> str:
        """Queue an asynchronous invocation and return its request id at once."""
        return self._asynchronous.accept(target, _checked(payload, "Event", self._limits.event_bytes), trace_id)

    def retire(self) -> None:
        """Start to end idle environments of deleted versions, and to remove packages that nothing needs any more."""
        self.pool.retire_outdated()
        self.remove_unused_packages()

    def remove_unused_packages(self) -> None:
        """Start to remove the packages that no version, environment or accepted invocation needs any more."""
        running = [*(environment.function for environment in self.pool.environments()), *self._accepted.values()]
        needed = [code for function in (*self._functions.all_versions(), *running) for code in function.codes]
        self._packages.remove_unused([*self._functions.layers.codes(), *needed])

    async def end(self, names: Container[str] | None = None) -> None:
        """End the running invocations of these deleted functions, or of all, and wait until they are metered."""
        await self.pool.end(names)
        await _wait_metered({task for task, f in self._accepted.items() if names is None or f.name in names})

    async def close(self) -> None:
        """End everything: queued events, running and idle environments."""
        self.pool.close()
        events = self._asynchronous.close()
        for task in events - self._accepted.keys():
            task.cancel()
        await self.pool.end()
        await _wait_metered(events | self._accepted.keys())

    async def _run(self, request: Request) -> Response:
        task = asyncio.current_task()
        assert task is not None
        function, accepted_ns = request.target.function, time.monotonic_ns()
        self.pool.concurrency.take(function.name)
        self._accepted[task] = function
        try:
            response = await self.pool.run(request, self._execute)
            self._on_event(
                own_event(
                    "invoke",
                    accepted_ns,
                    request.request_id,
                    resource=function.name,
                    function=function.name,
                    environment=response.environment,
                    failed=response.function_error is not None,
                )
            )
            return response
        finally:
            self.pool.concurrency.give_back(function.name)
            del self._accepted[task]
            if not self._functions.is_current(function):
                self.remove_unused_packages()

    async def _execute(self, environment: ExecutionEnvironment, init: PhaseEnd | None, request: Request) -> Response:
        start_ns, timeout_s = time.monotonic_ns(), request.target.function.timeout_s
        if init is not None and init.ending is not Ending.RESPONSE:
            # documented: an Init phase that fails is reported by INIT_REPORT and repeated in the Invoke phase, under
            # the function's own time-out; assumed here: one that ended in the handler's own error is not repeated.
            timed_out = init.ending is Ending.TIMEOUT
            error_type = "" if timed_out else self._result(init, request)[0]
            environment.log.end_init(init.lambda_ms, "timeout" if timed_out else "error", error_type)
            if timed_out:
                return await self._initialise_in_invoke(environment, init, request)
            environment.log.start(request.request_id)
            return self._conclude(environment, init, [], request, start_ns)
        if init is not None:
            environment.log.end_init(init.lambda_ms, "success", "")
        if environment.state is State.RESET:
            return await self._initialise_in_invoke(environment, init, request)
        begin = partial(self._begin, environment, init, request, start_ns)
        phase = await environment.invoke(_handed_out(request, timeout_s), timeout_s, begin)
        return self._conclude(environment, init, [phase], request, start_ns)

    async def _initialise_in_invoke(
        self, environment: ExecutionEnvironment, init: PhaseEnd | None, request: Request
    ) -> Response:
        """Repeat the Init phase within the invocation's duration, after an Init that exceeded 10 s, or after a reset.

        documented: lambda-runtime-environment.html calls the latter a suppressed init: the log does not report it, but
        the REPORT line's duration includes it.
        """
        start_ns, timeout_s = time.monotonic_ns(), request.target.function.timeout_s
        await environment.reset()
        self._begin(environment, init, request, start_ns)
        try:
            outcome = await environment.start(timeout_s)
        except OSError as failure:
            raise ServiceError(500, "ServiceException", f"The environment could not start: {failure}.") from failure
        phases = [outcome]
        if outcome.ending is Ending.RESPONSE:
            left_s = timeout_s - outcome.lambda_ns / 1e9
            phases.append(await environment.invoke(_handed_out(request, left_s), left_s, lambda: None))
        return self._conclude(environment, init, phases, request, start_ns)

    def _begin(self, environment: ExecutionEnvironment, init: PhaseEnd | None, request: Request, start_ns: int) -> None:
        function = request.target.function
        environment.log.start(request.request_id)
        self._on_event(
            {
                "record": "begin",
                "of": "invocation",
                "id": request.request_id,
                "function": function.name,
                "environment": environment.id,
                "memory_mb": function.memory_mb,
                "architecture": function.architecture,
                "ephemeral_mb": function.ephemeral_mb,
                "init_ms": None if init is None else init.lambda_ms,
                "start_ns": start_ns,
            }
        )

    def _conclude(
        self,
        environment: ExecutionEnvironment,
        init: PhaseEnd | None,
        invoke_phases: list[PhaseEnd],
        request: Request,
        start_ns: int,
    ) -> Response:
        """Record an invocation that began at `start_ns`: a cold start's Init phase, and the `invoke_phases`, which make
        up its duration."""
        function, request_id = request.target.function, request.request_id
        init_ms = None if init is None else init.lambda_ms
        phases = invoke_phases if init is None else [init, *invoke_phases]
        outcome = phases[-1]
        uncertain_ns = [phase.uncertain_ns for phase in phases if phase.uncertain_ns is not None]
        error_type, payload = self._result(outcome, request)
        # Don't count the host's time before and after.
        duration_ms = round(sum([phase.lambda_ns for phase in invoke_phases]) / 1e6, 2)
        status = "error" if error_type else "success"
        if outcome.ending is Ending.TIMEOUT:
            # The clock is read a little after the limit; AWS reports the limit itself.
            duration_ms, status = float(function.timeout_s * 1000), "timeout"
        # Max Memory Used: the peak rounded up, or the whole memory size when it was exhausted.
        exhausted = outcome.ending is Ending.OUT_OF_MEMORY
        memory_mb = function.memory_mb if exhausted else -(-outcome.peak_bytes // MB)
        started_s = (time.time_ns() - time.monotonic_ns() + start_ns) / 1e9
        ended = exhausted or outcome.ending is Ending.EXIT
        cause = str(json.loads(payload)["errorMessage"]) if ended else ""
        cgroup_peak, (gpu, gpu_bytes) = outcome.cgroup_peak_bytes, outcome.gpu or (None, 0)
        record = InvocationRecord(
            request_id=request_id,
            function=function.name,
            version=function.version,
            environment=environment.id,
            memory_mb=function.memory_mb,
            cpu_share=cpu_share(function.memory_mb),
            init_cpu_share=init_share(function.memory_mb),
            quota_period_ms=lambda_limits().quota_period_ms,
            architecture=function.architecture,
            ephemeral_mb=function.ephemeral_mb,
            invocation_type=request.kind,
            cold_start=init is not None,
            template=self.pool.hosts.template,
            init_ms=init_ms,
            duration_ms=duration_ms,
            billed_ms=billed_ms(duration_ms, init_ms),
            max_memory_mb=memory_mb,
            cgroup_peak_mb=None if cgroup_peak is None else -(-cgroup_peak // MB),
            cpu_ms=round(sum([phase.cpu_ns for phase in phases]) / 1e6, 3),
            host_delay_ms=round(sum([phase.host_delay_ns for phase in phases]) / 1e6, 3),
            uncertain_ms=round(sum(uncertain_ns) / 1e6, 3) if uncertain_ns else None,
            status=status,
            error_type=error_type or None,
            started_at=datetime.fromtimestamp(started_s, UTC).isoformat(timespec="milliseconds"),
            start_ns=invoke_phases[0].began_ns if invoke_phases else start_ns,
            end_ns=invoke_phases[-1].ended_ns if invoke_phases else start_ns,
            report=report_line(request_id, duration_ms, init_ms, function.memory_mb, memory_mb, status, error_type),
            requests=billed_requests(request.kind, len(request.payload)),
            init_cpu_ms=None if init is None else round(init.cpu_ns / 1e6, 3),
            gpu=gpu,
            max_gpu_memory_mb=None if gpu is None else -(-gpu_bytes // MB),
        )
        environment.log.end(record, cause)
        self._on_record(record)
        return Response(
            payload=payload,
            request_id=request_id,
            environment=environment.id,
            function_error="Unhandled" if error_type else None,
            version=function.version,
            log_tail=environment.log.tail,
        )

    def _result(self, outcome: PhaseEnd, request: Request) -> tuple[str, bytes]:
        """Return the error's type, empty after a success, and the payload."""
        request_id, timeout_s = request.request_id, request.target.function.timeout_s
        if outcome.ending is Ending.TIMEOUT:
            return _error(
                "Sandbox.Timedout", f"RequestId: {request_id} Error: Task timed out after {timeout_s:.2f} seconds"
            )
        if outcome.ending is Ending.OUT_OF_MEMORY:
            # assumed: the type is the one in AWS's telemetry; the message is the one in public logs.
            return _error(
                "Runtime.OutOfMemory", f"RequestId: {request_id} Error: Runtime exited with error: signal: killed"
            )
        if outcome.report is None:
            return _error("Runtime.ExitError", f"RequestId: {request_id} Error: {exit_reason(outcome.exit_status)}")
        limit = self._limits.response_bytes
        if len(outcome.report.body) > limit:
            return _error(
                "Function.ResponseSizeTooLarge",
                f"Response payload size exceeded maximum allowed payload size ({limit} bytes).",
            )
        if outcome.report.kind == "response":
            return "", outcome.report.body
        return outcome.report.error_type, outcome.report.body


def _answered(result: Response, trace_id: str) -> dict[str, str]:
    return {
        "x-amzn-RequestId": result.request_id,
        "X-Amzn-Trace-Id": trace_id,
        "X-Amz-Executed-Version": result.version,
    }


def new_trace_id() -> str:
    """Return a trace id for a request without one."""
    digits = os.urandom(24).hex()
    return f"Root=1-{digits[:8]}-{digits[8:32]};Parent={digits[32:]};Sampled=0"


def _handed_out(request: Request, limit_s: float) -> NextInvocation:
    deadline_ms = time.time_ns() // 1_000_000 + round(limit_s * 1000)
    # The function's context shows the ARN as the caller gave it.
    arn = function_arn(request.target.function.name, request.target.qualifier)
    return NextInvocation(
        request.request_id, request.payload, arn, deadline_ms, request.trace_id, request.client_context
    )


async def _wait_metered(tasks: Set[asyncio.Task[Any]]) -> None:
    """Wait for invocations that are being ended: what ran until now is metered and billed."""
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSE_LIMIT_S)


def _error(error_type: str, message: str) -> tuple[str, bytes]:
    document = {"errorType": error_type, "errorMessage": message}
    return error_type, json.dumps(document, separators=(",", ":")).encode()


def _checked(payload: bytes, kind: str, limit: int) -> bytes:
    """Return a payload that is JSON within the limit; an empty one becomes an empty object, as on AWS."""
    if len(payload) > limit:
        raise ServiceError(
            413,
            "RequestTooLargeException",
            f"{len(payload)} byte payload is too large for the {kind} invocation type (limit {limit} bytes)",
        )
    if not payload:
        return b"{}"
    try:
        parse_json(payload)
    except (ValueError, RecursionError) as error:
        raise ServiceError(
            400,
            "InvalidRequestContentException",
            f"Could not parse request body into json: Could not parse payload into json: {error}",
        ) from error
    return payload


def _client_context(headers: IndexedHeaders) -> str | None:
    header = headers.get("x-amz-client-context")
    if header is None:
        return None
    try:
        # Serialised again: it becomes a header of the Runtime API, which must be one line.
        return json.dumps(json.loads(base64.b64decode(header, validate=True)))
    except (ValueError, RecursionError) as error:
        raise ServiceError(
            400, "InvalidRequestContentException", "Client context must be a valid Base64-encoded JSON object."
        ) from error
