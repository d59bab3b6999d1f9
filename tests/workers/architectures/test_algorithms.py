"""LambdaML's algorithms over both patterns: bits, counts, and the equalities that hold by their definition."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.choices import chosen

from slslab_lab.runs.planning import architectures
from slslab_workers.models import spec
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import gradients

Train = Callable[..., Any]
MakePlan = Callable[..., Plan]
Reference = Callable[[Plan], tuple[list[str], torch.Tensor]]
PATTERNS = ("allreduce", "scatterreduce")
ROWS: dict[str, Any] = {"model": "lr-30", "dataset": "breast-cancer", "batch_size": 8, "batches": 3, "lr": 0.1}


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("workers", chosen([1, 2, 4, 8], 2, 8))
@pytest.mark.parametrize(
    ("algorithm", "passes", "length"), [("ga", 1, 62), ("ma", 1, 62), ("ma", 2, 62), ("admm", 1, 122), ("admm", 2, 122)]
)
def test_bits_and_counts(
    name: str, workers: int, algorithm: str, passes: int, length: int, train: Train, make_plan: MakePlan,
    reference: Reference,
) -> None:  # fmt: skip
    """Every step of rank 0 equals one process; requests and bytes equal the closed form of one round, times rounds."""
    options: dict[str, Any] = {"algorithm": algorithm, "local-passes": passes}
    plan = make_plan(name, workers=workers, epochs=4, options=options, **ROWS)
    trained = train(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    assert len({result["parameters_sha256"] for result in trained.results}) == 1
    assert len(set(trained.fingerprints[0])) == len(trained.fingerprints[0])
    counts = architectures()[name].counts(workers, 3, 4, 62, options)
    assert trained.protocol() == (dict(counts.operations), counts.bytes_in, counts.bytes_out)
    rounds = 4 * 3 if algorithm == "ga" else 4 // passes
    puts, gets = {
        "allreduce": (workers + 1, 2 * workers - 1),
        "scatterreduce": (workers**2, 2 * workers * (workers - 1)),
    }[name]
    assert counts.operations["object.put"] == rounds * puts
    assert counts.operations.get("object.get", 0) == rounds * gets
    moved = {"allreduce": (workers + 1, 2 * workers - 1), "scatterreduce": (workers, 2 * (workers - 1))}[name]
    assert (counts.bytes_in, counts.bytes_out) == tuple(rounds * 4 * length * times for times in moved)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("svm-47236", {"algorithm": "ga"}),
        ("lr-47236", {"algorithm": "admm"}),
        ("kmeans-3x47236", {"algorithm": "em", "clusters": 3}),
    ],
)
def test_sparse_rows_are_trained_on(
    name: str, model: str, options: dict[str, Any], train: Train, make_plan: MakePlan, reference: Reference
) -> None:
    values = {"model": model, "dataset": "rcv1-shaped", "batch_size": 8, "batches": 2}
    plan = make_plan(name, workers=2, epochs=2, options=options, **values)
    trained = train(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    assert len({result["parameters_sha256"] for result in trained.results}) == 1


@pytest.mark.parametrize("name", PATTERNS)
def test_admm_without_penalty_and_norm_is_model_averaging(
    name: str, train: Train, make_plan: MakePlan
) -> None:  # fmt: skip
    ma = train(make_plan(name, workers=3, epochs=3, options={"algorithm": "ma"}, **ROWS))
    free = {"algorithm": "admm", "rho": 0.0, "lambda": 0.0}
    admm = train(make_plan(name, workers=3, epochs=3, options=free, **ROWS))
    bound = train(make_plan(name, workers=3, epochs=3, options={"algorithm": "admm"}, **ROWS))
    assert torch.equal(ma.parameters[0], admm.parameters[0])
    assert not torch.equal(ma.parameters[0], bound.parameters[0])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_worker_that_averages_its_model_is_plain_sgd(
    momentum: float, train: Train, make_plan: MakePlan, reference: Reference
) -> None:
    shape = {**ROWS, "momentum": momentum, "workers": 1, "epochs": 2}
    averaged = train(make_plan("allreduce", options={"algorithm": "ma"}, **shape))
    assert averaged.fingerprints[0] == reference(make_plan("allreduce", **shape))[0]


def test_one_local_step_is_gradient_averaging_but_for_rounding(make_plan: MakePlan, reference: Reference) -> None:
    """The mean of n models that made a step with their gradient is the model that made one with the mean: SGD without
    momentum is linear. Sums are rounded otherwise, by some units of the last place in each of 20 steps."""
    shape = {**ROWS, "momentum": 0.0, "workers": 4, "epochs": 20, "batches": 1}
    ma, ga = (
        reference(make_plan("allreduce", options={"algorithm": algorithm}, **shape))[1] for algorithm in ("ma", "ga")
    )
    assert not torch.equal(ma, ga)
    assert float((ma - ga).norm() / ga.norm()) < 20 * 2**-23


def test_admm_is_written_out(make_plan: MakePlan, reference: Reference) -> None:
    """Two workers, two rounds of two steps, SVM: by autograd alone, in float64, with textbook updates."""
    shape = {**ROWS, "model": "svm-30", "batches": 2, "workers": 2, "epochs": 2, "momentum": 0.0, "weight_decay": 0.0}
    rho, weight = 0.5, 0.04
    plan = make_plan("allreduce", options={"algorithm": "admm", "rho": rho, "lambda": weight}, **shape)
    found = reference(plan)[1]

    from slslab_workers.training.replicas import Replicas
    from slslab_workers.training.samples import Samples

    samples = Samples(plan)
    begin = Replicas(plan, samples).parameters().double()
    workers = [begin.clone() for _ in range(2)]
    u, z = [torch.zeros(60).double() for _ in range(2)], torch.zeros(60).double()
    for epoch in range(2):
        for rank in range(2):
            for step in range(2):
                rows, labels = samples.prepare(samples.indices(epoch)[rank, step], epoch, rank, step)
                vector = workers[rank].clone().requires_grad_()
                scores = rows.double() @ vector[:60].view(2, 30).T + vector[60:]
                margin = (scores * (2 * torch.nn.functional.one_hot(labels, 2) - 1)).sum(1)
                loss = (1 - margin).clamp(min=0).mean()
                loss = loss + rho / 2 * (vector[:60] + u[rank] - z).square().sum()
                (slope,) = torch.autograd.grad(loss, vector)
                workers[rank] = workers[rank] - 0.1 * slope
        mean, mean_u = (workers[0] + workers[1]) / 2, (u[0] + u[1]) / 2
        total = mean[:60] + mean_u
        z = total.sign() * (total.abs() - weight / (2 * rho)).clamp(min=0)
        u = [one + mean[:60] - z for one in u]
        workers = [mean.clone() for _ in range(2)]
    assert int((z == 0).sum()) > 0, "the L1 norm makes some weights of the consensus zero"
    torch.testing.assert_close(found.double(), workers[0], rtol=1e-5, atol=1e-6)


EM: dict[str, Any] = {"model": "kmeans-3x30", "dataset": "breast-cancer", "batch_size": 16, "epochs": 4}


def em(**options: Any) -> dict[str, Any]:
    return {"algorithm": "em", "clusters": 3, **options}


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("workers", chosen([1, 2, 4, 8], 2, 8))
@pytest.mark.parametrize(("centroids", "length"), [("weighted", 93), ("equal", 91)])
def test_em_has_the_bits_of_one_process_and_the_closed_form(
    name: str, workers: int, centroids: str, length: int, train: Train, make_plan: MakePlan, reference: Reference
) -> None:
    """Before the rounds, rank 0 puts the first centroids, and the others get them."""
    options = em(centroids=centroids, threshold=0.0)
    plan = make_plan(name, workers=workers, batches=2, options=options, **EM)
    trained = train(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    assert len({result["parameters_sha256"] for result in trained.results}) == 1
    assert {result["updates"] for result in trained.results} == {4}
    counts = architectures()[name].counts(workers, 2, 4, 90, options)
    assert trained.protocol() == (dict(counts.operations), counts.bytes_in, counts.bytes_out)
    n = workers
    puts, gets = {"allreduce": (n + 1, 2 * n - 1), "scatterreduce": (n**2, 2 * n * (n - 1))}[name]
    assert counts.operations["object.put"] == 4 * puts + 1
    assert counts.operations.get("object.get", 0) == 4 * gets + n - 1
    moved_in, moved_out = {"allreduce": (n + 1, 2 * n - 1), "scatterreduce": (n, 2 * (n - 1))}[name]
    assert counts.bytes_in == 4 * 4 * length * moved_in + 360
    assert counts.bytes_out == 4 * 4 * length * moved_out + 360 * (n - 1)


@pytest.mark.parametrize(("workers", "batches"), [(1, 28), (2, 14), (4, 7), (7, 4)])
def test_weighted_em_is_scikit_learns_for_any_number_of_workers(
    workers: int, batches: int, make_plan: MakePlan, reference: Reference
) -> None:
    from sklearn.cluster import KMeans

    from slslab_workers.training.samples import Samples

    shape = {**EM, "workers": workers, "batches": batches, "epochs": 40}
    plan = make_plan("allreduce", options=em(), **shape)
    samples = Samples(plan)
    first = samples.images[samples.indices(0)[0, 0]][:3]
    rows = samples.images[samples.indices(0).ravel()]
    fingerprints, found = reference(plan)
    assert len(fingerprints) < 40 * batches, "it ends when the centroids do not move any more"
    library = KMeans(3, init=first, algorithm="lloyd", n_init=1, tol=0).fit(rows)
    torch.testing.assert_close(found.view(3, 30), torch.from_numpy(library.cluster_centers_), rtol=1e-4, atol=1e-5)


def test_centroids_that_count_equally_are_not_those_of_all_rows(make_plan: MakePlan, reference: Reference) -> None:
    weighted, equal = (
        reference(make_plan("allreduce", workers=4, batches=7, options=em(centroids=kind), **EM))[1]
        for kind in ("weighted", "equal")
    )
    assert float((weighted - equal).norm()) > 0.01


def test_an_empty_cluster_stays_or_becomes_zero(make_plan: MakePlan) -> None:
    from slslab_workers.training.local import EM as Algorithm
    from slslab_workers.training.state import WorkerState

    for centroids, expected in (("weighted", 5.0), ("equal", 0.0)):
        plan = make_plan("allreduce", options=em(centroids=centroids), **EM)
        algorithm, state = Algorithm(plan), WorkerState.fresh(plan, 0)
        gradients.write_parameters(state.model, torch.tensor([0.0] * 30 + [1.0] * 30 + [5.0] * 30))
        loss, found = algorithm.compute(state.model, torch.tensor([[0.0] * 30, [2.0] * 30]), torch.zeros(2))
        assert loss == pytest.approx(15.0)
        algorithm.correct(state, found)
        algorithm.receive(state, algorithm.message(state))
        moved = gradients.flatten(state.model.parameters()).view(3, 30)[:, 0]
        assert moved.tolist() == [0.0, 2.0, expected]


def test_em_ends_when_the_centroids_rest(train: Train, make_plan: MakePlan) -> None:
    trained = train(make_plan("scatterreduce", workers=2, batches=2, options=em(threshold=10.0), **EM))
    assert {(result["ended"], result["position"]) for result in trained.results} == {("converged", 2)}


@pytest.mark.parametrize("algorithm", ["ga", "ma", "admm"])
def test_losses_of_epochs_are_those_of_one_process(algorithm: str, train: Train, make_plan: MakePlan) -> None:
    from slslab_workers.training.evaluation import mean_losses
    from slslab_workers.training.replicas import Replicas
    from slslab_workers.training.samples import Samples

    plan = make_plan("allreduce", workers=4, epochs=3, options={"algorithm": algorithm}, **ROWS)
    replicas = Replicas(plan, Samples(plan))
    found = tuple(replicas.train_epoch().loss for _ in range(3))
    assert mean_losses(train(plan).results, range(0, 9, 3)) == found


def asynchronous(algorithm: str = "ga") -> dict[str, Any]:
    return {"algorithm": algorithm, "synchronisation": "s-asp"}


@pytest.mark.parametrize("workers", chosen([1, 2, 4, 8], 2, 8))
@pytest.mark.parametrize(("algorithm", "rounds"), [("ga", 6), ("ma", 2)])
def test_s_asp_waits_for_nobody_and_has_the_closed_form(
    workers: int, algorithm: str, rounds: int, train: Train, make_plan: MakePlan
) -> None:
    """Every worker gets and puts a model in each round. One is far behind, and the others have ended by then."""
    plan = make_plan("allreduce", workers=workers, epochs=2, options=asynchronous(algorithm), **ROWS)
    last, positions = workers - 1, [0] * workers

    def dawdle(rank: int, position: int) -> None:
        positions[rank] = position
        if workers > 1 and rank == last and position == 1:
            time.sleep(60)
            assert positions[0] == 5, "rank 0 doesn't wait"

    trained = train(plan, dawdle)
    counts = architectures()["allreduce"].counts(workers, 3, 2, 62, asynchronous(algorithm))
    assert trained.protocol() == (dict(counts.operations), counts.bytes_in, counts.bytes_out)
    assert dict(counts.operations) == {"object.put": workers * rounds, "object.get": workers * rounds}
    assert counts.bytes_in == counts.bytes_out == workers * rounds * 248
    assert [key.rpartition("/")[2] for key in trained.keys] == ["global"]


def test_s_asp_goes_on_with_what_was_there(train: Train, make_plan: MakePlan) -> None:
    """Alone a worker gets its own first model, and then always the one before the last, as in LambdaML's code."""
    from slslab_workers.training.samples import Samples
    from slslab_workers.training.state import WorkerState
    from slslab_workers.training.step import compute_gradient

    plan = make_plan("allreduce", workers=1, epochs=1, options=asynchronous(), **{**ROWS, "momentum": 0.0})
    trained = train(plan)
    state, samples, before = WorkerState.fresh(plan, 0), Samples(plan), None
    for step in range(3):
        inputs, targets = samples.prepare(samples.indices(0)[0, step], 0, 0, step)
        state.update(compute_gradient(state.model, inputs, targets)[1])
        put = gradients.flatten(state.model.parameters())
        gradients.write_parameters(state.model, put if before is None else before)
        assert trained.fingerprints[0][step] == gradients.sha256(gradients.flatten(state.model.parameters()))
        before = put


