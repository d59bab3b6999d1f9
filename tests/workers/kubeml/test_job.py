"""The job against queues and a database in memory: rounds, functions that end or fail, duplicates, hand-overs."""

import json
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from slslab_workers.architecture import architectures
from slslab_workers.channels.events import Tracer
from slslab_workers.kubeml.job import Job, Task
from slslab_workers.kubeml.settings import END, FAILED, NEXT, STOP, Vector, copy_key, reference_key, report
from slslab_workers.plan import Plan

LAYERS = ("weight", "bias")


class Context:
    """A Lambda context with time for this many messages."""

    def __init__(self, messages: int = 1000) -> None:
        self.messages = messages

    def get_remaining_time_in_millis(self) -> int:
        self.messages -= 1
        return 900_000 if self.messages >= 0 else 1000


class Taken:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def ack(self) -> None:
        pass


class Queues:
    """What is sent to the job, and what it sent: (queue, content)."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = deque(json.dumps(message).encode() for message in messages)
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.overheads: list[bool] = []

    def consume(self, _queue: str, _timeout: float, _phase: str, *, overhead: Callable[[bytes], bool]) -> Taken | None:
        if not self.messages:
            return None
        body = self.messages.popleft()
        self.overheads.append(overhead(body))
        return Taken(body)

    def publish(self, queue: str, body: bytes, _phase: str, *, overhead: bool = True) -> None:
        assert overhead == queue.endswith(".client")
        self.sent.append((queue.rpartition(".")[2], json.loads(body)))


class Database:
    """Tensors by key; a function stores its number and the round's, which `round` tells it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tracer = Tracer(lambda _event: None)
        self.copies: dict[str, Vector] = {}
        self.references: list[float] = []

    def get(self, key: str, _phase: str, *, overhead: bool) -> Vector:
        assert not overhead
        return self.copies[key].copy()

    def set(self, key: str, vector: Vector, _phase: str, *, overhead: bool) -> None:
        assert not overhead
        if key == reference_key(self.plan, layer="bias"):
            self.references.append(float(vector[0]))


@pytest.fixture
def plan() -> Plan:
    options = architectures()["kubeml"].complete({})
    return Plan("run", "kubeml", "lenet", "digits", 64, 4, 1024, workers=3, options=options)


def run(plan: Plan, messages: list[dict[str, Any]], task: Task | None = None, context: Context | None = None) -> Any:
    """The rest, the queues and the database; function f's model is 10^f everywhere."""
    queues, database = Queues(messages), Database(plan)
    for function in range(3):
        for layer in LAYERS:
            database.copies[copy_key(plan, layer=layer, function=function)] = np.full(2, 10.0**function, np.float32)
    job: Any = Job(task or Task(plan, LAYERS), context or Context(), queues, database)  # type: ignore[arg-type]
    return job.run(), queues, database


def reports(*entries: tuple[str, int, int], epoch: int = 0) -> list[dict[str, Any]]:
    return [report(kind, epoch, 3, function, round_) for kind, function, round_ in entries]


STOPPED = [{"type": STOP}]


def test_a_round_ends_when_all_that_have_not_ended_have_reported(plan: Plan) -> None:
    first = reports((NEXT, 2, 0), (END, 0, 0), (NEXT, 1, 0))
    second = reports((END, 1, 1), (END, 2, 1))
    rest, queues, database = run(plan, [*first, *second, *STOPPED])
    assert rest is None
    assert database.references == [37.0, 55.0], "divided by three, and by the two that reported"
    assert queues.sent == [
        ("f1", {"merged": [0, 0]}),
        ("f2", {"merged": [0, 0]}),
        ("client", {"epoch": 0}),
    ]
    assert queues.overheads == [False] * 5 + [True]


def test_epochs_follow_each_other_and_may_have_other_functions(plan: Plan) -> None:
    alone = [report(END, 1, 1, 0, 0)]
    _, queues, database = run(plan, [*reports((END, 0, 0), (END, 1, 0), (END, 2, 0)), *alone, *STOPPED])
    assert database.references == [37.0, 1.0]
    assert [content for _, content in queues.sent] == [{"epoch": 0}, {"epoch": 1}]


@pytest.mark.parametrize("when", ["before the others", "after the others", "after its own report"])
def test_a_function_that_fails_is_left_out(plan: Plan, when: str) -> None:
    others, failed = reports((END, 0, 0), (END, 2, 0)), reports((FAILED, 1, -1))
    messages, expected = {
        "before the others": (failed + others, 50.5),
        "after the others": (others + failed, 50.5),
        # What it had reported is merged.
        "after its own report": (reports((NEXT, 1, 0)) + failed + others, 37.0),
    }[when]
    _, queues, database = run(plan, [*messages, *STOPPED])
    assert database.references == [expected]
    assert queues.sent[-1] == ("client", {"epoch": 0})


def test_an_epoch_in_which_all_fail_merges_nothing(plan: Plan) -> None:
    _, queues, database = run(plan, [*reports((FAILED, 0, -1), (FAILED, 1, -1), (FAILED, 2, -1)), *STOPPED])
    assert database.references == []
    assert queues.sent == [("client", {"epoch": 0})]


def test_a_report_that_comes_again_counts_once(plan: Plan) -> None:
    first = reports((END, 0, 0), (NEXT, 1, 0), (NEXT, 1, 0), (END, 2, 0), (NEXT, 1, 0))
    _, queues, database = run(plan, [*first, *reports((END, 1, 1)), *STOPPED])
    assert database.references == [37.0, 10.0]
    assert queues.overheads == [False, False, True, False, True, False, True]


def test_a_hand_over_in_the_middle_of_a_round_changes_nothing(plan: Plan) -> None:
    messages = [*reports((NEXT, 2, 0), (END, 0, 0), (NEXT, 1, 0), (END, 1, 1), (END, 2, 1)), *STOPPED]
    task: Task | None = None
    references: list[float] = []
    for message in messages:
        rest, _, database = run(plan, [message], task, Context(1))
        references += database.references
        task = None if rest is None else Task.from_event(json.loads(json.dumps(rest.to_event())))
    assert rest is None
    assert references == [37.0, 55.0]


def test_the_job_leaves_in_time_and_does_not_wait_for_ever(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    for left_ms, heard in ((60_000, 0), (60_010, 1)):
        context: Any = SimpleNamespace(get_remaining_time_in_millis=iter([left_ms, 0]).__next__)
        _, queues, _ = run(plan, reports((NEXT, 0, 0)), context=context)
        assert len(queues.overheads) == heard
    rest, *_ = run(plan, [], context=Context(0))
    assert (rest.epoch, rest.active) == (0, None)
    monkeypatch.setattr("slslab_workers.training.lifetime.PATIENCE_S", -1.0)
    with pytest.raises(TimeoutError, match="Nothing was reported in epoch 0"):
        run(plan, [])
