"""Resource-based policies of functions, and whom they let through."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.emulator.lambda_.client_answers import answer, invalid, missing

from slslab.lambda_.policies import allows

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function"
HANDLER = "def handler(event, context): pass"
NO_RESOURCE = missing("The resource you requested does not exist.")
PERMIT = {"StatementId": "s3", "Action": "lambda:InvokeFunction", "Principal": "s3.amazonaws.com"}


@pytest.fixture
def name(deploy: Deploy) -> str:
    return deploy(HANDLER, FunctionName="permits")


def statement(**more: Any) -> dict[str, Any]:
    return {
        "Sid": "s3",
        "Effect": "Allow",
        "Principal": {"Service": "s3.amazonaws.com"},
        "Action": "lambda:InvokeFunction",
        "Resource": f"{FUNCTION}:permits",
    } | more


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, statement()),
        (
            {"SourceArn": "arn:aws:s3:::bucket", "SourceAccount": "123456789012"},
            statement(
                Condition={
                    "StringEquals": {"AWS:SourceAccount": "123456789012"},
                    "ArnLike": {"AWS:SourceArn": "arn:aws:s3:::bucket"},
                }
            ),
        ),
        ({"Principal": "123456789012"}, statement(Principal={"AWS": "arn:aws:iam::123456789012:root"})),
        (
            {"Principal": "arn:aws:iam::123456789012:role/caller", "EventSourceToken": "token"},
            statement(
                Principal={"AWS": "arn:aws:iam::123456789012:role/caller"},
                Condition={"StringEquals": {"lambda:EventSourceToken": "token"}},
            ),
        ),
        (
            {"Principal": "*", "Action": "lambda:InvokeFunctionUrl", "FunctionUrlAuthType": "NONE"},
            statement(
                Principal="*",
                Action="lambda:InvokeFunctionUrl",
                Condition={"StringEquals": {"lambda:FunctionUrlAuthType": "NONE"}},
            ),
        ),
        (
            {"Principal": "*", "InvokedViaFunctionUrl": True},
            statement(Principal="*", Condition={"Bool": {"lambda:InvokedViaFunctionUrl": "true"}}),
        ),
        (
            {"Principal": "*", "PrincipalOrgID": "o-a1b2c3d4e5"},
            statement(Principal="*", Condition={"StringEquals": {"aws:PrincipalOrgID": "o-a1b2c3d4e5"}}),
        ),
    ],
)
def test_statements_are_written_as_aws_writes_them(
    lambda_client: Any, name: str, members: dict[str, Any], expected: dict[str, Any]
) -> None:
    status, added = answer(lambda_client.add_permission, FunctionName=name, **PERMIT | members)
    assert (status, added) == (201, {"Statement": json.dumps(expected, separators=(",", ":"))})
    policy = lambda_client.get_policy(FunctionName=name)
    document = {"Version": "2012-10-17", "Id": "default", "Statement": [expected]}
    assert policy["Policy"] == json.dumps(document, separators=(",", ":"))
    revision = lambda_client.get_function_configuration(FunctionName=name)["RevisionId"]
    assert policy["RevisionId"] == revision
    removal = {"FunctionName": name, "StatementId": "s3", "RevisionId": revision}
    assert answer(lambda_client.remove_permission, **removal) == (204, {})
    assert answer(lambda_client.get_policy, FunctionName=name) == NO_RESOURCE


def test_each_version_and_alias_has_a_policy_of_its_own(lambda_client: Any, name: str) -> None:
    version = lambda_client.publish_version(FunctionName=name)["Version"]
    lambda_client.create_alias(FunctionName=name, Name="live", FunctionVersion=version)
    for qualifier in (version, "live"):
        assert answer(lambda_client.get_policy, FunctionName=name, Qualifier=qualifier) == NO_RESOURCE
        added = lambda_client.add_permission(FunctionName=name, Qualifier=qualifier, **PERMIT)
        assert json.loads(added["Statement"]) == statement(Resource=f"{FUNCTION}:permits:{qualifier}")
    assert answer(lambda_client.get_policy, FunctionName=name) == NO_RESOURCE
    policy = lambda_client.get_policy(FunctionName=f"{name}:live")
    alias = lambda_client.get_alias(FunctionName=name, Name="live")
    assert policy["RevisionId"] == alias["RevisionId"]
    lambda_client.delete_alias(FunctionName=name, Name="live")
    lambda_client.create_alias(FunctionName=name, Name="live", FunctionVersion=version)
    assert answer(lambda_client.get_policy, FunctionName=name, Qualifier="live") == NO_RESOURCE


@pytest.mark.parametrize(
    ("operation", "members", "expected"),
    [
        (
            "add_permission",
            PERMIT,
            (
                409,
                (
                    "ResourceConflictException",
                    "The statement id (s3) provided already exists. "
                    "Please provide a new statement id, or remove the existing statement.",
                ),
            ),
        ),
        (
            "add_permission",
            PERMIT | {"RevisionId": "stale"},
            (
                412,
                (
                    "PreconditionFailedException",
                    "The Revision Id provided does not match the latest Revision Id. Call the GetPolicy API to "
                    "retrieve the latest Revision Id",
                ),
            ),
        ),
        (
            "add_permission",
            PERMIT | {"StatementId": "new", "Qualifier": "$LATEST"},
            invalid("We currently do not support adding policies for $LATEST."),
        ),
        (
            "add_permission",
            PERMIT | {"StatementId": "new", "Principal": "invalid.nonaws.com"},
            invalid("The provided principal was invalid. Please check the principal and try again."),
        ),
        ("add_permission", PERMIT | {"FunctionName": "none"}, missing(f"Function not found: {FUNCTION}:none")),
        ("add_permission", PERMIT | {"Qualifier": "none"}, missing(f"Cannot find alias arn: {FUNCTION}:permits:none")),
        ("add_permission", PERMIT | {"Qualifier": "42"}, missing(f"Function not found: {FUNCTION}:permits:42")),
        (
            "add_permission",
            PERMIT | {"FunctionName": "permits:1", "Qualifier": "2"},
            invalid("The derived qualifier from the function name does not match the specified qualifier."),
        ),
        ("get_policy", {"FunctionName": "none"}, NO_RESOURCE),
        ("get_policy", {"Qualifier": "77"}, NO_RESOURCE),
        ("remove_permission", {"StatementId": "none"}, missing("Statement none is not found in resource policy.")),
        (
            "remove_permission",
            {"StatementId": "none", "RevisionId": "stale"},
            missing("Statement none is not found in resource policy."),
        ),
        (
            "remove_permission",
            {"StatementId": "s3", "Qualifier": "none"},
            missing(f"Cannot find alias arn: {FUNCTION}:permits:none"),
        ),
        (
            "remove_permission",
            {"StatementId": "s3", "FunctionName": "none"},
            missing(f"No policy found for: {FUNCTION}:none"),
        ),
        (
            "remove_permission",
            {"StatementId": "s3", "FunctionName": "bare"},
            missing("No policy is associated with the given resource."),
        ),
    ],
)
def test_wrong_requests_have_aws_errors(
    lambda_client: Any, deploy: Deploy, name: str, operation: str, members: dict[str, Any], expected: tuple[int, Any]
) -> None:
    deploy(HANDLER, FunctionName="bare")
    lambda_client.add_permission(FunctionName=name, **PERMIT)
    assert answer(getattr(lambda_client, operation), **{"FunctionName": name} | members) == expected
    assert len(json.loads(lambda_client.get_policy(FunctionName=name)["Policy"])["Statement"]) == 1


def test_a_permission_ends_no_environment(lambda_client: Any, name: str, invocations: Any) -> None:
    lambda_client.invoke(FunctionName=name)
    lambda_client.add_permission(FunctionName=name, **PERMIT)
    lambda_client.invoke(FunctionName=name)
    assert [record.cold_start for record in invocations] == [True, False]
    lambda_client.update_function_configuration(FunctionName=name, Description="another")
    lambda_client.invoke(FunctionName=name)
    assert invocations[-1].cold_start


ROLE = "arn:aws:iam::000000000000:role/function"
SESSION = "arn:aws:sts::000000000000:assumed-role/function/caller"
VALUES = {"lambda:FunctionUrlAuthType": "AWS_IAM"}


@pytest.mark.parametrize(
    ("principal", "condition", "caller", "allowed"),
    [
        ("*", {}, None, True),
        ("*", {}, SESSION, True),
        ({"AWS": ROLE}, {}, SESSION, True),
        ({"AWS": SESSION}, {}, SESSION, True),
        ({"AWS": f"{ROLE}-other"}, {}, SESSION, False),
        ({"AWS": "arn:aws:iam::000000000000:role/path/function"}, {}, SESSION, True),
        ({"AWS": ROLE}, {}, None, False),
        ({"AWS": "arn:aws:iam::000000000000:root"}, {}, SESSION, False),
        ({"Service": "s3.amazonaws.com"}, {}, SESSION, False),
        ("*", {"StringEquals": VALUES}, None, True),
        ("*", {"StringEquals": {"lambda:FunctionUrlAuthType": "NONE"}}, None, False),
        ("*", {"StringEquals": {"AWS:SourceAccount": "000000000000"}}, None, False),
        ("*", {"ArnLike": {"AWS:SourceArn": "*"}}, None, False),
    ],
)
def test_a_statement_allows_its_principal_under_its_conditions(
    principal: Any, condition: dict[str, Any], caller: str | None, allowed: bool
) -> None:
    policy = {"s": {"Principal": principal, "Action": "lambda:InvokeFunctionUrl", "Condition": condition}}
    assert allows(policy, "lambda:InvokeFunctionUrl", caller, VALUES) == allowed
    assert not allows(policy, "lambda:InvokeFunction", caller, VALUES)
