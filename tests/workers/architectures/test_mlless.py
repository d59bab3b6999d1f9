"""MLLess: the common trajectory, exact counts, filters, endings, and messages that come twice or late."""

import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.memory import queues
from tests.workers.mlless.closed_form import counts, removal_counts

from slslab_workers.architecture import RunFailed
from slslab_workers.channels.queues import Message, QueueError
from slslab_workers.plan import Plan
from slslab_workers.training import gradients
from slslab_workers.training.state import WorkerState

Train = Callable[..., Any]
Reference = Callable[[Plan], Any]
STORES = ("tensordb", "s3")
P = 61_706


@pytest.fixture
def make(make_plan: Callable[..., Plan]) -> Callable[..., Plan]:
    """A small plan with these options, `filter` none unless told otherwise; other names are the plan's own."""

    def plan(options: dict[str, Any] | None = None, **changes: Any) -> Plan:
        return make_plan("mlless", **changes, options={"filter": "none", **(options or {})})

    return plan


Make = Callable[..., Plan]


def assert_exact(trained: Any, plan: Plan, updates: list[int] | None = None, steps: int | None = None) -> None:
    """Counts and bytes are the closed form's, given each step's significant updates if a filter is on."""
    total = plan.batches * plan.epochs if steps is None else steps
    expected = counts(plan.workers, total, 1, P, plan.options, updates=updates)
    counted, bytes_in, bytes_out = trained.protocol()
    assert counted == {operation: number for operation, number in expected.operations.items() if number}
    if plan.options["filter"] != "coordinate":
        assert (bytes_in, bytes_out) == (expected.bytes_in, expected.bytes_out)
    assert bytes_out == plan.workers * bytes_in


def initial(plan: Plan) -> str:
    return gradients.sha256(gradients.flatten(WorkerState.fresh(plan, 0).model.parameters()))


@pytest.mark.parametrize("store_name", STORES)
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_without_a_filter_trajectory_and_counts_are_those_of_one_process(
    store_name: str, workers: int, train: Train, make: Make, reference: Reference
) -> None:
    plan = make({"store": store_name}, workers=workers, epochs=2, batch_size=8, seed=3)
    trained = train(plan)
    expected, _ = reference(plan)
    assert len(set(expected)) == 4, "every step changes the parameters"
    for rank in range(workers):
        assert trained.fingerprints[rank] == expected
    assert {result["updates"] for result in trained.results} == {4}
    assert_exact(trained, plan)


@pytest.mark.parametrize("name", ["norm-ratio", "coordinate"])
def test_threshold_zero_is_no_filter(name: str, train: Train, make: Make, reference: Reference) -> None:
    plan = make({"filter": name, "threshold": 0.0}, workers=3, epochs=2)
    trained = train(plan)
    expected, _ = reference(plan)
    assert expected == reference(make(workers=3, epochs=2))[0]
    assert [trained.fingerprints[rank] for rank in range(3)] == [expected] * 3
    assert_exact(trained, plan)


@pytest.mark.parametrize("name", ["norm-ratio", "coordinate"])
def test_an_infinite_threshold_sends_nothing_and_ends(
    name: str, train: Train, make: Make, reference: Reference
) -> None:
    plan = make({"filter": name, "threshold": math.inf}, workers=2, epochs=2)
    trained = train(plan)
    assert set(trained.fingerprints[0] + trained.fingerprints[1]) == {initial(plan)} == set(reference(plan)[0])
    assert [(r["updates"], r["ended"], r["position"]) for r in trained.results] == [(0, "epochs", 4)] * 2
    assert_exact(trained, plan, updates=[0] * 4)


