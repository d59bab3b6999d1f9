"""Inject a plan's faults into functions: refuse their invocations, kill them, or let them hang until they time out.

This works for any function: the emulator acts on its processes as a host would, and meters the result.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from slslab.aws.errors import throttled
from slslab.errors import RequestError
from slslab.lambda_.events import Request
from slslab.lambda_.hosts import ExecutionEnvironment, State
from slslab.run.events import own_event
from slslab_workers.faults.plan import FUNCTION_KINDS, Fault, FaultPlan
from slslab_workers.plan import PlanError

# A stopped process does nothing until its time-out.
SIGNALS = {"kill": signal.SIGKILL, "timeout": signal.SIGSTOP}
# Seconds between two checks whether an environment is initialised.
LOOK_S = 0.001
Act = Callable[[ExecutionEnvironment], "asyncio.Task[None]"]


def read_function_plan(document: Mapping[str, Any]) -> FaultPlan:
    """Return the plan of function faults in a document; RequestError names an invalid entry."""
    try:
        return FaultPlan.from_document(document, FUNCTION_KINDS)
    except PlanError as error:
        raise RequestError(error.message, error.hint) from error


class FunctionFaults:
    """Injects faults into one emulator's functions. It counts invocations as they are requested, including retries.

    `record` receives the event of every fault that happens.
    """

    def __init__(self, plan: FaultPlan, retry_after_s: int, record: Callable[[dict[str, Any]], None]) -> None:
        self._plan = plan
        self._retry_after_s = retry_after_s
        self._record = record
        self._requested: Counter[str] = Counter()

    def meet(self, request: Request) -> Act | None:
        """Raise TooManyRequestsException if this invocation is throttled; return its environment's fault, if any."""
        function = request.target.function.name
        number = self._requested[function]
        self._requested[function] += 1
        met = [fault for fault in self._plan.faults if fault.is_met(self._plan.seed, function, number)]
        for fault in met:
            if fault.kind == "throttle":
                self._happen(fault, request, "")
                raise throttled("ConcurrentInvocationLimitExceeded", self._retry_after_s)
        return (lambda environment: asyncio.create_task(self._hit(met[0], request, environment))) if met else None

    async def _hit(self, fault: Fault, request: Request, environment: ExecutionEnvironment) -> None:
        while environment.state is not State.BUSY:
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(fault.seconds)
        if environment.state is State.BUSY:
            self._happen(fault, request, environment.id)
            environment.send_signal(SIGNALS[fault.kind])

    def _happen(self, fault: Fault, request: Request, environment: str) -> None:
        where = {"function": request.target.function.name, "environment": environment}
        kind = f"{fault.number} {fault.kind}"
        self._record(own_event("fault", time.monotonic_ns(), request.request_id, resource=kind, **where))
