"""Permissions of the owner, a function, a service, and clients with another start's keys or without keys."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.auth
import botocore.exceptions
import pytest

from slslab.aws.clients import aws_client
from slslab.aws.keys import Keyring, Pair
from slslab.errors import RequestError
from slslab.lambda_.emulator import Emulator
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.stack.state_machines import EmbeddedStateMachines
from slslab.testing import ROLE, create_function, packaged

pytestmark = pytest.mark.server

MACHINE = json.dumps({"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}})
# What each service answers to a list of what there is; a request that reveals much and changes nothing.
LISTS = {"lambda": "list_functions", "s3": "list_buckets", "stepfunctions": "list_state_machines"}
UNKNOWN, MISMATCH = "UnrecognizedClientException", "InvalidSignatureException"
HANDLER = """
import base64, boto3, botocore.exceptions, json, os
ROLE = "arn:aws:iam::000000000000:role/any"

def handler(event, context):
    attempts, answers = globals()[event["do"]](event), {}
    for name, attempt in attempts.items():
        try:
            attempt()
            answers[name] = "done"
        except botocore.exceptions.ClientError as error:
            answers[name] = error.response["Error"]["Code"]
    return answers

def allowed(event):
    client, states, s3 = boto3.client("lambda"), boto3.client("stepfunctions"), boto3.client("s3")
    started = []
    return {
        "invoke": lambda: client.invoke(FunctionName="other", Payload=b"{}"),
        "start": lambda: started.append(states.start_execution(stateMachineArn=event["machine"])),
        "describe": lambda: states.describe_execution(executionArn=started[0]["executionArn"]),
        "put": lambda: s3.put_object(Bucket="objects", Key="key", Body=b"body"),
        "get": lambda: s3.get_object(Bucket="objects", Key="key"),
        "list objects": lambda: s3.list_objects_v2(Bucket="objects"),
        "copy": lambda: s3.copy_object(Bucket="objects", Key="copy", CopySource="objects/key"),
        "delete": lambda: s3.delete_object(Bucket="objects", Key="copy"),
        "delete many": lambda: s3.delete_objects(Bucket="objects", Delete={"Objects": [{"Key": "copy"}]}),
        "list buckets": s3.list_buckets,
        "begin upload": lambda: started.append(s3.create_multipart_upload(Bucket="objects", Key="large")),
        "end upload": lambda: s3.abort_multipart_upload(Bucket="objects", Key="large", UploadId=started[1]["UploadId"]),
    }

def denied(event):
    client, states = boto3.client("lambda"), boto3.client("stepfunctions")
    code, name = {"ZipFile": base64.b64decode(event["code"])}, "other"
    made = {"FunctionName": "mine", "Runtime": "python3.11", "Role": ROLE, "Handler": "app.handler"}
    return {
        "list": client.list_functions,
        "get": lambda: client.get_function(FunctionName=name),
        "configuration": lambda: client.get_function_configuration(FunctionName=name),
        "create": lambda: client.create_function(**made, Code=code),
        "hot reload": lambda: client.create_function(**made, Code={"S3Bucket": "hot-reload", "S3Key": "/root"}),
        "update": lambda: client.update_function_code(FunctionName=name, **code),
        "delete": lambda: client.delete_function(FunctionName=name),
        "layers": client.list_layers,
        "policy": lambda: client.get_policy(FunctionName=name),
        "permission": lambda: client.add_permission(
            FunctionName=name, StatementId="s", Action="lambda:InvokeFunction", Principal="*"
        ),
        "url": lambda: client.create_function_url_config(FunctionName=name, AuthType="NONE"),
        "list machines": states.list_state_machines,
        "create machine": lambda: states.create_state_machine(name="m", definition=event["definition"], roleArn=ROLE),
        "history": lambda: states.get_execution_history(executionArn=event["machine"].replace("Machine", "x")),
        "delete machine": lambda: states.delete_state_machine(stateMachineArn=event["machine"]),
    }

