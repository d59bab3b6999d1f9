"""The one endpoint before the session's Lambda, S3 and Step Functions."""

from collections.abc import Iterator
from typing import Any

import pytest

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.lambda_.service.emulator import Emulator
from slslab.stack.edge import AwsServices, Edge
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.stack.state_machines import EmbeddedStateMachines


class Endpoint:
    """The endpoint, the socket behind it, and clients of both."""

    def __init__(self, edge: Edge, services: AwsServices, emulator: Emulator) -> None:
        self.edge = edge
        self.services = services
        self.emulator = emulator

    @property
    def url(self) -> str:
        return self.edge.endpoint

    def client(self, service: str, pair: Pair | None = None, **settings: Any) -> Any:
        """A client that knows this address alone."""
        return aws_client(service, self.url, pair or self.emulator.keys.owner, **settings)


@pytest.fixture(scope="session")
def endpoint(
    emulator: Emulator,
    object_store: EmbeddedObjectStore,
    state_machines: EmbeddedStateMachines,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Endpoint]:
    endpoints = {**emulator.endpoints, "s3": object_store.endpoint, "states": state_machines.endpoint}
    home = tmp_path_factory.mktemp("edge")
    with (
        AwsServices(home, endpoints, emulator.keys, emulator.mark) as services,
        Edge(0, endpoints, services.path, emulator.keys, emulator.mark) as edge,
    ):
        yield Endpoint(edge, services, emulator)
