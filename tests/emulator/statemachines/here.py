"""State machines that run in this process, without a server: for tests of what a state evaluates to."""

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.emulator.statemachines.written import LIMIT_S, ROLE, Definition
from tests.memory.state_machines import StateMachines

from slslab.statemachines.executions import Execution, Machines
from slslab.statemachines.machines import Machine


def _at_once() -> None:
    """Wait for nothing."""


def _nothing(*_arguments: Any, **_members: Any) -> Any:
    """Answer nothing."""
    return {}


def machines(invoke: Callable[..., dict[str, Any]] | None = None) -> Machines:
    """State machines with Tasks that call `invoke` with Lambda's parameters."""
    return StateMachines(_at_once, invoke or _nothing, _nothing).machines


def create(known: Machines, name: str, definition: str) -> Machine:
    """A new machine."""
    return known.registry.create(Machine(name, definition, ROLE, known.program(definition), {}), {})


def begin(definition: Definition, document: Any = None, machine: Machines | None = None) -> Execution:
    """An execution of a new machine."""
    known = machine or machines()
    text = json.dumps({} if document is None else document)
    created = create(known, f"m{time.monotonic_ns()}", json.dumps(definition))
    return known.start(created.arn, None, text)


def finish(execution: Execution) -> Execution:
    """The execution once it has ended."""
    deadline = time.monotonic() + LIMIT_S
    while execution.status == "RUNNING":
        assert time.monotonic() < deadline, [thread.name for thread in threading.enumerate()]
        time.sleep(0.002)
    return execution


def output(definition: Definition, document: Any = None) -> Any:
    """What an execution of a new machine returns."""
    execution = finish(begin(definition, document))
    assert execution.status == "SUCCEEDED", execution.ending()
    return json.loads(execution.ending()["output"])


def failure(definition: Definition, document: Any = None) -> tuple[str, str]:
    """Error and cause of an execution of a new machine, without the state that the cause begins with."""
    execution = finish(begin(definition, document))
    assert execution.status == "FAILED", execution.ending()
    ending = execution.ending()
    cause = re.sub(r"^An error occurred .*?\(entered at the event id #\d+\)\. ", "", ending.get("cause", ""))
    return ending.get("error", ""), cause
