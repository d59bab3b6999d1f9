"""A cluster of three nodes, each in a network of its own; without Ray or root these tests are skipped."""

import os
from collections.abc import Iterator

import pytest
from tests.machines.cluster.network import Nodes, missing


def need_cluster() -> None:
    """Skip the test where there can be no cluster, or fail it where there must be one (SLSLAB_CLUSTER=required)."""
    if why := missing():
        if os.environ.get("SLSLAB_CLUSTER") == "required":
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Three nodes with a millisecond of delay between two."""
    need_cluster()
    with Nodes(3, delay_ms=0.5) as cluster:
        yield cluster
