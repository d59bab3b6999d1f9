"""Batch normalisation's buffers: each worker's own, the mean of all, or rank 0's; and uneven partitions with them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.workers.architectures.conftest import InMemory, one_process

from slslab.report.page import Note
from slslab.report.run import brief, full
from slslab_lab.runs.planning import architectures, make_plan
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import gradients

# Of eight means, eight variances and a counter.
BUFFERS, PARAMETERS = 17, 64 * 8 + 8 + 8 + 8 + 8 * 10 + 10
SMALL: dict[str, Any] = {"dataset": f"{__name__}:digits", "workers": 3, "batches": 2, "batch_size": 16, "epochs": 2}
EXCHANGING = ("allreduce", "scatterreduce", "gloo", "gpu")
MA = {"algorithm": "ma"}


def net(shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
    """A small network with batch normalisation."""
    return torch.nn.Sequential(
        torch.nn.Linear(shape[0], 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, outputs)
    )


def digits() -> tuple[Any, Any]:
    """Small pictures of digits as rows (1797, 64)."""
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)  # type: ignore[no-any-return]


def plan_of(name: str, options: dict[str, Any], **values: Any) -> Plan:
    plan = make_plan(architectures()[name], {"model": f"{__name__}:net", **SMALL, **values}, options)
    # Buckets have shorter names than this model.
    return replace(plan, run="buffers")


@pytest.mark.parametrize("mode", ["local", "averaged", "broadcast"])
@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in EXCHANGING), ("allreduce", MA), ("scatterreduce", MA)]
)
def test_workers_have_the_bits_of_one_process_and_count_the_buffers(
    name: str, options: dict[str, Any], mode: str, train: Callable[..., Any], reference: Callable[[Plan], Any]
) -> None:
    plan = plan_of(name, {**options, "buffers": mode, "partition": "labels:4"})
    trained = train(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    different = len({result["buffers_sha256"] for result in trained.results})
    assert different == (3 if mode == "local" else 1)
    length = PARAMETERS + (0 if mode == "local" else BUFFERS)
    expected = architectures()[name].counts(3, 2, 2, length, plan.options)
    assert expected == architectures()[name].counts_of(plan, 2, PARAMETERS)
    counted, bytes_in, bytes_out = trained.protocol()
    assert counted == {operation: number for operation, number in expected.operations.items() if number}
    assert (bytes_in, bytes_out) == (expected.bytes_in, expected.bytes_out)


@pytest.mark.parametrize("mode", ["local", "averaged"])
def test_clients_of_gradssharding_average_them_in_slices(
    mode: str, in_memory: InMemory, reference: Callable[[Plan], Any]
) -> None:
    options = {"buffers": mode, "partition": "labels:4"}
    document: Any = in_memory("gradssharding", options, model=f"{__name__}:net", **SMALL).recorded.document
    assert document["parameters_sha256"] == reference(plan_of("gradssharding", options))[0][-1]
    assert document["details"]["buffers_equal"] is (mode == "averaged")
    assert [sum(count > 0 for count in own) for own in document["details"]["shares"]] == [4, 4, 4]
    counts = architectures()["gradssharding"].counts(3, 2, 2, PARAMETERS + BUFFERS * (mode == "averaged"))
    assert document["bytes"] == {"in": counts.bytes_in, "out": counts.bytes_out}
    for shown in (brief, full):
        notes = [part.text for part in shown(document) if isinstance(part, Note)]
        assert any("the evaluated model has rank 0's" in note for note in notes) is (mode == "local")


@pytest.mark.parametrize("mode", ["averaged", "broadcast"])
@pytest.mark.parametrize("combine", ["mean", "sum"])
def test_after_a_step_they_are_the_mean_or_rank_0s(mode: str, combine: str) -> None:
    """Of what three workers alone find in their first minibatches; all count one minibatch."""
    alone = one_process(plan_of("allreduce", {"partition": "labels:4"}))
    alone.advance()
    own = [[buffer.clone() for buffer in alone.turn_to(rank).buffers()] for rank in range(3)]
    replicas = one_process(plan_of("allreduce", {"buffers": mode, "combine": combine, "partition": "labels:4"}))
    replicas.advance()
    for rank in range(3):
        mean, variance, counted = replicas.turn_to(rank).buffers()
        assert int(counted) == 1
        for found, (a, b, c) in ((mean, (each[0] for each in own)), (variance, (each[1] for each in own))):
            assert torch.equal(found, (a + b + c) / 3 if mode == "averaged" else a)
            assert not torch.equal(b, a)
    assert torch.equal(replicas.parameters(), alone.parameters()) is (combine == "mean"), "gradients are as before"


def test_an_accuracy_differs_only_by_the_buffers() -> None:
    """Each worker's mean is its own classes': rank 0's buffers judge worse than the mean of all."""
    judged = {}
    for mode in ("local", "averaged"):
        replicas = one_process(plan_of("allreduce", {"buffers": mode, "partition": "labels:4"}, epochs=8, lr=0.1))
        for _ in range(8):
            replicas.train_epoch()
        judged[mode] = replicas.judge().loss, gradients.sha256(replicas.parameters())
    assert judged["averaged"][0] < judged["local"][0]
    assert judged["averaged"][1] == judged["local"][1], "in training each minibatch has its own statistics"


@pytest.mark.parametrize(
    ("name", "options", "values", "said"),
    [
        ("allreduce", {}, {"model": "lr"}, "lr-64 has no buffers"),
        ("allreduce", {"synchronisation": "s-asp"}, {}, "S-ASP"),
        ("allreduce", {"combine": "median"}, {}, "rules against them are for gradients"),
        ("gpu", {"attack": "sign-flip:1"}, {}, "are for gradients"),
        ("spirt", {}, {}, "spirt has no option 'buffers'"),
    ],
)
def test_what_is_refused(name: str, options: dict[str, Any], values: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        plan_of(name, {**options, "buffers": "averaged"}, **values)


def test_gradssharding_refuses_what_it_cannot_train() -> None:
    architecture = architectures()["gradssharding"]
    with pytest.raises(PlanError, match="cannot be 'broadcast'"):
        plan_of("gradssharding", {"buffers": "broadcast"})
    lifl = {"topology": "lifl", "buffers": "averaged"}
    with pytest.raises(PlanError, match="LIFL's unweighted averages aren't the mean") as refused:
        architecture.requirements(plan_of("gradssharding", lifl | {"averaging": "unweighted"}))
    assert refused.value.hint == "choose --averaging weighted, or --buffers local."
    for options in (lifl, {"averaging": "unweighted", "buffers": "averaged"}):
        architecture.requirements(plan_of("gradssharding", options))
    for option in ({"buffers": "averaged"}, {"partition": "kept"}):
        with pytest.raises(PlanError, match=f"so --{next(iter(option))} doesn't apply"):
            architecture.requirements(plan_of("gradssharding", {"gradients": "uploaded", **option}))
