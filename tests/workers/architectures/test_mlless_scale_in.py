"""MLLess with the scale-in auto-tuner: which workers leave, what the others take over, and where they continue."""

import io
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from rich.console import Console
from tests import commands
from tests.memory.training import hurry
from tests.workers.architectures.test_mlless_drivers import Driven, aws, drive, slslab, supervise_briefly, supervised
from tests.workers.mlless.closed_form import counts, removal_counts

from slslab.report.run import full
from slslab.report.terminal import render
from slslab_lab.runs.planning import architectures
from slslab_workers.architecture import RunFailed
from slslab_workers.channels import endpoints
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects
from slslab_workers.mlless.driver import MLLessDeployment
from slslab_workers.mlless.filters import make_filter
from slslab_workers.mlless.handlers import MLLessWorker
from slslab_workers.mlless.tuner import Decision, Tuner
from slslab_workers.models import spec
from slslab_workers.plan import Assignment, Plan, PlanError, thread_count
from slslab_workers.training import aggregation, datasets, gradients
from slslab_workers.training.state import WorkerState

__all__ = ["aws", "drive"]

P = 61_706
TUNED = {"filter": "none", "remove-threshold": 15.0, "remove-interval": 20.0}
Removals = list[tuple[int, int]]
Script = Callable[..., None]
Make = Callable[..., Plan]


@pytest.fixture
def make(make_plan: Make) -> Make:
    """A small plan with the tuner."""

    def plan(options: Mapping[str, Any] | None = None, **changes: Any) -> Plan:
        return make_plan("mlless", **changes, options={**TUNED, **(options or {})})

    return plan


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Have the tuner remove somebody after each of these steps, whatever the clock and the losses are."""

    def at(*steps: int) -> None:
        def decide(self: Tuner, step: int) -> Decision | None:
            return Decision(step, self.workers, True, 0, 1.0) if step in steps else None

        monkeypatch.setattr(Tuner, "decide", decide)

    return at


def lagging(removals: Removals) -> Callable[[int, int], None]:
    """Has these ranks report last in these steps, so that it is they who leave."""
    last = dict(removals)

    def delay(rank: int, position: int) -> None:
        if last.get(position) == rank:
            time.sleep(0.3)

    return delay


def reference(plan: Plan, removals: Removals) -> tuple[dict[int, list[str]], dict[int, list[float]], list[int]]:
    """One process that keeps every worker's replica, and counts minibatches and epochs one by one.

    Returns fingerprints after every step and losses, by rank, and the significant updates of every step.
    """
    torch.set_num_threads(thread_count(plan.memory_mb))
    n, b = plan.workers, plan.batches
    dataset = datasets.load(plan.dataset, n * b * plan.batch_size, plan.seed).for_model(spec(plan.model))
    states = {rank: WorkerState.fresh(plan, rank) for rank in range(n)}
    kept = make_filter(plan)
    numbers, epoch, step, position = {rank: rank for rank in range(n)}, 0, 0, 0
    prints: dict[int, list[str]] = {rank: [] for rank in range(n)}
    losses: dict[int, list[float]] = {rank: [] for rank in range(n)}
    sent: list[int] = []
    leaves = dict(removals)
    while epoch < plan.epochs:
        indices = datasets.partition(len(dataset.train_labels), n, b, plan.batch_size, plan.seed, epoch)
        updates = []
        for rank, state in states.items():
            at, slot = divmod(numbers[rank], n)
            images, labels = dataset.train_images[indices[slot, at]], dataset.train_labels[indices[slot, at]]
            inputs, targets = datasets.prepare(images, labels, dataset.policy, plan.seed, epoch, slot, at)
            state.model.zero_grad()
            loss = torch.nn.functional.cross_entropy(state.model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            losses[rank].append(loss.item())
            update = kept.significant(state, gradients.flat_gradient(state.model), position)
            updates += [] if update is None else [kept.decode(update, P)]
        sent.append(len(updates))
        for state in states.values():
            if updates:
                # Over those who took part in the step, who may be fewer than at the beginning.
                gradients.set_gradient(state.model, aggregation.sum_in_rank_order(updates).div_(len(states)))
                state.optimiser.step()
        numbers = {rank: (number + len(states)) % (n * b) for rank, number in numbers.items()}
        step += 1
        if step == math.ceil(n * b / len(states)):
            epoch, step = epoch + 1, 0
        models = {rank: gradients.flatten(state.model.parameters()) for rank, state in states.items()}
        left = leaves.get(position)
        if left is not None:
            prints[left].append(gradients.sha256(models[left]))
            del states[left]
        for rank, state in states.items():
            if left is not None:
                gradients.write_parameters(state.model, (models[rank] + models[left]) / 2)
            prints[rank].append(gradients.sha256(gradients.flatten(state.model.parameters())))
        position += 1
    return prints, losses, sent


def total(events: list[dict[str, Any]], *, overhead: bool) -> Counter[str]:
    """Requests of the messages and of the store of updates, by operation."""
    found: Counter[str] = Counter()
    for event in events:
        store = event["op"] in ("tensor.set", "tensor.get") or "/mlless/" in event["resource"]
        if event["overhead"] == overhead and (event["op"].startswith("queue.") or store):
            found[event["op"]] += event["requests"]
    return found


def assert_exact(trained: Any, plan: Plan, removals: Removals, sent: list[int] | None = None) -> None:
    """The protocol's counts and bytes, and what the removals add to the overheads."""
    expected = counts(plan.workers, plan.batches, plan.epochs, P, plan.options, updates=sent, removals=removals)
    operations = {operation: number for operation, number in expected.operations.items() if number}
    assert trained.protocol() == (operations, expected.bytes_in, expected.bytes_out)
    added = removal_counts(plan.workers, len(removals), P, plan.options)
    beside = total(trained.events, overhead=True)
    # Beside the removals there are two messages at the end: F, which nobody waits for, and T, which the client hears.
    for operation, number in added.operations.items():
        messages = {"queue.publish": 2, "queue.deliver": 1}.get(operation, 0)
        assert beside[operation] == number + messages, operation
    models = [event for event in trained.events if "/mlless/model_w" in event["resource"]]
    stored = [event for event in models if event["op"] in ("tensor.set", "object.put")]
    assert sum(event["bytes"] for event in stored) == added.bytes_in
    assert sum(event["bytes"] for event in models) == added.bytes_in + added.bytes_out


