"""Hold the executions of state machines, as the API presents them."""

import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackOutcome

from slslab.aws.errors import ServiceError, constraint
from slslab.aws.json_text import parse_json
from slslab.aws.limits import Limits
from slslab.statemachines.definitions import invalid_definition, problems
from slslab.statemachines.history import STATUSES, History, transition_event
from slslab.statemachines.interpreter import Run, parse
from slslab.statemachines.machines import PREFIX, Machine, Registry, check_arn, check_name

Record = Callable[[dict[str, Any]], None]
ENDING = ("output", "error", "cause")


class Execution:
    """One execution: its input, its history and its evaluation."""

    def __init__(
        self, machine: Machine, started_by: dict[str, str], name: str, text: str, limits: Limits, record: Record
    ) -> None:
        self.machine = machine
        # The alias and the version by which it was started.
        self.started_by = started_by
        self.name = name
        self.arn = f"{PREFIX}:execution:{machine.name}:{name}"
        self.input = text
        self.started = datetime.now(UTC)
        document = parse_json(text)
        self.history = History(
            limits.history_events,
            lambda transition: record(transition_event(name, document, transition)),
            lambda: self.run.stop(),
        )
        context = {
            "Execution": {
                "Id": self.arn,
                "Input": document,
                "StartTime": self.started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "Name": name,
                "RoleArn": machine.role,
                "RedriveCount": 0,
            },
            "StateMachine": {"Id": machine.arn, "Name": machine.name},
        }
        started = {
            "input": text,
            "inputDetails": {"truncated": False},
            "roleArn": machine.role,
            **started_by,
        }
        self.run = Run(machine.program, context, self.history, started)

    @property
    def status(self) -> str:
        """The API's ExecutionStatus."""
        return "RUNNING" if self.history.end is None else STATUSES[self.history.end["type"]]

    @property
    def stopped(self) -> float | None:
        """When it ended, in seconds since the epoch, or None."""
        return None if self.history.end is None else float(self.history.end["timestamp"])

    def ending(self) -> dict[str, Any]:
        """Return how it has ended, as members of DescribeExecution: `output`, or `error` and `cause`."""
        details = [value for value in (self.history.end or {}).values() if isinstance(value, dict)]
        ending = {name: detail[name] for detail in details for name in ENDING if detail.get(name) is not None}
        return {**ending, "outputDetails": {"included": True}} if "output" in ending else ending


class Machines:
    """All state machines and executions; thread-safe. `record` receives the trace's transition events."""

    def __init__(self, limits: Limits, record: Record) -> None:
        self._limits = limits
        self._record = record
        self.definition_bytes = limits.definition_bytes
        # Hold this lock to use the registry directly.
        self.lock = threading.RLock()
        self.registry = Registry()
        self._executions: dict[str, Execution] = {}

    def program(self, definition: str) -> Any:
        """Return a definition's program; ServiceError (InvalidDefinition) for an invalid one."""
        if found := problems(definition, self.definition_bytes):
            raise invalid_definition(", ".join(map(str, found)))
        return parse(definition)

    def delete(self, arn: str) -> None:
        """Remove a machine if it exists, with its executions. Running ones are aborted.

        On AWS they end with their next transition, and until then the machine remains as DELETING.
        """
        check_arn(arn, "stateMachine")
        with self.lock:
            self.registry.delete(arn)
            executions = [execution for execution in self._executions.values() if execution.machine.arn == arn]
            for execution in executions:
                del self._executions[execution.arn]
        for execution in executions:
            execution.history.close("ExecutionAborted", {"executionAbortedEventDetails": {}})

    def start(self, arn: str, name: str | None, text: str) -> Execution:
        """Start an execution of a machine, version or alias, or return a running one with the same name and input."""
        name = name if name is not None else str(uuid.uuid4())
        check_name(name)
        if len(text.encode()) > self._limits.state_payload_bytes:
            raise constraint(
                "...",
                "input",
                f"Member must have length less than or equal to {self._limits.state_payload_bytes}",
            )
        try:
            parse_json(text)
        except (ValueError, RecursionError) as error:
            what = error if text.strip() else "Invalid execution input."
            raise ServiceError(
                400, "InvalidExecutionInput", f"Invalid State Machine Execution Input: '{what}'"
            ) from error
        with self.lock:
            machine, started_by = self.registry.target(arn)
        # This copies the program, which takes long.
        new = Execution(machine, started_by, name, text, self._limits, self._record)
        with self.lock:
            execution = self._executions.setdefault(new.arn, new)
        if execution is new:
            threading.Thread(target=new.run.evaluate, name=f"execution-{name}", daemon=True).start()
        elif execution.status != "RUNNING" or execution.input != text:
            raise ServiceError(400, "ExecutionAlreadyExists", f"Execution Already Exists: '{execution.arn}'")
        return execution

    def execution(self, arn: str) -> Execution:
        """Return an execution; ServiceError (ExecutionDoesNotExist, InvalidArn) if it doesn't exist."""
        check_arn(arn, "execution")
        with self.lock:
            if arn not in self._executions:
                raise ServiceError(400, "ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
            return self._executions[arn]

    def executions(self, arn: str | None = None, status: str | None = None) -> list[Execution]:
        """Return the executions of a machine, version or alias (or all) with a status (or any), latest first."""
        with self.lock:
            executions = list(self._executions.values())
        chosen = [
            execution
            for execution in executions
            if arn in (None, execution.machine.arn, *execution.started_by.values())
            and status in (None, execution.status)
        ]
        return sorted(chosen, key=lambda execution: execution.started, reverse=True)

    def answer(self, token: str, outcome: CallbackOutcome | None) -> None:
        """Answer a Task as by `Run.answer`; ServiceError (InvalidToken) for an unknown token."""
        if not any(execution.run.answer(token, outcome) for execution in self.executions()):
            raise ServiceError(400, "InvalidToken", "Invalid Token: 'Invalid token'")

    def close(self) -> None:
        """Abort every execution, so that the trace contains the transitions that were at work."""
        for execution in self.executions(status="RUNNING"):
            execution.history.close("ExecutionAborted", {"executionAbortedEventDetails": {}})
