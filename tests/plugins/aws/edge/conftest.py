"""The one endpoint before the session's Lambda, S3 and Step Functions, with clients that know it alone."""

from typing import Any

import pytest

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.lambda_.emulator import Emulator
from slslab_aws.servers import Edge


class Endpoint:
    """The endpoint, and clients of it."""

    def __init__(self, edge: Edge, emulator: Emulator) -> None:
        self.edge = edge
        self.emulator = emulator

    @property
    def url(self) -> str:
        return self.edge.endpoint

    def client(self, service: str, pair: Pair | None = None, **settings: Any) -> Any:
        """A client of a service, which signs as the owner unless another pair is given."""
        return aws_client(service, self.url, pair or self.emulator.keys.owner, **settings)


@pytest.fixture(scope="session")
def endpoint(aws_endpoint: Edge, emulator: Emulator) -> Endpoint:
    return Endpoint(aws_endpoint, emulator)
