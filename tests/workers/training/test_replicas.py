"""All workers in one process: against loops written out here, checkpoints, filters, endings, and what is refused.

That the distributed architectures give the same bits is tested where they run (tests/workers/architectures).
"""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from slslab_lab.runs.planning import architectures
from slslab_workers.plan import Plan, PlanError
from slslab_workers.spirt.model_buffers import read_buffers
from slslab_workers.training import datasets, gradients
from slslab_workers.training.devices import choose_device
from slslab_workers.training.replicas import Replicas
from slslab_workers.training.samples import Samples
from slslab_workers.training.state import WorkerState

LENET: dict[str, Any] = {"model": "lenet", "dataset": "digits", "batch_size": 8, "batches": 2, "memory_mb": 1024}
MOBILENET: dict[str, Any] = {**LENET, "model": "mobilenet", "dataset": "synthetic", "batch_size": 4}


def make_plan(architecture: str, **changes: Any) -> Plan:
    values = {"run": "run", "architecture": architecture, "workers": 3, **LENET, **changes}
    return Plan(**{**values, "options": architectures()[architecture].complete(values.get("options", {}))})


def make_replicas(plan: Plan) -> Replicas:
    kind = architectures()[plan.architecture].replicas()
    assert kind is not None
    replicas: Replicas = kind(plan, Samples(plan))
    return replicas


def backward(state: WorkerState, samples: Samples, epoch: int, rank: int, step: int) -> torch.Tensor:
    """A gradient (P,) by autograd alone."""
    chosen = samples.indices(epoch)[rank, step]
    inputs, targets = datasets.prepare(
        samples.images[chosen], samples.labels[chosen], samples.dataset.policy, samples.plan.seed, epoch, rank, step
    )
    state.model.zero_grad()
    torch.nn.functional.cross_entropy(state.model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    return torch.cat(
        [parameter.grad.reshape(-1) for parameter in state.model.parameters() if parameter.grad is not None]
    )


@pytest.mark.parametrize("shape", [LENET, MOBILENET], ids=["lenet", "mobilenet"])
def test_a_shared_model_is_as_good_as_one_each(shape: dict[str, Any]) -> None:
    """Three complete replicas, each with its own BatchNorm statistics, averaged in rank order."""
    plan = make_plan("allreduce", **shape)
    replicas, samples = make_replicas(plan), Samples(plan)
    states = [WorkerState.fresh(plan, rank) for rank in range(3)]
    for step in range(plan.batches):
        replicas.advance()
        parts = [backward(state, samples, 0, rank, step) for rank, state in enumerate(states)]
        mean = (parts[0] + parts[1] + parts[2]) / 3
        for state in states:
            gradients.set_gradient(state.model, mean.clone())
            state.optimiser.step()
    for rank, state in enumerate(states):
        assert torch.equal(replicas.parameters(rank), gradients.flatten(state.model.parameters()))
        for one, two in zip(replicas.turn_to(rank).buffers(), state.model.buffers(), strict=True):
            assert torch.equal(one, two)
    if shape is MOBILENET:
        assert len({gradients.sha256(read_buffers(replicas.turn_to(rank))) for rank in range(3)}) == 3


def test_spirt_takes_one_step_an_epoch_with_the_mean_of_means() -> None:
    """Of b gradients at the same parameters and then of n averages; plain SGD."""
    plan = make_plan("spirt", workers=2, epochs=2)
    replicas, samples = make_replicas(plan), Samples(plan)
    state = WorkerState.fresh(plan, 0)
    for epoch in range(2):
        told = replicas.train_epoch()
        averages = [sum(backward(state, samples, epoch, rank, step) for step in range(2)) / 2 for rank in range(2)]
        expected = gradients.flatten(state.model.parameters()) - plan.lr * (averages[0] + averages[1]) / 2
        gradients.write_parameters(state.model, expected)
        torch.testing.assert_close(replicas.parameters(), expected, rtol=0, atol=1e-7)
        assert (told.updates, told.minibatches, told.sent) == (epoch + 1, 4, None)


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("allreduce", {}),
        ("scatterreduce", {**MOBILENET, "workers": 2, "batches": 1}),
        ("gpu", {"options": {"replicas": "unseeded", "partition": "overlapping"}}),
        ("mlless", {"options": {"threshold": 0.2}}),
        ("mlless", {"options": {"filter": "coordinate", "optimiser": "adam"}}),
        ("spirt", {**MOBILENET, "workers": 2, "batches": 1, "options": {"update-rule": "sgd-momentum", "join": "1:1"}}),
    ],
)
def test_a_checkpoint_goes_on_bit_for_bit(architecture: str, changes: dict[str, Any]) -> None:
    """Model, moments, buffers and residuals; into replicas that were something else."""
    plan = make_plan(architecture, epochs=3, **changes)
    replicas, resumed = make_replicas(plan), make_replicas(plan)
    replicas.train_epoch()
    for state in resumed.states:
        gradients.write_parameters(state.model, replicas.parameters() + 1.0)
    resumed.restore(iter([bytearray(body) for body in replicas.to_bytes()]))
    one, two = replicas.train_epoch(), resumed.train_epoch()
    assert (one.loss, one.updates, one.sent) == (two.loss, two.updates, two.sent)
    assert replicas.judge() == resumed.judge()
    assert list(replicas.to_bytes()) == list(resumed.to_bytes())


