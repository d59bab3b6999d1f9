"""AWS's answers in every field, as recorded: functions, versions, aliases, tags, concurrency, handling of events.

Each test is named after a row of a list of differences once found; it makes the row's request and two similar ones.
"""

import base64
import io
import json
import re
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from tests.emulator.lambda_.answers import (
    ACTIVE,
    ARN,
    CREATING,
    ID,
    ROLE,
    RUNTIME_VERSION,
    UPDATING,
    Caller,
    assert_equal,
    configuration,
)

from slslab.aws.requests import service_model
from slslab.lambda_.emulator import Emulator
from slslab.testing import packaged

# The client's fixture removes what is made here.
pytestmark = [pytest.mark.server, pytest.mark.usefixtures("lambda_client")]

FUNCTIONS = "/2015-03-31/functions"
EVENTS = "/2019-09-25/functions/{}/event-invoke-config"
CODE = "def handler(event, context):\n    return event\n"
Invoke = Callable[..., Any]


@pytest.fixture
def call(emulator: Emulator) -> Caller:
    return Caller(emulator)


def request(name: str = "f", **changes: Any) -> dict[str, Any]:
    """Return the least that CreateFunction takes, with these changes."""
    code = {"ZipFile": base64.b64encode(packaged(CODE)).decode()}
    least = {"FunctionName": name, "Role": ROLE, "Handler": "app.handler", "Runtime": "python3.11", "Code": code}
    return least | changes


def create(call: Caller, name: str = "f", **changes: Any) -> dict[str, Any]:
    status, _, created = call("POST", FUNCTIONS, request(name, **changes))
    assert status == 201, created
    return dict(created)


def pattern(shape: str) -> str:
    """Return the pattern of AWS's model."""
    return str(service_model("lambda").shape_for(shape).metadata["pattern"])


def user(message: str, member: str = "message") -> dict[str, str]:
    return {"Type": "User", member: message}


def invalid(message: str) -> tuple[int, str, Any]:
    return 400, "InvalidParameterValueException", user(message)


def missing(message: str) -> tuple[int, str, Any]:
    return 404, "ResourceNotFoundException", user(message, "Message")


def violated(*violations: str) -> tuple[int, str, Any]:
    errors = "error" if len(violations) == 1 else "errors"
    told = "; ".join(violations)
    return 400, "ValidationException", {"message": f"{len(violations)} validation {errors} detected: {told}"}


def violation(value: str, member: str, rule: str) -> str:
    return f"Value '{value}' at '{member}' failed to satisfy constraint: {rule}"


# --- L1, L2: states, revisions and the fields of a configuration


def test_l01_a_function_is_created_pending_and_then_active(call: Caller) -> None:
    created = create(call)
    assert_equal(created, configuration("f", **CREATING, **RUNTIME_VERSION))
    _, _, got = call("GET", f"{FUNCTIONS}/f")
    assert_equal(got["Configuration"], configuration("f", **ACTIVE, **RUNTIME_VERSION))
    assert got["Configuration"]["RevisionId"] != created["RevisionId"], "it changed when it became active"
    assert_equal(call("GET", f"{FUNCTIONS}/f/configuration")[2], got["Configuration"])


def test_l01_an_update_of_the_configuration_is_in_progress_and_then_successful(call: Caller) -> None:
    create(call)
    status, _, updated = call("PUT", f"{FUNCTIONS}/f/configuration", {"MemorySize": 256, "Description": "d"})
    expected = configuration("f", **RUNTIME_VERSION, MemorySize=256, Description="d")
    assert status == 200
    assert_equal(updated, expected | UPDATING)
    _, _, after = call("GET", f"{FUNCTIONS}/f/configuration")
    assert_equal(after, expected | ACTIVE)
    assert after["RevisionId"] != updated["RevisionId"]


def test_l01_new_code_is_in_progress_and_its_version_pending(call: Caller) -> None:
    create(call)
    code = {"ZipFile": base64.b64encode(packaged("def handler(event, context): pass\n")).decode()}
    status, _, updated = call("PUT", f"{FUNCTIONS}/f/code", code)
    assert status == 200
    assert_equal(updated, configuration("f", **UPDATING, **RUNTIME_VERSION))
    _, _, version = call("PUT", f"{FUNCTIONS}/f/code", code | {"Publish": True})
    assert_equal(version, configuration("f", ":1", **CREATING, **RUNTIME_VERSION))
    wrong = {"RevisionId": updated["RevisionId"]}
    told = (
        "The Revision Id provided does not match the latest Revision Id. Call the GetFunction/GetAlias API to retrieve "
        "the latest Revision Id"
    )
    for method, path in (("PUT", "/code"), ("PUT", "/configuration"), ("POST", "/versions")):
        given = wrong | (code if path == "/code" else {})
        assert call(method, f"{FUNCTIONS}/f{path}", given) == (412, "PreconditionFailedException", user(told))