CASES = [
    # In the middle of an epoch; after its last step; rank 0; two in a row; until one is left.
    (3, 2, 2, [(1, 2)]),
    (3, 3, 2, [(1, 1)]),
    (2, 2, 3, [(0, 0)]),
    (4, 3, 2, [(0, 3), (1, 1)]),
    (3, 2, 3, [(2, 0), (4, 1)]),
]


@pytest.mark.parametrize(("workers", "batches", "epochs", "removals"), CASES)
@pytest.mark.parametrize("store_name", ["tensordb", "s3"])
def test_survivors_stay_equal_and_follow_one_process(
    store_name: str, workers: int, batches: int, epochs: int, removals: Removals, make: Make, script: Script, train: Any
) -> None:
    plan = make({"store": store_name}, workers=workers, batches=batches, epochs=epochs, batch_size=8)
    script(*(step for step, _ in removals))
    trained = train(plan, lagging(removals))
    prints, losses, _ = reference(plan, removals)
    for rank in range(workers):
        assert trained.fingerprints[rank] == prints[rank]
        assert trained.results[rank]["losses"] == losses[rank]
    gone = {rank for _, rank in removals}
    assert [result["ended"] for result in trained.results] == [
        "removed" if rank in gone else "epochs" for rank in range(workers)
    ]
    assert len({result["parameters_sha256"] for result in trained.results if result["rank"] not in gone}) == 1
    assert [told["tuned"]["removed"] for told in trained.statistics if told["tuned"]] == [rank for _, rank in removals]
    assert_exact(trained, plan, removals)
    stored = [event["resource"].rpartition("/")[2] for event in trained.events if "/model/" in event["resource"]]
    assert stored == [str(epoch) for epoch in range(epochs)], "one model an epoch, stored by any worker that is left"


