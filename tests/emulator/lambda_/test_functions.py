"""Managing functions by boto3 alone: code, versions, aliases, tags, concurrency, events, and what is refused."""

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError
from botocore.httpsession import URLLib3Session

from slslab.aws.clients import signed_headers
from slslab.lambda_.emulator import Emulator
from slslab.testing import ROLE, packaged

VERSION = "def handler(event, context):\n    return [{!r}, context.function_version, context.invoked_function_arn]\n"
ARN = "arn:aws:lambda:us-east-1:000000000000:function:"
Deploy = Callable[..., str]
Invoke = Callable[..., Any]


@pytest.fixture
def unchecked(emulator: Emulator) -> Iterator[Any]:
    """A client that leaves the checking to the service."""
    client = emulator.client("lambda", parameter_validation=False)
    yield client
    client.close()


def refused(call: Callable[..., Any], **arguments: Any) -> tuple[int, str, str]:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer["Error"]["Message"]


def test_updated_code_runs_and_old_code_no_more(lambda_client: Any, deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(VERSION.format("old"))
    assert invoke(name).payload[0] == "old"
    new = packaged(VERSION.format("new"))
    before = lambda_client.get_function_configuration(FunctionName=name)
    dry = lambda_client.update_function_code(FunctionName=name, ZipFile=new, DryRun=True)
    assert dry["CodeSha256"] == base64.b64encode(hashlib.sha256(new).digest()).decode()
    assert invoke(name).payload[0] == "old"
    wrong = {"FunctionName": name, "ZipFile": new, "RevisionId": "00000000-0000-0000-0000-000000000000"}
    assert refused(lambda_client.update_function_code, **wrong)[:2] == (412, "PreconditionFailedException")
    updated = lambda_client.update_function_code(FunctionName=name, ZipFile=new, RevisionId=before["RevisionId"])
    assert updated["CodeSize"] == len(new)
    assert invoke(name).payload[0] == "new"


def test_code_from_a_bucket(lambda_client: Any, s3_client: Any, invoke: Invoke) -> None:
    s3_client.create_bucket(Bucket="packages")
    s3_client.put_object(Bucket="packages", Key="f.zip", Body=packaged(VERSION.format("bucket")))
    settings = {"FunctionName": "f", "Runtime": "python3.12", "Handler": "app.handler", "Role": ROLE}
    wrong = refused(lambda_client.create_function, **settings, Code={"S3Bucket": "packages", "S3Key": "missing"})
    assert wrong[:2] == (400, "InvalidParameterValueException")
    assert "S3 Error Code: NoSuchKey" in wrong[2]
    lambda_client.create_function(**settings, Code={"S3Bucket": "packages", "S3Key": "f.zip"})
    assert invoke("f").payload[0] == "bucket"


def test_versions_are_numbered_frozen_and_invoked_by_qualifier(
    lambda_client: Any, deploy: Deploy, invoke: Invoke
) -> None:
    name = deploy(VERSION.format("one"), Publish=True)
    assert lambda_client.publish_version(FunctionName=name)["Version"] == "1", "nothing has changed since"
    lambda_client.update_function_code(FunctionName=name, ZipFile=packaged(VERSION.format("two")))
    second = lambda_client.publish_version(FunctionName=name, Description="the second")
    assert (second["Version"], second["FunctionArn"]) == ("2", f"{ARN}{name}:2")
    listed = lambda_client.list_versions_by_function(FunctionName=name)["Versions"]
    assert [version["Version"] for version in listed] == ["$LATEST", "1", "2"]
    every = lambda_client.list_functions(FunctionVersion="ALL")["Functions"]
    assert [function["Version"] for function in every] == ["$LATEST", "1", "2"]
    assert invoke(name, Qualifier="1").payload == ["one", "1", f"{ARN}{name}:1"]
    assert invoke(f"{name}:2").payload == ["two", "2", f"{ARN}{name}:2"]
    latest = invoke(f"{ARN}{name}:$LATEST")
    assert latest.payload == ["two", "$LATEST", f"{ARN}{name}:$LATEST"]
    assert "Version: 1\n" in invoke(name, Qualifier="1").log
    answer = lambda_client.invoke(FunctionName=name, Qualifier="1")
    assert answer["ExecutedVersion"] == "1"
    assert json.loads(answer["Payload"].read())[0] == "one"
    assert refused(lambda_client.get_function, FunctionName=name, Qualifier="7")[:2] == (
        404,
        "ResourceNotFoundException",
    )
    both = refused(lambda_client.get_function, FunctionName=f"{name}:1", Qualifier="2")
    assert both[1] == "InvalidParameterValueException"
    changed = refused(lambda_client.update_function_configuration, FunctionName=f"{name}:1", Timeout=9)
    assert changed[1] == "InvalidParameterValueException"
    lambda_client.delete_function(FunctionName=name, Qualifier="1")
    assert refused(lambda_client.get_function, FunctionName=f"{name}:1")[0] == 404
    assert invoke(name).payload[0] == "two"
    assert refused(lambda_client.delete_function, FunctionName=name, Qualifier="$LATEST")[0] == 400


def test_aliases_name_versions(lambda_client: Any, deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(VERSION.format("one"), Publish=True)
    lambda_client.update_function_code(FunctionName=name, ZipFile=packaged(VERSION.format("two")), Publish=True)
    alias = lambda_client.create_alias(FunctionName=name, Name="live", FunctionVersion="1", Description="what runs")
    assert (alias["AliasArn"], alias["FunctionVersion"]) == (f"{ARN}{name}:live", "1")
    assert invoke(name, Qualifier="live").payload == ["one", "1", f"{ARN}{name}:live"]
    assert refused(lambda_client.delete_function, FunctionName=f"{name}:1")[:2] == (409, "ResourceConflictException")
    lambda_client.update_alias(FunctionName=name, Name="live", FunctionVersion="2")
    assert invoke(f"{name}:live").payload[:2] == ["two", "2"]
    assert lambda_client.get_alias(FunctionName=name, Name="live")["Description"] == "what runs"
    assert len(lambda_client.list_aliases(FunctionName=name, FunctionVersion="2")["Aliases"]) == 1
    assert lambda_client.list_aliases(FunctionName=name, FunctionVersion="1")["Aliases"] == []
    create = lambda_client.create_alias
    assert refused(create, FunctionName=name, Name="live", FunctionVersion="1")[:2] == (
        409,
        "ResourceConflictException",
    )
    assert refused(create, FunctionName=name, Name="gone", FunctionVersion="9")[0] == 404
    assert refused(create, FunctionName=name, Name="12", FunctionVersion="1")[1] == "ValidationException"
    assert refused(lambda_client.update_alias, FunctionName=name, Name="none", FunctionVersion="1")[0] == 404
    lambda_client.delete_alias(FunctionName=name, Name="live")
    assert refused(lambda_client.get_alias, FunctionName=name, Name="live")[0] == 404


def test_tags(lambda_client: Any, deploy: Deploy) -> None:
    name = deploy(VERSION.format(""), Tags={"team": "ml"})
    lambda_client.tag_resource(Resource=ARN + name, Tags={"stage": "test", "team": "infra"})
    assert lambda_client.list_tags(Resource=ARN + name)["Tags"] == {"team": "infra", "stage": "test"}
    lambda_client.untag_resource(Resource=ARN + name, TagKeys=["team", "stage"])
    assert "Tags" not in lambda_client.get_function(FunctionName=name)
    many = {f"key-{number}": "" for number in range(51)}
    assert refused(lambda_client.tag_resource, Resource=ARN + name, Tags=many)[1] == "InvalidParameterValueException"
    assert refused(lambda_client.list_tags, Resource=ARN + "nobody")[0] == 404


def test_reserved_concurrency_and_account_settings(lambda_client: Any, deploy: Deploy) -> None:
    name, other = deploy(VERSION.format("")), deploy(VERSION.format(""))
    assert "ReservedConcurrentExecutions" not in lambda_client.get_function_concurrency(FunctionName=name)
    lambda_client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=200)
    concurrency = lambda_client.get_function(FunctionName=name)["Concurrency"]
    assert concurrency == {"ReservedConcurrentExecutions": 200}
    settings = lambda_client.get_account_settings()
    assert settings["AccountLimit"]["ConcurrentExecutions"] == 1000
    assert settings["AccountLimit"]["UnreservedConcurrentExecutions"] == 800
    assert settings["AccountUsage"]["FunctionCount"] == 2
    put = lambda_client.put_function_concurrency
    status, code, message = refused(put, FunctionName=other, ReservedConcurrentExecutions=701)
    assert (status, code) == (400, "InvalidParameterValueException")
    assert message.endswith("UnreservedConcurrentExecution below its minimum value of [100].")
    put(FunctionName=other, ReservedConcurrentExecutions=700)
    lambda_client.delete_function_concurrency(FunctionName=name)
    assert lambda_client.get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"] == 300


def test_dry_run_runs_nothing(lambda_client: Any, deploy: Deploy, invocations: list[Any]) -> None:
    name = deploy(VERSION.format(""))
    assert lambda_client.invoke(FunctionName=name, InvocationType="DryRun")["StatusCode"] == 204
    assert refused(lambda_client.invoke, FunctionName="nobody", InvocationType="DryRun")[0] == 404
    assert invocations == []


def test_event_invoke_configurations(lambda_client: Any, unchecked: Any, deploy: Deploy) -> None:
    name = deploy(VERSION.format(""), Publish=True)
    get, put = lambda_client.get_function_event_invoke_config, lambda_client.put_function_event_invoke_config
    update = lambda_client.update_function_event_invoke_config
    assert refused(get, FunctionName=name)[:2] == (404, "ResourceNotFoundException")
    assert refused(update, FunctionName=name, MaximumRetryAttempts=1)[0] == 404
    put(FunctionName=name, MaximumRetryAttempts=0)
    changed = update(FunctionName=name, MaximumEventAgeInSeconds=60)
    assert (changed["MaximumRetryAttempts"], changed["MaximumEventAgeInSeconds"]) == (0, 60)
    assert "MaximumRetryAttempts" not in put(FunctionName=name, MaximumEventAgeInSeconds=90), "put begins afresh"
    put(FunctionName=name, Qualifier="1", MaximumRetryAttempts=1)
    listed = lambda_client.list_function_event_invoke_configs(FunctionName=name)["FunctionEventInvokeConfigs"]
    assert [config["FunctionArn"].rpartition(":")[2] for config in listed] == ["$LATEST", "1"]
    for wrong in ({"MaximumRetryAttempts": 3}, {"MaximumEventAgeInSeconds": 59}):
        told = refused(unchecked.put_function_event_invoke_config, FunctionName=name, **wrong)
        assert told[1] == "ValidationException"
    bus = {"OnFailure": {"Destination": "arn:aws:events:us-east-1:000000000000:event-bus/bus"}}
    assert "slslab can't send events to" in refused(put, FunctionName=name, DestinationConfig=bus)[2]
    lambda_client.delete_function_event_invoke_config(FunctionName=name)
    assert refused(get, FunctionName=name)[0] == 404


def test_destinations_receive_the_record_of_an_event(
    emulator: Emulator, lambda_client: Any, deploy: Deploy, invocations: list[Any]
) -> None:
    name = deploy("def handler(event, context):\n    return 1 / event['divisor']\n")
    keeper = deploy(
        "import json\n\ndef handler(event, context):\n    print(json.dumps(event))\n", FunctionName="keeper"
    )
    destination = {"Destination": ARN + keeper}
    lambda_client.put_function_event_invoke_config(
        FunctionName=name,
        MaximumRetryAttempts=1,
        DestinationConfig={"OnSuccess": destination, "OnFailure": destination},
    )
    for divisor in (2, 0):
        seen = len(invocations)
        payload = json.dumps({"divisor": divisor})
        sent = lambda_client.invoke(FunctionName=name, InvocationType="Event", Payload=payload)
        wait_for(partial(delivered, invocations, seen, keeper))
        attempts = [record for record in invocations[seen:] if record.function == name]
        assert {record.request_id for record in attempts} == {sent["ResponseMetadata"]["RequestId"]}
        assert len(attempts) == (1 if divisor else 2)
    # In the logs, for the second record may have met an environment of its own.
    logs = sorted((emulator.home / "logs").glob(f"{keeper}-*.log"))
    lines = [line for log in logs for line in log.read_text().splitlines() if line.startswith("{")]
    success, failure = sorted(map(json.loads, lines), key=lambda record: str(record["timestamp"]))
    assert success["requestContext"]["condition"] == "Success"
    assert (success["requestPayload"], success["responsePayload"]) == ({"divisor": 2}, 0.5)
    assert failure["requestContext"]["condition"] == "RetriesExhausted"
    assert failure["requestContext"]["approximateInvokeCount"] == 2
    assert failure["requestContext"]["functionArn"] == f"{ARN}{name}:$LATEST"
    assert failure["responseContext"] == {
        "statusCode": 200,
        "executedVersion": "$LATEST",
        "functionError": "Unhandled",
    }
    assert failure["responsePayload"]["errorType"] == "ZeroDivisionError"


def delivered(invocations: list[Any], seen: int, name: str) -> list[Any]:
    return [record for record in invocations[seen:] if record.function == name]


def wait_for(condition: Callable[[], Any], limit_s: float = 30) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
    return found


def test_events_of_a_function_without_concurrency_go_to_the_destination_at_once(
    lambda_client: Any, s3_client: Any, deploy: Deploy, invocations: list[Any]
) -> None:
    name = deploy(VERSION.format(""))
    s3_client.create_bucket(Bucket="failures")
    failure = {"OnFailure": {"Destination": "arn:aws:s3:::failures"}}
    lambda_client.put_function_event_invoke_config(FunctionName=name, DestinationConfig=failure)
    lambda_client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    lambda_client.invoke(FunctionName=name, InvocationType="Event", Payload=b'{"n": 1}')
    [entry] = wait_for(lambda: s3_client.list_objects_v2(Bucket="failures").get("Contents"))
    assert entry["Key"].startswith(f"aws/lambda/async/{name}/")
    record = json.loads(s3_client.get_object(Bucket="failures", Key=entry["Key"])["Body"].read())
    assert record["requestContext"]["condition"] == "ZeroReservedConcurrency"
    assert record["requestContext"]["approximateInvokeCount"] == 0
    assert record["requestPayload"] == {"n": 1}
    assert "responsePayload" not in record
    assert invocations == []


def test_a_throttled_event_is_tried_again(lambda_client: Any, deploy: Deploy, invocations: list[Any]) -> None:
    name = deploy("import time\n\ndef handler(event, context):\n    time.sleep(0.2)\n")
    lambda_client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=1)
    for _ in range(4):
        lambda_client.invoke(FunctionName=name, InvocationType="Event", Payload=b"{}")
    wait_for(lambda: len(invocations) == 4)
    spans = sorted((record.start_ns, record.end_ns) for record in invocations)
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans)), "one at a time"
    assert [record.status for record in invocations] == ["success"] * 4


