"""Databases for the tests: one process with a peer for each module, as the embedded stack starts it."""

import os
from collections.abc import Callable, Iterator

import pytest
from tests.emulator.tensordb.wire import Wire

from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab.tensordb.server import Options, Peer

MODULES = ("contract", "golden", "fuzz", "load", "stored_tensors", "blocking", "clients", "redis")


@pytest.fixture(scope="session")
def databases() -> Iterator[EmbeddedTensorDatabases]:
    """One process for all tests: torch is imported once."""
    with EmbeddedTensorDatabases(len(MODULES)) as running:
        yield running


@pytest.fixture
def url(request: pytest.FixtureRequest, databases: EmbeddedTensorDatabases) -> str:
    """The module's empty database; for the contract, each database in turn."""
    module = request.module.__name__.rpartition("test_")[2]
    redisai = request.node.callspec.params.get("engine") if hasattr(request.node, "callspec") else None
    found = os.environ["REDISAI_URL"] if redisai == "redisai" else databases.endpoints[MODULES.index(module)]
    with Wire(found) as wire:
        wire("FLUSHALL")
    return found


@pytest.fixture
def wire(url: str) -> Iterator[Wire]:
    """A connection to it."""
    with Wire(url) as connection:
        yield connection


@pytest.fixture
def peer() -> Iterator[Callable[[Options], str]]:
    """Makes databases in this process, with options of their own; gives their URLs. For tests without scripts."""
    made: list[Peer] = []

    def make(options: Options) -> str:
        made.append(Peer(len(made), 0, options, lambda *_: None, lambda: None))
        made[-1].start()
        password = "" if options.password is None else f":{options.password.decode()}@"
        return f"redis://{password}127.0.0.1:{made[-1].port}"

    yield make
    for each in made:
        each.close()
        assert each.left(10)