def test_l02_an_environment_is_echoed_as_it_was_given(call: Caller) -> None:
    empty: dict[str, Any] = {"Environment": {"Variables": {}}}
    assert_equal(create(call, **empty), configuration("f", **CREATING, **RUNTIME_VERSION, **empty))
    one: dict[str, Any] = {"Environment": {"Variables": {"KEY": "value"}}}
    _, _, updated = call("PUT", f"{FUNCTIONS}/f/configuration", one)
    assert_equal(updated, configuration("f", **UPDATING, **RUNTIME_VERSION, **one))
    assert_equal(create(call, "g"), configuration("g", **CREATING, **RUNTIME_VERSION))


def test_l02_lists_have_neither_states_nor_the_runtimes_version(call: Caller) -> None:
    create(call)
    create(call, "g", Publish=True)
    assert_equal(call("GET", FUNCTIONS)[2], {"Functions": list})
    [f, g] = call("GET", FUNCTIONS)[2]["Functions"]
    assert_equal(f, configuration("f"))
    assert_equal(g, configuration("g"))
    [latest, version] = call("GET", f"{FUNCTIONS}/g/versions")[2]["Versions"]
    assert_equal(latest, configuration("g", ":$LATEST"))
    assert_equal(version, configuration("g", ":1"))


# --- L3: settings that have no effect here


def test_l03_json_logging_has_levels_and_text_has_none(call: Caller) -> None:
    group = {"LogGroup": "/aws/lambda/f"}
    info = {"ApplicationLogLevel": "INFO", "SystemLogLevel": "INFO"}
    assert create(call, LoggingConfig={"LogFormat": "JSON"})["LoggingConfig"] == {"LogFormat": "JSON", **info, **group}
    path = f"{FUNCTIONS}/f/configuration"
    _, _, updated = call("PUT", path, {"LoggingConfig": {"LogFormat": "Text"}})
    assert updated["LoggingConfig"] == {"LogFormat": "Text", **group}
    _, _, updated = call("PUT", path, {"LoggingConfig": {"LogGroup": "elsewhere"}})
    assert updated["LoggingConfig"] == {"LogFormat": "Text", "LogGroup": "elsewhere"}
    debug = {"LogFormat": "JSON", "ApplicationLogLevel": "DEBUG"}
    assert create(call, "g", LoggingConfig=debug)["LoggingConfig"] == {
        **debug,
        "SystemLogLevel": "INFO",
        "LogGroup": "/aws/lambda/g",
    }
    levels = (
        'LogLevel is not supported when LogFormat is set to "Text". Remove LogLevel from your request or change the '
        'LogFormat to "JSON" and try again.'
    )
    assert call("PUT", path, {"LoggingConfig": {"SystemLogLevel": "WARN"}}) == invalid(levels)
    rule = "Member must satisfy enum value set: [JSON, Text]"
    told = call("PUT", path, {"LoggingConfig": {"LogFormat": "XML"}})
    assert told == violated(violation("XML", "loggingConfig.logFormat", rule))