def test_pages_and_markers(lambda_client: Any, deploy: Deploy) -> None:
    for _ in range(3):
        deploy(VERSION.format(""))
    first = lambda_client.list_functions(MaxItems=2)
    rest = lambda_client.list_functions(Marker=first["NextMarker"])
    assert [len(first["Functions"]), len(rest["Functions"])] == [2, 1]
    assert "NextMarker" not in rest
    assert refused(lambda_client.list_functions, Marker="nonsense")[1] == "InvalidParameterValueException"


@pytest.mark.parametrize(
    ("change", "expected", "message"),
    [
        (
            {"Runtime": "nodejs22.x"},
            (400, "InvalidParameterValueException"),
            "package one of nodejs22.x",
        ),
        ({"Runtime": "cobol"}, (400, "InvalidParameterValueException"), "'runtime' failed to satisfy constraint"),
        ({"Runtime": "python3.7"}, (400, "InvalidParameterValueException"), "python3.7 is no longer supported"),
        ({"Handler": "no spaces"}, (400, "ValidationException"), "'handler'"),
        ({"Role": "nobody"}, (400, "ValidationException"), "'role'"),
        ({"Description": "x" * 257}, (400, "ValidationException"), "less than or equal to 256"),
        ({"FunctionName": "x" * 65}, (400, "InvalidParameterValueException"), "'functionName'"),
        ({"FunctionName": "what?"}, (400, "ValidationException"), "'functionName'"),
        ({"MemorySize": 127}, (400, "ValidationException"), "'memorySize'"),
        ({"MemorySize": 10_241}, (400, "ValidationException"), "less than or equal to 10240"),
        ({"Timeout": 0}, (400, "ValidationException"), "'timeout'"),
        ({"Timeout": 901}, (400, "ValidationException"), "less than or equal to 900"),
        ({"EphemeralStorage": {"Size": 511}}, (400, "ValidationException"), "greater than or equal to 512"),
        ({"Architectures": ["riscv"]}, (400, "ValidationException"), "[x86_64, arm64]"),
        (
            {"Layers": ["arn:aws:lambda:us-east-1:000000000000:layer:l:1"]},
            (400, "InvalidParameterValueException"),
            "does not exist",
        ),
        ({"Environment": {"Variables": {"1": "x"}}}, (400, "ValidationException"), "'environment.variables'"),
        ({"Environment": {"Variables": {"BIG": "x" * 4094}}}, (400, "InvalidParameterValueException"), "4KB limit"),
        ({"Environment": {"Variables": {"AWS_REGION": "x"}}}, (400, "InvalidParameterValueException"), "AWS_REGION"),
        ({"Code": {"ZipFile": b"no zip"}}, (400, "InvalidParameterValueException"), "Could not unzip"),
        ({"Code": {"S3Bucket": "hot-reload", "S3Key": "here"}}, (400, "InvalidParameterValueException"), "absolute"),
        (
            {"Code": {"ImageUri": "image"}, "PackageType": "Image"},
            (400, "InvalidParameterValueException"),
            "Please don't provide",
        ),
    ],
)
def test_wrong_creations_are_refused_as_on_aws(
    lambda_client: Any, unchecked: Any, change: dict[str, Any], expected: tuple[int, str], message: str
) -> None:
    good = {"FunctionName": "f", "Runtime": "python3.11", "Role": ROLE, "Handler": "app.handler"}
    code = {"Code": {"ZipFile": packaged(VERSION.format(""))}}
    told = refused(unchecked.create_function, **good | code | change)
    assert told[:2] == expected
    assert message in told[2]
    assert lambda_client.list_functions()["Functions"] == []


