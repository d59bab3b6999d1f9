"""The same fixtures, with LocalStack between the client and the emulator."""

from collections.abc import Iterator
from typing import Any

import boto3
import botocore.config
import pytest
from tests.machines.compose.localstack import running_localstack

from slslab.aws.arns import REGION
from slslab.lambda_.emulator import Emulator


@pytest.fixture(scope="session")
def localstack(emulator: Emulator) -> Iterator[str]:
    """LocalStack's address; its Lambda is our override, which forwards to the emulator."""
    with running_localstack(emulator.endpoint, emulator.keys.owner) as address:
        yield address


@pytest.fixture
def lambda_client(localstack: str) -> Iterator[Any]:
    """A boto3 Lambda client of LocalStack; the functions that the test leaves are deleted after it."""
    config = botocore.config.Config(read_timeout=3600, retries={"total_max_attempts": 1}, max_pool_connections=64)
    client = boto3.client(
        "lambda",
        endpoint_url=localstack,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=config,
    )
    yield client
    for page in client.get_paginator("list_functions").paginate():
        for function in page["Functions"]:
            client.delete_function(FunctionName=function["FunctionName"])
    client.close()
