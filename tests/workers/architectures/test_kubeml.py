"""KubeML: what it learns, what it sends, and what becomes of functions that fail, in whole runs and in one process."""

import hashlib
import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from tests.commands import forked_environments, slslab
from tests.workers.architectures.conftest import InMemory, one_process

from slslab.report.run import full
from slslab.report.terminal import render
from slslab_lab.replay.measured import read_measured
from slslab_lab.replay.programs.scaling import generate
from slslab_workers.kubeml import architecture
from slslab_workers.kubeml.driver import KubeMLDeployment
from slslab_workers.kubeml.local import parameters_of
from slslab_workers.kubeml.settings import epoch_of
from slslab_workers.kubeml.shares import ALL
from slslab_workers.patterns import Workload
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import models
from slslab_workers.training.samples import Samples

MakePlan = Callable[..., Plan]
Run = Callable[..., Any]
LENET, TENSORS = 61_706, 10
# Four documents for each of four functions.
SHAPE: dict[str, Any] = {"batch_size": 16, "batches": 16, "lr": 0.05}
SMALL: dict[str, Any] = {**SHAPE, "epochs": 2}
# The same for the command line.
ARGUMENTS = ("--batch-size", "16", "--batches", "16", "--lr", "0.05", "--epochs", "2", "--workers", "2")


def digest(parameters: torch.Tensor) -> str:
    return hashlib.sha256(parameters.numpy().tobytes()).hexdigest()


@pytest.fixture
def run(in_memory: InMemory) -> Callable[..., Any]:
    """Run KubeML in memory with these options and other values; returns the document."""

    def start(options: dict[str, Any], **values: Any) -> Any:
        return in_memory("kubeml", options, **values).recorded.document

    return start


@pytest.mark.parametrize("functions", [1, 2, 4])
@pytest.mark.parametrize("k", [1, 8, ALL])
def test_a_run_learns_and_counts_what_one_process_and_the_closed_form_say(functions: int, k: int, run: Run) -> None:
    document = run({"k": k}, workers=functions, **SMALL)
    plan = Plan.from_document(document["plan"])
    replicas = one_process(plan)
    epochs = [(replicas.train_epoch().loss, replicas.judge().accuracy) for _ in range(plan.epochs)]
    assert document["loss"] == [loss for loss, _ in epochs]
    assert document["accuracy"] == [accuracy for _, accuracy in epochs]
    assert document["parameters_sha256"] == digest(replicas.parameters())
    assert (document["replicas_equal"], document["updates"], document["epochs_trained"]) == (True, 32, 2)
    # Four documents of each function, of four minibatches: K = 1 has one document between merges, K = 8 two.
    merges = {1: 4, 8: 2, ALL: 1}[k]
    intervals = functions * merges
    gets, sets = 2 * (2 * intervals + functions), 2 * (intervals + merges) + 1
    messages = 2 * (2 * intervals - functions)
    assert document["counts"] == {
        "tensor.get": gets * TENSORS,
        "tensor.set": sets * TENSORS,
        "queue.publish": messages,
        "queue.deliver": messages,
    }
    assert document["bytes"] == {"in": sets * 4 * LENET, "out": gets * 4 * LENET}
    expected = architecture.counts(functions, 16, 2, LENET, plan.options, batch_size=16, tensors=TENSORS)
    assert (dict(expected.operations), expected.bytes_in, expected.bytes_out) == (
        document["counts"], document["bytes"]["in"], document["bytes"]["out"],
    )  # fmt: skip
    assert document["invocations"] == 2 * 2 * functions + 2
    assert document["lambda"]["status"] == "modelled"