def test_l03_what_has_no_effect_is_echoed(call: Caller) -> None:
    queue = {"TargetArn": "arn:aws:sqs:us-east-1:000000000000:letters"}
    network = {"SubnetIds": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    created = create(
        call,
        DeadLetterConfig=queue,
        TracingConfig={"Mode": "Active"},
        VpcConfig=network,
        SnapStart={"ApplyOn": "PublishedVersions"},
        Publish=True,
    )
    assert created["DeadLetterConfig"] == queue
    assert created["TracingConfig"] == {"Mode": "Active"}
    assert created["SnapStart"] == {"ApplyOn": "PublishedVersions", "OptimizationStatus": "On"}
    identity = created["VpcConfig"].pop("VpcId")
    assert created["VpcConfig"] == {"Ipv6AllowedForDualStack": False, **network}
    assert identity.startswith("vpc-")
    path = f"{FUNCTIONS}/f/configuration"
    _, _, updated = call("PUT", path, {"VpcConfig": {"SubnetIds": [], "SecurityGroupIds": []}})
    assert updated["VpcConfig"] == {
        "Ipv6AllowedForDualStack": False,
        "SubnetIds": [],
        "SecurityGroupIds": [],
        "VpcId": "",
    }
    assert updated["SnapStart"] == {"ApplyOn": "PublishedVersions", "OptimizationStatus": "Off"}
    _, _, updated = call("PUT", path, {"DeadLetterConfig": {"TargetArn": ""}, "TracingConfig": {"Mode": "PassThrough"}})
    assert "DeadLetterConfig" not in updated
    assert updated["TracingConfig"] == {"Mode": "PassThrough"}
    rule = "Member must satisfy enum value set: [PublishedVersions, None]"
    assert call("PUT", path, {"SnapStart": {"ApplyOn": "x"}}) == violated(violation("x", "snapStart.applyOn", rule))


@pytest.mark.parametrize(
    "setting", ["DurableConfig", "TenancyConfig", "CapacityProviderConfig", "CodeSigningConfigArn"]
)
def test_l03_what_would_be_a_promise_is_refused_by_its_name(call: Caller, setting: str) -> None:
    given: dict[str, Any] = {
        "DurableConfig": {"ExecutionTimeout": 60},
        "TenancyConfig": {"TenantIsolationMode": "PER_TENANT"},
        "CapacityProviderConfig": {"LambdaManagedInstancesCapacityProviderConfig": {"CapacityProviderArn": ""}},
        "CodeSigningConfigArn": "arn:aws:lambda:us-east-1:000000000000:code-signing-config:csc-0123456789abcdef0",
    }
    status, _, told = call("POST", FUNCTIONS, request(**{setting: given[setting]}))
    assert status == 400
    if setting != "CapacityProviderConfig":  # whose ARN breaks a rule of the model first
        assert told == user(f"slslab does not emulate {setting}; leave it out.")


# --- L4, L10: versions


def test_l04_a_changed_description_makes_a_new_version(call: Caller) -> None:
    create(call, "f")
    _, _, first = call("POST", f"{FUNCTIONS}/f/versions", {"Description": "the first"})
    expected = configuration("f", ":1", Description="the first", **ACTIVE, **RUNTIME_VERSION)
    assert_equal(first, expected)
    _, _, again = call("POST", f"{FUNCTIONS}/f/versions", {"Description": "another"})
    assert again == first, "nothing has been updated since"
    call("PUT", f"{FUNCTIONS}/f/configuration", {"Description": "changed"})
    status, _, second = call("POST", f"{FUNCTIONS}/f/versions", {})
    assert status == 201
    assert_equal(second, configuration("f", ":2", Description="changed", **ACTIVE, **RUNTIME_VERSION))


def test_l04_other_code_makes_a_version_and_a_wrong_digest_none(call: Caller) -> None:
    created = create(call, Publish=True)
    told = (
        f"CodeSHA256 (other) is different from current CodeSHA256 in $LATEST ({created['CodeSha256']}). Please try "
        "again with the CodeSHA256 in $LATEST."
    )
    assert call("POST", f"{FUNCTIONS}/f/versions", {"CodeSha256": "other"}) == invalid(told)
    call("PUT", f"{FUNCTIONS}/f/code", {"ZipFile": base64.b64encode(packaged("x = 1\n")).decode()})
    _, _, version = call("POST", f"{FUNCTIONS}/f/versions", {})
    assert_equal(version, configuration("f", ":2", **ACTIVE, **RUNTIME_VERSION))
    call("DELETE", f"{FUNCTIONS}/f?Qualifier=2")
    call("PUT", f"{FUNCTIONS}/f/configuration", {"Timeout": 4})
    assert call("POST", f"{FUNCTIONS}/f/versions", {})[2]["Version"] == "3", "a number is never used again"


def test_l10_the_arn_of_a_published_creation_is_unqualified(call: Caller) -> None:
    created = create(call, Publish=True)
    expected = configuration("f", **CREATING, **RUNTIME_VERSION, Version="1")
    assert_equal(created, expected)
    for qualifier, version in (("1", "1"), ("$LATEST", "$LATEST")):
        _, _, got = call("GET", f"{FUNCTIONS}/f?Qualifier={qualifier}")
        expected = configuration("f", f":{qualifier}", Version=version, **ACTIVE, **RUNTIME_VERSION)
        assert_equal(got["Configuration"], expected)


# --- L6, L7, L15: sizes


@pytest.mark.parametrize(
    "variables", [{"LARGE_VAR": "x" * 4081}, {"A1": "ä" * 2040, "B2": ""}, {"QUOTED": '"' * 2043}], ids=lambda v: min(v)
)
def test_l06_variables_are_measured_as_json(call: Caller, variables: dict[str, str]) -> None:
    measured = json.dumps(variables, separators=(",", ":"), ensure_ascii=False)
    excess = len(measured.encode()) - 4096
    assert excess > 0
    told = (
        "Lambda was unable to configure your environment variables because the environment variables you have provided "
        f"exceeded the 4KB limit. String measured: {measured}"
    )
    assert call("POST", FUNCTIONS, request(Environment={"Variables": variables})) == invalid(told)
    name = min(variables)
    fitting = variables | {name: variables[name][: len(variables[name]) - excess]}
    create(call, Environment={"Variables": fitting})


def archive(size: int, compression: int = zipfile.ZIP_DEFLATED) -> str:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression, compresslevel=1) as package:
        package.writestr("weights.bin", bytes(size))
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.mark.parametrize("size", [262_144_000, 262_144_001])
def test_l07_the_unzipped_limit_itself_is_refused(call: Caller, size: int) -> None:
    told = call("POST", FUNCTIONS, request(Code={"ZipFile": archive(size)}))
    assert told == invalid("Unzipped size must be smaller than 262144000 bytes")


def test_l07_one_byte_less_is_accepted(call: Caller) -> None:
    create(call, Code={"ZipFile": archive(262_143_999)})


@pytest.mark.parametrize("operation", ["CreateFunction", "UpdateFunctionCode"])
def test_l15_a_request_too_large_names_its_limit(call: Caller, operation: str) -> None:
    create(call, "there")
    method, path = ("POST", FUNCTIONS) if operation == "CreateFunction" else ("PUT", f"{FUNCTIONS}/there/code")
    status, error, told = call(method, path, b" " * 70_167_212)
    assert (status, error) == (413, "RequestEntityTooLargeException")
    assert told["message"] == f"Request must be smaller than 70167211 bytes for the {operation} operation"


