"""The images that `make images` builds: what is in them, and that they run as the compose files and AWS run them."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import redis
import redis.backoff
import redis.exceptions
import redis.retry
from tests.containers import need_containers

TAG = os.environ.get("SLSLAB_TAG", "local")
WORKER, TENSORDB, EMULATOR = (f"slslab/{name}:{TAG}" for name in ("worker", "tensordb", "emulator"))
MOST_WORKER_BYTES = 1_300_000_000
# As AWS and the emulator run it: another user, nothing to write to but /tmp, no rights.
CONFINED = ("--read-only", "--tmpfs=/tmp", "--user=1234:1234", "--cap-drop=ALL", "--network=none", "--memory=1769m")
STEP = """
import importlib.util, json, os, sys
import torch, torch.nn.functional as F
import awslambdaric, boto3, cryptography, pika, redis
from slslab_workers.allreduce.handlers import handler
from slslab_workers.training import models
torch.set_num_threads(1)
model = models.build("lenet", 0)
optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
inputs, targets = torch.linspace(-1, 1, 8 * 1024).reshape(8, 1, 32, 32), torch.arange(8)
losses = []
for _ in range(5):
    optimiser.zero_grad()
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
def writable(path):
    try:
        open(os.path.join(path, "x"), "w").close()
    except OSError:
        return False
    return True
print(json.dumps({
    "losses": losses, "cwd": os.getcwd(), "torch": torch.__version__,
    "emulator": importlib.util.find_spec("slslab") is not None,
    "writable": [path for path in ("/", "/var/task", "/opt/python", "/tmp") if writable(path)],
    "cached": [bool(module.__cached__ and os.path.exists(module.__cached__)) for module in (torch, boto3, models)],
}))
"""


def docker(*words: str) -> str:
    """What a docker command printed; fails the test if it fails."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def inspected(image: str) -> dict[str, Any]:
    """What the engine knows of an image."""
    found: dict[str, Any] = json.loads(docker("image", "inspect", image))[0]
    return found


@pytest.fixture(scope="module", autouse=True)
def images() -> None:
    """Skips if the images are missing."""
    need_containers()


@pytest.fixture
def database() -> Iterator[Any]:
    """A client of tensordb in its container, with a password."""
    container = docker(
        "run", "--detach", "--rm", "--env=TENSORDB_PASSWORD=secret", "--publish=127.0.0.1::6379", TENSORDB
    )
    try:
        port = int(docker("port", container, "6379").rpartition(":")[2])
        # The engine's port answers before the program behind it does.
        retry = redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 300)
        with redis.Redis(port=port, password="secret", retry=retry) as client:
            yield client
    finally:
        docker("rm", "--force", container)


def test_the_worker_is_what_aws_lambda_takes() -> None:
    image = inspected(WORKER)
    config = image["Config"]
    assert image["Size"] < MOST_WORKER_BYTES
    assert config["Entrypoint"] == ["python3", "-m", "awslambdaric"]
    assert config["Cmd"] == ["slslab_workers.allreduce.handlers.handler"]
    assert config["WorkingDir"] == "/var/task"
    assert not config.get("Volumes")


def test_a_confined_worker_trains_with_compiled_code_and_without_the_emulator() -> None:
    told = json.loads(docker("run", "--rm", *CONFINED, "--entrypoint=python3", WORKER, "-c", STEP))
    assert told["losses"][-1] < told["losses"][0]
    assert told["cwd"] == "/var/task"
    assert told["writable"] == ["/tmp"]
    assert told["cached"] == [True, True, True]
    assert told["emulator"] is False
    assert "cu" not in told["torch"].replace("cpu", "")


def test_worker_and_tensordb_share_torch() -> None:
    layers = [inspected(image)["RootFS"]["Layers"] for image in (WORKER, TENSORDB)]
    base = inspected(EMULATOR)["RootFS"]["Layers"][:1]
    shared = [layer for layer in layers[0] if layer in layers[1]]
    assert len(shared) == len(base) + 1


def test_the_emulator_has_what_it_needs_and_no_torch() -> None:
    code = """
import slslab.compose.__main__, slslab.lambda_.emulator, slslab.stack.buckets, slslab.stack.object_store
import slslab.up.embedded
import docker
import importlib.util
print(docker.__version__, importlib.util.find_spec("torch"))
"""
    assert docker("run", "--rm", "--network=none", EMULATOR, "python3", "-c", code) == "7.2.0 None"


def test_tensordb_computes_behind_its_password(database: Any) -> None:
    assert database.execute_command("AI.TENSORSET", "a", "FLOAT", 2, "VALUES", 1, 2) == b"OK"
    script = "def twice(tensors: List[Tensor], keys: List[str], args: List[str]):\n    return tensors[0] * 2\n"
    database.execute_command("AI.SCRIPTSTORE", "s", "CPU", "ENTRY_POINTS", 1, "twice", "SOURCE", script)
    database.execute_command("AI.SCRIPTEXECUTE", "s", "twice", "INPUTS", 1, "a", "OUTPUTS", 1, "b")
    blob = database.execute_command("AI.TENSORGET", "b", "BLOB")
    assert np.frombuffer(blob, np.float32).tolist() == [2.0, 4.0]
    with (
        redis.Redis(port=database.connection_pool.connection_kwargs["port"]) as stranger,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        stranger.get("a")