@pytest.mark.exhaustive
def test_documents_that_do_not_divide_and_batchnorm_are_those_of_one_process(run: Run) -> None:
    """Two functions and three documents, the last one half full; counters are averaged and truncated."""
    size = {"workers": 2, "batches": 10, "batch_size": 8, "epochs": 1, "model": "mobilenet", "dataset": "synthetic"}
    document = run({"k": 3}, **size, momentum=0.9)
    replicas = one_process(Plan.from_document(document["plan"]))
    assert document["loss"] == [replicas.train_epoch().loss]
    assert document["parameters_sha256"] == digest(replicas.parameters())
    assert document["accuracy"] == [replicas.judge().accuracy]
    tensors, size_ = 164, 4 * (3_217_226 + 21_915)
    found = architecture.counts(
        2, 10, 1, 3_217_226, document["plan"]["options"], batch_size=8, tensors=tensors, buffers=21_915
    )
    assert document["bytes"] == {"in": found.bytes_in, "out": found.bytes_out}
    assert found.bytes_in % size_ == 0
    assert document["counts"] == dict(found.operations)


@pytest.mark.parametrize("k", [1, 4, 7, 16, ALL])
def test_one_function_without_momentum_is_sequential_sgd(k: int, make_plan: MakePlan) -> None:
    """To the last bit, whenever it merges."""
    changes = {"workers": 1, "batches": 20, "epochs": 2, "momentum": 0.0, "weight_decay": 0.0, "lr": 0.05}
    plan = make_plan("kubeml", options={"k": k}, **changes)
    replicas = one_process(plan)
    for _ in range(plan.epochs):
        replicas.train_epoch()
    samples, model = Samples(plan), models.build("lenet", plan.seed)
    sgd = torch.optim.SGD(model.parameters(), lr=plan.lr)
    order = samples.indices(0).reshape(20, 16)
    for epoch in range(plan.epochs):
        for step in range(20):
            images, targets = samples.prepare(order[step], epoch, 0, step)
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(model(images), targets).backward()  # type: ignore[no-untyped-call]
            sgd.step()
    assert torch.equal(replicas.parameters(), parameters_of(model))


def test_a_momentum_begins_anew_after_each_merge(make_plan: MakePlan) -> None:
    """So that with one function K matters then."""
    learnt = {}
    for k in (1, 8, 100, ALL):
        plan = make_plan("kubeml", workers=1, batches=16, options={"k": k})
        replicas = one_process(plan)
        replicas.train_epoch()
        learnt[k] = digest(replicas.parameters())
    assert learnt[1] != learnt[8] != learnt[ALL]
    assert learnt[100] == learnt[ALL], "a period that is longer than the epoch is the epoch"


def test_one_merge_an_epoch_averages_what_functions_have_trained_alone(make_plan: MakePlan) -> None:
    plan = make_plan("kubeml", workers=2, batches=8)
    replicas = one_process(plan)
    replicas.train_epoch()
    samples, models_ = Samples(plan), [models.build("lenet", plan.seed) for _ in range(2)]
    order = samples.indices(0).reshape(2, 8, 16)
    for rank, model in enumerate(models_):
        sgd = torch.optim.SGD(model.parameters(), lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay)
        for step in range(8):
            images, targets = samples.prepare(order[rank, step], 0, rank, step)
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(model(images), targets).backward()  # type: ignore[no-untyped-call]
            sgd.step()
    expected = (parameters_of(models_[0]) + parameters_of(models_[1])) / 2
    assert torch.equal(replicas.parameters(), expected)


def test_a_real_run_equals_one_in_memory_and_is_generated_again(run: Run, runs: Path) -> None:
    """Request by request, of functions and of the job; and larger."""
    variables = {"SLSLAB_RUNS": str(runs), "CUDA_VISIBLE_DEVICES": ""}
    with forked_environments():
        # Forks hold what every environment has imported.
        options = ("--k", "8", "--queue", "embedded", "--job-memory", "1024", "--json")
        document = slslab("run", "kubeml", *ARGUMENTS, *options, variables=variables).document
    assert document["report"]["error"] is None
    again = run({"k": 8}, workers=2, **SMALL)
    for same in ("parameters_sha256", "loss", "accuracy", "counts", "bytes", "invocations"):
        assert document[same] == again[same]
    recorded = read_measured(runs / document["run"])

    def requests(program: Any) -> Counter[tuple[str, int, str, str]]:
        found = Counter[tuple[str, int, str, str]]()
        for track in program.tracks:
            for step in track.flat_steps():
                if step.requests and step.op.partition(".")[0] in ("tensor", "object"):
                    found[track.name, track.worker, step.op, step.phase] += step.requests
        return found

    generated, program = requests(generate(recorded.costs, 2, 16, 2)), requests(recorded.program)
    # How many test documents a function has is known as a mean.
    assert {key: n for key, n in generated.items() if key[2:] != ("object.get", "other")} == {
        key: n for key, n in program.items() if key[2:] != ("object.get", "other")
    }
    done = slslab("replay", document["run"], "--workers", "4,16", "--json", variables=variables)
    assert done.code == 0


