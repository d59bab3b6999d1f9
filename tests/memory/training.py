"""Training in memory, watched: what each worker learnt in each step, and what all sent and received."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.commands import assert_holds
from tests.memory.running import read_once, run
from tests.memory.stores import S3

from slslab_workers.allreduce.handlers import AllReduceWorker
from slslab_workers.architecture import Outcome
from slslab_workers.mlless import driver
from slslab_workers.mlless.handlers import MLLessWorker
from slslab_workers.plan import Plan
from slslab_workers.scatterreduce.handlers import ScatterReduceWorker
from slslab_workers.trace.operations import moves
from slslab_workers.training import gradients, worker
from slslab_workers.training.state import WorkerState

# Virtual seconds after which a run counts as one that hangs.
LIMIT_S = 1800
WORKERS: dict[str, type[worker.Worker]] = {
    "allreduce": AllReduceWorker,
    "mlless": MLLessWorker,
    "scatterreduce": ScatterReduceWorker,
}
# Called with a worker's rank and position before it synchronises.
Delay = Callable[[int, int], None]


@dataclass
class Trained:
    """What a run left: results in rank order, fingerprints after every step by rank, parameters, and events.

    `answers` has what every worker's invocation returned; a rank's result is its last one. `objects` is what the bucket
    held when the driver emptied it, `statistics` what MLLess's client received.
    """

    plan: Plan
    outcome: Outcome | None = None
    results: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    fingerprints: dict[int, list[str]] = field(default_factory=dict)
    parameters: dict[int, torch.Tensor] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    invocations: list[Mapping[str, Any]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    statistics: list[dict[str, Any]] = field(default_factory=list)

    @property
    def continued(self) -> list[tuple[int, int]]:
        """The positions at which workers left for another invocation, with their ranks, in order."""
        return sorted(
            (answer["position"], answer["rank"]) for answer in self.answers if answer["status"] == "continued"
        )

    @property
    def keys(self) -> list[str]:
        """The keys of the exchange that were left in the bucket."""
        return [key for key in self.objects if key.startswith(f"{self.plan.run}/{self.plan.architecture}/")]

    def protocol(self) -> tuple[dict[str, int], int, int]:
        """Return requests by operation, bytes sent and received, of the training protocol."""
        return protocol(self.events)

    def watch(self, trainer: Any, state: WorkerState) -> None:
        """Note what a worker has learnt by now."""
        flat = gradients.flatten(state.model.parameters())
        self.fingerprints.setdefault(trainer.rank, []).append(gradients.sha256(flat))
        self.parameters[trainer.rank] = flat


def protocol(events: Iterable[Mapping[str, Any]]) -> tuple[dict[str, int], int, int]:
    """Return requests by operation, bytes sent and received, of the training protocol."""
    requests: dict[str, int] = {}
    sent = received = 0
    for event in events:
        if not event["overhead"]:
            requests[event["op"]] = requests.get(event["op"], 0) + event["requests"]
            sent += event["bytes"] * moves(event["op"], "in")
            received += event["bytes"] * moves(event["op"], "out")
    return requests, sent, received


def hurry(kind: type[worker.Worker], patch: pytest.MonkeyPatch) -> None:
    """Have worker 1 of this kind be short of time in its second step of each invocation."""
    really = kind.is_short_of_time

    def is_short_of_time(self: Any) -> bool:
        self.asked = getattr(self, "asked", 0) + 1
        return really(self) or (self.rank == 1 and self.asked == 2)

    patch.setattr(kind, "is_short_of_time", is_short_of_time)


def train(plan: Plan, home: Path, delay: Delay | None = None) -> Trained:
    """Run a plan of functions, check its trace, and return what it left; raise what its driver raises."""
    trained, results = Trained(plan), dict[int, dict[str, Any]]()
    kind: Any = WORKERS[plan.architecture]
    synchronise, after_update, work = kind.synchronise, kind.after_update, kind.run
    receive, empty = driver.receive_statistics, S3.delete_objects

    def delayed(self: Any, state: WorkerState, gradient: torch.Tensor) -> torch.Tensor | None:
        if delay is not None:
            delay(self.rank, state.position)
        aggregate: torch.Tensor | None = synchronise(self, state, gradient)
        return aggregate

    def watched(self: Any, state: WorkerState) -> None:
        after_update(self, state)
        trained.watch(self, state)

    def worked(self: Any) -> dict[str, Any]:
        answer: dict[str, Any] = work(self)
        results[self.rank] = answer
        trained.answers.append(answer)
        return answer

    def received(*arguments: Any) -> dict[str, Any] | None:
        statistics = receive(*arguments)
        trained.statistics += [] if statistics is None else [statistics]
        return statistics

    def emptied(self: S3, *, Bucket: str, Delete: Mapping[str, Any]) -> None:
        for entry in Delete["Objects"]:
            trained.objects[entry["Key"]] = self.buckets[Bucket][entry["Key"]].body
        empty(self, Bucket=Bucket, Delete=Delete)

    with pytest.MonkeyPatch.context() as patch, read_once():
        patch.setattr(kind, "synchronise", delayed)
        patch.setattr(kind, "after_update", watched)
        patch.setattr(kind, "run", worked)
        patch.setattr(driver, "receive_statistics", received)
        patch.setattr(S3, "delete_objects", emptied)
        ran = run(replace(plan, evaluation=False), 1, home, LIMIT_S)
    assert ran.left == ()
    if ran.failure is not None:
        raise ran.failure
    assert_holds(ran.recorded)
    trained.outcome, trained.events = ran.outcome, list(ran.recorded.events)
    trained.invocations = list(ran.recorded.invocations)
    trained.results = [results[rank] for rank in sorted(results)]
    return trained
