"""The only module that uses moto: its interpreter of the Amazon States Language, and the seams to our code.

moto's interpreter would call Lambda at moto's own port. Everything below replaces an attribute of one of its modules or
classes; `prepare` does so once per process. Tested with the version in constraints.txt.
"""

import copy
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from moto.stepfunctions.parser import quotas, utils
from moto.stepfunctions.parser.api import StateMachineType
from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.error_equals_decl import ErrorEqualsDecl
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent, FailureEventException
from moto.stepfunctions.parser.asl.component.state.exec.execute_state import ExecutionState
from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.inline_iteration_component import (
    InlineIterationComponent,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_lambda
from moto.stepfunctions.parser.asl.eval.callback.callback import (
    CallbackConsumerTimeout,
    CallbackNotifyConsumerError,
    CallbackOutcomeFailure,
    CallbackOutcomeSuccess,
)
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.evaluation_details import AWSExecutionDetails
from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext
from moto.stepfunctions.parser.asl.eval.program_state import ProgramTimedOut
from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError
from slslab.aws.limits import Limits
from slslab.statemachines.definitions import invalid_definition
from slslab.statemachines.history import History

# documented: concepts-error-handling.html: what States.ALL does not match.
UNCATCHABLE = ("States.DataLimitExceeded", "States.Runtime")


class TaskFailure(Exception):
    """A Task's call failed, with the error's name and its cause as AWS shows them."""

    def __init__(self, error: str, cause: str) -> None:
        super().__init__(error)
        self.error = error
        self.cause = cause


class Late(Exception):
    """The answer to a call whose execution has ended meanwhile."""


def prepare(lambda_client: Any, limits: Limits) -> None:
    """Make moto's interpreter call Lambda by this client, and enforce these limits."""
    logging.getLogger("moto").setLevel(logging.CRITICAL)  # failures are in the execution's history
    quotas.MAX_STATE_SIZE_UTF8_BYTES = limits.state_payload_bytes + 1  # it compares by less than

    def function(env: Any, parameters: dict[str, Any], **_: Any) -> None:
        """Evaluate a Task whose resource is a function's ARN: its result is the payload alone."""
        with _failing(env, "LambdaFunctionFailed", "lambdaFunctionFailedEventDetails"):
            payload = _invoke(lambda_client, env, parameters, limits.state_payload_bytes)["Payload"]
            env.stack.append({"Payload": payload})

    def service(state: Any, env: Any, normalised_parameters: dict[str, Any], **_: Any) -> None:
        """Evaluate a Task of the integration `lambda:invoke`: its result is the API's response."""
        resource = {"resource": state.resource.api_action, "resourceType": state.resource.service_name}
        with _failing(env, "TaskFailed", "taskFailedEventDetails", resource):
            env.stack.append(_invoke(lambda_client, env, normalised_parameters, limits.state_payload_bytes))

    lambda_eval_utils.execute_lambda_function_integration = function
    state_task_service_lambda.StateTaskServiceLambda._eval_service_task = service
    # Documented as a parameter of the integration, and unknown to moto.
    state_task_service_lambda._SUPPORTED_API_PARAM_BINDINGS["invoke"].add("InvocationType")
    ExecutionState._evaluate_with_timeout = _observed(ExecutionState._evaluate_with_timeout)
    ErrorEqualsDecl._eval_body = _terminal_aware(ErrorEqualsDecl._eval_body)
    InlineIterationComponent._eval_body = _bounded(InlineIterationComponent._eval_body, limits.map_concurrency)


def parse(definition: str) -> Any:
    """Parse a definition into a program; ServiceError (InvalidDefinition) if the interpreter does not accept it."""
    try:
        return AmazonStateLanguageParser.parse(definition)[0]
    except Exception as error:  # its preprocessor raises errors of any type
        raise invalid_definition(f"SCHEMA_VALIDATION_FAILED: {error}") from error


class Run:
    """One evaluation of a program.

    `context` is the execution's Context object, as states read it under `$$`.
    https://docs.aws.amazon.com/step-functions/latest/dg/input-output-contextobject.html
    """

    def __init__(self, program: Any, context: dict[str, Any], history: History) -> None:
        # Parsing takes twenty times as long as copying, and evaluation writes into a program.
        self._program = copy.deepcopy(program)
        self._history = history
        self._execution = context["Execution"]
        self._environment = Environment(
            aws_execution_details=AWSExecutionDetails(ACCOUNT, REGION, self._execution["RoleArn"]),
            execution_type=StateMachineType.STANDARD,
            context=context,
            event_history_context=EventHistoryContext.of_program_start(),
            cloud_watch_logging_session=None,
            activity_store={},
        )
        self._environment.event_manager = history

    def evaluate(self) -> None:
        """Run to the end of the program, its time-out or a stop."""
        context = self._environment.event_history_context
        details = {
            "input": json.dumps(self._execution["Input"]),
            "inputDetails": {"truncated": False},
            "roleArn": self._execution["RoleArn"],
        }
        self._history.add_event(
            context, "ExecutionStarted", {"executionStartedEventDetails": details}, update_source_event_id=False
        )
        self._program.eval(self._environment)
        if isinstance(self._environment.program_state(), ProgramTimedOut):
            self._history.add_event(context, "ExecutionTimedOut", {"executionTimedOutEventDetails": {}})
        utils.TMP_THREADS.clear()  # moto keeps every thread that it has started

    def stop(self) -> None:
        """End what still evaluates; invocations of Lambda go on, as on AWS."""
        self._environment.set_stop(stop_date=datetime.now(UTC), error=None, cause=None)

    def answer(self, token: str, outcome: Callable[[str], Any]) -> bool:
        """Answer a Task that waits for this token; False if there is none, ServiceError if it no longer waits."""
        try:
            return bool(self._environment.callback_pool_manager.notify(callback_id=token, outcome=outcome(token)))
        except CallbackNotifyConsumerError as error:
            raise _no_longer(error) from error

    def heartbeat(self, token: str) -> bool:
        """Report to a Task that waits for this token that its worker still runs; errors as for `answer`."""
        pool = self._environment.callback_pool_manager
        if pool.get(token) is None:
            return False
        try:
            pool.heartbeat(callback_id=token)  # it returns False if the Task has no HeartbeatSeconds
            return True
        except CallbackNotifyConsumerError as error:
            raise _no_longer(error) from error


def success(output: str) -> Callable[[str], Any]:
    """Return the outcome of a Task that succeeded, for its token."""
    return lambda token: CallbackOutcomeSuccess(callback_id=token, output=output)


def failure(error: str, cause: str) -> Callable[[str], Any]:
    """Return the outcome of a Task that failed, for its token."""
    return lambda token: CallbackOutcomeFailure(callback_id=token, error=error, cause=cause)


def _no_longer(error: Exception) -> ServiceError:
    if isinstance(error, CallbackConsumerTimeout):
        return ServiceError(400, "TaskTimedOut", "Task Timed Out")
    return ServiceError(400, "TaskDoesNotExist", "Task does not exist")


def _invoke(client: Any, env: Any, parameters: Mapping[str, Any], limit_bytes: int) -> dict[str, Any]:
    """Return the response of Lambda's Invoke as an integration does; TaskFailure with AWS's name of the error."""
    if len(parameters.get("Payload", "")) > limit_bytes:
        raise TaskFailure(
            "States.DataLimitExceeded",
            "The state/task's input has a size exceeding the maximum number of bytes service limit.",
        )
    try:
        answer = client.invoke(**parameters)
        payload = answer["Payload"].read().decode(errors="replace")
    except ClientError as error:
        raise _refused(error) from error
    except BotoCoreError as error:
        raise TaskFailure("Lambda.SdkClientException", str(error)) from error
    request_id = answer["ResponseMetadata"]["RequestId"]
    env.event_manager.invoked(env.event_history_context, request_id)
    if not env.is_running():
        raise Late
    document = _json(payload)
    if "FunctionError" in answer:
        raise _function_error(document, payload)
    return {
        "ExecutedVersion": answer.get("ExecutedVersion", "$LATEST"),
        "Payload": document,
        "SdkHttpMetadata": {"HttpStatusCode": answer["StatusCode"]},
        "SdkResponseMetadata": {"RequestId": request_id},
        "StatusCode": answer["StatusCode"],
    }


def _json(payload: str) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload  # empty, of an Event invocation


def _function_error(document: Any, payload: str) -> TaskFailure:
    """Return the failure of a function.

    documented: concepts-error-handling.html: the error is the function's `errorType`, such as Sandbox.Timedout, and
    Lambda.Unknown where there is none; its cause is the payload.
    """
    error = document.get("errorType") if isinstance(document, dict) else None
    if isinstance(error, str) and error:
        return TaskFailure(error, payload)
    return TaskFailure(
        "Lambda.Unknown",
        "The cause could not be determined because Lambda did not return an error type. Returned payload: " + payload,
    )


def _refused(error: ClientError) -> TaskFailure:
    """Return the failure of an invocation that Lambda refused: error prefixed by `Lambda.`, details in the cause."""
    response: Any = error.response
    code, metadata = response["Error"]["Code"], response["ResponseMetadata"]
    code = code if code.endswith("Exception") else f"{code}Exception"
    return TaskFailure(
        f"Lambda.{code}",
        f"{response['Error']['Message']} (Service: AWSLambda; Status Code: {metadata['HTTPStatusCode']}; "
        f"Error Code: {code}; Request ID: {metadata.get('RequestId', '')}; Proxy: null)",
    )


@contextmanager
def _failing(env: Any, kind: str, key: str, further: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn a TaskFailure into an event of this type, with its details and further ones under this key."""
    try:
        yield
    except TaskFailure as failure:
        event = FailureEvent(
            env=env,
            error_name=CustomErrorName(failure.error),
            event_type=kind,
            event_details={key: {"error": failure.error, "cause": failure.cause, **(further or {})}},
        )
        raise FailureEventException(failure_event=event) from None


def _observed(evaluate: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Report attempts to the history, and nothing of a state that was ended meanwhile.

    It is ended if the execution is stopped or times out, or a sibling branch fails.
    """

    def observed(state: Any, env: Any) -> None:
        env.event_manager.attempt(env.event_history_context)
        try:
            evaluate(state, env)
        except Exception:
            env.event_manager.attempt_failed(env.event_history_context)
            if env.is_running():
                raise
        if not env.is_running():
            raise SystemExit  # ends this thread alone: neither Retry nor Catch nor an event

    return observed


def _terminal_aware(evaluate: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Keep `States.ALL` from matching the errors that AWS calls terminal."""

    def aware(declaration: Any, env: Any) -> None:
        terminal = env.stack[-1].error_name in UNCATCHABLE
        if terminal and declaration._STATE_ALL_ERROR in declaration.error_names:
            env.stack[-1] = False
        else:
            evaluate(declaration, env)

    return aware


def _bounded(evaluate: Callable[[Any, Any], None], limit: int) -> Callable[[Any, Any], None]:
    """Run up to 40 iterations of an inline Map at once, whatever its MaxConcurrency (0: no limit of its own)."""

    def bounded(component: Any, env: Any) -> None:
        evaluation = env.stack[-1]
        items = len(evaluation.input_items)
        evaluation.max_concurrency = min(evaluation.max_concurrency or items, items, limit)
        evaluate(component, env)

    return bounded
