"""A cluster of three nodes, each in a network of its own; without Ray or root these tests are skipped."""

import os
from collections.abc import Iterator

import pytest
from tests.machines.cluster.network import ON_NODE, Nodes, missing

from slslab.aws.limits import lambda_limits
from slslab.host.session import Session
from slslab.lambda_.emulator import Emulator


def need_cluster() -> None:
    """Skip the test where there can be no cluster, or fail it where there must be one (SLSLAB_CLUSTER=required)."""
    if why := missing():
        if os.environ.get("SLSLAB_CLUSTER") == "required":
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture(scope="module")
def nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    """Three nodes; packets between two of them take longer by the test's parameter, in milliseconds, if any."""
    need_cluster()
    with Nodes(3, delay_ms=getattr(request, "param", 0.0)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """An emulator on a node, with environments on all of them; tests that have it are run there by another."""
    if ON_NODE not in os.environ:
        pytest.skip("test_on_a_node.py runs it on a cluster's node")
    from slslab_ray.cluster import Cluster

    limits = lambda_limits().changed(event_retry_base_s=0.01, event_throttle_s=0.01)
    with Session() as session, Emulator(session=session, hosts=Cluster(session, limits), limits=limits) as running:
        yield running
