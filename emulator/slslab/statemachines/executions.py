"""State machines and their executions, as the API sees them."""

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError, constraint
from slslab.aws.limits import Limits
from slslab.lambda_.configuration import ROLE
from slslab.statemachines.definitions import check
from slslab.statemachines.history import History, transition_event
from slslab.statemachines.interpreter import Run, parse

PREFIX = f"arn:aws:states:{REGION}:{ACCOUNT}"
# documented: API_StartExecution.html: "A name must not contain" white space, brackets, wildcards, special and control
# characters.
NAME = re.compile(r"[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}")
Record = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Machine:
    """One revision of a state machine. Times are seconds since the epoch."""

    name: str
    definition: str
    role: str
    program: Any = field(compare=False)
    settings: Mapping[str, Any]
    created: float = field(default_factory=time.time)
    updated: float = 0.0
    revision: str = ""

    @property
    def arn(self) -> str:
        """The machine's ARN."""
        return f"{PREFIX}:stateMachine:{self.name}"


class Execution:
    """One execution: its input, its history, and what evaluates it."""

    def __init__(self, machine: Machine, name: str, text: str, limits: Limits, record: Record) -> None:
        self.machine = machine
        self.name = name
        self.input = text
        self.started = datetime.now(UTC)
        document = json.loads(text)
        self.history = History(
            limits.history_events,
            lambda transition: record(transition_event(name, document, transition)),
            lambda: self.run.stop(),
        )
        context = {
            "Execution": {
                "Id": self.arn,
                "Input": document,
                "Name": name,
                "RoleArn": machine.role,
                "StartTime": self.started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            },
            "StateMachine": {"Id": machine.arn, "Name": machine.name},
        }
        self.run = Run(machine.program, context, self.history)

    @property
    def arn(self) -> str:
        """The execution's ARN."""
        return f"{PREFIX}:execution:{self.machine.name}:{self.name}"

    @property
    def status(self) -> str:
        """ExecutionStatus of the API."""
        return self.history.status

    @property
    def stopped(self) -> float | None:
        """When it ended, in seconds since the epoch."""
        return None if self.history.end is None else float(self.history.end["timestamp"])

    def ending(self) -> dict[str, Any]:
        """Return `output`, or `error` and `cause`, of an execution that has ended."""
        details = [value for value in (self.history.end or {}).values() if isinstance(value, dict)]
        return {key: value for detail in details for key, value in detail.items() if value is not None}