@pytest.mark.parametrize(("name", "threshold"), [("norm-ratio", 0.4), ("norm-ratio", 0.0), ("norm-ratio", math.inf)])
def test_with_a_filter_what_a_removed_worker_kept_goes_with_it(
    name: str, threshold: float, make: Make, script: Script, train: Any
) -> None:
    removals = [(1, 1), (4, 2)]
    plan = make({"filter": name, "threshold": threshold}, workers=3, batches=3, epochs=3)
    script(1, 4)
    trained = train(plan, lagging(removals))
    prints, _, sent = reference(plan, removals)
    assert [trained.fingerprints[rank] for rank in range(3)] == [prints[rank] for rank in range(3)]
    assert_exact(trained, plan, removals, sent)


def test_with_the_coordinate_filter_survivors_stay_equal(make: Make, script: Script, train: Any) -> None:
    plan = make({"filter": "coordinate", "threshold": 1.0, "store": "s3"}, workers=3, batches=2, epochs=2)
    script(1)
    trained = train(plan, lagging([(1, 0)]))
    prints, _, _ = reference(plan, [(1, 0)])
    assert [trained.fingerprints[rank] for rank in range(3)] == [prints[rank] for rank in range(3)]


def test_models_that_differ_are_averaged(make: Make, script: Script, train: Any) -> None:
    """Equal replicas stay what they are, so only unequal ones show it."""
    plan = make({"replicas": "unseeded"}, workers=3, batches=2, epochs=2)
    script(0)
    trained = train(plan, lagging([(0, 1)]))
    prints, _, _ = reference(plan, [(0, 1)])
    assert [trained.fingerprints[rank] for rank in range(3)] == [prints[rank] for rank in range(3)]
    assert len({trained.fingerprints[rank][0] for rank in range(3)}) == 3


