"""What deployment tools read and set after they have made a function."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.emulator.lambda_.client_answers import answer, invalid, missing

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function"
NO_FUNCTION = missing(f"Function not found: {FUNCTION}:none")
UNPUBLISHED = invalid("The function resource provided must be an alias or a published version.")
NOT_PROVISIONED = (
    404,
    ("ProvisionedConcurrencyConfigNotFoundException", "No Provisioned Concurrency Config found for this function"),
)


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
        ("get_provisioned_concurrency_config", {"FunctionName": "deployed", "Qualifier": "1"}, NOT_PROVISIONED),
        ("get_provisioned_concurrency_config", {"FunctionName": "deployed", "Qualifier": "live"}, NOT_PROVISIONED),
        ("get_provisioned_concurrency_config", {"FunctionName": "deployed", "Qualifier": "$LATEST"}, UNPUBLISHED),
        (
            "get_provisioned_concurrency_config",
            {"FunctionName": "none", "Qualifier": "alias"},
            missing(f"Cannot find alias arn: {FUNCTION}:none:alias"),
        ),
        (
            "delete_provisioned_concurrency_config",
            {"FunctionName": "deployed", "Qualifier": "10"},
            missing(f"Function not found: {FUNCTION}:deployed:10"),
        ),
        ("delete_provisioned_concurrency_config", {"FunctionName": "deployed", "Qualifier": "live"}, (204, {})),
        ("delete_provisioned_concurrency_config", {"FunctionName": "deployed", "Qualifier": "$LATEST"}, UNPUBLISHED),
        ("list_provisioned_concurrency_configs", {"FunctionName": "none"}, NO_FUNCTION),
        (
            "list_provisioned_concurrency_configs",
            {"FunctionName": "deployed"},
            (200, {"ProvisionedConcurrencyConfigs": []}),
        ),
        (
            "put_provisioned_concurrency_config",
            {"FunctionName": "deployed", "Qualifier": "$LATEST", "ProvisionedConcurrentExecutions": 1},
            invalid("Provisioned Concurrency Configs cannot be applied to unpublished function versions."),
        ),
        (
            "put_provisioned_concurrency_config",
            {"FunctionName": "deployed", "Qualifier": "live", "ProvisionedConcurrentExecutions": 1},
            invalid(
                "slslab does not emulate provisioned concurrency: environments start on demand. Deploy without it."
            ),
        ),
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