def denied_in_s3(event):
    s3, bucket = boto3.client("s3"), "objects"
    everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{bucket}/*"}
    rule = {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}
    return {
        "policy": lambda: s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": [everybody]})),
        "read policy": lambda: s3.get_bucket_policy(Bucket=bucket),
        "cors": lambda: s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]}),
        "acl": lambda: s3.put_bucket_acl(Bucket=bucket, ACL="public-read"),
        "object acl": lambda: s3.put_object_acl(Bucket=bucket, Key="key", ACL="public-read"),
        "create": lambda: s3.create_bucket(Bucket="functions-own"),
        "delete": lambda: s3.delete_bucket(Bucket="empty"),
        "versioning": lambda: s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}),
        "website": lambda: s3.put_bucket_website(
            Bucket=bucket, WebsiteConfiguration={"IndexDocument": {"Suffix": "index.html"}}
        ),
        "block": lambda: s3.delete_public_access_block(Bucket=bucket),
        "tags": lambda: s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": []}),
    }

def granted(event):
    s3 = boto3.client("s3")
    return {
        "create": lambda: s3.create_bucket(Bucket="granted-1"),
        "delete": lambda: s3.delete_bucket(Bucket="granted-1"),
        "create another": lambda: s3.create_bucket(Bucket="other-1"),
        "list": lambda: s3.list_objects_v2(Bucket="objects"),
        "read the secret": lambda: s3.get_object(Bucket="objects", Key="secret/key"),
        "read": lambda: s3.get_object(Bucket="objects", Key="key"),
    }

def literal(event):
    pair = {"aws_access_key_id": event["key"], "aws_secret_access_key": "test", "aws_session_token": None}
    os.environ.pop("AWS_SESSION_TOKEN", None)
    return {
        "s3": boto3.client("s3", **pair).list_buckets,
        "lambda": boto3.client("lambda", **pair).list_functions,
        "stepfunctions": boto3.client("stepfunctions", **pair).list_state_machines,
    }

def keys(event):
    return {os.environ["AWS_ACCESS_KEY_ID"] + " " + os.environ["AWS_SECRET_ACCESS_KEY"]: lambda: None}
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[dict[str, str]]:
    """Endpoints of Lambda, S3 and Step Functions that take `test:test`, too."""
    keys = Keyring(others=[Pair("test", "test")])
    with (
        Emulator(keys=keys) as emulator,
        EmbeddedObjectStore(emulator.home / "s3", keys, emulator.mark) as store,
        EmbeddedStateMachines(emulator.endpoint, keys, emulator.mark) as machines,
    ):
        emulator.add_variables({"AWS_ENDPOINT_URL_S3": store.endpoint, **machines.client_environment()})
        machines.ready()
        yield {**emulator.endpoints, "stepfunctions": machines.endpoint, "keys": keys.text()}


@pytest.fixture(scope="module")
def keys(stack: dict[str, str]) -> Keyring:
    return Keyring.from_text(stack["keys"])


@pytest.fixture(scope="module")
def ask(stack: dict[str, str], keys: Keyring) -> Iterator[Callable[..., Any]]:
    """Two functions, a bucket and a state machine; invokes the first of the functions."""
    with (
        closing(aws_client("lambda", stack["lambda"], keys.owner)) as client,
        closing(aws_client("s3", stack["s3"], keys.owner)) as s3,
        closing(aws_client("stepfunctions", stack["stepfunctions"], keys.owner)) as states,
    ):
        create_function(client, "tries", HANDLER, Timeout=60)
        create_function(client, "other", "def handler(event, context): pass", Environment={"Variables": {"AA": "bb"}})
        s3.create_bucket(Bucket="objects")
        s3.create_bucket(Bucket="empty")
        machine = states.create_state_machine(name="machine", definition=MACHINE, roleArn=ROLE)["stateMachineArn"]
        event = {"machine": machine, "code": base64.b64encode(packaged("x = 1")).decode(), "definition": MACHINE}

        def invoke(what: str, **more: str) -> Any:
            answer = client.invoke(FunctionName="tries", Payload=json.dumps({"do": what, **event, **more}))
            document = json.loads(answer["Payload"].read())
            assert "FunctionError" not in answer, document
            return document

        yield invoke


def test_a_function_may_invoke_use_objects_and_start_executions(ask: Callable[..., Any]) -> None:
    answers = ask("allowed")
    assert answers == dict.fromkeys(answers, "done")
    assert len(answers) == 12


def test_everything_else_is_denied_to_a_function(ask: Callable[..., Any]) -> None:
    answers = ask("denied")
    assert answers == dict.fromkeys(answers, "AccessDeniedException")
    assert len(answers) == 15


def test_a_function_changes_no_bucket_and_no_right(
    ask: Callable[..., Any], stack: dict[str, str], keys: Keyring
) -> None:
    answers = ask("denied_in_s3")
    assert answers == dict.fromkeys(answers, "AccessDenied")
    assert len(answers) == 11
    with closing(aws_client("s3", stack["s3"], keys.owner)) as s3:
        assert {entry["Name"] for entry in s3.list_buckets()["Buckets"]} == {"objects", "empty"}
        with pytest.raises(botocore.exceptions.ClientError, match="NoSuchBucketPolicy"):
            s3.get_bucket_policy(Bucket="objects")


GRANTS = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": ["s3:CreateBucket", "s3:DeleteBucket"], "Resource": "arn:aws:s3:::granted-*"},
        {"Effect": "Deny", "Action": "s3:Get*", "Resource": "arn:aws:s3:::objects/secret/*"},
    ],
}


def test_the_owner_grants_functions_more_by_a_policy_and_denies_them_some() -> None:
    keys = Keyring(function_policy=json.dumps(GRANTS))
    with (
        Emulator(keys=keys) as emulator,
        EmbeddedObjectStore(emulator.home / "s3", keys, emulator.mark) as store,
        closing(aws_client("lambda", emulator.endpoint, keys.owner)) as client,
        closing(aws_client("s3", store.endpoint, keys.owner)) as s3,
    ):
        emulator.add_variables({"AWS_ENDPOINT_URL_S3": store.endpoint})
        create_function(client, "tries", HANDLER, Timeout=60)
        s3.create_bucket(Bucket="objects")
        for key in ("key", "secret/key"):
            s3.put_object(Bucket="objects", Key=key, Body=b"")
        answer = client.invoke(FunctionName="tries", Payload=json.dumps({"do": "granted"}))
        assert json.loads(answer["Payload"].read()) == {
            "create": "done",
            "delete": "done",
            "create another": "AccessDenied",
            "list": "done",
            "read the secret": "AccessDenied",
            "read": "done",
        }


@pytest.mark.parametrize(
    "changed",
    [{"Condition": {"DateLessThan": {"aws:CurrentTime": "2030"}}}, {"NotAction": "s3:*"}, {"Effect": "Maybe"}],
)
def test_a_policy_that_could_not_be_enforced_is_refused(changed: dict[str, Any]) -> None:
    statement = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"} | changed
    with pytest.raises(RequestError, match="The policy of functions cannot be used"):
        Keyring(function_policy=json.dumps({"Statement": statement}))


def test_a_function_never_holds_the_owners_keys(ask: Callable[..., Any], keys: Keyring) -> None:
    (held,) = ask("keys")
    assert held == f"{keys.function('tries').key_id} {keys.function('tries').secret}"


def test_literal_keys_that_a_handler_brings_work_where_they_were_given(ask: Callable[..., Any]) -> None:
    assert ask("literal", key="test") == dict.fromkeys(LISTS, "done")
    refused = {"lambda": UNKNOWN, "s3": "InvalidAccessKeyId", "stepfunctions": UNKNOWN}
    assert ask("literal", key="another") == refused


def test_a_service_invokes_and_does_nothing_else(stack: dict[str, str], keys: Keyring, ask: object) -> None:  # noqa: ARG001
    with closing(aws_client("lambda", stack["lambda"], keys.service)) as client:
        assert client.invoke(FunctionName="other", Payload=b"{}")["StatusCode"] == 200
        with pytest.raises(client.exceptions.ClientError, match="AccessDeniedException"):
            client.list_functions()
        with pytest.raises(client.exceptions.ClientError, match="to perform: lambda:GetLayerVersion on"):
            client.get_layer_version(LayerName="any", VersionNumber=1)


@pytest.mark.parametrize("service", LISTS)
def test_given_keys_open_every_service(service: str, stack: dict[str, str]) -> None:
    with closing(aws_client(service, stack[service], Pair("test", "test"))) as client:
        getattr(client, LISTS[service])()


@pytest.mark.parametrize(
    ("wrong", "errors"),
    [
        ("secret", (MISMATCH, "SignatureDoesNotMatch", MISMATCH)),
        ("key", (UNKNOWN, "InvalidAccessKeyId", UNKNOWN)),
        ("token", (UNKNOWN, "InvalidToken", UNKNOWN)),
        ("token of another start", (UNKNOWN, "InvalidToken", UNKNOWN)),
        ("no token", (UNKNOWN, "InvalidAccessKeyId", UNKNOWN)),
    ],
)
def test_wrong_keys_get_aws_errors_of_all_services(
    wrong: str, errors: tuple[str, ...], stack: dict[str, str], keys: Keyring
) -> None:
    owner, function = keys.owner, keys.function("f")
    pair = {
        "secret": Pair(owner.key_id, "wrong"),
        "key": Pair("AKIAUNKNOWN", "wrong"),
        "token": Pair(owner.key_id, owner.secret, "token"),
        "token of another start": Keyring().function("f"),
        "no token": Pair(function.key_id, function.secret),
    }[wrong]
    for (service, operation), expected in zip(LISTS.items(), errors, strict=True):
        with closing(aws_client(service, stack[service], pair)) as client:
            with pytest.raises(botocore.exceptions.ClientError) as refused:
                getattr(client, operation)()
            error = refused.value.response
            assert error["Error"]["Code"] == expected
            malformed = service == "stepfunctions" or expected == "InvalidToken"
            assert error["ResponseMetadata"]["HTTPStatusCode"] == (400 if malformed else 403)
            if expected == UNKNOWN:
                assert pair.key_id in error["Error"]["Message"]
                assert "--credentials KEY:SECRET" in error["Error"]["Message"]


@pytest.mark.parametrize(
    ("service", "error"), [("lambda", "Signature expired: "), ("s3", "<Message>Request has expired</Message>")]
)
def test_an_expired_presigned_url_is_refused(
    service: str, error: str, stack: dict[str, str], keys: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = {"s3": "s3v4", "lambda": "v4"}[service]
    with closing(aws_client(service, stack[service], keys.owner, signature_version=version)) as client:
        url = client.generate_presigned_url(LISTS[service], ExpiresIn=60)
        with urllib.request.urlopen(url) as answer:
            assert answer.status == 200
        before = datetime.now(UTC) - timedelta(seconds=90)
        monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: before.replace(tzinfo=None))
        expired = client.generate_presigned_url(LISTS[service], ExpiresIn=60)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(expired)
    with refused.value:
        assert refused.value.code == 403
        assert error in refused.value.read().decode()


def test_what_is_not_signed_is_refused(stack: dict[str, str]) -> None:
    asked = {
        "lambda": f"{stack['lambda']}/2015-03-31/functions",
        "s3": stack["s3"],
        "stepfunctions": stack["stepfunctions"],
    }
    for service, url in asked.items():
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, b"{}" if service == "stepfunctions" else None))
        with refused.value:
            assert refused.value.code == 403
            missing = "<Code>AccessDenied</Code>" if service == "s3" else "MissingAuthenticationTokenException"
            assert missing in refused.value.read().decode()
