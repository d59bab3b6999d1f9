"""Lambda in a container of its own, by testcontainers: docs/testing.md's suite, limits, and what stays afterwards."""

import base64
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError
from tests.containers import need_containers

from slslab.compose.container import LambdaContainer
from slslab.errors import HostError

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
# Its reaper comes from a registry, which no test reaches.
NO_REAPER = {"TESTCONTAINERS_RYUK_DISABLED": "true"}
CODE = """
def handler(event, context):
    kept = bytearray(event["mb"] << 20)
    return [context.memory_limit_in_mb, len(kept)]
"""


def running() -> set[str]:
    """The containers of testcontainers, which no other file of tests starts, that there are, ended ones, too."""
    command = ["docker", "ps", "--all", "--quiet", "--filter", "label=org.testcontainers"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split())


@pytest.fixture(scope="module")
def container() -> Iterator[LambdaContainer]:
    need_containers()
    before = running()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("testcontainers.core.config.testcontainers_config.ryuk_disabled", True)
        with LambdaContainer() as started:
            yield started
    assert running() == before


def test_the_documented_suite_passes(tmp_path: Path) -> None:
    need_containers()
    before = running()
    (block,) = re.findall(
        r"```python\n# test_in_a_container\.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    (tmp_path / "test_in_a_container.py").write_text(block)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **NO_REAPER}, capture_output=True, text=True, timeout=300, check=False
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert running() == before


def test_limits_are_enforced_in_it(container: LambdaContainer) -> None:
    client, archive = container.lambda_client(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as package:
        package.writestr("app.py", CODE)
    client.create_function(
        FunctionName="keep",
        Runtime="python3.11",
        Handler="app.handler",
        Role="arn:aws:iam::000000000000:role/test",
        Code={"ZipFile": archive.getvalue()},
        MemorySize=128,
    )
    kept = client.invoke(FunctionName="keep", Payload=json.dumps({"mb": 1}), LogType="Tail")
    assert json.load(kept["Payload"]) == ["128", 1 << 20]
    assert "REPORT" in base64.b64decode(kept["LogResult"]).decode()
    killed = client.invoke(FunctionName="keep", Payload=json.dumps({"mb": 500}))
    assert json.load(killed["Payload"])["errorType"] == "Runtime.OutOfMemory"


def test_it_is_reached_on_loopback_alone_and_by_its_own_keys(container: LambdaContainer) -> None:
    wrapped = container.get_wrapped_container()
    wrapped.reload()
    (bound,) = wrapped.attrs["NetworkSettings"]["Ports"]["9001/tcp"]
    assert bound["HostIp"] == "127.0.0.1"
    unknown = boto3.client(
        "lambda",
        endpoint_url=container.endpoint,
        region_name="us-east-1",
        aws_access_key_id="slslab",
        aws_secret_access_key="slslab-loopback-only",
    )
    with pytest.raises(ClientError, match="signature"):
        unknown.list_functions()


def test_before_its_start_it_has_no_address() -> None:
    need_containers()
    with pytest.raises(HostError, match="The container has not started"):
        _ = LambdaContainer().endpoint
