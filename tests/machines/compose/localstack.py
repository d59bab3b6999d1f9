"""LocalStack's container in the host's network, in front of an emulator of this host."""

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.containers import need_containers

from slslab.aws.keys import Pair
from slslab.host.containers import Containers
from slslab.host.session import Session

IMAGE = "slslab/localstack:local"
READY_LIMIT_S = 120.0


@contextmanager
def running_localstack(lambda_url: str, pair: Pair) -> Iterator[str]:
    """Its address, once it is ready; gone after the block, and by a reaper if the block is killed. Skips without it."""
    need_containers()
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = {"GATEWAY_LISTEN": address, "LOCALSTACK_HOST": address, "SLSLAB_LAMBDA_URL": lambda_url}
    settings |= {"SLSLAB_ACCESS_KEY_ID": pair.key_id, "SLSLAB_SECRET_ACCESS_KEY": pair.secret}
    with Session() as session, Containers(session) as containers:
        words = [f"--env={name}={value}" for name, value in settings.items()]
        words += [f"--label={name}={value}" for name, value in containers.labels.items()]
        command = ["docker", "run", "--detach", "--network=host", *words, IMAGE]
        subprocess.run(command, check=True, capture_output=True)
        _await(f"http://{address}/_localstack/init/ready")
        yield f"http://{address}"


def _await(ready: str) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(ready, timeout=5) as answer:
                if json.load(answer)["completed"]:
                    return
        except OSError:
            assert time.monotonic() < deadline, "LocalStack did not become ready"
        time.sleep(0.2)  # a server that is not there yet can only be asked again