class Machines:
    """All state machines and executions; thread-safe. `record` receives the trace's transition events."""

    def __init__(self, limits: Limits, record: Record) -> None:
        self._limits = limits
        self._record = record
        self._lock = threading.RLock()
        self._machines: dict[str, Machine] = {}
        self._executions: dict[str, Execution] = {}

    def create(self, name: str, definition: str, role: str, settings: Mapping[str, Any]) -> Machine:
        """Return a new machine, or an equal one that exists; ServiceError as CreateStateMachine has it."""
        _check_name(name)
        new = Machine(name, definition, _checked_role(role), self._program(definition), settings)
        with self._lock:
            machine = self._machines.setdefault(new.arn, new)
        # documented: API_CreateStateMachine.html: role and tags do not count for the idempotency.
        if (machine.definition, machine.settings) != (definition, settings):
            raise ServiceError(409, "StateMachineAlreadyExists", f"State Machine Already Exists: '{machine.arn}'")
        return machine

    def update(self, arn: str, definition: str | None, role: str | None, settings: Mapping[str, Any]) -> Machine:
        """Change a machine, for executions that start from now on."""
        program = None if definition is None else self._program(definition)
        with self._lock:
            machine = self.machine(arn)
            self._machines[arn] = replace(
                machine,
                definition=definition if definition is not None else machine.definition,
                program=program if definition is not None else machine.program,
                role=_checked_role(role) if role is not None else machine.role,
                settings={**machine.settings, **settings},
                updated=time.time(),
                revision=str(uuid.uuid4()),
            )
            return self._machines[arn]

    def delete(self, arn: str) -> None:
        """Remove a machine if it exists, with its executions; those that run are aborted.

        On AWS they end with their next transition, and the machine is there as DELETING until then.
        """
        with self._lock:
            self._machines.pop(arn, None)
            executions = [execution for execution in self._executions.values() if execution.machine.arn == arn]
            for execution in executions:
                del self._executions[execution.arn]
        for execution in executions:
            execution.history.close("ExecutionAborted", {"executionAbortedEventDetails": {}})

    def machine(self, arn: str) -> Machine:
        """Return a machine; ServiceError (StateMachineDoesNotExist, InvalidArn) if there is none."""
        _check_arn(arn, "stateMachine")
        with self._lock:
            if arn not in self._machines:
                raise ServiceError(400, "StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")
            return self._machines[arn]

    def machines(self) -> list[Machine]:
        """Return all machines, oldest first."""
        with self._lock:
            return sorted(self._machines.values(), key=lambda machine: machine.created)

    def start(self, arn: str, name: str | None, text: str) -> Execution:
        """Start an execution, or return the one of this name if it runs with the same input."""
        name = name if name is not None else str(uuid.uuid4())
        _check_name(name)
        if len(text.encode()) > self._limits.state_payload_bytes:
            raise constraint(
                "...",
                "input",
                f"Member must have length less than or equal to {self._limits.state_payload_bytes}",
            )
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ServiceError(
                400, "InvalidExecutionInput", f"Invalid State Machine Execution Input: '{error}'"
            ) from error
        with self._lock:
            new = Execution(self.machine(arn), name, text, self._limits, self._record)
            execution = self._executions.setdefault(new.arn, new)
        if execution is new:
            threading.Thread(target=new.run.evaluate, name=f"execution-{name}", daemon=True).start()
        elif execution.status != "RUNNING" or execution.input != text:
            raise ServiceError(400, "ExecutionAlreadyExists", f"Execution Already Exists: '{execution.arn}'")
        return execution

    def execution(self, arn: str) -> Execution:
        """Return an execution; ServiceError (ExecutionDoesNotExist, InvalidArn) if there is none."""
        _check_arn(arn, "execution")
        with self._lock:
            if arn not in self._executions:
                raise ServiceError(400, "ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
            return self._executions[arn]

    def executions(self, arn: str | None = None, status: str | None = None) -> list[Execution]:
        """Return the executions of a machine (or all) in a status (or any), the latest first."""
        with self._lock:
            executions = list(self._executions.values())
        chosen = [e for e in executions if arn in (None, e.machine.arn) and status in (None, e.status)]
        return sorted(chosen, key=lambda execution: execution.started, reverse=True)

    def answer(self, report: Callable[[Run], bool]) -> None:
        """Report on a task token to the execution that waits for it; ServiceError (InvalidToken) if none does."""
        if not any(report(execution.run) for execution in self.executions(status="RUNNING")):
            raise ServiceError(400, "InvalidToken", "Invalid Token: 'Invalid token'")

    def close(self) -> None:
        """Abort every execution, so that the trace has the transitions that were at work."""
        for execution in self.executions(status="RUNNING"):
            execution.history.close("ExecutionAborted", {"executionAbortedEventDetails": {}})

    def _program(self, definition: str) -> Any:
        check(definition, self._limits.definition_bytes)
        return parse(definition)


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ServiceError(400, "InvalidName", f"Invalid Name: '{name}'")


def _check_arn(arn: str, kind: str) -> None:
    if not re.fullmatch(rf"arn:aws:states:[a-z0-9-]+:\d{{12}}:{kind}:[^\s]+", arn):
        raise ServiceError(400, "InvalidArn", f"Invalid Arn: 'Invalid ARN: {arn}'")


def _checked_role(role: str) -> str:
    if not ROLE.fullmatch(role):
        raise ServiceError(400, "InvalidArn", f"Invalid Role Arn: '{role}'")
    return role
