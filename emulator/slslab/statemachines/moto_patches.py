"""Replace parts of moto's interpreter, so that it evaluates and reports like AWS.

Importing this module does so. Tested with the version in constraints.txt. Lambda Tasks are in tasks.py.
"""

import json
import math
import os
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pkgutil import resolve_name
from typing import Any

from moto.stepfunctions.parser import quotas
from moto.stepfunctions.parser.asl.antlr.runtime.ASLParser import ASLParser
from moto.stepfunctions.parser.asl.component.common.error_name.error_name import ErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent, FailureEventException
from moto.stepfunctions.parser.asl.component.state.exec.execute_state import ExecutionState
from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.inline_iteration_component import (
    InlineIterationComponent,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_map.max_concurrency import MaxConcurrencyPath
from moto.stepfunctions.parser.asl.component.state.exec.state_map.state_map import StateMap
from moto.stepfunctions.parser.asl.eval.callback.callback import HeartbeatTimeoutError
from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError

from slslab.aws.limits import MB, Limits
from slslab.statemachines.bounded import POOL, evaluate_bounded
from slslab.statemachines.comparisons import timestamp
from slslab.statemachines.expressions import QueryError
from slslab.statemachines.fields import LEAST, MOST
from slslab.statemachines.filters import SEPARATORS, compact
from slslab.statemachines.history import ExecutionOver

RUNTIME, QUERY = "States.Runtime", "States.QueryEvaluationError"
# Errors whose cause starts with the state.
LOCATED = (RUNTIME, QUERY, "States.IntrinsicFailure", "States.ResultPathMatchFailure")
# The type that an expression must have if it is a field's whole value.
EXPECTED = {
    **dict.fromkeys(("TimeoutSeconds", "HeartbeatSeconds", "MaxConcurrency", "Seconds"), "number"),
    **dict.fromkeys(("Timestamp", "Error", "Cause"), "string"),
    "Items": "array",
    "Condition": "boolean",
}
TYPES = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
# A quarter of the 4 MB threads that fit into half of the host's memory, which is this process's limit: each iteration
# has up to three, and other executions need some, too.
MOST_THREADS = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 // (4 * MB) // 4
NOT_AN_ARRAY = re.compile(r"Map state input must be an array but was: <class '(\w+)'>")


Original = Callable[..., Any]


def replaces(path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replace the method or function at this path in moto's implementation of the language."""

    def replace(function: Callable[..., Any]) -> Callable[..., Any]:
        owner, _, name = path.rpartition(".")
        setattr(resolve_name(f"moto.stepfunctions.parser.asl.{owner}"), name, function)
        return function

    return replace


def wraps(path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replace the method at this path by a function that gets the original as a further first argument."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        original = resolve_name(f"moto.stepfunctions.parser.asl.{path}")
        replaces(path)(lambda component, *arguments, **named: function(original, component, *arguments, **named))
        return function

    return wrap


def enforce(limits: Limits) -> None:
    """Enforce these limits."""
    quotas.MAX_STATE_SIZE_UTF8_BYTES = limits.state_payload_bytes + 1  # it compares with less than
    InlineIterationComponent.most = limits.map_concurrency


# AWS writes no white space, and doesn't escape non-ASCII characters.
replaces("utils.encoding._DateTimeEncoder")(lambda **_: json.JSONEncoder(ensure_ascii=False, separators=SEPARATORS))
# moto stores this on the class, so a refused definition would leave its language to the next one.
replaces("parse.preprocessor.Preprocessor.__init__")(lambda parsing: setattr(parsing, "_query_language_per_scope", []))
# It refuses names that begin with `States.`, but iterations and workers report such errors, too.
replaces("component.common.error_name.custom_error_name.CustomErrorName.__init__")(ErrorName.__init__)
replaces("component.state.wait.wait_function.timestamp.Timestamp._from_timestamp_string")(staticmethod(timestamp))


@wraps("parse.preprocessor.Preprocessor.visitString_jsonata")
def _name_field(original: Original, parsing: Any, ctx: Any) -> Any:
    """Tell a JSONata expression its field, which AWS's messages name, and the type that it must have."""
    component = original(parsing, ctx)
    component.field = _field(ctx)
    component.expected = EXPECTED.get(ctx.parentCtx.children[0].getText().strip('"'))
    return component


def _field(node: Any) -> str:
    """Return where a node of moto's parse tree is in its state, such as `Arguments/list[0]`."""
    path, parent = "", node.parentCtx
    while parent is not None and not isinstance(parent, ASLParser.State_decl_bodyContext):
        siblings = parent.children
        tokens = [sibling.getText() for sibling in siblings[:3] if hasattr(sibling, "symbol")]
        if "[" in tokens:
            if not hasattr(node, "number"):
                for number, entry in enumerate(siblings[tokens.index("[") + 1 :: 2]):
                    entry.number = number
            path = f"[{node.number}]{path}"
        if ":" in tokens:
            path = f"/{json.loads(siblings[0].getText())}{path}"
        node, parent = parent, parent.parentCtx
    return path.removeprefix("/")


@replaces("component.state.state.is_within_size_quota")
@replaces("component.state.exec.state_task.service.state_task_service.is_within_size_quota")
def fits(value: Any) -> bool:
    """Return whether a value's JSON is within the payload limit: moto measures a text without quotes and escapes."""
    return bool(len(compact(value).encode(errors="replace")) < quotas.MAX_STATE_SIZE_UTF8_BYTES)


@wraps("eval.environment.Environment.set_ended")
@wraps("eval.environment.Environment.set_timed_out")
@wraps("eval.environment.Environment.set_stop")
def _end_expressions(original: Original, env: Any, *details: Any, **named: Any) -> None:
    """Also end the evaluation of its expressions."""
    original(env, *details, **named)
    POOL.wake()


@replaces("parse.preprocessor.from_string_literal")
def _string(parser_rule_context: Any) -> str | None:
    """Return the text of a JSON string, or of another token."""
    text: str = parser_rule_context.getText()
    return json.loads(text) if text.startswith('"') else None if text == "null" else text


replaces("parse.preprocessor.Preprocessor._inner_string_of")(staticmethod(_string))


def failure(env: Any, error: str, cause: str, event: str = "ExecutionFailed", **further: Any) -> FailureEventException:
    """Return a state's failure as an event of this type."""
    details = {f"{event[0].lower()}{event[1:]}EventDetails": {**further, "error": error, "cause": cause}}
    return FailureEventException(FailureEvent(env, ErrorName(error), event, details))


def runtime_failure(env: Any, cause: str) -> FailureEventException:
    """Return the failure of a state that can't be evaluated."""
    return failure(env, RUNTIME, cause)


@replaces("component.common.string.string_expression.StringJSONata._eval_body")
def _evaluate_expression(component: Any, env: Any) -> None:
    """Evaluate a JSONata expression with the state's `$states` and the variables in scope."""
    store, states = env.variable_store, env.states._states_data
    try:
        variables = {**store._outer_scope, **store._inner_scope, "states": states}
        value = evaluate_bounded(component.expression, variables, env.is_running)
        if problem := _unexpected(value, component.expected, component.field):
            raise QueryError(problem)
    except QueryError as error:
        cause = f"The JSONata expression '{component.expression}' specified for the field '{component.field}'"
        failed = failure(env, QUERY, f"{cause}{error}", "EvaluationFailed")
        details = failed.failure_event.event_details["evaluationFailedEventDetails"]
        details |= {"cause": _located(failed.failure_event, details["cause"]), "location": component.field}
        details["state"] = failed.failure_event.state_name
        raise failed from None
    env.stack.append(value)


def _unexpected(value: Any, expected: str | None, field: str) -> str | None:
    """Return the problem with an expression's value, or None; the text on integers is assumed."""
    if expected and expected != (kind := TYPES.get(type(value), "null")):
        shown = compact(value)
        return f" returned an unexpected result type. Expected '{expected}', but was '{kind}' for value: {shown}"
    least, most = (-math.inf if field == "MaxConcurrency" else LEAST.get(field, -math.inf)), MOST.get(field, math.inf)
    if expected == "number" and not (isinstance(value, int) and least <= value <= most):
        return f" returned a number that {field} can't have: {value}"
    return None


@replaces("eval.states.States.reset")
def _reset(states: Any, input_value: Any) -> None:
    """Begin a state's `$states` with its input only: result and error follow when they exist."""
    data = states._states_data
    data["input"] = json.loads(json.dumps(input_value))
    data.pop("result", None)
    data.pop("errorOutput", None)


@replaces("component.common.error_name.error_equals_decl.ErrorEqualsDecl._eval_body")
def _match(declaration: Any, env: Any) -> None:
    """Match the error on the stack against the names of a Retrier or Catcher.

    documented: concepts-error-handling.html: `States.ALL` does not match States.Runtime, and `States.TaskFailed` is
    every error except a time-out. measured: `States.ALL` matches States.DataLimitExceeded, against that page, and
    nothing matches a Fail without a name.
    """
    error = env.stack.pop()
    name = error.error_name if error is not None else None
    declared = {known.error_name for known in declaration.error_names}
    by_all = "States.ALL" in declared and name != RUNTIME
    by_task = "States.TaskFailed" in declared and not str(name).startswith("States.")
    names = {name, getattr(error, "other_name", name)}
    env.stack.append(name is not None and (by_all or by_task or not names.isdisjoint(declared)))


@wraps("component.state.exec.state_task.service.state_task_service_callback.StateTaskServiceCallback._from_error")
def _with_heartbeat(original: Original, state: Any, env: Any, ex: Exception) -> FailureEvent:
    """Let a missing heartbeat also be caught by its documented name: its error is States.Timeout (measured)."""
    event = original(state, env, ex)
    if isinstance(ex, HeartbeatTimeoutError):
        event.error_name.other_name = "States.HeartbeatTimeout"
    return event


@wraps("component.common.error_name.failure_event.FailureEvent.__init__")
def _from_entered_state(original: Original, event: Any, env: Any, *arguments: Any, **named: Any) -> None:
    """Make failures name the event in which their state was entered, instead of the latest event."""
    original(event, env, *arguments, **named)
    event.source_event_id = (
        env.event_manager.entry(env.event_history_context, event.state_name) or event.source_event_id
    )


def _located(event: Any, cause: str) -> str:
    if cause.startswith("An error occurred while"):
        return cause
    state = f"the state '{event.state_name}' (entered at the event id #{event.source_event_id})"
    return f"An error occurred while executing {state}. {cause}"


@replaces("component.common.error_name.failure_event.FailureEventException.get_execution_failed_event_details")
def _execution_failed(exception: Any) -> dict[str, Any] | None:
    if (pair := exception.extract_error_cause_pair()) is None:
        return None
    error, cause = pair
    if cause and error in LOCATED:
        cause = _located(exception.failure_event, cause)
    return {key: value for key, value in (("error", error), ("cause", cause)) if value}


@replaces("component.common.error_name.failure_event.FailureEventException.get_evaluation_failed_event_details")
def _evaluation_failed(exception: Any) -> Any:
    return exception.failure_event.event_details["evaluationFailedEventDetails"]


@replaces("component.state.wait.wait_function.timestamp.Timestamp._get_wait_seconds")
def _seconds_until(component: Any, env: Any) -> int:
    """Return how long a Wait lasts; moto takes a time as the host's local time and ignores offsets."""
    component.string.eval(env=env)
    text = env.stack.pop()
    if (end := timestamp(text)) is None:
        raise FailureEventException(component._create_failure_event(env, text))
    return math.ceil(end[0] + end[1] / 1e9 - time.time())


@wraps("component.state.exec.state_map.state_map.StateMap._eval_body")
def _checked(original: Original, state: Any, env: Any) -> None:
    """Make a Map with a negative MaxConcurrencyPath fail before it is entered (measured)."""
    if isinstance(state.max_concurrency_decl, MaxConcurrencyPath) and not env.is_frame():
        env.stack.append(env.states.get_input())
        try:
            state.max_concurrency_decl.string_sampler.eval(env)
            limit = env.stack.pop()
        except (NoSuchJsonPathError, FailureEventException):
            limit = None  # reported where it is evaluated
        env.stack.clear()
        if type(limit) is int and limit < 0:
            details = {"executionFailedEventDetails": {"error": RUNTIME, "cause": _negative(limit)}}
            env.event_manager.close("ExecutionFailed", details, seen=False)
            raise SystemExit  # ends only this thread
    original(state, env)


def _negative(limit: int) -> str:
    return f"Expected non-negative integer for MaxConcurrency, got '{limit}' instead."


@wraps("component.state.state.CommonStateField._eval_state_input")
def _in_context(original: Original, state: Any, env: Any) -> None:
    """Set the state in the Context object, with AWS's time format."""
    entered = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    env.states.context_object.context_object_data["State"] = {"Name": state.name, "EnteredTime": entered}
    original(state, env)


@wraps("component.state.state.CommonStateField._eval_body")
def _reported(original: Original, state: Any, env: Any) -> None:
    """Record a failed expression of a state without Retry and Catch; moto does so only for states with them."""
    try:
        original(state, env)
    except FailureEventException as error:
        event = error.failure_event
        if event.event_type == "EvaluationFailed" and not isinstance(state, ExecutionState):
            env.event_manager.add_event(env.event_history_context, event.event_type, event.event_details)
        raise
    except Exception as error:
        if _is_defect(error):
            raise runtime_failure(env, _explained(error)) from error
        raise


def _is_defect(error: Exception) -> bool:
    """Return whether an error is Python's own, from input that a state's code didn't expect."""
    return type(error).__module__ == "builtins" and not isinstance(error, TimeoutError)


def _explained(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "slslab's Step Functions has reached its memory limit"
    if isinstance(error, RecursionError):
        return "The input is nested more deeply than slslab evaluates"
    text = str(error)
    readable = isinstance(error, ValueError | RuntimeError) and not re.search(r"<class|moto\.|object at 0x", text)
    return text if readable else "The state could not be evaluated with this input"


@wraps("component.state.exec.execute_state.ExecutionState._evaluate_with_timeout")
def _observed(original: Original, state: Any, env: Any) -> None:
    """Report attempts to the history, but nothing about a state that was ended meanwhile.

    A state is ended if the execution is stopped or times out, or if a sibling branch fails. A state's Output belongs to
    the attempt: a failed expression in it can be caught (measured).
    """
    env.event_manager.attempt(env.event_history_context, state.name)
    _renew_token(env)
    try:
        if getattr(state, "heartbeat", None):  # moto reads it for only some Tasks
            state.heartbeat.eval(env)
            env.stack.pop()
        original(state, env)
        if state.output and env.is_running():
            state.output.jsonata_template_value.eval(env=env)
            env.heap["output"] = env.stack.pop()
    except Exception as error:
        env.variable_store.waiting = {}
        env.event_manager.attempt_failed(env.event_history_context, state.name)
        if env.is_running():
            if isinstance(error, NoSuchJsonPathError):
                raise _unrecorded(state, _path_failure(env, error)) from None
            if isinstance(error, FailureEventException):
                raise _unrecorded(state, _of_items(state, env, error)) from None
            if _is_defect(error):
                raise _unrecorded(state, runtime_failure(env, _explained(error))) from error
            raise
    if not env.is_running():
        raise SystemExit  # ends only this thread, without Retry, Catch or an event


def _renew_token(env: Any) -> None:
    """Give a retried Task a new token: the previous one has been answered."""
    token = env.states.context_object.context_object_data.get("Task", {}).get("Token")
    endpoint = env.callback_pool_manager.get(token)
    if endpoint is not None and endpoint._notify_event.is_set():
        env.callback_pool_manager.add(env.states.context_object.update_task_token())


def _of_items(state: Any, env: Any, error: FailureEventException) -> FailureEventException:
    """Return the failure of a Map without an array of items, in AWS's words.

    The JSONPath text is as users report it; in the JSONata text, the name of the type is assumed.
    """
    details = (error.failure_event.event_details or {}).get("evaluationFailedEventDetails", {})
    if not (match := NOT_AN_ARRAY.fullmatch(details.get("cause", ""))):
        return error
    if state._is_language_query_jsonpath():
        path = state.items_path.string_sampler.literal_value if state.items_path else "$"
        return runtime_failure(env, f'Reference path "{path}" must point to array.')
    kind = next((name for known, name in TYPES.items() if known.__name__ == match[1]), "null")
    cause = f"Map state input must be an array but was: {kind}"
    details |= {"cause": _located(error.failure_event, cause), "state": state.name}
    return error


def _path_failure(env: Any, error: Any) -> FailureEventException:
    data = compact(error.data)
    field = getattr(error, "field", env.next_field_name)
    return runtime_failure(
        env,
        f"The JSONPath '{error.json_path}' specified for the field '{field}' could not be found in the input '{data}'",
    )


def _unrecorded(state: Any, error: FailureEventException) -> FailureEventException:
    """Return a failure that ends the execution without an event of its own; a Map handles that itself."""
    if error.failure_event.event_type == "ExecutionFailed" and not isinstance(state, StateMap):
        error.failure_event.event_type = None
    return error


@wraps("component.state.exec.execute_state.ExecutionState._eval_state_output")
def _evaluated_before(original: Original, state: Any, env: Any) -> None:
    """Use the Output that the attempt has evaluated."""
    if "output" in env.heap:
        env.states.reset(env.heap.pop("output"))
    else:
        original(state, env)


@wraps("component.state.exec.state_map.iteration.inline_iteration_component.InlineIterationComponent._eval_body")
def _bounded(original: Original, component: Any, env: Any) -> None:
    """Run at most 40 iterations of an inline Map at once, whatever its MaxConcurrency (0 means no limit)."""
    evaluation = env.stack[-1]
    items = len(evaluation.input_items)
    if evaluation.max_concurrency < 0:
        raise runtime_failure(env, _negative(evaluation.max_concurrency))
    evaluation.max_concurrency = min(evaluation.max_concurrency or items, items, component.most)
    original(component, env)


@wraps("component.state.exec.state_map.iteration.inline_iteration_component.InlineIterationComponent._launch_worker")
def _with_room(original: Original, *arguments: Any, **named: Any) -> Any:
    """Make a Map fail, as if no thread could start, before its iterations use up the threads of other executions."""
    if threading.active_count() > MOST_THREADS:
        raise RuntimeError("can't start new thread")
    return original(*arguments, **named)


@wraps("component.state.exec.state_map.iteration.iteration_worker.IterationWorker._eval_job")
def _closed(original: Original, worker: Any, env: Any, job: Any) -> None:
    """Close the job of an ended execution with ExecutionOver, because the Map waits for all its jobs."""
    try:
        original(worker, env, job)
    except ExecutionOver as over:
        job.job_output = over


@wraps("component.state.exec.state_parallel.branch_worker.BranchWorker._thread_routine")
def _reporting(original: Original, worker: Any) -> None:
    """Report a branch that can't start (no thread, or the execution has ended) as failed: the Parallel waits for it."""
    try:
        original(worker)
    except RuntimeError as error:
        worker.env.set_error({"error": RUNTIME, "cause": _explained(error)})
        worker._branch_worker_comm.on_terminated(env=worker.env)