def test_hand_overs_of_workers_and_supervisor_keep_who_is_left(
    train: Any, make: Make, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worker 2 leaves in the step that the others hand over after; the supervisor hands over in the middle of steps."""
    hurry(MLLessWorker, monkeypatch)
    supervise_briefly(monkeypatch)
    removals = [(1, 2), (4, 0)]
    plan = make(workers=3, batches=3, epochs=2)
    script(1, 4)
    trained = train(plan, lagging(removals))
    prints, losses, _ = reference(plan, removals)
    assert [trained.fingerprints[rank] for rank in range(3)] == [prints[rank] for rank in range(3)]
    assert {result["rank"]: result["losses"] for result in trained.results} == losses
    assert [result["ended"] for result in trained.results] == ["removed", "epochs", "removed"]
    assert trained.continued[:3] == [(2, 0), (2, 1), (4, 0)]
    assert supervised(trained) > 2
    assert_exact(trained, plan, removals)


def test_a_worker_that_dies_before_it_leaves_its_model_ends_all(
    make: Make, script: Script, train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_self: MLLessWorker, _position: int, _model: torch.Tensor) -> None:
        raise MemoryError("killed")

    monkeypatch.setattr(MLLessWorker, "_leave", die)
    script(1)
    with pytest.raises(RunFailed, match="killed") as failed:
        train(make(workers=3, epochs=2), lagging([(1, 1)]))
    assert (failed.value.type, failed.value.worker) == ("MemoryError", 1)


def test_what_a_worker_waits_for_in_vain_its_time_out_says(make: Make) -> None:
    plan = make({"store": "s3"}, workers=3)

    class Silent:
        def consume(self, *_arguments: Any, **_options: Any) -> None:
            context.remaining_ms = 0

    class Context:
        remaining_ms = 1000
        aws_request_id = "request"

        def get_remaining_time_in_millis(self) -> int:
            return self.remaining_ms

    context = Context()
    objects = Objects(None, "bucket", Tracer(lambda _event: None))
    assignment = Assignment(plan, "bucket", 0, 0, 2, False)
    worker = MLLessWorker(assignment, context, objects, Silent())  # type: ignore[arg-type]
    with pytest.raises(TimeoutError, match="Step 3 waited for C of the supervisor, D of worker 2 until the function"):
        worker._await(3, {("C", -1), ("D", 2)})


@pytest.mark.parametrize(
    ("options", "workers", "message", "hint"),
    [
        ({"remove-threshold": 15.0}, 2, "remove-threshold is given without remove-interval.", "give both or neither"),
        ({"remove-interval": 20.0}, 2, "remove-interval is given without remove-threshold.", "give both or neither"),
        ({"remove-threshold": -1.0, "remove-interval": 20.0}, 2, "remove-threshold is -1.0.", "it must be 0 or more."),
        ({"remove-threshold": 15.0, "remove-interval": -0.5}, 2, "remove-interval is -0.5.", "it must be 0 or more."),
        (
            {"remove-threshold": math.nan, "remove-interval": 2.0},
            2,
            "remove-threshold is nan.",
            "it must be 0 or more.",
        ),
        ({"remove-threshold": 15.0, "remove-interval": 20.0}, 1, "A single worker can't be removed.", "give --workers"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    options: dict[str, Any], workers: int, message: str, hint: str, make_plan: Make
) -> None:
    with pytest.raises(PlanError) as refused:
        architectures()["mlless"].requirements(make_plan("mlless", workers=workers, options=options))
    assert refused.value.message == message
    assert refused.value.hint.startswith(hint)


def test_the_tuner_needs_steps_that_follow_each_other(make: Make) -> None:
    with pytest.raises(PlanError, match="each begin with an invocation") as refused:
        architectures()["mlless"].requirements(make(mode="per-batch"))
    assert refused.value.hint == "leave out --remove-threshold and --remove-interval."


def test_a_database_is_large_enough_for_the_models_that_are_left(make: Make) -> None:
    architecture = architectures()["mlless"]
    plain = architecture.resident_set(make({"remove-threshold": 1.0}, workers=4, model="resnet18"))[0].beside_mb
    assert plain == 512 + (2 * 4 + 3) * 43
    assert architecture.resident_set(make({"store": "s3"}, workers=4))[0].beside_mb == 512


EAGER = "--filter none --remove-threshold 1e9 --remove-interval 0 --queue embedded"


class KneeAtOnce(MLLessDeployment):
    """The tuner of the first stretch has found a knee and speeds before; its interval is over."""

    def _companions(self, first: int, until: int) -> Any:
        if self._tuner is None and not self._decisions:
            known = Tuner(0.0, 0.0, self.plan.workers).to_document()
            known["knee"] = {"candidate": 1, "looks": 5, "found": 1}
            known["seconds"] = [[self.plan.workers, [1.0] * 10]]
            self._tuner = {**known, "decided": 0.0, "steps": [0, 1, 2], "losses": [3.0, 2.9, 2.8]}
        return super()._companions(first, until)


@pytest.mark.parametrize(
    ("changes", "store_name"),
    [
        ({"until_accuracy": 1.0}, "tensordb"),
        ({"until_accuracy": 1.0, "invoke": "event"}, "s3"),
        pytest.param({"invoke": "event"}, "tensordb", marks=pytest.mark.exhaustive),
    ],
)
def test_the_driver_follows_those_who_are_left(
    changes: dict[str, Any], store_name: str, drive: Driven, make: Make
) -> None:
    """The supervisor's own tuner, in its own functions: the first worker leaves after the first step, others as curves
    allow. The driver's stretches (epochs or everything) continue with the remaining workers."""
    plan = make(
        {"store": store_name, "remove-threshold": 1e9, "remove-interval": 0.0},
        workers=3,
        batches=2,
        epochs=3,
        batch_size=8,
        **changes,
    )
    outcome = drive(plan, KneeAtOnce)
    decisions = outcome.details["scale_in"]
    removals = [(one["step"], one["removed"]) for one in decisions]
    assert removals[0][0] == 0
    assert decisions[0]["r"] is None
    prints, losses, sent = reference(plan, removals)
    (left, *_) = sorted(set(range(3)) - {rank for _, rank in removals})
    assert outcome.parameters_sha256 == prints[left][-1]
    assert outcome.replicas_equal
    assert outcome.updates == len(sent)
    assert outcome.epochs == len(outcome.loss) == len(outcome.accuracy) == 3
    starts = epoch_starts(plan, removals)
    for epoch, mean in enumerate(outcome.loss):
        found = [loss for own in losses.values() for loss in own[starts[epoch] : starts[epoch + 1]]]
        assert mean == pytest.approx(statistics.fmean(found))
    heard = [event for event in drive.events if event["op"] == "queue.deliver" and not event["overhead"]]
    assert len(heard) == len(sent), "the client hears of every step once"


def epoch_starts(plan: Plan, removals: Removals) -> list[int]:
    """Counted step by step; at the end the number of steps."""
    starts, left, step, position = [0], plan.workers, 0, 0
    leaves = dict(removals)
    while len(starts) <= plan.epochs:
        step, position = step + 1, position + 1
        if step == math.ceil(plan.workers * plan.batches / left):
            starts, step = [*starts, position], 0
        left -= position - 1 in leaves
    return starts


class NoDatabase(KneeAtOnce):
    """No worker reaches the database, which none needs before it stores its model: all updates are insignificant."""

    def create(self) -> None:
        super().create()
        variables = {"OMP_WAIT_POLICY": "PASSIVE", endpoints.TENSOR_URLS: "redis://127.0.0.1:1"}
        self._lambda.update_function_configuration(FunctionName=self.function, Environment={"Variables": variables})


@pytest.mark.parametrize("invoke", ["sync", "event"])
def test_whoever_dies_while_it_is_removed_ends_the_run(invoke: str, drive: Driven, make: Make) -> None:
    """Long before the time-out of 900 s, after which the test would have failed."""
    plan = make({"filter": "norm-ratio", "threshold": math.inf}, workers=2, invoke=invoke)
    with pytest.raises(RunFailed) as failed:
        drive(plan, NoDatabase)
    assert failed.value.type == "Unreachable"
    assert failed.value.worker in (0, 1)


def test_a_run_through_the_command_line_scales_in_and_counts_exactly(tmp_path: Any) -> None:
    """With minibatches so small that their losses are noise, the knee is found in the eighth step; some steps later
    there are enough for a curve, which removes the second."""
    arguments = f"--workers 3 --batches 4 --epochs 6 --batch-size 4 --seed 8 {EAGER}"
    with commands.forked_environments():
        code, document = slslab(tmp_path, *arguments.split())
    assert (code, document["error"], document["status"]) == (0, None, "done")
    decisions = document["details"]["scale_in"]
    removals = [(one["step"], one["removed"]) for one in decisions if one["remove"]]
    (first, _), (second, _) = removals
    assert 7 <= first <= second - 4
    assert decisions[0]["r"] is None
    assert decisions[1]["r"] > -1e9
    assert document["replicas_equal"] is True
    expected, added = counts(3, 4, 6, P, removals=removals), removal_counts(3, len(removals), P)
    assert document["counts"] == dict(expected.operations)
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    beside = document["overheads"]["counts"]
    assert (beside["tensor.set"], beside["tensor.get"]) == (
        added.operations["tensor.set"],
        added.operations["tensor.get"],
    )
    assert beside["queue.publish"] == added.operations["queue.publish"] + 2
    assert beside["queue.deliver"] == added.operations["queue.deliver"] + 1
    console = Console(width=120, file=io.StringIO())
    console.print(render(full(document)))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [line.split() for line in shown[shown.index("Scale in") :].splitlines() if line.strip()[:1].isdigit()]
    assert {str(decisions[0]["step"]), str(decisions[0]["knee"])} <= {*rows[0]}
    assert {str(step) for step, _ in removals} <= {row[0] for row in rows}
    plan = Plan.from_document(document["plan"])
    prints, _, sent = reference(plan, removals)
    (left, *_) = sorted(set(range(3)) - {rank for _, rank in removals})
    assert document["parameters_sha256"] == prints[left][-1]
    assert document["updates"] == len(sent)


def test_the_command_line_refuses_half_a_tuner() -> None:
    done = commands.slslab("run", "mlless", "--remove-threshold", "15")
    assert done.code == 2
    assert done.err.split("\n")[:2] == [
        "Error: remove-threshold is given without remove-interval.",
        "Hint: give both or neither, such as --remove-threshold 15 --remove-interval 20.",
    ]