@pytest.mark.parametrize(
    ("options", "sent", "updates"),
    [
        ({"threshold": 0.0}, 6, 2),
        ({"filter": "coordinate", "threshold": 0.0}, 6, 2),
        ({"threshold": math.inf}, 0, 0),
        ({"filter": "coordinate", "threshold": math.inf}, 0, 0),
        ({"filter": "none"}, 6, 2),
    ],
)
def test_significant_updates_are_counted(options: dict[str, Any], sent: int, updates: int) -> None:
    """Three workers, two steps."""
    replicas = make_replicas(make_plan("mlless", options=options))
    told = replicas.train_epoch()
    assert (told.sent, told.updates, told.minibatches) == (sent, updates, 6)


@pytest.mark.parametrize("mean_over", ["workers", "senders"])
def test_the_sum_of_significant_updates_is_divided_by_all_workers_or_by_who_sent(mean_over: str) -> None:
    """Three workers, plain SGD: a residual a worker, sent when the norms' ratios add up to more than 0.25."""
    options = {"threshold": 0.25, "mean-over": mean_over}
    plan = make_plan("mlless", batches=8, batch_size=2, momentum=0.0, weight_decay=0.0, options=options)
    replicas, samples = make_replicas(plan), Samples(plan)
    told = replicas.train_epoch()
    state = WorkerState.fresh(plan, 0)
    residuals: list[list[torch.Tensor]] = [[], [], []]
    ratios = [0.0, 0.0, 0.0]
    senders = []
    for step in range(8):
        weights = gradients.flatten(state.model.parameters())
        sent = []
        for rank in range(3):
            residuals[rank].append(backward(state, samples, 0, rank, step))
            ratios[rank] += float(sum(residuals[rank]).norm() / weights.norm())  # type: ignore[union-attr]
            if ratios[rank] > 0.25:
                sent.append(sum(residuals[rank]))
                residuals[rank], ratios[rank] = [], 0.0
        senders.append(len(sent))
        if sent:
            aggregate = sum(sent) / (3 if mean_over == "workers" else len(sent))
            gradients.write_parameters(state.model, weights - plan.lr * aggregate)
    assert {1, 2} & set(senders), "in some step only some send"
    assert told.sent == sum(senders)
    torch.testing.assert_close(replicas.parameters(), gradients.flatten(state.model.parameters()), rtol=0, atol=1e-6)


def test_mlless_ends_after_ten_steps_at_or_below_the_threshold() -> None:
    plan = make_plan("mlless", workers=2, batches=4, batch_size=4, epochs=5, options={"end-threshold": 1e9})
    replicas = make_replicas(plan)
    minibatches = []
    while replicas.ended is None:
        minibatches.append(replicas.train_epoch().minibatches)
    assert (minibatches, replicas.ended, replicas.position) == ([8, 8, 4], "loss", 10)


@pytest.mark.parametrize("options", [{"max-time": 1.0}, {"remove-threshold": 15.0, "remove-interval": 20.0}])
def test_what_the_clock_decides_is_refused(options: dict[str, Any]) -> None:
    kind = architectures()["mlless"].replicas()
    assert kind is not None
    with pytest.raises(PlanError, match="would need to time") as refused:
        kind.check(make_plan("mlless", options=options))
    assert "leave out --" in refused.value.hint
    kind.check(make_plan("mlless"))


def test_every_minibatch_is_heard_of() -> None:
    heard: list[None] = []
    plan = make_plan("allreduce")
    Replicas(plan, Samples(plan), on_minibatch=lambda: heard.append(None)).train_epoch()
    assert len(heard) == 3 * 2


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")


@pytest.mark.parametrize(
    ("device", "memory_format"), [("cpu", "channels-last"), pytest.param("cuda", "default", marks=CUDA)]
)
@pytest.mark.parametrize("architecture", ["allreduce", "mlless", "spirt"])
def test_other_devices_and_formats_compute_the_same(architecture: str, device: str, memory_format: str) -> None:
    """Up to the order of sums; and a checkpoint continues there, too.

    After one step: its minibatches of four make BatchNorm so sensitive that a second step's parameters differ by a
    hundredth between two orders of sums on the CPU, and as much from those in float64.
    """
    plan = make_plan(architecture, **{**MOBILENET, "batches": 1}, epochs=2)
    other = replace(plan, memory_format=memory_format)
    kind = architectures()[architecture].replicas()
    assert kind is not None
    on_cpu, there = kind(plan, Samples(plan)), kind(other, Samples(other), choose_device(device))
    on_cpu.train_epoch()
    there.train_epoch()
    expected = on_cpu.parameters()
    # TF32, with factors of 10 bits, is off by 3e-3.
    assert float((there.parameters() - expected).norm() / expected.norm()) < 1e-3
    resumed = kind(other, Samples(other), device)
    resumed.restore(iter([bytearray(body) for body in there.to_bytes()]))
    assert list(resumed.to_bytes()) == list(there.to_bytes())
