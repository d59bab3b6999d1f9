"""Functions that are container images, by unmodified boto3."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

import docker
from slslab.emulator import Emulator
from slslab.environments.container import WORKER_IMAGE
from slslab.testing import ROLE, Answer

Invoke = Callable[..., Answer]
HANDLER = """
import os, sys

def handler(event, context):
    return {"environment": os.environ["AWS_EXECUTION_ENV"], "handler": os.environ["_HANDLER"], "cwd": os.getcwd(),
            "root": os.environ["LAMBDA_TASK_ROOT"], "uid": os.getuid(), "memory": context.memory_limit_in_mb}

def other(event, context):
    return "the other"
"""


@pytest.fixture(scope="module")
def image(emulator: Emulator) -> Iterator[str]:
    """An image with the handler above in /var/task, made of the worker's image and gone after the tests."""
    name = f"slslab/test-{emulator.id}:1"
    client = docker.from_env()
    base = os.environ.get("SLSLAB_WORKER_IMAGE", WORKER_IMAGE)
    made = client.containers.create(base, ["app.handler"])
    try:
        made.put_archive("/var/task", tar_of("app.py", HANDLER))
        repository, tag = name.split(":")
        made.commit(repository, tag)
        yield name
    finally:
        made.remove(force=True)
        client.images.remove(name, force=True)
        client.close()


def tar_of(name: str, text: str) -> bytes:
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(text), 0o644
        archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def test_an_image_is_a_function(lambda_client: Any, image: str, invoke: Invoke) -> None:
    created = lambda_client.create_function(
        FunctionName="f", PackageType="Image", Code={"ImageUri": image}, Role=ROLE, MemorySize=256
    )
    assert created["PackageType"] == "Image"
    assert not {"Runtime", "Handler"} & created.keys()
    found = lambda_client.get_function(FunctionName="f")
    assert found["Code"]["ImageUri"] == image
    assert found["Code"]["ResolvedImageUri"].endswith(f"@sha256:{created['CodeSha256']}")
    assert invoke("f").payload == {
        "environment": "AWS_Lambda_Image",
        "handler": "app.handler",
        "cwd": "/var/task",
        "root": "/var/task",
        "uid": 993,
        "memory": "256",
    }


def test_the_image_config_replaces_what_the_image_says(lambda_client: Any, image: str, invoke: Invoke) -> None:
    lambda_client.create_function(
        FunctionName="f",
        PackageType="Image",
        Code={"ImageUri": image},
        Role=ROLE,
        ImageConfig={"Command": ["app.other"]},
    )
    assert invoke("f").payload == "the other"
    changed = lambda_client.update_function_configuration(
        FunctionName="f", ImageConfig={"Command": ["app.handler"], "WorkingDirectory": "/tmp"}
    )
    assert changed["ImageConfigResponse"]["ImageConfig"] == {"Command": ["app.handler"], "WorkingDirectory": "/tmp"}
    # The runtime client looks for the handler where it is started, unless it is in its path.
    lambda_client.update_function_configuration(
        FunctionName="f", Environment={"Variables": {"PYTHONPATH": "/var/task"}}
    )
    assert invoke("f").payload["cwd"] == "/tmp"


def test_an_image_that_is_not_there_is_refused(lambda_client: Any) -> None:
    with pytest.raises(ClientError, match="Source image slslab/none:1 does not exist") as caught:
        lambda_client.create_function(
            FunctionName="f", PackageType="Image", Code={"ImageUri": "slslab/none:1"}, Role=ROLE
        )
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValueException"


def test_a_kind_of_package_cannot_be_changed(lambda_client: Any, image: str, deploy: Callable[..., str]) -> None:
    name = deploy("def handler(event, context):\n    return 1\n")
    with pytest.raises(ClientError, match="packageType Zip"):
        lambda_client.update_function_code(FunctionName=name, ImageUri=image)
