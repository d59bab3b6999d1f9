"""Step Functions in memory: the emulator's own API and interpreter, with strands for threads, and boto3's client."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import botocore.exceptions
from tests.memory.clock import Clock, Event, Strand
from tests.memory.stores import Wait

from slslab.aws.errors import ServiceError
from slslab.aws.limits import lambda_limits
from slslab.statemachines.api import OPERATIONS, StatesApi
from slslab.statemachines.executions import Execution, Machines
from slslab.statemachines.interpreter import prepare

PARSER = "moto.stepfunctions.parser.asl"
PARALLEL = f"{PARSER}.component.state.exec.state_parallel"
# Modules that start threads.
THREADED = (
    "slslab.statemachines.executions",
    f"{PARSER}.component.program.program",
    f"{PARSER}.component.state.exec.execute_state",
    f"{PARALLEL}.branch_worker",
    f"{PARALLEL}.branches_decl",
)
# The interpreter of a process has one client of Lambda: here that of the latest run.
_lambda = SimpleNamespace()


class ExecutionDoesNotExist(botocore.exceptions.ClientError):
    """No execution has this ARN."""


class Thread:
    """`threading.Thread` as a strand."""

    native_id = 0

    def __init__(self, clock: Clock, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any) -> None:
        self._clock = clock
        self._call = partial(target, *args)
        self._ended = Event(clock)

    def start(self) -> None:
        """Have it take turns from now on."""
        Strand(self._clock, self._run)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        """Return whether it has not ended."""
        return not self._ended.is_set()

    def _run(self) -> None:
        try:
            with suppress(SystemExit):  # it ends a thread alone
                self._call()
        finally:
            self._ended.set()


def replaced(clock: Clock) -> dict[str, Any]:
    """Return what the interpreter must find in place of threads, and in place of a clock that gives way to others."""
    threads = {"Thread": partial(Thread, clock), "Event": partial(Event, clock)}
    locks = {"Lock": threading.Lock, "RLock": threading.RLock}
    return {
        **{f"{module}.threading": SimpleNamespace(**threads, **locks) for module in THREADED},
        f"{PARSER}.component.state.exec.execute_state.Thread": threads["Thread"],
        "slslab.statemachines.history.time": SimpleNamespace(monotonic_ns=clock.time_ns, time=clock.time),
    }


class StateMachines:
    """boto3's client of Step Functions, as far as this project uses it; `wait` waits for half of a request.

    Tasks call functions with `invoke`, and `record` receives every state transition. `started` has all executions by
    name, including those deleted with their machine.
    """

    exceptions = SimpleNamespace(ExecutionDoesNotExist=ExecutionDoesNotExist)

    def __init__(
        self, wait: Wait, invoke: Callable[..., dict[str, Any]], record: Callable[[dict[str, Any]], None]
    ) -> None:
        _prepare()
        _lambda.invoke = invoke
        self._wait = wait
        self.machines = Machines(lambda_limits(), record)
        self.started: dict[str, Execution] = {}
        self._api = StatesApi(self.machines)

    def create_state_machine(self, **members: Any) -> dict[str, Any]:
        return self._call("CreateStateMachine", members)

    def delete_state_machine(self, **members: Any) -> dict[str, Any]:
        return self._call("DeleteStateMachine", members)

    def start_execution(self, **members: Any) -> dict[str, Any]:
        answer = self._call("StartExecution", members)
        self.started[members["name"]] = self.machines.execution(answer["executionArn"])
        return answer

    def describe_execution(self, **members: Any) -> dict[str, Any]:
        described = self._call("DescribeExecution", members)
        ended = {"stopDate": datetime.fromtimestamp(described["stopDate"], UTC)} if "stopDate" in described else {}
        return {**described, **ended}

    def stop_execution(self, **members: Any) -> dict[str, Any]:
        return self._call("StopExecution", members)

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_executions"
        return SimpleNamespace(paginate=self._pages)

    def _pages(self, **members: Any) -> Iterator[dict[str, Any]]:
        yield self._call("ListExecutions", members)

    def _call(self, operation: str, members: Mapping[str, Any]) -> dict[str, Any]:
        self._wait()
        try:
            answer: dict[str, Any] = json.loads(json.dumps(OPERATIONS[operation](self._api, members)))
        except ServiceError as error:
            kind = ExecutionDoesNotExist if error.error_type == "ExecutionDoesNotExist" else None
            refused: Any = {"Error": {"Code": error.error_type, "Message": error.message}}
            raise (kind or botocore.exceptions.ClientError)(refused, operation) from error
        self._wait()
        return answer


@cache
def _prepare() -> None:
    prepare(_lambda, lambda_limits())
