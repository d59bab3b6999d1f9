"""A cluster of three nodes, each in a network of its own; without Ray or root these tests are skipped."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.machines.cluster.network import BIN, Nodes, delays, missing

from slslab.aws.limits import lambda_limits
from slslab.host.server_process import free_ports
from slslab.host.session import Session
from slslab.lambda_.service.emulator import Emulator


def need_cluster() -> None:
    """Skip the test where there can be no cluster, or fail it where there must be one (SLSLAB_CLUSTER=required)."""
    if why := missing():
        if os.environ.get("SLSLAB_CLUSTER") == "required":
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Three nodes, with a millisecond of delay between two where the kernel has it."""
    need_cluster()
    with Nodes(3, delay_ms=0.5 if delays() else 0) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """An emulator whose environments are on the only node of a cluster, in the network of these tests."""
    need_cluster()
    from slslab.cluster.cluster import Cluster

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
        (port,) = free_ports(1)
        where = ["--node-ip-address=127.0.0.1", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false"]
        command = [str(BIN / "ray"), "start", "--head", *where, "--disable-usage-stats", "--block"]
        node = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        stack.callback(_end, node)
        os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
        stack.callback(os.environ.pop, "RAY_ADDRESS")
        _wait_for(port)
        session = stack.enter_context(Session())
        limits = lambda_limits().changed(event_retry_base_s=0.01, event_throttle_s=0.01)
        yield stack.enter_context(Emulator(session=session, places=Cluster(session, limits), limits=limits))


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = subprocess.run([str(BIN / "ray"), "status"], capture_output=True, check=False)
        if status.returncode == 0:
            return
    raise AssertionError(f"no Ray node listens at port {port}")


def _end(node: "subprocess.Popen[bytes]") -> None:
    """End a node that was started with --block, and all that it started."""
    node.terminate()
    node.wait(60)