def test_l15_an_archive_beyond_50_mb_has_a_text_of_its_own(call: Caller) -> None:
    told = call("POST", FUNCTIONS, request(Code={"ZipFile": archive(52_428_800, zipfile.ZIP_STORED)}))
    message = "Zipped size must be smaller than 52428800 bytes"
    assert told == (413, "RequestEntityTooLargeException", {"message": message})


# --- L8, L9, L16: names, regions, accounts, qualifiers


@pytest.mark.parametrize("path", ["", "/configuration", "/versions", "/aliases"])
@pytest.mark.parametrize("region", ["eu-west-1", "ap-southeast-2"])
def test_l08_another_region_is_not_reachable(call: Caller, path: str, region: str) -> None:
    create(call)
    arn = f"arn:aws:lambda:{region}:000000000000:function:f"
    expected = missing(f"Functions from '{region}' are not reachable in this region ('us-east-1')")
    assert call("GET", f"{FUNCTIONS}/{arn}{path}") == expected
    assert call("DELETE", f"{FUNCTIONS}/{arn}") == expected
    assert call("POST", FUNCTIONS, request(arn)) == expected
    assert call("POST", f"{FUNCTIONS}/{arn}/invocations", {}) == expected


@pytest.mark.parametrize("reference", ["arn:aws:lambda:us-east-1:111122223333:function:f", "111122223333:function:f"])
def test_l08_another_account_is_denied(call: Caller, reference: str) -> None:
    create(call)
    for method, path, action in (
        ("GET", "", "GetFunction"),
        ("DELETE", "", "DeleteFunction"),
        ("POST", "/invocations", "InvokeFunction"),
    ):
        message = (
            f"User: arn:aws:iam::000000000000:root is not authorized to perform: lambda:{action} on resource: "
            f"arn:aws:lambda:us-east-1:111122223333:function:f because no resource-based policy allows the "
            f"lambda:{action} action"
        )
        told = call(method, f"{FUNCTIONS}/{reference}{path}", {} if method == "POST" else None)
        assert told == (403, "AccessDeniedException", {"Message": message})


def test_l09_a_version_that_is_not_there_is_deleted(call: Caller) -> None:
    create(call, Publish=True)
    for _ in range(2):
        assert call("DELETE", f"{FUNCTIONS}/f?Qualifier=1233") == (204, "", None)
    assert call("DELETE", f"{FUNCTIONS}/f:1") == (204, "", None)
    assert call("DELETE", f"{FUNCTIONS}/f:1") == (204, "", None)
    assert call("DELETE", f"{FUNCTIONS}/nobody?Qualifier=1") == missing(f"Function not found: {ARN}nobody")
    latest = "$LATEST version cannot be deleted without deleting the function."
    assert call("DELETE", f"{FUNCTIONS}/f:$LATEST") == invalid(latest)
    assert call("DELETE", f"{FUNCTIONS}/f?Qualifier=live") == invalid("Deletion of aliases is not currently supported.")


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/configuration"), ("DELETE", "")])
def test_l09_two_qualifiers_that_differ_are_refused(call: Caller, method: str, path: str) -> None:
    expected = invalid("The derived qualifier from the function name does not match the specified qualifier.")
    assert call(method, f"{FUNCTIONS}/{ARN}f:1{path}?Qualifier=$LATEST") == expected
    assert call("POST", f"{FUNCTIONS}/f:1/invocations?Qualifier=2", {}) == expected


@pytest.mark.parametrize(("qualifier", "rule"), [("invalid!", "pattern"), ("a b", "pattern"), ("q" * 129, "length")])
def test_l16_a_bad_qualifier_is_a_validation_error(call: Caller, qualifier: str, rule: str) -> None:
    allowed = pattern("NumericLatestPublishedOrAliasQualifier")
    broken = {
        "pattern": f"Member must satisfy regular expression pattern: {allowed}",
        "length": "Member must have length less than or equal to 128",
    }
    expected = violated(violation(qualifier, "qualifier", broken[rule]))
    for method, path in (
        ("DELETE", f"{FUNCTIONS}/f"),
        ("GET", EVENTS.format("f")),
        ("POST", f"{FUNCTIONS}/f/invocations"),
    ):
        assert call(method, f"{path}?Qualifier={qualifier}") == expected


@pytest.mark.parametrize(
    "name", ["my-function!", f"{ARN}f:$LATES", f"{ARN}f:1:2", "arn:aws:ec2:us-east-1:0:instance:i"]
)
def test_l16_a_bad_name_breaks_the_pattern_of_awss_model(call: Caller, name: str) -> None:
    for method, path, shape in (
        ("GET", f"{FUNCTIONS}/{name}", "NamespacedFunctionName"),
        ("PUT", f"{FUNCTIONS}/{name}/configuration", "FunctionName"),
    ):
        rule = f"Member must satisfy regular expression pattern: {pattern(shape)}"
        told = call(method, path, {} if method == "PUT" else None)
        assert told == violated(violation(name, "functionName", rule))


