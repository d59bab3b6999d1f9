"""What a request must be by AWS's model of its operation."""

import json
from typing import Any

import pytest

from slslab.aws import requests
from slslab.aws.errors import ServiceError
from slslab.aws.requests import members

ARN = "arn:aws:lambda:us-east-1:000000000000:function:f"
TEXT = "Member must be Unicode text without NUL characters"
GOOD: dict[str, Any] = {
    "FunctionName": "f",
    "Role": "arn:aws:iam::000000000000:role/r",
    "Handler": "app.handler",
    "Code": {"ZipFile": "UEsD"},
}


def refusal(operation: str, document: Any, service: str = "lambda") -> tuple[str, str]:
    """Return type and message of the error of a wrong request."""
    with pytest.raises(ServiceError) as caught:
        members(service, operation, json.dumps(document).encode())
    assert caught.value.status == 400
    return caught.value.error_type, caught.value.message


def test_members_without_a_value_are_left_out_also_of_structures() -> None:
    given = {**GOOD, "Description": None, "VpcConfig": None, "Environment": {"Variables": None}, "More": [None]}
    assert members("lambda", "CreateFunction", json.dumps(given).encode()) == {
        **GOOD,
        "Environment": {},
        "More": [None],
    }


def test_a_long_text_that_its_shape_allows_is_a_member() -> None:
    given = {**GOOD, "KMSKeyArn": "arn:aws:kms:" + "x" * 5000}
    assert members("lambda", "CreateFunction", json.dumps(given).encode()) == given


def test_members_may_be_elsewhere() -> None:
    assert members("lambda", "TagResource", b'{"Tags": {}}', {"Resource": ARN}) == {"Tags": {}, "Resource": ARN}
    assert members("lambda", "GetAccountSettings", b"") == {}


@pytest.mark.parametrize(
    ("change", "at", "rule"),
    [
        ({"Role": None}, "null at 'role'", "Member must not be null"),
        ({"MemorySize": 127}, "'127' at 'memorySize'", "Member must have value greater than or equal to 128"),
        ({"Timeout": 10**30}, "at 'timeout'", "Member must have value less than or equal to"),
        ({"Description": "x" * 257}, "at 'description'", "Member must have length less than or equal to 256"),
        ({"Handler": "a b"}, "'a b' at 'handler'", "Member must satisfy regular expression pattern: [^\\s]+"),
        ({"Role": "x" * 5000}, "at 'role'", "Member must satisfy regular expression pattern: arn:"),
        ({"Environment": {"Variables": {"A" * 5000: "x"}}}, "at 'environment.variables'", "Map keys must satisfy"),
        ({"PackageType": "Tar"}, "'Tar' at 'packageType'", "Member must satisfy enum value set: [Zip, Image]"),
        ({"Code": {"S3Bucket": "../.."}}, "'../..' at 'code.s3Bucket'", "Member must satisfy regular expression"),
        ({"Code": {"S3Key": ""}}, "'' at 'code.s3Key'", "Member must have length greater than or equal to 1"),
        ({"Architectures": []}, "'[]' at 'architectures'", "Member must have length greater than or equal to 1"),
        (
            {"Architectures": ["riscv"]},
            "at 'architectures'",
            "Member must satisfy constraint: [Member must satisfy enum value set: [x86_64, arm64], "
            "Member must not be null]",
        ),
        (
            {"Environment": {"Variables": {"1": "x"}}},
            "at 'environment.variables'",
            "Map keys must satisfy constraint: [Member must satisfy regular expression pattern: "
            "[a-zA-Z]([a-zA-Z0-9_])+, Member must not be null]",
        ),
        ({"Tags": {"k": "x" * 257}}, "at 'tags'", "Map value must satisfy constraint: [Member must have length"),
        ({"Tags": {"k": "a*"}}, "'{k=a*}' at 'tags'", "Map value must satisfy constraint: [Member must have length"),
        ({"SnapStart": {"ApplyOn": 7 * "x"}}, "at 'snapStart.applyOn'", "Member must satisfy enum value set"),
        ({"TenancyConfig": {}}, "null at 'tenancyConfig.tenantIsolationMode'", "Member must not be null"),
        ({"Handler": "a\0b"}, "at 'handler'", TEXT),
        ({"Code": {"S3Key": "\ud800"}}, "at 'code.s3Key'", TEXT),
        ({"Environment": {"Variables": {"KEY": "\0"}}}, "at 'environment.variables'", TEXT),
        ({"Runtime": "\0"}, "at 'runtime'", TEXT),
    ],
)
def test_a_member_that_breaks_a_rule_of_the_model_is_named(change: dict[str, Any], at: str, rule: str) -> None:
    error_type, message = refusal("CreateFunction", GOOD | change)
    assert error_type == "ValidationException"
    assert message.startswith("1 validation error detected: Value ")
    assert f"{at} failed to satisfy constraint: {rule}" in message


