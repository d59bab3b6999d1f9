"""A node that dies: its invocations end, the run ends as its architecture does, and nothing is left.

SLSLAB_LOSSES=50 makes fifty runs instead of one.
"""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.machines.cluster.network import Nodes
from tests.machines.cluster.test_runs import LEFT_S, assert_nothing_left, command

from slslab.run.directory import RunDirectory
from slslab.run.run import read_run
from slslab_lab.checks.run import check

# About as many as a run's trace has. Its first come with the environments, which take longer than all others.
EVENTS, FIRST_EVENTS = 300, 10
LIMIT_S = 120.0
# s; a node that is cut off waits for its head for a minute, and ends.
CUT_OFF_LEFT_S = 180.0


@pytest.mark.parametrize("seed", range(int(os.environ.get("SLSLAB_LOSSES", "1"))))
def test_a_run_ends_by_name_or_goes_on_when_a_node_dies(nodes: Nodes, tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    architecture = drawn.choice(("allreduce", "scatterreduce", "mlless"))
    at = drawn.randrange(drawn.choice((FIRST_EVENTS, EVENTS)))
    assert_ends(nodes, architecture, tmp_path / "run", at, nodes.kill_cluster, LEFT_S)


@pytest.mark.exhaustive
def test_a_run_ends_by_name_when_a_node_is_cut_off(nodes: Nodes, tmp_path: Path) -> None:
    """Nothing tells the emulator, as of a machine that has lost its power."""
    assert_ends(nodes, "allreduce", tmp_path / "run", EVENTS // 2, nodes.cut_off, CUT_OFF_LEFT_S)


def assert_ends(
    nodes: Nodes, architecture: str, out: Path, at: int, lose: Callable[[int], None], left_s: float
) -> None:
    """Lose a node when a run has this many events; assert that the run ends as it should, and nothing is left."""
    running = nodes.popen(0, command(architecture, out, "--environment", "ray"))
    while events(out) < at and running.poll() is None:
        time.sleep(0.05)
    lose(2)
    try:
        printed, told = running.communicate(timeout=LIMIT_S)
        assert running.returncode in (0, 1), told
        document = json.loads(printed)
        if document["status"] == "failed":
            kind, message = document["error"]["type"], document["error"]["message"]
            # The last is of an environment that was starting there.
            known = kind in ("Runtime.ExitError", "WorkerUnresponsive") or (
                kind == "ServiceException" and "was lost" in message
            )
            assert known, document["error"]
            assert document["error"]["worker"] is not None
            assert any(node["lost"] for node in document["host"]["nodes"])
        assert not check(read_run(RunDirectory(out))).violations
        assert_nothing_left(nodes, left_s)
    finally:
        running.kill()
        running.wait()
        nodes.kill(2)
        nodes.connect(2)
        nodes.start(2)


def events(out: Path) -> int:
    """Return how many events a run's trace has so far."""
    try:
        return RunDirectory(out).trace_log.read_bytes().count(b'"record":"event"')
    except FileNotFoundError:
        return 0