def test_the_scheduler_changes_how_many_functions_train(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more in each epoch, if none is ever too slow: 1, 2 and 3 functions share the same documents."""
    monkeypatch.setattr("slslab_workers.kubeml.driver.NO_SLOWER", float("inf"))
    document = run({"parallelism": "throughput"}, workers=1, epochs=3, **SHAPE)
    assert document["invocations"] == 2 * (1 + 2 + 3) + 2
    assert document["counts"]["tensor.get"] == 3 * (1 + 2 + 3) * TENSORS
    assert document["replicas_equal"] is True
    with pytest.raises(PlanError) as refused:
        architecture.pattern(Workload(4, 16, 3, LENET, document["plan"]["options"]))
    assert "replay a run with --parallelism static" in refused.value.hint
    with pytest.raises(PlanError, match="depends on how long epochs take"):
        architecture.replicas().check(Plan.from_document(document["plan"]))


def test_a_function_that_fails_is_left_out_and_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = KubeMLDeployment._event

    def unknown_task(self: KubeMLDeployment, task: str, epoch: int, function: int, functions: int) -> dict[str, Any]:
        wrong = task == "train" and epoch == 0 and function == 1
        return made(self, "nonsense" if wrong else task, epoch, function, functions)

    monkeypatch.setattr(KubeMLDeployment, "_event", unknown_task)
    document = run({"k": 8}, workers=2, **SMALL)
    assert document["status"] == "done"
    [failed] = document["details"]["failed_functions"]
    assert (failed["epoch"], failed["function"]) == (0, 1)
    assert "KeyError" in failed["error"]
    console = Console(width=120, file=io.StringIO())
    console.print(render(full(document)))
    assert "Failed functions" in console.file.getvalue()  # type: ignore[attr-defined]
    # In the first epoch it takes part in no round.
    assert document["counts"]["tensor.set"] == ((2 + 2) + (4 + 2) + 1) * TENSORS


def test_if_all_functions_fail_so_does_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = KubeMLDeployment._event
    monkeypatch.setattr(
        KubeMLDeployment,
        "_event",
        lambda self, task, *place: made(self, "nonsense" if task == "train" else task, *place),
    )
    document = run({}, workers=2, **SMALL)
    assert document["status"] == "failed"
    assert (document["error"]["type"], document["error"]["worker"]) == ("KeyError", 0)


def test_a_goal_accuracy_ends_training(run: Run) -> None:
    document = run({}, workers=2, until_accuracy=0.05, **SMALL)
    assert (document["epochs_trained"], len(document["accuracy"])) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "per-batch"}, "invokes its functions once an epoch"),
        ({"invoke": "event"}, "invokes its functions once an epoch"),
        ({"early_stopping": True}, "holds no samples out"),
        ({"options": {"k": 0}}, "k is 0"),
        ({"options": {"k": -2}}, "k is -2"),
        ({"workers": 5, "batches": 1}, "5 functions but only 2 documents of 64 samples"),
    ],
)
def test_what_kubeml_cannot_do_is_refused(changes: dict[str, Any], message: str, make_plan: MakePlan) -> None:
    with pytest.raises(PlanError, match=message):
        architecture.requirements(make_plan("kubeml", **changes))


def test_the_most_functions_there_may_be_must_fit_into_the_host(make_plan: MakePlan) -> None:
    plan = make_plan("kubeml", workers=2, batches=16, epochs=3, options={"parallelism": "throughput"})
    assert epoch_of(plan, 2).documents == 8
    [phase] = architecture.resident_set(plan)
    assert phase.environments == 4
