"""What deployment tools read and set after they have made a function."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.emulator.lambda_.client_answers import answer, missing

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function"
NO_FUNCTION = missing(f"Function not found: {FUNCTION}:none")


@pytest.fixture
def name(deploy: Deploy, lambda_client: Any) -> str:
    name = deploy("def handler(event, context): pass", FunctionName="deployed")
    lambda_client.publish_version(FunctionName=name)
    lambda_client.create_alias(FunctionName=name, Name="live", FunctionVersion="1")
    return name


@pytest.mark.parametrize(
    ("operation", "members", "expected"),
    [
        ("get_function_code_signing_config", {"FunctionName": "deployed"}, (200, {})),
        ("get_function_code_signing_config", {"FunctionName": "none"}, NO_FUNCTION),
        ("get_function_recursion_config", {"FunctionName": "deployed"}, (200, {"RecursiveLoop": "Terminate"})),
        ("get_function_recursion_config", {"FunctionName": "none"}, NO_FUNCTION),
        ("put_function_recursion_config", {"FunctionName": "none", "RecursiveLoop": "Allow"}, NO_FUNCTION),
        (
            "get_runtime_management_config",
            {"FunctionName": "deployed"},
            (200, {"UpdateRuntimeOn": "Auto", "FunctionArn": f"{FUNCTION}:deployed"}),
        ),
        ("get_runtime_management_config", {"FunctionName": "none"}, NO_FUNCTION),
    ],
)
def test_what_a_function_does_not_have_is_answered_as_on_aws(
    lambda_client: Any,
    name: str,  # noqa: ARG001
    operation: str,
    members: dict[str, Any],
    expected: tuple[int, Any],
) -> None:
    assert answer(getattr(lambda_client, operation), **members) == expected


def test_recursion_and_runtime_updates_are_kept_with_the_function(lambda_client: Any, name: str) -> None:
    allowed = (200, {"RecursiveLoop": "Allow"})
    put = {"FunctionName": name, "RecursiveLoop": "Allow"}
    assert answer(lambda_client.put_function_recursion_config, **put) == allowed
    assert answer(lambda_client.get_function_recursion_config, FunctionName=name) == allowed
    updated = (200, {"UpdateRuntimeOn": "FunctionUpdate", "FunctionArn": f"{FUNCTION}:{name}:1"})
    of_version = {"FunctionName": name, "Qualifier": "1"}
    put = {**of_version, "UpdateRuntimeOn": "FunctionUpdate"}
    assert answer(lambda_client.put_runtime_management_config, **put) == updated
    assert answer(lambda_client.get_runtime_management_config, **of_version) == updated
    assert lambda_client.get_runtime_management_config(FunctionName=name)["UpdateRuntimeOn"] == "Auto"
    version = "arn:aws:lambda:us-east-1::runtime:0123"
    put = {"FunctionName": name, "UpdateRuntimeOn": "Manual", "RuntimeVersionArn": version}
    status, (code, message) = answer(lambda_client.put_runtime_management_config, **put)
    assert (status, code) == (400, "InvalidParameterValueException")
    assert message.startswith("slslab does not emulate versions of a runtime")