def test_l16_a_name_of_65_has_an_error_of_its_own(call: Caller) -> None:
    name = "a" * 65
    rule = "Member must have length less than or equal to 64"
    message = f"1 validation error detected: {violation(name, 'functionName', rule)}"
    assert call("POST", FUNCTIONS, request(name)) == invalid(message)
    assert call("POST", FUNCTIONS, request(ARN + name)) == invalid(message)
    assert call("GET", f"{FUNCTIONS}/{name}") == missing(f"Function not found: {ARN}{name}")
    long = f"arn:aws:lambda:us-east-1:000000000000:function:{'a' * 100}"
    rule = "Member must have length less than or equal to 140"
    assert call("POST", FUNCTIONS, request(long)) == violated(violation(long, "functionName", rule))


def test_l16_an_invocation_of_a_missing_function_names_latest(call: Caller) -> None:
    create(call)
    for name, qualifier, named in (
        ("nobody", "", "nobody:$LATEST"),
        ("nobody", "?Qualifier=live", "nobody:live"),
        ("f", "?Qualifier=7", "f:7"),
    ):
        told = call("POST", f"{FUNCTIONS}/{name}/invocations{qualifier}", {})
        assert told == missing(f"Function not found: {ARN}{named}")
    assert call("GET", f"{FUNCTIONS}/nobody") == missing(f"Function not found: {ARN}nobody")
    assert call("GET", f"{FUNCTIONS}/nobody:$LATEST") == missing(f"Function not found: {ARN}nobody:$LATEST")


# --- L11: handling of events


def event_config(qualifier: str = "$LATEST", name: str = "f", **members: Any) -> dict[str, Any]:
    nowhere: dict[str, Any] = {"OnSuccess": {}, "OnFailure": {}}
    return {
        "FunctionArn": f"{ARN}{name}:{qualifier}",
        "LastModified": float,
        "DestinationConfig": nowhere | members.pop("DestinationConfig", {}),
        **members,
    }


def test_l11_what_is_not_set_is_not_answered(call: Caller) -> None:
    create(call, Publish=True)
    path = EVENTS.format("f")
    status, _, put = call("PUT", path, {"MaximumRetryAttempts": 0})
    assert status == 200
    assert_equal(put, event_config(MaximumRetryAttempts=0))
    _, _, updated = call("POST", path, {"MaximumEventAgeInSeconds": 60})
    assert_equal(updated, event_config(MaximumRetryAttempts=0, MaximumEventAgeInSeconds=60))
    assert call("GET", path)[2] == updated
    bucket = {"OnFailure": {"Destination": "arn:aws:s3:::failures"}}
    _, _, put = call("PUT", path + "?Qualifier=1", {"DestinationConfig": bucket})
    assert_equal(put, event_config("1", DestinationConfig=bucket))
    _, _, put = call("PUT", path, {"DestinationConfig": {"OnSuccess": {}}})
    assert_equal(put, event_config())
    _, _, listed = call("GET", path + "/list")
    assert [config["FunctionArn"] for config in listed["FunctionEventInvokeConfigs"]] == [
        f"{ARN}f:$LATEST",
        f"{ARN}f:1",
    ]
    assert call("DELETE", path) == (204, "", None)


def test_l11_what_is_wrong_is_refused(call: Caller) -> None:
    create(call)
    path = EVENTS.format("f")
    nothing = "You must specify at least one of error handling or destination setting."
    assert call("PUT", path, {}) == invalid(nothing)
    assert call("PUT", path, {"DestinationConfig": {}}) == invalid(nothing)
    assert call("PUT", EVENTS.format("nobody"), {}) == invalid(nothing)

    def put(destination: str, kind: str = "OnFailure") -> tuple[int, str, Any]:
        return call("PUT", path, {"DestinationConfig": {kind: {"Destination": destination}}})

    assert put(f"{ARN}nobody") == invalid(f"The destination ARN {ARN}nobody is invalid.")
    assert put(f"{ARN}f") == invalid("You can't specify the function as a destination for itself.")
    create(call, "g")
    for place in ("eu-west-1:000000000000", "us-east-1:999999999999"):
        elsewhere = f"arn:aws:lambda:{place}:function:g"
        assert put(elsewhere) == invalid(f"The destination ARN {elsewhere} is invalid.")
    role = "arn:aws:iam::000000000000:role/r"
    bus = "arn:aws:events:us-east-1:000000000000:event-bus/default"
    for arn, kind in (("kafka://topic", "OnFailure"), (role, "OnSuccess"), (bus, "OnSuccess")):
        assert put(arn, kind) == invalid(
            f"slslab can't send events to {arn}: name a function, an SQS queue, an SNS topic, or for failures "
            "an S3 bucket (arn:aws:s3:::BUCKET)."
        )


