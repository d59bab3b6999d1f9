"""Call Lambda functions from Tasks, and return results and failures in the form of AWS's two integrations.

https://docs.aws.amazon.com/step-functions/latest/dg/connect-lambda.html
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_lambda

from slslab.aws.limits import Limits
from slslab.statemachines.filters import compact
from slslab.statemachines.history import ExecutionOver
from slslab.statemachines.moto_patches import failure, fits, replaces

# measured: the headers of a result's SdkHttpMetadata, in the order of AllHttpHeaders.
LOG_RESULT, EXECUTED_VERSION = "X-Amz-Log-Result", "X-Amz-Executed-Version"


# Makes the event of a failed call from the error's name and its cause, as AWS shows them.
Fail = Callable[[str, str], Exception]


def connect(lambda_client: Any, limits: Limits) -> None:
    """Make moto's interpreter call Lambda with this client."""

    def function(env: Any, parameters: dict[str, Any], **_: Any) -> None:
        """Evaluate a Task that names a function's ARN as its resource: its result is only the payload."""
        fail = partial(failure, env, event="LambdaFunctionFailed")
        payload = _invoke(lambda_client, env, parameters, limits.state_payload_bytes, fail)["Payload"]
        env.stack.append({"Payload": payload})

    def service(state: Any, env: Any, normalised_parameters: dict[str, Any], **_: Any) -> None:
        """Evaluate a Task of the integration `lambda:invoke`: its result is the API's response."""
        resource = {"resource": state._get_sfn_resource(), "resourceType": state._get_sfn_resource_type()}
        fail = partial(failure, env, event="TaskFailed", **resource)
        env.stack.append(_invoke(lambda_client, env, normalised_parameters, limits.state_payload_bytes, fail))

    lambda_eval_utils.execute_lambda_function_integration = function
    state_task_service_lambda.StateTaskServiceLambda._eval_service_task = service
    # The integration documents this parameter, but moto doesn't know it.
    state_task_service_lambda._SUPPORTED_API_PARAM_BINDINGS["invoke"].add("InvocationType")


@replaces("component.state.exec.state_task.state_task_lambda.is_within_size_quota")
def _fits(value: Any) -> bool:
    """Measure the result as the object of `function` above, and later the state's output."""
    is_result = isinstance(value, dict) and value.keys() == {"Payload"}
    return bool(fits(value["Payload"] if is_result else value))


def _invoke(client: Any, env: Any, parameters: Mapping[str, Any], limit_bytes: int, fail: Fail) -> dict[str, Any]:
    """Return Lambda's Invoke response as an integration does; `fail` makes the exception of a failure."""
    if len(parameters.get("Payload", "")) > limit_bytes:
        raise fail(
            "States.DataLimitExceeded",
            "The state/task's input has a size exceeding the maximum number of bytes service limit.",
        )
    try:
        answer = client.invoke(**parameters)
        payload = answer["Payload"].read().decode(errors="replace")
    except ClientError as error:
        raise fail(*_refused(error)) from error
    except BotoCoreError as error:
        raise fail("Lambda.SdkClientException", str(error)) from error
    request_id = answer["ResponseMetadata"]["RequestId"]
    env.event_manager.invoked(env.event_history_context, request_id)
    if not env.is_running():
        raise ExecutionOver
    document = _json(payload)
    if "FunctionError" in answer:
        raise fail(*_function_error(document, payload))
    metadata = _http_metadata(answer, payload)
    response = {
        "ExecutedVersion": answer.get("ExecutedVersion"),
        "LogResult": answer.get("LogResult"),
        "Payload": document,
        "SdkHttpMetadata": metadata,
        "SdkResponseMetadata": {"RequestId": request_id},
        "StatusCode": answer["StatusCode"],
    }
    return {key: value for key, value in response.items() if value is not None or key == "Payload"}


def _http_metadata(answer: Mapping[str, Any], payload: str) -> dict[str, Any]:
    """Return SdkHttpMetadata: Lambda's headers with the names and order of AWS's client."""
    metadata = answer["ResponseMetadata"]
    own = metadata["HTTPHeaders"]
    headers = {
        LOG_RESULT: answer.get("LogResult"),
        EXECUTED_VERSION: answer.get("ExecutedVersion"),
        "x-amzn-Remapped-Content-Length": "0",
        "Connection": "keep-alive",
        "x-amzn-RequestId": metadata["RequestId"],
        "Content-Length": str(len(payload.encode())),
        "Date": own.get("date"),
        "X-Amzn-Trace-Id": own.get("x-amzn-trace-id"),
        "Content-Type": "application/json",
    }
    present = {name: value for name, value in headers.items() if value is not None}
    return {
        "AllHttpHeaders": {name: [value] for name, value in present.items()},
        "HttpHeaders": {name: present[name] for name in sorted(present, key=str.lower)},
        "HttpStatusCode": answer["StatusCode"],
    }


def _json(payload: str) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload  # empty, for an Event invocation


def _function_error(document: Any, payload: str) -> tuple[str, str]:
    """Return the error and the cause of a failed function.

    documented: concepts-error-handling.html: the error is the function's `errorType`, such as Sandbox.Timedout, or
    Lambda.Unknown without one. measured: its cause is the payload, without white space.
    """
    error = document.get("errorType") if isinstance(document, dict) else None
    if isinstance(error, str) and error:
        return error, compact(document)
    return (
        "Lambda.Unknown",
        "The cause could not be determined because Lambda did not return an error type. Returned payload: " + payload,
    )


def _refused(error: ClientError) -> tuple[str, str]:
    """Return the error, prefixed by `Lambda.`, and the cause, with details, of an invocation that Lambda refused.

    measured: the details in brackets, in the format of AWS's SDK for Java 2.
    """
    response: Any = error.response
    code, metadata = response["Error"]["Code"], response["ResponseMetadata"]
    code = code if code.endswith("Exception") else f"{code}Exception"
    return (
        f"Lambda.{code}",
        f"{response['Error']['Message']} (Service: Lambda, Status Code: {metadata['HTTPStatusCode']}, "
        f"Request ID: {metadata.get('RequestId', '')})",
    )
