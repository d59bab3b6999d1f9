"""Runs in memory are what real runs are: the plan of each recorded run, in memory."""

from pathlib import Path
from typing import Any

import pytest
from tests.commands import assert_holds
from tests.memory import running
from tests.recorded_runs import RecordedRuns

from slslab_workers.plan import Plan

# Virtual seconds after which a run counts as one that hangs.
LIMIT_S = 1800
# Fields of a run's document that don't depend on time.
EQUAL = (
    "status", "parameters", "parameters_sha256", "gradient_bytes", "loss", "accuracy", "counts", "bytes", "updates",
    "replicas_equal", "epochs_trained", "invocations",
)  # fmt: skip


@pytest.mark.parametrize("name", ["allreduce", "scatterreduce", "gradssharding", "mlless", "spirt", "kubeml"])
def test_a_run_in_memory_equals_the_real_run_of_its_plan(
    name: str, recorded_runs: RecordedRuns, tmp_path: Path
) -> None:
    real = recorded_runs[name].document
    with running.read_once():
        ran = running.run(Plan.from_document(real["plan"]), 1, tmp_path, LIMIT_S)
    document: Any = ran.recorded.document
    assert {field: document[field] for field in EQUAL} == {field: real[field] for field in EQUAL}
    assert real["accuracy"]
    assert_holds(ran.recorded)
    assert ran.left == ()