def test_l11_what_is_missing_is_told_by_its_kind(call: Caller) -> None:
    create(call)
    gone = missing("The function doesn't exist.")
    assert call("PUT", EVENTS.format("nobody"), {"MaximumRetryAttempts": 0}) == gone
    assert call("PUT", EVENTS.format("f") + "?Qualifier=9", {"MaximumRetryAttempts": 0}) == gone
    assert call("GET", EVENTS.format("nobody") + "/list") == gone
    for name, query, named in (("f", "", "f:$LATEST"), ("nobody", "", "nobody:$LATEST"), ("f", "?Qualifier=9", "f:9")):
        expected = missing(f"The function {ARN}{named} doesn't have an EventInvokeConfig")
        assert call("GET", EVENTS.format(name) + query) == expected
        assert call("DELETE", EVENTS.format(name) + query) == expected
    assert call("POST", EVENTS.format("f"), {"MaximumRetryAttempts": 0}) == missing(
        f"The function {ARN}f:$LATEST doesn't have an EventInvokeConfig"
    )


# --- L12, L13: tags and concurrency


@pytest.mark.parametrize("qualifier", ["1", "live", "$LATEST"])
def test_l12_versions_and_aliases_have_no_tags(call: Caller, qualifier: str) -> None:
    create(call, Publish=True)
    expected = invalid("Tags on function aliases and versions are not supported. Please specify a function ARN.")
    path = f"/2017-03-31/tags/{ARN}f:{qualifier}"
    assert call("POST", path, {"Tags": {"a": "b"}}) == expected
    assert call("DELETE", path + "?tagKeys=a") == expected
    assert call("GET", path) == expected


def test_l12_tags_that_are_wrong_are_refused(call: Caller) -> None:
    create(call, Tags={f"key-{number}": "" for number in range(50)})
    path = f"/2017-03-31/tags/{ARN}f"
    assert call("POST", path, {"Tags": {}}) == invalid("An error occurred and the request cannot be processed.")
    assert call("POST", path, {"Tags": {"more": ""}}) == invalid("Number of tags exceeds resource tag limit.")
    many = {f"key-{number}": "" for number in range(51)}
    assert call("POST", FUNCTIONS, request("g", Tags=many)) == invalid("Number of tags exceeds resource tag limit.")
    null = "Value null at 'tagKeys' failed to satisfy constraint: Member must not be null"
    assert call("DELETE", path) == violated(null)
    assert call("GET", f"/2017-03-31/tags/{ARN}nobody") == missing(f"Function not found: {ARN}nobody")
    rule = f"Member must satisfy regular expression pattern: {pattern('TaggableResource')}"
    assert call("GET", "/2017-03-31/tags/arn:aws:s") == violated(violation("arn:aws:s", "resource", rule))


def test_l12_tags_change_the_revision_and_nothing_else(call: Caller, invoke: Invoke) -> None:
    before = create(call)["RevisionId"]
    invoke("f")
    path = f"/2017-03-31/tags/{ARN}f"
    assert call("POST", path, {"Tags": {"a": "b"}}) == (204, "", None)
    assert call("GET", path) == (200, "", {"Tags": {"a": "b"}})
    after = call("GET", f"{FUNCTIONS}/f")[2]
    assert after["Tags"] == {"a": "b"}
    assert after["Configuration"]["RevisionId"] != before
    assert "Init Duration" not in invoke("f").log, "its environment stayed warm"
    assert call("DELETE", path + "?tagKeys=a&tagKeys=c") == (204, "", None)
    assert call("GET", path) == (200, "", {"Tags": {}})


def test_l13_concurrency_is_a_functions_own(call: Caller) -> None:
    create(call, Publish=True)
    path = "/2017-10-31/functions/{}/concurrency"
    told = (
        "This operation is permitted on Lambda functions only. Aliases and versions do not support this operation. "
        "Please specify either a function name or an unqualified function ARN."
    )
    for qualifier in ("$LATEST", "1"):
        assert call("PUT", path.format(f"f:{qualifier}"), {"ReservedConcurrentExecutions": 1}) == invalid(told)
    few = (
        "Specified ReservedConcurrentExecutions for function decreases account's UnreservedConcurrentExecution below "
        "its minimum value of [100]."
    )
    answered = call("PUT", path.format("f"), {"ReservedConcurrentExecutions": 901})
    assert answered == (400, "InvalidParameterValueException", {"message": few})
    reserved = (200, "", {"ReservedConcurrentExecutions": 900})
    assert call("PUT", path.format("f"), {"ReservedConcurrentExecutions": 900}) == reserved
    assert call("PUT", path.format("nobody"), {"ReservedConcurrentExecutions": 1}) == missing(
        f"Function not found: {ARN}nobody:$LATEST"
    )
    got = "/2019-09-30/functions/{}/concurrency"
    assert call("GET", got.format("f")) == reserved
    assert call("GET", f"{FUNCTIONS}/f")[2]["Concurrency"] == reserved[2]
    assert call("DELETE", path.format("f")) == (204, "", None)
    assert call("GET", got.format("f")) == (200, "", {})
    assert call("GET", got.format("nobody")) == missing(f"Function not found: {ARN}nobody")


# --- L14: answers of functions


@pytest.mark.parametrize("size", [6_291_555, 7_000_000, 20_000_000])
def test_l14_a_response_too_large_names_the_limit_alone(call: Caller, size: int) -> None:
    code = {"ZipFile": base64.b64encode(packaged("def handler(e, c):\n    return 'x' * e\n")).decode()}
    create(call, Code=code, MemorySize=1769)
    assert call("POST", f"{FUNCTIONS}/f/invocations", size)[2] == {
        "errorType": "Function.ResponseSizeTooLarge",
        "errorMessage": "Response payload size exceeded maximum allowed payload size (6291556 bytes).",
    }