def test_a_second_function_of_the_same_name_is_refused(deploy: Deploy) -> None:
    name = deploy(VERSION.format(""))
    told = refused(deploy, code=VERSION.format(""), FunctionName=name)
    assert told == (409, "ResourceConflictException", f"Function already exist: {name}")


def test_a_deleted_function_is_gone_for_every_operation(lambda_client: Any, deploy: Deploy) -> None:
    name = deploy(VERSION.format(""))
    lambda_client.delete_function(FunctionName=name)
    for operation in ("get_function", "invoke", "delete_function", "publish_version", "list_aliases"):
        told = refused(getattr(lambda_client, operation), FunctionName=name)
        named = f"{ARN}{name}" + (":$LATEST" if operation == "invoke" else "")
        assert told == (404, "ResourceNotFoundException", f"Function not found: {named}"), operation


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"FunctionName": 7}',
        b'{"FunctionName": "f", "Code": "code"}',
        b'{"FunctionName": "f", "Code": {"ZipFile": {}}}',
        b'{"FunctionName": "f", "Environment": []}',
        b'{"FunctionName": "f", "Environment": {"Variables": {"KEY": 1}}}',
        b'{"FunctionName": "f", "Tags": ["a"]}',
        b'{"FunctionName": "f", "Architectures": "arm64"}',
        b'{"FunctionName": "f", "MemorySize": "128"}',
        b'{"FunctionName": "f", "MemorySize": 128.5}',
        b'{"FunctionName": "f", "EphemeralStorage": 512}',
    ],
)
def test_bodies_of_the_wrong_shape_are_serialization_exceptions(emulator: Emulator, body: bytes) -> None:
    url = f"{emulator.endpoint}/2015-03-31/functions"
    headers = signed_headers(emulator.keys.owner, "POST", url, body)
    answer = URLLib3Session().send(AWSRequest("POST", url, headers, body).prepare())
    assert (answer.status_code, answer.headers["x-amzn-ErrorType"]) == (400, "SerializationException")
    assert json.loads(answer.text)["Type"] == "User"
