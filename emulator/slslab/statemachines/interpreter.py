"""Run moto's interpreter of the Amazon States Language: parse programs, and evaluate them with our history.

moto_patches.py replaces parts of it, and tasks.py its Tasks; `prepare` applies both, once per process.
"""

import copy
import json
import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from moto.stepfunctions.parser import utils
from moto.stepfunctions.parser.api import StateMachineType
from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackOutcome
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.evaluation_details import AWSExecutionDetails
from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext
from moto.stepfunctions.parser.asl.eval.program_state import ProgramTimedOut
from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError
from slslab.aws.limits import Limits
from slslab.host.litter import Litter

# Importing jsonpath and variables registers what they replace.
from slslab.statemachines import bounded, jsonpath, moto_patches, tasks, variables  # noqa: F401
from slslab.statemachines.definitions import invalid_definition
from slslab.statemachines.history import History

# Longest excerpt of moto's message in a refusal: some messages show the whole tree.
SHOWN = 200


def prepare(lambda_client: Any, limits: Limits) -> None:
    """Make moto's interpreter call Lambda with this client, enforce these limits, and behave like AWS."""
    logging.getLogger("moto").setLevel(logging.CRITICAL)  # failures are in the execution's history
    moto_patches.patch(limits)
    tasks.connect(lambda_client, limits)


def parse(definition: str) -> Any:
    """Parse a definition into a program; ServiceError (InvalidDefinition) if the interpreter rejects it."""
    try:
        if "ToleratedFailure" in definition or "ProcessorConfig" in definition:
            definition = json.dumps(json.loads(definition, object_hook=_without_idle_fields))
        program = AmazonStateLanguageParser.parse(definition)[0]
        copy.deepcopy(program)  # as each execution does
    except RecursionError as error:
        raise invalid_definition("SCHEMA_VALIDATION_FAILED: The definition is nested too deeply for slslab") from error
    except Exception as error:  # its preprocessor raises errors of any type
        raise invalid_definition(f"SCHEMA_VALIDATION_FAILED: {str(error)[:SHOWN]}") from error
    finally:
        LITTER.collect()
    if '"JSONata"' in definition:
        bounded.POOL.warm()
    return program


def _without_idle_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Return an object without fields that have no effect in an inline Map: moto's grammar misreads some of them."""
    is_map = given.get("Type") == "Map" and not given.keys().isdisjoint(("ItemProcessor", "Iterator"))
    idle = "ToleratedFailure" if is_map else "ProcessorConfig" if "StartAt" in given else None
    return {name: value for name, value in given.items() if idle is None or not name.startswith(idle)}


LITTER = Litter()


class Run:
    """One evaluation of a program.

    `context` is the execution's Context object, which states read as `$$`; `started` holds the details of its first
    event. https://docs.aws.amazon.com/step-functions/latest/dg/input-output-contextobject.html
    """

    def __init__(self, program: Any, context: dict[str, Any], history: History, started: Mapping[str, Any]) -> None:
        # Parsing takes twenty times as long as copying, and evaluation modifies the program.
        self._program = copy.deepcopy(program)
        self._history = history
        self._started = started
        self._environment = Environment(
            aws_execution_details=AWSExecutionDetails(ACCOUNT, REGION, started["roleArn"]),
            execution_type=StateMachineType.STANDARD,
            context=context,
            event_history_context=EventHistoryContext.of_program_start(),
            cloud_watch_logging_session=None,
            activity_store={},
        )
        self._environment.event_manager = history
        self._answering = threading.Lock()

    def evaluate(self) -> None:
        """Run until the program ends, times out or is stopped."""
        context = self._environment.event_history_context
        self._history.add_event(
            context, "ExecutionStarted", {"executionStartedEventDetails": self._started}, update_source_event_id=False
        )
        try:
            self._program.eval(self._environment)
        except RuntimeError as error:  # no thread can be started
            details = {"error": "States.Runtime", "cause": f"slslab can't run it: {error}."}
            self._history.close("ExecutionFailed", {"executionFailedEventDetails": details})
        if isinstance(self._environment.program_state(), ProgramTimedOut):
            self._history.add_event(context, "ExecutionTimedOut", {"executionTimedOutEventDetails": {}})
        utils.TMP_THREADS.clear()  # moto keeps every thread that it has started
        self._program = None  # executions are kept, and a large program takes 50 MB
        LITTER.collect()

    def stop(self) -> None:
        """Stop evaluating; Lambda invocations continue, as on AWS."""
        self._environment.set_stop(stop_date=datetime.now(UTC), error=None, cause=None)

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