# --- L19: the rest


def test_l19_lists_take_one_version_of_all(call: Caller) -> None:
    rule = "Member must satisfy enum value set: [ALL]"
    assert call("GET", f"{FUNCTIONS}?FunctionVersion=invalid") == violated(
        violation("invalid", "functionVersion", rule)
    )
    rule = "Member must have value less than or equal to 10000"
    assert call("GET", f"{FUNCTIONS}?MaxItems=10001") == violated(violation("10001", "maxItems", rule))
    rule = "Member must have value greater than or equal to 1"
    assert call("GET", f"{FUNCTIONS}?MaxItems=0") == violated(violation("0", "maxItems", rule))


def test_l19_architectures_are_told_in_awss_words(call: Caller) -> None:
    rule = "Member must have length less than or equal to 1"
    told = call("POST", FUNCTIONS, request(Architectures=["x86_64", "arm64"]))
    assert told == violated(violation("[x86_64, arm64]", "architectures", rule))
    entry = (
        "Member must satisfy constraint: [Member must satisfy enum value set: [x86_64, arm64], Member must not be null]"
    )
    for wrong in ("X86_64", "riscv"):
        told = call("POST", FUNCTIONS, request(Architectures=[wrong]))
        assert told == violated(violation(f"[{wrong}]", "architectures", entry))


@pytest.mark.parametrize("ended", ["python3.7", "java8", "go1.x"])
def test_l19_a_runtime_that_has_ended_is_refused_as_such(call: Caller, ended: str) -> None:
    create(call, "there")
    expected = invalid(
        f"The runtime parameter of {ended} is no longer supported for creating or updating AWS Lambda functions. We "
        "recommend you use a supported runtime while creating or updating functions."
    )
    assert call("POST", FUNCTIONS, request(Runtime=ended)) == expected
    assert call("PUT", f"{FUNCTIONS}/there/configuration", {"Runtime": ended}) == expected


