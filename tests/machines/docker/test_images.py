"""Functions that are container images, by unmodified boto3."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import docker
import pytest
from botocore.exceptions import ClientError

from slslab.host.containers import WORKER_IMAGE
from slslab.lambda_.emulator import Emulator
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
    # A digest stands in the tag's place.
    assert found["Code"]["ResolvedImageUri"] == f"{image.partition(':')[0]}@sha256:{created['CodeSha256']}"
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
    # The image's PYTHONPATH names /var/task, so the handler is found from there, too.
    assert invoke("f").payload["cwd"] == "/tmp"


@pytest.mark.parametrize("uri", ["slslab/none:1", "No Image", "../containers/{container}"])
def test_an_image_that_is_not_there_is_refused(uri: str, lambda_client: Any, emulator: Emulator) -> None:
    assert emulator.containers is not None
    api = emulator.containers.engine.api
    made = api.create_container(emulator.containers.image, labels=emulator.containers.labels)["Id"]
    try:
        with pytest.raises(
            ClientError, match=r"Source image .* does not exist\. Provide a valid source image"
        ) as caught:
            lambda_client.create_function(
                FunctionName="f", PackageType="Image", Code={"ImageUri": uri.format(container=made)}, Role=ROLE
            )
    finally:
        api.remove_container(made)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValueException"


def test_a_kind_of_package_cannot_be_changed(lambda_client: Any, image: str, deploy: Callable[..., str]) -> None:
    name = deploy("def handler(event, context):\n    return 1\n")
    with pytest.raises(
        ClientError, match="Please don't provide ImageUri when updating a function with packageType Zip"
    ):
        lambda_client.update_function_code(FunctionName=name, ImageUri=image)


def test_what_only_the_other_kind_has_is_refused(
    lambda_client: Any, image: str, deploy: Callable[..., str], invoke: Invoke
) -> None:
    name = deploy("def handler(event, context):\n    return 1\n")
    config = {"Command": ["app.other"]}
    with pytest.raises(ClientError, match="Please don't provide ImageConfig"):
        lambda_client.update_function_configuration(FunctionName=name, ImageConfig=config)
    with pytest.raises(ClientError, match="Please don't provide ImageConfig"):
        deploy("def handler(event, context):\n    return 1\n", ImageConfig=config)
    lambda_client.create_function(FunctionName="f", PackageType="Image", Code={"ImageUri": image}, Role=ROLE)
    for changed in ({"Handler": "app.other"}, {"Runtime": "python3.11"}):
        with pytest.raises(ClientError, match="Please don't provide Handler or Runtime or Layer"):
            lambda_client.update_function_configuration(FunctionName="f", **changed)
    assert invoke("f").payload["environment"] == "AWS_Lambda_Image"


def test_a_functions_python_path_does_not_hide_the_runtime(deploy: Callable[..., str], invoke: Invoke) -> None:
    """In the worker's image the runtime client is found by this variable."""
    source = "import os, sys\n\ndef handler(event, context):\n    return sys.path, os.environ['HOME']\n"
    name = deploy(source, Environment={"Variables": {"PYTHONPATH": "/var/task/vendor", "HOME": "/tmp/home"}})
    path, home = invoke(name).payload
    assert path.index("/var/task/vendor") < path.index("/opt/python")
    assert home == "/tmp/home"