def test_a_penalty_that_is_not_squared_pulls_with_constant_force(make_plan: MakePlan) -> None:
    from slslab_workers.training.local import ADMM
    from slslab_workers.training.state import WorkerState

    plan = make_plan("allreduce", options={"algorithm": "admm", "admm-penalty": "norm", "rho": 0.5}, **ROWS)
    admm, state = ADMM(plan), WorkerState.fresh(plan, 0)
    pulled = admm.correct(state, torch.zeros(62))
    assert float(pulled.norm()) == pytest.approx(0.25)
    weights = gradients.flatten(state.model.parameters())[:60]
    torch.testing.assert_close(pulled[:60], 0.25 * weights / weights.norm())
    assert torch.equal(pulled[60:], torch.zeros(2))
    state.memory["z"] = weights
    assert torch.equal(admm.correct(state, torch.zeros(62)), torch.zeros(62))


@pytest.mark.parametrize("algorithm", ["ma", "admm", "em"])
def test_invocations_of_a_step_have_the_same_bits(
    algorithm: str, train: Train, make_plan: MakePlan, reference: Reference
) -> None:
    """What is local, the optimiser's momentum and ADMM's z and u, is handed over between them."""
    shape = {**EM, "batches": 3} if algorithm == "em" else ROWS
    options = em(threshold=0.0) if algorithm == "em" else {"algorithm": algorithm}
    plan = make_plan("allreduce", workers=2, mode="per-batch", options=options, **{**shape, "epochs": 2})
    assert train(plan).fingerprints[0] == reference(plan)[0]


