"""A follower of a channel's server gets its reports and notices its end, unless the follower ended it."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from slslab.compose.recording import Following
from slslab.stack.channels import EmbeddedParameterServer
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.parameter_server import ParameterServer

pytestmark = pytest.mark.server


@pytest.fixture
def server() -> Iterator[EmbeddedParameterServer]:
    with EmbeddedParameterServer({}) as running:
        yield running


def test_events_are_there_when_it_is_closed(server: EmbeddedParameterServer) -> None:
    records: list[dict[str, Any]] = []

    def work() -> None:
        with ParameterServer(server.endpoint, Tracer(lambda _: None)) as mine:
            mine.push("key", 0, 1, np.ones(3, np.float32), "synchronise", leaving=False)
            mine.pull("key", 1, "synchronise")

    async def follow() -> None:
        following = await Following.begin("parameter-server", server.endpoint, records.append)
        await asyncio.to_thread(work)
        await following.close()

    asyncio.run(follow())
    assert [(one["record"], one["op"]) for one in records] == [
        ("event", f"parameter.{name}") for name in ("deserialise", "merge", "serialise")
    ]


def test_its_end_is_a_record(server: EmbeddedParameterServer) -> None:
    records: list[dict[str, Any]] = []
    told = threading.Event()

    def on_record(record: dict[str, Any]) -> None:
        records.append(record)
        told.set()

    async def follow() -> None:
        following = await Following.begin("parameter-server", server.endpoint, on_record)
        os.kill(server.pid, signal.SIGKILL)
        assert await asyncio.to_thread(told.wait, 10)
        await following.close()

    asyncio.run(follow())
    (failed,) = records
    assert (failed["record"], failed["type"]) == ("failed", "StackFailed")
    assert failed["message"] == "the parameter server ended"


def test_another_token_is_refused(server: EmbeddedParameterServer) -> None:
    async def follow() -> None:
        await Following.begin("parameter-server", server.endpoint.replace("://:", "://:x"), lambda _: None)

    with pytest.raises(ValueError, match="another token"):
        asyncio.run(follow())
