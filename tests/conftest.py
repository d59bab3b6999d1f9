"""Fixtures that several test modules share."""

import base64
import io
import json
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from slslab.emulator import Emulator
from slslab.limits import lambda_limits

ROLE = "arn:aws:iam::000000000000:role/lambda"


@dataclass(frozen=True)
class Answer:
    """What Invoke returned, read."""

    status: int
    error: str | None
    payload: Any
    log: str
    request_id: str


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """One emulator for the whole test session."""
    with Emulator(limits=lambda_limits().changed(event_retry_base_s=0.01)) as running:
        yield running


@pytest.fixture(scope="session")
def lambda_client(emulator: Emulator) -> Iterator[Any]:
    """A boto3 Lambda client of the emulator."""
    client = emulator.client("lambda")
    yield client
    client.close()


def zipped(source: str) -> bytes:
    """A Lambda package with one module, app.py."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("app.py", textwrap.dedent(source))
    return buffer.getvalue()


@pytest.fixture
def deploy(lambda_client: Any) -> Iterator[Callable[..., str]]:
    """Create functions from source text, deleted after the test; returns the name."""
    created: list[str] = []

    def create(source: str, **settings: Any) -> str:
        name = f"function-{len(created)}"
        lambda_client.create_function(
            FunctionName=name,
            **{"Runtime": "python3.11", "Handler": "app.handler", "MemorySize": 1769, "Timeout": 10} | settings,
            Role=ROLE,
            Code={"ZipFile": zipped(source)},
        )
        created.append(name)
        return name

    yield create
    for name in created:
        lambda_client.delete_function(FunctionName=name)


@pytest.fixture
def invoke(lambda_client: Any) -> Callable[..., Answer]:
    """Invoke synchronously with the log tail."""

    def call(name: str, event: Any = None) -> Answer:
        response = lambda_client.invoke(FunctionName=name, LogType="Tail", Payload=json.dumps(event))
        return Answer(
            response["StatusCode"],
            response.get("FunctionError"),
            json.loads(response["Payload"].read()),
            base64.b64decode(response["LogResult"]).decode(),
            response["ResponseMetadata"]["RequestId"],
        )

    return call