def test_networks_average_their_parameters_and_keep_their_buffers(
    train: Train, make_plan: MakePlan, reference: Reference
) -> None:
    plan = make_plan(
        "scatterreduce", model="mobilenet", dataset="synthetic", workers=2, batch_size=4, epochs=1,
        options={"algorithm": "ma"},
    )  # fmt: skip
    trained = train(plan)
    expected = reference(plan)[1]
    assert float((trained.parameters[0] - expected).norm() / expected.norm()) <= 1e-6
    assert torch.equal(trained.parameters[0], trained.parameters[1])


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({}, {"algorithm": "admm"}, "lenet is a neural network"),
        (ROWS, {"rho": 0.1}, "--rho does not apply to --algorithm ga"),
        (ROWS, {"algorithm": "ma", "admm-penalty": "norm"}, "--admm-penalty does not apply to --algorithm ma"),
        (ROWS, {"local-passes": 2}, "--local-passes does not apply to --algorithm ga"),
        ({**ROWS, "epochs": 3}, {"algorithm": "ma", "local-passes": 2}, "the last of 3 epochs does not end"),
        (ROWS, {"algorithm": "ma", "local-passes": 0}, "With --local-passes 0"),
        (ROWS, {"algorithm": "ma", "combine": "sum"}, "rules and the log traffic of gradients"),
        (ROWS, {"algorithm": "ma", "log-traffic": True}, "the log traffic"),
        (ROWS, {"algorithm": "admm", "rho": 0.0}, "With --rho 0 and --lambda 0.01"),
        (ROWS, {"algorithm": "admm", "rho": -1.0}, "With --rho -1"),
        (ROWS, {"algorithm": "em"}, "--algorithm em does not train lr-30"),
        (EM, {}, "--algorithm ga does not train kmeans-3x30"),
        (EM, em(clusters=4), "has 3 clusters, and --clusters is 4"),
        ({**EM, "batch_size": 2}, em(), "The first of 3 centroids are rows of one minibatch, and it has 2"),
        (EM, em(**{"local-passes": 2}), "--local-passes does not apply to --algorithm em"),
        (ROWS, {"synchronisation": "s-asp", "combine": "sum"}, "rules and the log traffic of gradients"),
        (ROWS, {"synchronisation": "s-asp", "algorithm": "admm"}, "s-asp waits for none"),
        (EM, em(synchronisation="s-asp"), "s-asp waits for none"),
    ],
)
@pytest.mark.parametrize("name", PATTERNS)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    name: str, changes: dict[str, Any], options: dict[str, Any], said: str, make_plan: MakePlan
) -> None:
    plan = make_plan(name, options=options, **changes)
    with pytest.raises(PlanError) as caught:
        architectures()[name].requirements(plan)
    whole = name == "scatterreduce" and "synchronisation" in options
    assert ("S-ASP has one global model" if whole else said) in caught.value.message
    assert spec(plan.model)


def test_what_s_asp_learns_is_not_said_by_one_process(make_plan: MakePlan) -> None:
    replicas = architectures()["allreduce"].replicas()
    assert replicas is not None
    with pytest.raises(PlanError, match="depends on which worker is faster"):
        replicas.check(make_plan("allreduce", options=asynchronous(), **ROWS))
