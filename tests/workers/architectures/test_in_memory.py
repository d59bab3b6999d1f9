"""Runs in memory are what real runs are: the plan of each recorded run, in memory."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.commands import assert_holds
from tests.memory import running
from tests.recorded_runs import RecordedRuns

from slslab_lab.runs.planning import architectures, make_plan
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


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize("name", ["allreduce", "scatterreduce", "gradssharding", "mlless", "spirt", "kubeml"])
def test_functions_of_a_platform_with_gpus_learn_what_they_learn_on_lambda(
    name: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU up to the order of sums."""
    sizes = {
        "dataset": "digits",
        "workers": 2,
        "epochs": 2,
        "batches": 2,
        "batch_size": 32,
        "memory_mb": 1024,
        "timeout": 900,
    }
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device == "cuda")
    found = []
    for platform in (None, "modal-t4"):
        plan = make_plan(architectures()[name], {**sizes, "platform": platform}, {})
        ran = running.run(plan, 1, tmp_path / str(platform), LIMIT_S)
        assert (ran.failure, ran.left) == (None, ())
        document: Any = ran.recorded.document
        found.append([document[field] for field in ("loss", "accuracy", "counts", "bytes", "updates")])
    (expected, *counted), (losses, *others) = found
    assert losses == (expected if device == "cpu" else pytest.approx(expected, rel=1e-3))
    assert device == "cuda" or others == counted
