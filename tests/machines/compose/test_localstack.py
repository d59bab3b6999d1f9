"""Lambda through LocalStack: the override hands everything to the emulator, and everything back as it is.

LocalStack runs in its container, in the host's network, in front of the suite's own emulator.
"""

import base64
import io
import json
import socket
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import botocore.config
import pytest
from botocore.exceptions import ClientError
from tests.machines.compose.localstack import running_localstack

from slslab.aws.arns import REGION
from slslab.aws.keys import Keyring
from slslab.compose.network import localstack_variables
from slslab.lambda_.emulator import Emulator
from slslab.testing import ROLE, create_function

HANDLER = """
import os

def handler(event, context):
    if "raise" in event:
        raise {"value": ValueError, "key": KeyError}[event["raise"]](event.get("message", "wrong"))
    if "take_mb" in event:
        return len(b"x" * (event["take_mb"] << 20))
    return {"doubled": 2 * event["number"], "memory": context.memory_limit_in_mb}
"""
# By the integration and by the function's ARN itself, as the two resource styles have it.
MACHINE = {
    "StartAt": "First",
    "States": {
        "First": {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Parameters": {"FunctionName": "f", "Payload": {"number.$": "$.number"}},
            "OutputPath": "$.Payload",
            "Next": "Second",
        },
        "Second": {"Type": "Task", "Resource": "ARN", "Parameters": {"number.$": "$.doubled"}, "Next": "Failing"},
        "Failing": {
            "Type": "Task",
            "Resource": "ARN",
            "Parameters": {"raise": "value", "message": "no good"},
            "Retry": [{"ErrorEquals": ["ValueError"], "IntervalSeconds": 1, "MaxAttempts": 2, "BackoffRate": 1.0}],
            "Catch": [{"ErrorEquals": ["ValueError"], "ResultPath": "$.caught", "Next": "Done"}],
            "Next": "Never",
        },
        "Never": {"Type": "Fail"},
        "Done": {"Type": "Succeed"},
    },
}