@pytest.mark.parametrize("change", [{"Tags": {"k": "ü é٣_.:/=+-@"}}, {"Runtime": "nodejs"}])
def test_what_the_model_allows_or_another_error_refuses_is_let_through(change: dict[str, Any]) -> None:
    assert members("lambda", "CreateFunction", json.dumps(GOOD | change).encode()) == GOOD | change


def test_several_violations_are_one_error_and_their_number_is_bounded() -> None:
    _, message = refusal("CreateFunction", GOOD | {"MemorySize": 1, "Timeout": 0})
    assert message.startswith("2 validation errors detected: ")
    _, message = refusal("CreateFunction", GOOD | {"FileSystemConfigs": [dict[str, str]()] * 1000})
    assert message.startswith("10 validation errors detected: ")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"MemorySize": "128"}, "memorySize must be of the type integer, not str"),
        ({"MemorySize": True}, "memorySize must be of the type integer, not bool"),
        ({"MemorySize": 128.0}, "memorySize must be of the type integer, not float"),
        ({"Code": []}, "code must be of the type structure, not list"),
        ({"Code": {"ZipFile": 1}}, "code.zipFile must be of the type blob, not int"),
        ({"Publish": "yes"}, "publish must be of the type boolean, not str"),
        ({"Layers": "arn"}, "layers must be of the type list, not str"),
        ({"Architectures": [None]}, "architectures must be of the type string, not NoneType"),
        (
            {"Environment": {"Variables": {"KEY": None}}},
            "environment.variables must be of the type string, not NoneType",
        ),
    ],
)
def test_a_member_of_another_type_is_refused(change: dict[str, Any], what: str) -> None:
    assert refusal("CreateFunction", GOOD | change) == ("SerializationException", what)


def test_step_functions_has_its_own_errors_for_some_members() -> None:
    name = {"stateMachineArn": "arn", "name": "x" * 100, "input": "x" * 300_000}
    assert members("stepfunctions", "StartExecution", json.dumps(name).encode()) == name
    assert refusal("StartExecution", {"stateMachineArn": 1}, "stepfunctions")[0] == "SerializationException"
    assert refusal("StartExecution", {"name": "f"}, "stepfunctions") == (
        "ValidationException",
        "1 validation error detected: Value null at 'stateMachineArn' failed to satisfy constraint: Member must not be "
        "null",
    )
    wrong = {"stateMachineArn": "arn", "statusFilter": "succeeded"}
    assert refusal("ListExecutions", wrong, "stepfunctions")[1] == (
        "1 validation error detected: Value 'succeeded' at 'statusFilter' failed to satisfy constraint: Member must "
        "satisfy enum value set: [SUCCEEDED, TIMED_OUT, PENDING_REDRIVE, ABORTED, FAILED, RUNNING]"
    )


@pytest.mark.parametrize("body", [b"{", b"[1]", b"[" * 100_000, b'{"Description": NaN}', b"\xff", b"1" * 5000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ServiceError, match="request body") as refused:
        members("lambda", "TagResource", body)
    assert (refused.value.status, refused.value.error_type) == (400, "SerializationException")


def test_long_headers_are_not_kept() -> None:
    kept = requests._header_members.cache_info().currsize
    for text in ("short", "long" * 1_000):
        given = {"FunctionName": "f", "ClientContext": text}
        assert requests.header_members("lambda", "Invoke", given) == given
    assert requests._header_members.cache_info().currsize == kept + 1
