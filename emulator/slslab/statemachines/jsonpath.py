"""Replace parts of moto's JSONPath states: paths, intrinsic functions and the comparisons of a Choice.

The evaluation itself is in paths.py, intrinsics.py and comparisons.py.
"""

import json
from types import SimpleNamespace
from typing import Any

from moto.stepfunctions.parser import quotas
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEventException
from moto.stepfunctions.parser.asl.component.common.string import string_expression
from moto.stepfunctions.parser.asl.component.eval_component import EvalComponent
from moto.stepfunctions.parser.asl.component.state.choice.comparison.comparison_func import (
    ComparisonFuncStringVariableSample,
)
from moto.stepfunctions.parser.asl.component.state.choice.comparison.variable import NoSuchVariable as Nothing
from moto.stepfunctions.parser.asl.eval.variable_store import NoSuchVariable
from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError

from slslab.statemachines import comparisons, intrinsics, paths
from slslab.statemachines.filters import compact
from slslab.statemachines.moto_patches import RUNTIME, failure, fits, replaces, runtime_failure

INTRINSIC, RESULT_PATH = "States.IntrinsicFailure", "States.ResultPathMatchFailure"
# Fields that report a path that finds nothing with InputPath's message.
SELECTING = ("InputPath", "OutputPath", "TimeoutSecondsPath", "HeartbeatSecondsPath")


@replaces("component.common.string.string_expression.extract_json")
def extract(path: str, data: Any) -> Any:
    """Return what a path finds; NoSuchJsonPathError, with the library's `reason`."""
    try:
        return paths.parse(path).read(data)
    except (paths.NoSuchPath, paths.PathError) as error:
        failed = NoSuchJsonPathError(json_path=path, data=data)
        failed.reason, failed.path_error = str(error), error
        raise failed from None


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _selected(env: Any, value: Any) -> Any:
    """Return a copy of a path's or function's value. Both can repeat their input beyond the payload limit."""
    if not intrinsics.is_longer(value, quotas.MAX_STATE_SIZE_UTF8_BYTES) and fits(value):
        return _copied(value)
    state = env.states.context_object.context_object_data["State"]["Name"]
    what = (
        f"The state/task '{state}' returned a result with a size exceeding the maximum number of bytes service limit."
    )
    raise failure(env, "States.DataLimitExceeded", what)


def _find(written: str, env: Any) -> Any:
    """Return what a field's path finds. Raises NoSuchVariable and NoSuchJsonPathError."""
    root, path = paths.split_root(written)
    if root == "$":
        return extract(path, env.states.context_object.context_object_data)
    return extract(path, env.variable_store.get(root) if root else env.stack[-1])


@replaces("component.common.string.string_expression.StringVariableSample._eval_body")
@replaces("component.common.string.string_expression.StringJsonPath._eval_body")
def _read_path(component: Any, env: Any) -> None:
    """Evaluate a path into the state's input or into a variable.

    measured, in others' recordings: in a payload template, an index beyond the end of an array of the input yields
    null. assumed: a variable's doesn't.
    """
    field = env.next_field_name or ""
    try:
        value = _find(component.literal_value, env)
    except NoSuchVariable:
        raise _unknown(env, component.literal_value) from None
    except NoSuchJsonPathError as error:
        error.field = field
        _raise_bound(env, error)
        if field in SELECTING:
            raise runtime_failure(env, f"Invalid path '{error.json_path}' : {error.reason}") from None
        root, path = paths.split_root(component.literal_value)
        in_template = field.endswith(".$") and not root and paths.parse(path).ends_with_index
        if not in_template or not error.reason.startswith("No results"):
            raise
        value = None
    env.stack.append(_selected(env, value))


def _raise_bound(env: Any, error: Any) -> None:
    if isinstance(error.path_error, paths.PathBound):
        raise runtime_failure(env, error.reason) from None


def _unknown(env: Any, written: str) -> FailureEventException:
    # assumed: the text; AWS refuses most such machines when they are created.
    return runtime_failure(env, f"The variable '${paths.split_root(written)[0]}' does not exist")


@replaces("component.common.path.result_path.ResultPath._eval_body")
def _write_result(component: Any, env: Any) -> None:
    """Put a state's result into its input.

    documented: concepts-error-handling.html: "A state's ResultPath field can't be applied to the input the state
    received". The message is from an earlier AWS error, as users report it.
    """
    state_input = env.states.get_input()
    if component.result_path_src is None:
        env.stack.clear()
        env.stack.append(state_input)
        return
    result = _copied(env.stack.pop())
    try:
        env.stack.append(paths.parse(component.result_path_src).write(state_input, result))
    except paths.NoSuchPath:
        shown = compact(state_input)
        cause = f"Unable to apply ReferencePath {component.result_path_src} to input {shown}"
        raise failure(env, RESULT_PATH, cause) from None


