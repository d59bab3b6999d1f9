"""Servers of channels for tests: real ones where they are installed, and moto's DynamoDB."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from slslab.stack.channels import channel_server, find_server
from slslab_workers.channels import endpoints
from slslab_workers.channels.dynamodb import environment_client

PROGRAMS = {"memcached": "memcached", "redis": "redis-server"}
DYNAMODB = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
}


@contextmanager
def running(name: str, folder: Path) -> Iterator[None]:
    """Run the server of a channel, which workers of this process find in the environment; skip if it is not
    installed."""
    with pytest.MonkeyPatch.context() as patch:
        if name == "dynamodb":
            server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
            server.start()
            address = "http://{}:{}".format(*server.get_host_and_port())
            for variable, value in {**DYNAMODB, "AWS_ENDPOINT_URL_DYNAMODB": address}.items():
                patch.setenv(variable, value)
            environment_client.cache_clear()
            yield
            environment_client.cache_clear()
            server.stop()
            return
        if name in PROGRAMS and find_server(PROGRAMS[name]) is None:
            pytest.skip(f"{PROGRAMS[name]} is not installed (apt-get install {PROGRAMS[name]})")
        made: Any = channel_server(name, folder, {})
        with made as started:
            patch.setenv(endpoints.CHANNEL_URL, started.endpoint)
            yield