def package() -> bytes:
    """The handler as a Lambda package."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("app.py", HANDLER)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def localstack(emulator: Emulator) -> Iterator[str]:
    with running_localstack(emulator.endpoint, emulator.keys.owner) as address:
        yield address


def client(service: str, endpoint: str) -> Any:
    """A boto3 client that asks once."""
    return boto3.client(  # type: ignore[call-overload]
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=botocore.config.Config(retries={"total_max_attempts": 1}),
    )


@pytest.fixture(scope="module")
def function(localstack: str) -> Iterator[Any]:
    """A client of Lambda at LocalStack, with a function `f`."""
    through = client("lambda", localstack)
    through.create_function(
        FunctionName="f",
        Runtime="python3.11",
        Handler="app.handler",
        Role=ROLE,
        Code={"ZipFile": package()},
        MemorySize=256,
        Timeout=10,
    )
    yield through
    through.delete_function(FunctionName="f")


def invoke(through: Any, event: Any, **settings: Any) -> Any:
    """A synchronous invocation of f."""
    return through.invoke(FunctionName="f", Payload=json.dumps(event), **settings)


def test_a_function_made_through_localstack_is_the_emulators(function: Any, emulator: Emulator) -> None:
    answer = invoke(function, {"number": 21}, LogType="Tail")
    assert json.load(answer["Payload"]) == {"doubled": 42, "memory": "256"}
    assert answer["StatusCode"] == 200
    assert answer["ExecutedVersion"] == "$LATEST"
    record = emulator.records[-1]
    assert record.report.strip() in base64.b64decode(answer["LogResult"]).decode()
    direct = emulator.client("lambda").get_function(FunctionName="f")["Configuration"]
    assert function.get_function(FunctionName="f")["Configuration"] == direct


def test_errors_of_functions_come_through(function: Any, emulator: Emulator) -> None:
    answer = invoke(function, {"raise": "value", "message": "no good"})
    failure = json.load(answer["Payload"])
    assert answer["FunctionError"] == "Unhandled"
    assert (failure["errorType"], failure["errorMessage"]) == ("ValueError", "no good")
    answer = invoke(function, {"take_mb": 512})
    assert json.load(answer["Payload"])["errorType"] == "Runtime.OutOfMemory"
    assert emulator.records[-1].max_memory_mb >= 256


def test_errors_of_the_api_come_through(function: Any) -> None:
    function.put_function_concurrency(FunctionName="f", ReservedConcurrentExecutions=0)
    with pytest.raises(ClientError) as throttled:
        invoke(function, {"number": 1})
    function.delete_function_concurrency(FunctionName="f")
    metadata = throttled.value.response["ResponseMetadata"]
    assert throttled.value.response["Error"]["Code"] == "TooManyRequestsException"
    assert throttled.value.response["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"  # type: ignore[typeddict-item]
    assert metadata["HTTPStatusCode"] == 429
    assert "retry-after" in metadata["HTTPHeaders"]
    with pytest.raises(function.exceptions.ResourceNotFoundException):
        function.invoke(FunctionName="arn:aws:lambda:us-east-1:000000000000:function:none:7")


def test_an_event_is_accepted(function: Any, emulator: Emulator) -> None:
    with emulator.recording() as records:
        assert invoke(function, {"number": 2}, InvocationType="Event")["StatusCode"] == 202
        deadline = time.monotonic() + 30
        while not records and time.monotonic() < deadline:
            time.sleep(0.05)
    assert records[0].function == "f"


def test_a_state_machine_runs_functions_with_retry_and_catch(
    localstack: str, function: Any, emulator: Emulator
) -> None:
    arn = function.get_function(FunctionName="f")["Configuration"]["FunctionArn"]
    states = client("stepfunctions", localstack)
    machine = states.create_state_machine(
        name="m", definition=json.dumps(MACHINE).replace('"ARN"', f'"{arn}"'), roleArn=ROLE
    )["stateMachineArn"]
    with emulator.recording() as records:
        execution = states.start_execution(stateMachineArn=machine, input='{"number": 3}')["executionArn"]
        deadline = time.monotonic() + 60
        while (done := states.describe_execution(executionArn=execution))["status"] == "RUNNING":
            assert time.monotonic() < deadline, "the execution did not end"
            time.sleep(0.1)
    assert done["status"] == "SUCCEEDED", done
    output = json.loads(done["output"])
    assert output["doubled"] == 12
    assert output["caught"]["Error"] == "ValueError"
    assert json.loads(output["caught"]["Cause"])["errorMessage"] == "no good"
    # Two that succeed; one that fails and its two retries.
    assert len(records) == 5


def wait_until(check: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while not (found := check()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
    return found


def test_queues_and_logs_are_localstacks() -> None:
    """A queue made in LocalStack invokes a function, and its failures go to another; its log is in CloudWatch Logs."""
    with Emulator() as emulator, running_localstack(emulator.endpoint, emulator.keys.owner) as address:
        emulator.add_variables(localstack_variables(address))
        queues, logs, functions = (client(name, address) for name in ("sqs", "logs", "lambda"))
        jobs, failed = (queues.create_queue(QueueName=name)["QueueUrl"] for name in ("jobs", "failed"))
        arns = [
            queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
            for url in (jobs, failed)
        ]
        code = "def handler(event, context):\n    print('one\\ntwo', event['Records'][0]['body'])\n"
        create_function(functions, "worker", code, MemorySize=256)
        functions.create_event_source_mapping(EventSourceArn=arns[0], FunctionName="worker")
        queues.send_message(QueueUrl=jobs, MessageBody="job 1")
        wait_until(
            lambda: (
                "/aws/lambda/worker" in [each["logGroupName"] for each in logs.describe_log_groups()["logGroups"]]
                and "two job 1"
                in [each["message"] for each in logs.filter_log_events(logGroupName="/aws/lambda/worker")["events"]]
            )
        )
        failing = "def handler(event, context):\n    raise ValueError(event)\n"
        create_function(functions, "failing", failing, MemorySize=256, DeadLetterConfig={"TargetArn": arns[1]})
        functions.put_function_event_invoke_config(FunctionName="failing", MaximumRetryAttempts=0)
        functions.invoke(FunctionName="failing", InvocationType="Event", Payload=b'"lost"')
        letters = queues.receive_message(QueueUrl=failed, WaitTimeSeconds=20)["Messages"]
        assert [letter["Body"] for letter in letters] == ['"lost"']


def test_an_emulator_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with running_localstack(nobody, Keyring().owner) as address:
        with pytest.raises(ClientError) as refused:
            client("lambda", address).list_functions()
        assert refused.value.response["Error"]["Code"] == "ServiceUnavailableException"
        assert nobody in refused.value.response["Error"]["Message"]
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        with pytest.raises(ClientError, match="ServiceUnavailableException"):
            client("logs", address).describe_log_groups()


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:4566"},
        {"Host": "localhost.localstack.cloud.evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "https://app.localstack.cloud"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_web_sites_are_refused(headers: dict[str, str], localstack: str) -> None:
    for path in ("/2015-03-31/functions/", "/_localstack/health", "/"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(localstack + path, headers=headers), timeout=20)
        with refused.value:
            assert refused.value.code == 403
            assert b"another web site's page" in refused.value.read()


@pytest.mark.parametrize("host", ["localhost:4566", "localstack", "bucket.s3.localhost.localstack.cloud:4566", "[::1]"])
def test_its_own_names_are_answered(host: str, localstack: str) -> None:
    request = urllib.request.Request(f"{localstack}/_localstack/health", headers={"Host": host})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200
