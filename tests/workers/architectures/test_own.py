"""Every architecture trains a model and a data set of a user's own: functions in memory, instances in threads."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.workers.architectures.conftest import INSTANCES, InMemory

from slslab_lab.runs.planning import architectures, make_plan
from slslab_workers.kubeml.settings import epoch_of
from slslab_workers.kubeml.shares import DOCUMENT, share_of
from slslab_workers.models import spec_of
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.samples import Samples

EXAMPLE = Path(__file__).parents[3] / "examples" / "own"
# Plain SGD and one step an epoch, where all synchronous architectures compute the same.
SAME = {"batches": 1, "epochs": 2, "workers": 2, "momentum": 0, "weight_decay": 0, "batch_size": 64}
NAMES = sorted(architectures())
# These average models and not gradients, which rounds elsewhere.
AVERAGING = ("kubeml",)
PARAMETERS = 4 * 32 + 32 + 32 * 3 + 3


@pytest.fixture(scope="module", autouse=True)
def path() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        yield


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of rows with three classes by name."""
    generator = np.random.default_rng(0)
    lines = ["sepal,petal,width,length,species"]
    for number in range(600):
        cells = generator.normal(number % 3, 0.5, 4)
        lines.append(
            ",".join(f"{cell:.3f}" for cell in cells) + "," + ("setosa", "virginica", "versicolor")[number % 3]
        )
    path = tmp_path_factory.mktemp("data") / "flowers.csv"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture(scope="module")
def document_of(in_memory: InMemory, flowers: str) -> Callable[[str], Any]:
    """Run an architecture of functions with SAME; equal runs are run once."""

    @cache
    def once(name: str) -> Any:
        options = {"filter": "none"} if name == "mlless" else {}
        return in_memory(
            name, options, model="own.learning:mlp", dataset=f"{flowers}:species", **SAME
        ).recorded.document

    return once


@pytest.mark.parametrize("name", [name for name in NAMES if name not in INSTANCES])
def test_functions_train_it_and_count_what_they_should(name: str, document_of: Callable[[str], Any]) -> None:
    document = document_of(name)
    assert document["error"] is None
    assert (document["status"], document["replicas_equal"], document["updates"]) == ("done", True, 2)
    assert document["parameters"] == PARAMETERS
    assert document["plan"]["model_spec"]["outputs"] == 3
    more: dict[str, Any] = {"batch_size": 64, "tensors": 4} if name == "kubeml" else {}
    architecture: Any = architectures()[name]
    counts = architecture.counts(2, 1, 2, PARAMETERS, {}, **more)
    assert document["counts"] == {operation: number for operation, number in counts.operations.items() if number}
    assert document["bytes"] == {"in": counts.bytes_in, "out": counts.bytes_out}


def test_plain_sgd_gives_equal_bits_in_all(
    document_of: Callable[[str], Any], train: Callable[..., Any], flowers: str
) -> None:
    fingerprints = {
        name: document_of(name)["parameters_sha256"] for name in NAMES if name not in (*AVERAGING, *INSTANCES)
    }
    for name in INSTANCES:
        values = {"model": "own.learning:mlp", "dataset": f"{flowers}:species", **SAME}
        trained = train(make_plan(architectures()[name], values, {}))
        fingerprints |= {f"{name} {rank}": each["parameters_sha256"] for rank, each in enumerate(trained.results)}
    assert len(set(fingerprints.values())) == 1, fingerprints


@pytest.mark.parametrize("name", [name for name in NAMES if name not in INSTANCES])
def test_each_worker_may_have_one_class(
    name: str, in_memory: InMemory, flowers: str, curve: Callable[[Plan], Any]
) -> None:
    options = {"partition": "labels:1", **({"filter": "none"} if name == "mlless" else {})}
    values = {"model": "own.learning:mlp", "dataset": f"{flowers}:species", "workers": 3, "batches": 2}
    document: Any = in_memory(name, options, batch_size=32, epochs=2, **values).recorded.document
    assert [sum(count > 0 for count in own) for own in document["details"]["shares"]] == [1, 1, 1]
    learnt = curve(make_plan(architectures()[name], {**values, "batch_size": 32, "epochs": 2}, options))
    assert (tuple(document["loss"]), tuple(document["accuracy"]), document["parameters_sha256"]) == learnt


def test_functions_of_kubeml_read_their_own_documents(flowers: str) -> None:
    values = {"dataset": f"{flowers}:species", "workers": 3, "batches": 4, "batch_size": 32}
    plan = make_plan(architectures()["kubeml"], values, {"partition": "sizes:1,2,4"})
    samples, epoch = Samples(plan), epoch_of(plan, 3)
    order, owned = samples.indices(0).reshape(-1), samples._shards
    assert owned is not None
    for function in range(3):
        documents = share_of(epoch.documents, 3, function)
        read = order[documents.start * DOCUMENT : documents.stop * DOCUMENT]
        assert set(read.tolist()) <= set(owned[function].tolist())
    kubeml = architectures()["kubeml"]
    with pytest.raises(PlanError, match="the last 56 samples of a function would share one"):
        kubeml.requirements(replace(plan, batches=3, batch_size=40))
    with pytest.raises(PlanError, match="needs a fixed number of functions"):
        kubeml.requirements(replace(plan, options={**plan.options, "parallelism": "throughput"}))


@pytest.mark.parametrize("name", NAMES)
def test_one_worker_alone_has_all_samples(name: str) -> None:
    plan = make_plan(architectures()[name], {"dataset": "digits", "workers": 2}, {"partition": "sizes:1,2"})
    alone = architectures()[name].solo(plan)
    assert alone.options["partition"] == "disjoint"
    assert Samples(alone).indices(0).shape[0] == alone.workers == 1


@pytest.mark.parametrize("name", ["allreduce", "spirt", "kubeml"])
def test_a_regression_is_learnt(name: str, in_memory: InMemory, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(400, 3))
    np.savez(tmp_path / "number.npz", x=x, y=x @ [1.0, -2.0, 0.5])
    options = {"update-rule": "sgd-momentum"} if name == "spirt" else {}
    more = {"batches": 2, "batch_size": 64, "workers": 2, "epochs": 10, "lr": 0.1}
    document = in_memory(name, options, dataset=str(tmp_path / "number.npz"), **more).recorded.document
    assert document is not None
    assert document["replicas_equal"] is True
    assert 0.7 < document["accuracy"][-1] <= 1, "R²"
    assert document["loss"][-1] < document["loss"][0] / 3


def test_workers_with_flipped_labels_flip_those_of_all_classes(flowers: str) -> None:
    from slslab_workers.training.attacks import Attack

    values = {"model": "own.learning:mlp", "dataset": f"{flowers}:species", "workers": 5, "batches": 2, "batch_size": 8}
    plan = make_plan(architectures()["allreduce"], values, {"attack": "label-flip:4", "combine": "median"})
    attack = Attack.of(plan)
    assert attack.classes == spec_of(plan).outputs == 3
    targets: Any = np.array([0, 1, 2])
    assert attack.targets(4, targets).tolist() == [2, 1, 0]