@pytest.mark.parametrize(("store_name", "mean_over"), [("tensordb", "workers"), ("s3", "senders")])
@pytest.mark.parametrize(("name", "threshold"), [("norm-ratio", 0.4), ("coordinate", 1.0)])
def test_with_a_filter_replicas_stay_equal_and_counts_are_exact(
    store_name: str,
    mean_over: str,
    name: str,
    threshold: float,
    train: Train,
    make: Make,
    reference: Reference,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from slslab_workers.mlless import handlers

    announced: list[tuple[int, int]] = []
    send = handlers.MLLessWorker.send

    def count(self: Any, state: Any, update: Any) -> None:
        if update is not None:
            announced.append((self.rank, state.position))
        send(self, state, update)

    monkeypatch.setattr(handlers.MLLessWorker, "send", count)
    options = {"filter": name, "threshold": threshold, "store": store_name, "mean-over": mean_over}
    plan = make(options, workers=3, epochs=3)
    trained = train(plan)
    assert 0 < len(announced) == len(set(announced))
    if name == "norm-ratio":
        assert len(announced) < 18, "some are kept back"
    assert trained.fingerprints[0] == trained.fingerprints[1] == trained.fingerprints[2] == reference(plan)[0]
    assert {result["updates"] for result in trained.results} == {len({step for _, step in announced})}
    sent = Counter(step for _, step in announced)
    assert_exact(trained, plan, updates=[sent[step] for step in range(6)])
    if name == "coordinate":
        _, bytes_in, _ = trained.protocol()
        assert 0 < bytes_in < 18 * 4 * P


def test_counts_with_removals_by_hand() -> None:
    """Three workers with two batches; one leaves after step 0. The first epoch has three steps, like the second."""
    found = counts(3, 2, 2, 10, removals=[(0, 1)])
    present = [3, 2, 2, 2, 2, 2]
    assert found.operations == {
        "tensor.set": sum(present),
        "tensor.get": sum(n * n for n in present),
        "queue.publish": sum(2 * n + 2 for n in present),
        "queue.deliver": sum(n * n + 2 * n + 1 for n in present),
    }
    assert (found.bytes_in, found.bytes_out) == (13 * 40, 29 * 40)
    added = removal_counts(4, 2, 10, {"store": "s3"})
    assert added.operations == {"object.put": 2, "object.get": 3 + 2, "queue.publish": 4, "queue.deliver": 2 + 3 + 2}
    assert (added.bytes_in, added.bytes_out) == (80, 200)


def test_adam_is_the_same_for_both_stores_and_all_workers(train: Train, make: Make, reference: Reference) -> None:
    ends = {reference(make({"optimiser": "adam"}, workers=2, epochs=2))[0][-1]}
    for store_name in STORES:
        trained = train(make({"optimiser": "adam", "store": store_name}, workers=2, epochs=2))
        ends |= {result["parameters_sha256"] for result in trained.results}
    assert len(ends) == 1


def test_messages_that_come_twice_change_nothing(
    train: Train, make: Make, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = queues.Connection._put

    def put_twice(self: queues.Connection, name: str, sent: queues.Sent) -> None:
        put(self, name, sent)
        put(self, name, sent)

    monkeypatch.setattr(queues.Connection, "_put", put_twice)
    plan = make(workers=3, epochs=2)
    trained = train(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    assert_exact(trained, plan)
    repeated = [e for e in trained.events if e["op"] == "queue.deliver" and e["overhead"]]
    assert len(repeated) > 20


def test_messages_that_cannot_be_acknowledged_come_again_and_change_nothing(
    train: Train, make: Make, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when every connection ends between a message and its acknowledgement; every batch is an invocation."""

    def refuse() -> None:
        raise QueueError("its connection ended")

    def make_message(id_: str, body: bytes, _ack: Callable[[], None]) -> Message:
        return Message(id_, body, refuse)

    monkeypatch.setattr(queues, "Message", make_message)
    plan = make(workers=2, epochs=2, mode="per-batch")
    trained = train(plan)
    assert trained.fingerprints[0] == trained.fingerprints[1] == reference(plan)[0]
    assert_exact(trained, plan)
    assert [e for e in trained.events if e["op"] == "queue.deliver" and e["overhead"]]


def test_a_worker_slower_by_ten_changes_nothing(train: Train, make: Make, reference: Reference) -> None:
    plan = make(workers=3, epochs=2)

    def dawdle(rank: int, position: int) -> None:
        time.sleep(0.2 if rank == position % 3 else 0.02)

    trained = train(plan, dawdle)
    assert [trained.fingerprints[rank] for rank in range(3)] == [reference(plan)[0]] * 3
    assert_exact(trained, plan)
    assert [told["step"] for told in trained.statistics] == [0, 1, 2, 3]
    assert all(told["seconds"] > 0 for told in trained.statistics), "between first and last worker"


def test_per_batch_invocations_keep_residual_and_trajectory(train: Train, make: Make) -> None:
    options = {"filter": "norm-ratio", "threshold": 0.4}
    whole = train(make(options, workers=2, epochs=3))
    pieces = train(make(options, workers=2, epochs=3, mode="per-batch"))
    assert pieces.fingerprints == whole.fingerprints
    assert pieces.protocol() == whole.protocol()
    assert len(set(whole.fingerprints[0])) > 1


def test_loss_at_or_below_the_threshold_ends_after_ten_steps_in_a_row(
    train: Train, make: Make, reference: Reference
) -> None:
    """In the middle of the third epoch; rank 0 leaves its model there."""
    plan = make({"end-threshold": 1e9}, workers=2, batches=4, epochs=5, batch_size=4)
    trained = train(plan)
    assert [(r["ended"], r["position"], len(r["losses"])) for r in trained.results] == [("loss", 10, 10)] * 2
    assert trained.fingerprints[0] == reference(plan)[0][:10]
    assert [told["below"] for told in trained.statistics] == list(range(1, 11))
    assert trained.statistics[-1]["end"] == "loss"
    assert_exact(trained, plan, steps=10)
    stored = [e["resource"] for e in trained.events if "/model/" in e["resource"]]
    assert [key.rpartition("/")[2] for key in stored] == ["0", "1", "2"]


def test_time_that_is_over_ends_after_the_step(train: Train, make: Make) -> None:
    """In the first step a worker takes longer than the run may, so the first step is the last."""
    plan = make({"max-time": 60.0}, workers=2, batches=3)
    trained = train(plan, lambda rank, _position: time.sleep(61 * rank))
    assert [(r["ended"], r["position"]) for r in trained.results] == [("time", 1)] * 2
    assert_exact(trained, plan, steps=1)


def test_a_worker_that_dies_ends_all(train: Train, make: Make) -> None:
    """No worker waits for a time-out: when the driver deletes the queues, the others end."""

    def die(rank: int, position: int) -> None:
        if (rank, position) == (1, 2):
            raise MemoryError("killed")

    with pytest.raises(RunFailed, match="killed") as failed:
        train(make(workers=3, epochs=2), die)
    assert (failed.value.type, failed.value.worker) == ("MemoryError", 1)


def test_a_database_keeps_two_updates_of_a_worker_and_a_bucket_keeps_all(
    train: Train, make: Make, reference: Reference
) -> None:
    for store_name, kept in zip(STORES, (2 * 2, 2 * 6), strict=True):
        plan = make({"store": store_name}, workers=2, epochs=3)
        trained = train(plan)
        sent = {e["resource"] for e in trained.events if e["op"] in ("tensor.set", "object.put") and not e["overhead"]}
        assert len(sent) == kept
        assert len(trained.keys) == (kept if store_name == "s3" else 0)
        assert trained.fingerprints[0] == reference(plan)[0]
