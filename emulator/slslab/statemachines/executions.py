"""Hold the executions of state machines, as the API presents them."""

import copy
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from moto.stepfunctions.parser import utils
from moto.stepfunctions.parser.api import StateMachineType
from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackOutcome
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.evaluation_details import AWSExecutionDetails
from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext
from moto.stepfunctions.parser.asl.eval.program_state import ProgramTimedOut

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError, constraint
from slslab.aws.json_text import parse_json
from slslab.aws.limits import Limits
from slslab.statemachines.definitions import invalid_definition, problems
from slslab.statemachines.history import STATUSES, History, transition_event
from slslab.statemachines.interpreter import LITTER, parse
from slslab.statemachines.machines import PREFIX, Machine, Registry, check_name

Record = Callable[[dict[str, Any]], None]
ENDING = ("output", "error", "cause")


class Execution:
    """One execution: its input, its history and its evaluation.

    https://docs.aws.amazon.com/step-functions/latest/dg/input-output-contextobject.html
    """

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
            limits.history_events, lambda transition: record(transition_event(name, document, transition)), self._stop
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
        # Parsing takes twenty times as long as copying, and evaluation modifies the program.
        self._program = copy.deepcopy(machine.program)
        self._environment = Environment(
            aws_execution_details=AWSExecutionDetails(ACCOUNT, REGION, machine.role),
            execution_type=StateMachineType.STANDARD,
            context=context,
            event_history_context=EventHistoryContext.of_program_start(),
            cloud_watch_logging_session=None,
            activity_store={},
        )
        self._environment.event_manager = self.history
        self._answering = threading.Lock()

    def evaluate(self) -> None:
        """Run until the program ends, times out or is stopped."""
        context = self._environment.event_history_context
        started = {
            "input": self.input,
            "inputDetails": {"truncated": False},
            "roleArn": self.machine.role,
            **self.started_by,
        }
        self.history.add_event(
            context, "ExecutionStarted", {"executionStartedEventDetails": started}, update_source_event_id=False
        )
        try:
            self._program.eval(self._environment)
        except RuntimeError as error:  # no thread can be started
            details = {"error": "States.Runtime", "cause": f"slslab can't run it: {error}."}
            self.history.close("ExecutionFailed", {"executionFailedEventDetails": details})
        if isinstance(self._environment.program_state(), ProgramTimedOut):
            self.history.add_event(context, "ExecutionTimedOut", {"executionTimedOutEventDetails": {}})
        utils.TMP_THREADS.clear()  # moto keeps every thread that it has started
        self._program = None  # executions are kept, and a large program takes 50 MB
        LITTER.collect()

    def _stop(self) -> None:
        """Stop evaluating; Lambda invocations continue, as on AWS."""
        self._environment.set_stop(stop_date=datetime.now(UTC), error=None, cause=None)

    def abort(self, details: Mapping[str, str]) -> None:
        """End it, unless it has ended already; `details` are its error and cause."""
        self.history.close("ExecutionAborted", {"executionAbortedEventDetails": details})

    def answer(self, token: str, outcome: CallbackOutcome | None) -> bool:
        """Answer the Task that waits for this token, or report that its worker still runs (None).

        Return whether one of its Tasks has this token. ServiceError (TaskTimedOut) if the Task no longer waits: a token
        is used once.
        """
        endpoint = self._environment.callback_pool_manager.get(token)
        if endpoint is None:
            return False
        with self._answering:
            # moto sets this event on an answer, and also when the Task ends in another way.
            if endpoint._notify_event.is_set() or not self._environment.is_running():
                raise ServiceError(400, "TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
            if outcome is None:
                endpoint.notify_heartbeat()
            else:
                endpoint.notify(outcome)
        return True

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
        with self.lock:
            self.registry.delete(arn)
            executions = [execution for execution in self._executions.values() if execution.machine.arn == arn]
            for execution in executions:
                del self._executions[execution.arn]
        for execution in executions:
            execution.abort({})

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
            threading.Thread(target=new.evaluate, name=f"execution-{name}", daemon=True).start()
        elif execution.status != "RUNNING" or execution.input != text:
            raise ServiceError(400, "ExecutionAlreadyExists", f"Execution Already Exists: '{execution.arn}'")
        return execution

    def execution(self, arn: str) -> Execution:
        """Return an execution; ServiceError (ExecutionDoesNotExist) if it doesn't exist."""
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
        """Answer a Task as by `Execution.answer`; ServiceError (InvalidToken) for an unknown token."""
        if not any(execution.answer(token, outcome) for execution in self.executions()):
            raise ServiceError(400, "InvalidToken", "Invalid Token: 'Invalid token'")

    def close(self) -> None:
        """Abort every execution, so that the trace contains the transitions that were at work."""
        for execution in self.executions(status="RUNNING"):
            execution.abort({})
