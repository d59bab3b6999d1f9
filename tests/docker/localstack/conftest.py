"""The same fixtures, with LocalStack between the client and the emulator."""

import socket
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.config
import pytest

import docker
from slslab.configuration import REGION
from slslab.emulator import CREDENTIALS, Emulator
from slslab.environments.container import Containers
from slslab.session import Session

IMAGE = "slslab/localstack:local"
START_LIMIT_S = 120


@pytest.fixture(scope="session")
def localstack(emulator: Emulator) -> Iterator[str]:
    """LocalStack's address; its Lambda is our override, which forwards to the emulator."""
    engine = docker.from_env()
    if not engine.images.list(IMAGE):
        pytest.skip(f"no LocalStack here: the engine has no image {IMAGE}; `make images` builds it")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Session() as session, Containers(session) as containers:
        running = engine.containers.run(
            IMAGE,
            detach=True,
            network_mode="host",
            labels=containers.labels,
            environment={
                "GATEWAY_LISTEN": f"127.0.0.1:{port}",
                "PROVIDER_OVERRIDE_LAMBDA": "slslab",
                "SLSLAB_LAMBDA_URL": emulator.endpoint,
            },
        )
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_LIMIT_S
        while not _ready(url):
            assert time.monotonic() < deadline, running.logs().decode()
            time.sleep(0.1)  # a server that is not there yet can only be asked again
        yield url
        running.remove(force=True)
    engine.close()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_localstack/init/ready", timeout=2) as answer:
            return b'"completed": true' in answer.read()
    except OSError:
        return False


@pytest.fixture
def lambda_client(localstack: str) -> Iterator[Any]:
    """A boto3 Lambda client of LocalStack; the functions that the test leaves are deleted after it."""
    config = botocore.config.Config(read_timeout=3600, retries={"total_max_attempts": 1}, max_pool_connections=64)
    client = boto3.client(
        "lambda",
        endpoint_url=localstack,
        region_name=REGION,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=config,
    )
    yield client
    for page in client.get_paginator("list_functions").paginate():
        for function in page["Functions"]:
            client.delete_function(FunctionName=function["FunctionName"])
    client.close()