@pytest.mark.parametrize("runtime", ["non-existent-runtime", "PYTHON3.9", "python"])
def test_l19_an_unknown_runtime_names_those_that_there_are(call: Caller, runtime: str) -> None:
    status, error, told = call("POST", FUNCTIONS, request(Runtime=runtime))
    assert (status, error, told["Type"]) == (400, "InvalidParameterValueException", "User")
    begin = f"Value {runtime} at 'runtime' failed to satisfy constraint: Member must satisfy enum value set: ["
    known, _, end = told["message"].removeprefix(begin).partition("]")
    assert {"python3.12", "python3.15", "nodejs22.x", "java21"} <= set(known.split(", "))
    assert not {"python3.7", "nodejs14.x"} & set(known.split(", "))
    assert end == " or be a valid ARN"


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"n\x87r\x9e", "'utf-8' codec can't decode byte 0x87 in position 1: invalid start byte"),
        (b"'a'", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_l19_a_payload_that_is_not_json_is_refused(call: Caller, payload: bytes, why: str) -> None:
    create(call)
    message = f"Could not parse request body into json: Could not parse payload into json: {why}"
    expected = 400, "InvalidRequestContentException", user(message)
    assert call("POST", f"{FUNCTIONS}/f/invocations", payload) == expected


# --- weighted aliases


def test_an_alias_sends_a_share_of_invocations_to_another_version(call: Caller, invoke: Invoke) -> None:
    version = "def handler(event, context):\n    return context.function_version\n"
    create(call, Code={"ZipFile": base64.b64encode(packaged(version)).decode()}, Publish=True, MemorySize=1769)
    call("PUT", f"{FUNCTIONS}/f/configuration", {"Description": "second"})
    call("POST", f"{FUNCTIONS}/f/versions", {})
    weights = {"RoutingConfig": {"AdditionalVersionWeights": {"2": 0.5}}}
    status, _, alias = call("POST", f"{FUNCTIONS}/f/aliases", {"Name": "live", "FunctionVersion": "1", **weights})
    expected = {"AliasArn": f"{ARN}f:live", "Name": "live", "FunctionVersion": "1", "Description": "", "RevisionId": ID}
    assert status == 201
    assert_equal(alias, expected | weights)
    assert {invoke("f", Qualifier="live").payload for _ in range(40)} == {"1", "2"}
    conflict = call("DELETE", f"{FUNCTIONS}/f:2")
    assert conflict[:2] == (409, "ResourceConflictException")
    none: dict[str, Any] = {"RoutingConfig": {"AdditionalVersionWeights": {}}}
    _, _, updated = call("PUT", f"{FUNCTIONS}/f/aliases/live", none)
    assert_equal(updated, expected)
    assert {invoke("f", Qualifier="live").payload for _ in range(10)} == {"1"}


def test_weights_that_are_wrong_are_refused(call: Caller) -> None:
    create(call, Publish=True)
    path = f"{FUNCTIONS}/f/aliases"

    def put(version: str, **weights: float) -> tuple[int, str, Any]:
        routing = {"AdditionalVersionWeights": {name.lstrip("v"): weight for name, weight in weights.items()}}
        return call("POST", path, {"Name": "live", "FunctionVersion": version, "RoutingConfig": routing})

    assert put("1", v2=0.1, v3=0.1) == invalid("Number of items in AdditionalVersionWeights cannot be greater than 1")
    own = "Invalid function version 1. Function version 1 is already included in routing configuration."
    assert put("1", v1=0.5) == invalid(own)
    assert put("1", v10=0.5) == missing(f"Function not found: {ARN}f:10")
    latest = {"message": "$LATEST is not supported for an alias pointing to more than 1 version"}
    assert put("$LATEST", v1=0.5) == (400, "InvalidParameterValueException", latest)
    rules = (
        "Map value must satisfy constraint: [Member must have value less than or equal to 1.0, Member must have value "
        "greater than or equal to 0.0, Member must not be null]"
    )
    assert put("1", v2=2.0) == violated(violation("{2=2.0}", "routingConfig.additionalVersionWeights", rules))


# --- L3: what is logged


LOGGING = """
import logging, os

logging.getLogger().warning("a warning")

def handler(event, context):
    print("printed")
    logging.getLogger().info("info")
    logging.getLogger().debug("debug")
    return {name: os.environ.get(name) for name in os.environ if name.startswith("AWS_LAMBDA_LOG_")}
"""


def lines_of(emulator: Emulator, name: str) -> list[str]:
    [log] = (emulator.home / "logs").glob(f"{name}-*.log")
    return log.read_text().splitlines()


def test_l03_json_logging_is_emitted_as_json(emulator: Emulator, call: Caller, invoke: Invoke) -> None:
    code = {"ZipFile": base64.b64encode(packaged(LOGGING)).decode()}
    create(call, "logs_json", Code=code, LoggingConfig={"LogFormat": "JSON", "LogGroup": "group"})
    variables = invoke("logs_json").payload
    assert variables["AWS_LAMBDA_LOG_FORMAT"] == "JSON"
    assert variables["AWS_LAMBDA_LOG_LEVEL"] == "INFO"
    assert variables["AWS_LAMBDA_LOG_GROUP_NAME"] == "group"
    stream = re.compile(r"\d{4}/\d\d/\d\d/logs_json\[\$LATEST\][0-9a-f]{32}")
    assert stream.fullmatch(variables["AWS_LAMBDA_LOG_STREAM_NAME"])
    written = lines_of(emulator, "logs_json")
    assert "printed" in written, "what is printed is not wrapped"
    documents = [json.loads(line) for line in written if line.startswith("{")]
    assert [document.get("message") for document in documents if "level" in document] == ["a warning", "info"]
    started, begun, reported = (document for document in documents if "type" in document)
    time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
    record = {
        **{"initializationType": "on-demand", "phase": "init", "runtimeVersion": str, "instanceMaxMemory": 134217728},
        **{"functionName": "logs_json", "functionVersion": "$LATEST", "instanceId": stream},
    }
    assert_equal(started, {"time": time, "type": "platform.initStart", "record": record})
    record = {"requestId": ID, "functionArn": f"{ARN}logs_json", "version": "$LATEST"}
    assert_equal(begun, {"time": time, "type": "platform.start", "record": record})
    metrics = {
        **{"durationMs": float, "billedDurationMs": int, "initDurationMs": float},
        **{"memorySizeMB": 128, "maxMemoryUsedMB": int},
    }
    record = {"requestId": ID, "status": "success", "metrics": metrics}
    assert_equal(reported, {"time": time, "type": "platform.report", "record": record})
    billed = reported["record"]["metrics"]
    assert billed["billedDurationMs"] == -(-round((billed["durationMs"] + billed["initDurationMs"]) * 100) // 100)


@pytest.mark.parametrize(
    ("level", "kinds"),
    [("WARN", []), ("DEBUG", ["initStart", "initRuntimeDone", "initReport", "start", "runtimeDone", "report"])],
)
def test_l03_a_system_log_level_chooses_lambdas_lines(
    emulator: Emulator, call: Caller, invoke: Invoke, level: str, kinds: list[str]
) -> None:
    name = f"logs_{level}"
    create(call, name, LoggingConfig={"LogFormat": "JSON", "SystemLogLevel": level})
    invoke(name)
    documents = [json.loads(line) for line in lines_of(emulator, name) if line.startswith("{")]
    assert [document["type"].removeprefix("platform.") for document in documents] == kinds


def test_l03_a_setting_without_effect_is_named_in_the_log(emulator: Emulator, call: Caller, invoke: Invoke) -> None:
    create(call, "logs_settings", TracingConfig={"Mode": "Active"}, VpcConfig={"SubnetIds": [], "SecurityGroupIds": []})
    invoke("logs_settings")
    told = [line for line in lines_of(emulator, "logs_settings") if line.startswith("slslab:")]
    assert told == ["slslab: TracingConfig is stored, and has no effect here: no traces go to X-Ray."]
