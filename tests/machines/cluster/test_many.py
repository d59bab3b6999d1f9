"""Many workers on four nodes, more than this machine has cores for: the runs end, and nothing is left.

With torch 2.13, a step of lr takes more than 320 MB.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machines.cluster.conftest import need_cluster
from tests.machines.cluster.network import BIN, Nodes
from tests.machines.cluster.test_runs import assert_nothing_left

from slslab.run.directory import RunDirectory
from slslab.run.log import metered_records
from slslab.run.run import read_run
from slslab_lab.checks.run import check

# The number of workers, and their plan.
RUNS = {
    "lr": (64, ("--dataset", "breast-cancer", "--memory", "448", "--batch-size", "4")),
    "lenet": (16, ("--dataset", "digits", "--memory", "1024", "--batch-size", "16")),
}
LIMIT_S = 540.0

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def four() -> Iterator[Nodes]:
    """Four nodes; the run of lr needs their memory to the last megabyte."""
    need_cluster()
    with Nodes(4, memory_mb=16 * 448) as nodes:
        yield nodes


@pytest.mark.parametrize("model", RUNS)
def test_many_workers_on_four_nodes_run_to_the_end(four: Nodes, model: str, tmp_path: Path) -> None:
    workers, plan = RUNS[model]
    out = tmp_path / "run"
    given = ("--model", model, "--workers", str(workers), "--epochs", "1", "--batches", "1", *plan)
    command = [str(BIN / "slslab"), "run", "allreduce", *given, "--environment", "ray", "--out", str(out), "--json"]
    done = four.run(0, command, limit_s=LIMIT_S)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["replicas_equal"] is True
    assert document["host"]["oversubscribed"] is True
    assert len({record["environment"] for record in metered_records(out)}) == workers
    assert not check(read_run(RunDirectory(out))).violations
    assert_nothing_left(four)
