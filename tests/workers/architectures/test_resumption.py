"""Workers that outlive an invocation: checkpoint, self-invocation, the same trajectory."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.memory.stores import S3
from tests.memory.training import WORKERS, Trained, hurry
from tests.workers.architectures.conftest import store_minibatches

from slslab_lab.runs.planning import architectures
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects
from slslab_workers.plan import Assignment, Plan
from slslab_workers.scatterreduce.handlers import ScatterReduceWorker
from slslab_workers.training.state import WorkerState

MakePlan = Callable[..., Plan]
CONTEXT = SimpleNamespace(aws_request_id="request", get_remaining_time_in_millis=lambda: 900_000)


@pytest.mark.parametrize("name", ["allreduce", "scatterreduce"])
def test_resumed_workers_follow_the_same_trajectory(
    name: str,
    make_plan: MakePlan,
    reference: Callable[[Plan], Any],
    train: Callable[[Plan], Trained],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All leave after the steps in which worker 1 is short of time, mid-epoch."""
    hurry(WORKERS[name], monkeypatch)
    plan = make_plan(name, workers=3, batches=3, epochs=2)
    trained = train(plan)
    assert trained.continued == [(position, rank) for position in (2, 4) for rank in range(3)]
    assert [record["invocation_type"] for record in trained.invocations].count("Event") >= 6
    expected, _ = reference(plan)
    assert {result["parameters_sha256"] for result in trained.results} == {expected[-1]}
    assert all(len(result["losses"]) == 6 for result in trained.results)
    counts = architectures()[name].counts(3, 3, 2, 61_706)
    assert trained.protocol() == (dict(counts.operations), counts.bytes_in, counts.bytes_out)
    for rank in range(3):
        assert json.loads(trained.objects[f"{plan.run}/results/{rank}"])["position"] == 6


def invoke(objects: Objects, plan: Plan, first: int, kind: type[ScatterReduceWorker] = ScatterReduceWorker) -> Any:
    """Train one step in an invocation of its own, as worker 0."""
    return kind(Assignment(plan, "bucket", 0, first, first + 1, True), CONTEXT, objects).run()


def stored(plan: Plan) -> Objects:
    """Return a bucket in memory that has the plan's minibatches."""
    store = S3(lambda: None)
    store.create_bucket(Bucket="bucket")
    store_minibatches(plan, store, "bucket")
    return Objects(store, "bucket", Tracer(lambda _event: None))


def test_an_event_delivered_twice_is_refused(make_plan: MakePlan) -> None:
    plan = make_plan("scatterreduce", workers=1, mode="per-batch")
    objects = stored(plan)
    invoke(objects, plan, 0)
    invoke(objects, plan, 1)
    with pytest.raises(ValueError, match="to continue at step 1, but its state is at 2"):
        invoke(objects, plan, 1)


def test_a_failed_invocation_leaves_no_half_trained_state_behind(
    make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    """The state that an environment kept is ahead of the stored one when an invocation fails: it must not be used."""
    plan = make_plan("scatterreduce", workers=1, batches=3, mode="per-batch")
    objects = stored(plan)

    class Failing(ScatterReduceWorker):
        def _save(self, state: WorkerState) -> None:
            raise OSError(f"the store is gone at step {state.position}")

    invoke(objects, plan, 0)
    with pytest.raises(OSError, match="the store is gone"):
        invoke(objects, plan, 1, Failing)
    invoke(objects, plan, 1)
    assert invoke(objects, plan, 2)["parameters_sha256"] == reference(plan)[0][-1]
