"""Nodes that join a cluster: which ones it accepts, one with another clock, and late ones."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machines.cluster.conftest import need_cluster
from tests.machines.cluster.network import Nodes, other_version
from tests.machines.cluster.test_runs import command

from slslab.host.priority import niceness
from slslab.installation import __version__
from slslab.run.directory import RunDirectory
from slslab.run.run import read_run
from slslab_lab.checks.run import check

LATE = 1
HOUR_S = 3600
# Invokes a function once, which returns its niceness, waits for another node, and invokes three times at once.
SCRIPT = """
import threading, time
from slslab.aws.limits import lambda_limits
from slslab_ray.cluster import Cluster
from slslab.host.session import Session
from slslab.lambda_.emulator import Emulator
from slslab.testing import create_function

CODE = '''
import os, time

def handler(event, context):
    time.sleep(1)
    return os.getpriority(os.PRIO_PROCESS, 0)
'''
limits = lambda_limits()
with Session() as session:
    cluster = Cluster(session, limits)
    with Emulator(session=session, hosts=cluster, limits=limits) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", CODE, MemorySize=1024)
        answer = client.invoke(FunctionName="f")["Payload"].read().decode()
        print(len(cluster.present()), answer, flush=True)
        while len(cluster.present()) < 2:
            time.sleep(0.1)
        calls = [threading.Thread(target=client.invoke, kwargs={"FunctionName": "f"}) for _ in range(3)]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        pool = emulator.service.pool
        print(len({environment.host.name for environment in pool.environments()}))
"""


@pytest.fixture(scope="module")
def growing() -> Iterator[Nodes]:
    """A cluster of one node, to which another may come."""
    need_cluster()
    with Nodes(2, late=1, memory_mb=8192) as nodes:
        yield nodes


@pytest.fixture
def gone(growing: Nodes) -> Iterator[Nodes]:
    """That cluster; who has come is killed afterwards."""
    yield growing
    growing.kill(LATE)


@pytest.mark.exhaustive
def test_who_does_not_know_the_token_does_not_become_a_node(gone: Nodes, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        # It gives up after so many tries.
        gone.start(LATE, variables={"RAY_AUTH_TOKEN": "another", "RAY_NUM_REDIS_GET_RETRIES": "2"})
    assert len(document(gone, tmp_path / "run")["host"]["nodes"]) == 1


@pytest.mark.exhaustive
def test_a_node_of_another_version_is_refused_by_its_name_and_the_others_are_used(gone: Nodes, tmp_path: Path) -> None:
    gone.start(LATE, variables={"PYTHONPATH": str(other_version(tmp_path))})
    done = gone.run(0, command("allreduce", tmp_path / "run", "--environment", "ray"))
    assert done.returncode == 0, done.stderr
    assert f"({gone.address(LATE)}) is not used: it has slslab 9, but this host has {__version__}." in done.stderr
    assert len(json.loads(done.stdout)["host"]["nodes"]) == 1


@pytest.mark.exhaustive
def test_events_of_a_node_have_the_time_of_this_host_whatever_its_clock(gone: Nodes, tmp_path: Path) -> None:
    ahead = ("unshare", "--time", f"--monotonic={HOUR_S}", "--fork")
    if subprocess.run([*ahead, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this kernel has no time namespaces")
    gone.start(LATE, before=ahead)
    found = document(gone, tmp_path / "run")
    assert len(found["host"]["nodes"]) == 2
    assert found["seconds"]["measured"] < HOUR_S / 2
    assert not check(read_run(RunDirectory(tmp_path / "run"))).violations


def test_a_node_that_joins_is_used(gone: Nodes) -> None:
    running = gone.popen(0, [sys.executable, "-c", SCRIPT])
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == f"1 {niceness()}\n", (
            "functions don't have the low priority of Ray's workers"
        )
        gone.start(LATE)
        out, err = running.communicate(timeout=240)
    finally:
        running.kill()
        running.wait()
    assert out == "2\n", err


def document(nodes: Nodes, out: Path) -> dict[str, Any]:
    """Make a small run, and return its document."""
    done = nodes.run(0, command("allreduce", out, "--environment", "ray"))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
