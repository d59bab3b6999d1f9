"""What Terraform reads after it has made a function."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.emulator.lambda_.client_answers import answer, missing

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function"


def test_no_code_signing_configuration_is_answered_as_on_aws(deploy: Deploy, lambda_client: Any) -> None:
    deploy("def handler(event, context): pass", FunctionName="deployed")
    read = lambda_client.get_function_code_signing_config
    assert answer(read, FunctionName="deployed") == (200, {})
    assert answer(read, FunctionName="none") == missing(f"Function not found: {FUNCTION}:none")