@replaces("component.common.timeouts.timeout.TimeoutSecondsPath._eval_seconds")
@replaces("component.common.timeouts.heartbeat.HeartbeatSecondsPath._eval_seconds")
def _seconds(component: Any, env: Any) -> int:
    component.string_sampler.eval(env=env)
    value = env.stack.pop()
    if type(value) is not int or value <= 0:
        # assumed: the text, modelled on MaxConcurrency's, which is measured.
        field = type(component).__name__
        raise runtime_failure(env, f"Expected positive integer for {field}, got '{value}' instead.")
    return value


@replaces("component.state.fail.error_decl.ErrorPath._eval_body")
@replaces("component.state.fail.cause_decl.CausePath._eval_body")
def _text(component: Any, env: Any) -> None:
    """Evaluate a field of Fail, which must be a string (documented); the message is assumed."""
    component.string_expression.eval(env=env)
    if not isinstance(env.stack[-1], str):
        field = type(component).__name__
        raise runtime_failure(env, f"Expected string for {field}, got {json.dumps(env.stack[-1])} instead.")


class IntrinsicFunction(EvalComponent):  # type: ignore[misc]
    """The call of an intrinsic function in a field."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._call = intrinsics.parse(text)
        # For CausePath and ErrorPath, moto compares this without its first and last letter.
        self.name = SimpleNamespace(name=self._call.name[1:-1])

    def _eval_body(self, env: Any) -> None:
        try:
            value = intrinsics.evaluate(self._call, lambda argument: self._read(argument, env))
        except intrinsics.IntrinsicError as error:
            raise self._failed(env, INTRINSIC, str(error)) from None
        env.stack.append(_selected(env, value))

    def _read(self, argument: intrinsics.PathArgument, env: Any) -> Any:
        try:
            return _find(argument.written, env)
        except NoSuchVariable:
            raise _unknown(env, argument.written) from None
        except NoSuchJsonPathError as error:
            state_input = env.stack[-1] if env.stack else env.states.get_input()
            message = intrinsics.missing_argument(argument, error.path_error, state_input)
            raise self._failed(env, RUNTIME, message) from None

    def _failed(self, env: Any, name: str, message: str) -> FailureEventException:
        cause = f"The function '{self._text}' had the following error: {message}"
        return failure(env, name, cause)


@replaces("parse.preprocessor.Preprocessor.visitString_intrinsic_function")
def _visit_call(_parsing: Any, rule: Any) -> Any:
    text = json.loads(rule.STRINGINTRINSICFUNC().getText())
    return string_expression.StringIntrinsicFunction(text, IntrinsicFunction(text))


@replaces("component.state.choice.comparison.variable.Variable._eval_body")
def _read_variable(component: Any, env: Any) -> None:
    """Evaluate the Variable of a comparison; only IsPresent accepts a path that finds nothing."""
    sampler = component.string_sampler
    env.stack.append(_sampled(getattr(sampler, "context_object_path", sampler.literal_value), env))


def _sampled(written: str, env: Any) -> Any:
    try:
        return _find(written, env)
    except NoSuchJsonPathError as error:
        _raise_bound(env, error)
    except NoSuchVariable:
        pass
    return Nothing(written)


@replaces("component.state.choice.comparison.comparison_func.ComparisonFuncValue._eval_body")
@replaces("component.state.choice.comparison.comparison_func.ComparisonFuncStringVariableSample._eval_body")
def _compare(component: Any, env: Any) -> None:
    """Compare a Choice's Variable. A path that finds nothing fails the state, except with IsPresent.

    The message is as users report it.
    """
    value, name = env.stack.pop(), component.operator_type.name
    if name == "IsPresent":
        env.stack.append(isinstance(value, Nothing) is not component.value)
        return
    sampled = isinstance(component, ComparisonFuncStringVariableSample)
    operand = component.string_variable_sample.literal_value if sampled else component.value
    if name.endswith("Path"):
        operand = _sampled(operand, env)
    for compared in (value, operand):
        if isinstance(compared, Nothing):
            cause = f"Invalid path '{compared.path}': The choice state's condition path references an invalid value."
            raise runtime_failure(env, cause)
    try:
        env.stack.append(comparisons.matches(name, value, operand))
    except comparisons.OpenEscape as error:
        raise runtime_failure(env, str(error)) from None
