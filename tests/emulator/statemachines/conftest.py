"""Functions that state machines of tests call, and a place where some of them wait."""

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.emulator.statemachines.written import LIMIT_S

from slslab.lambda_.emulator import Emulator
from slslab.statemachines import bounded
from slslab.testing import create_function

# Says hello at a port of the test's and goes on when it is answered: who is there at once is known without a clock.
MEETING = """
    import socket

    def handler(event, context):
        with socket.create_connection(("127.0.0.1", event["port"])) as peer:
            peer.recv(1)
        return event.get("item")
"""
FAILURES = """
    import os, time

    def handler(event, context):
        if event["how"] == "raise":
            raise ValueError("not this one")
        if event["how"] == "exit":
            os._exit(3)
        if event["how"] == "memory":
            kept = [b"x" * (1 << 24) for _ in range(100)]
        if event["how"] == "wait":
            time.sleep(60)
        return "x" * event["how"]
"""


class Meeting:
    """Where handlers of MEETING wait until they are released."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LIMIT_S)
        self.port: int = self._listener.getsockname()[1]
        self._guests: list[socket.socket] = []

    def wait(self, number: int) -> None:
        """Wait until this many handlers are waiting."""
        self._guests += [self._listener.accept()[0] for _ in range(number)]

    def go_on(self) -> None:
        """Release all."""
        for guest in self._guests:
            guest.close()
        self._guests.clear()

    def close(self) -> None:
        """Release all, and let later ones pass."""
        self.go_on()
        self._listener.close()


@pytest.fixture
def no_process_stays() -> Iterator[None]:
    """End the processes of expressions after the test."""
    yield
    while bounded.POOL._free:
        bounded.POOL._free.pop().close()


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    """A meeting that ends with the test."""
    with closing(Meeting()) as place:
        yield place


@pytest.fixture(scope="module")
def functions(emulator: Emulator) -> Iterator[Any]:
    """A client of Lambda. The plugin's deletes every function after a test; here they stay for the whole module."""
    with closing(emulator.client("lambda")) as client:
        yield client
        for function in client.list_functions()["Functions"]:
            client.delete_function(FunctionName=function["FunctionName"])


@pytest.fixture(scope="module", autouse=True)
def usual_functions(functions: Any) -> None:
    """The functions `meet`, `fail` and `slow`."""
    create_function(functions, "meet", MEETING, Timeout=60, MemorySize=128)
    create_function(functions, "fail", FAILURES, Timeout=60, MemorySize=256)
    create_function(functions, "slow", FAILURES, Timeout=1, MemorySize=128)
