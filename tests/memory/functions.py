"""AWS Lambda in memory: the emulator's own service, pool and environments, and boto3's client of them."""

import base64
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import botocore.exceptions
from tests.memory.processes import Kernel, Sandbox

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring
from slslab.aws.limits import lambda_limits
from slslab.host.procfs import NO_STALLS
from slslab.lambda_.configuration import Function
from slslab.lambda_.environment import Environment, LocalHost
from slslab.lambda_.events import EventInvokeConfigs
from slslab.lambda_.functions import Functions
from slslab.lambda_.invocation import InvocationService, new_trace_id
from slslab.lambda_.log_events import LogEvents
from slslab.lambda_.packages import Code
from slslab.run.records import InvocationRecord
from slslab_lab.runs.recorder import Recorder
from slslab_lab.runs.throttling import Throttling

# More memory than the functions of any run have together.
BUDGET_MB = 1 << 20
# How long it takes to ask Lambda for something, s, drawn evenly between.
REQUEST_S = (0.002, 0.02)


class Memory(LocalHost):
    """A host without a kernel: nothing says for how long something has waited."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(lambda_limits(), BUDGET_MB)
        self.pressure: Any = SimpleNamespace(known=False, stalls=lambda: NO_STALLS)
        self.address, self._kernel = kernel.address, kernel

    async def runtime(self, _function: Function) -> str:
        return "a strand"

    async def start(self, environment: Environment, former: Any = None) -> Any:
        return Sandbox(self._kernel, environment, former)

    def find_image(self, uri: str) -> NoReturn:
        raise NotImplementedError


class Lambda:
    """Lambda, and boto3's client of it as far as this project's drivers and workers use it.

    `store` puts the record of a failed event into a bucket, under a key. Once it is closed, all has been metered.
    """

    exceptions = SimpleNamespace(ResourceNotFoundException=type("ResourceNotFoundException", (Exception,), {}))

    def __init__(
        self, kernel: Kernel, recorder: Recorder, home: Path, store: Callable[[str, str, bytes], object]
    ) -> None:
        self._kernel = kernel
        limits = lambda_limits()
        self._log_events = LogEvents(home, home / "logs", limits.log_tail_bytes)
        self._functions = Functions(limits)
        unpacked: Any = SimpleNamespace(remove_unused=lambda _codes: None)
        stack: Any = SimpleNamespace(store=store, send=None)
        keys = Keyring()
        hosts = Memory(kernel)
        hosts.share(
            emulator_id="memory",
            home=home / "environments",
            variables={},
            credentials=lambda name: keys.function(name).variables(),
            open_log=self._log_events.open,
            record=recorder.event,
        )

        def on_record(record: InvocationRecord) -> None:
            recorder.event(record.as_record())

        self._service = InvocationService(self._functions, unpacked, hosts, recorder.event, on_record, stack)
        throttling = Throttling(kernel.faults, recorder.plan.run, limits.retry_after_s, recorder.event)
        self._service.pool.fault = throttling.check

    async def end(self) -> None:
        """End everything, as the emulator's end does."""
        await self._service.close()
        self._log_events.close()

    def names(self) -> list[str]:
        """Return the names of the functions that are there."""
        return [entry.latest.name for entry in self._functions.entries()]

    def create_function(self, **request: Any) -> dict[str, Any]:
        return self._functions.create(request, Code(None, 0, ""))

    def get_waiter(self, _name: str) -> Any:
        return SimpleNamespace(wait=lambda **_: None)

    def put_function_event_invoke_config(self, *, FunctionName: str, **request: Any) -> None:
        EventInvokeConfigs(self._functions).put(FunctionName, None, request, keep=False)

    def delete_function(self, *, FunctionName: str) -> None:
        if not self._functions.exists(FunctionName):
            raise self.exceptions.ResourceNotFoundException
        self._functions.delete(FunctionName, None)
        self._service.retire()

    def close(self) -> None:
        """Do nothing, as there isn't a connection."""

    def invoke(
        self, *, FunctionName: str, Payload: bytes, InvocationType: str = "RequestResponse", **_: Any
    ) -> dict[str, Any]:
        strand = self._kernel.clock.strand()
        strand.rest(self._kernel.drawn(REQUEST_S))
        asked = self._event if InvocationType == "Event" else self._answer
        # A state machine's Tasks name functions by their ARNs.
        name = FunctionName.rpartition(":")[2]
        answer = strand.wait_for(strand.clock.loop.create_task(asked(name, Payload)))
        if isinstance(answer, ServiceError):
            refused: Any = {
                "Error": {"Code": answer.error_type, "Message": answer.message},
                "ResponseMetadata": {"HTTPStatusCode": answer.status},
            }
            raise botocore.exceptions.ClientError(refused, "Invoke")
        return {**answer, "Payload": io.BytesIO(answer["Payload"])}

    async def _answer(self, name: str, payload: bytes) -> Mapping[str, Any] | ServiceError:
        try:
            response = await self._service.invoke(self._functions.route(name), payload, new_trace_id())
        except ServiceError as error:
            return error
        failed = {} if response.function_error is None else {"FunctionError": response.function_error}
        answer = {"Payload": response.payload, "LogResult": base64.b64encode(response.log_tail).decode(), **failed}
        return {**answer, "StatusCode": 200, "ResponseMetadata": {"RequestId": response.request_id, "HTTPHeaders": {}}}

    async def _event(self, name: str, payload: bytes) -> Mapping[str, Any] | ServiceError:
        try:
            self._service.accept_event(self._functions.route(name), payload, new_trace_id())
        except ServiceError as error:
            return error
        return {"Payload": b""}
