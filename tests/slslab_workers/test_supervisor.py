"""MLLess's supervisor against a queue in memory: endings, duplicates, and what it leaves to its next invocation."""

import json
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from slslab_workers.mlless.supervisor import Supervision, Supervisor, hand_over_s
from slslab_workers.plan import Plan

Reports = list[dict[str, Any]]


class Context:
    """A Lambda context with this much time left, s, each time it is asked; the last for ever."""

    def __init__(self, *remaining_s: float) -> None:
        self._remaining_s = deque(remaining_s or (900.0,))

    def get_remaining_time_in_millis(self) -> int:
        left = self._remaining_s.popleft() if len(self._remaining_s) > 1 else self._remaining_s[0]
        return int(left * 1000)


class Taken:
    """A message in memory."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def ack(self) -> None:
        pass


class Memory:
    """Queues in memory: what the workers report, and what was sent, as (address, content)."""

    def __init__(self, reports: Reports) -> None:
        self.reports = deque(json.dumps(report).encode() for report in reports)
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.repeated: list[bool] = []

    def consume(
        self, _queue: str, _timeout_s: float, _phase: str, *, overhead: Callable[[bytes], bool]
    ) -> Taken | None:
        if not self.reports:
            return None
        body = self.reports.popleft()
        self.repeated.append(overhead(body))
        return Taken(body)

    def publish(self, queue: str, body: bytes, _phase: str, *, overhead: bool = True) -> None:
        assert overhead == (json.loads(body)["type"] == "T")
        self.sent.append((queue.rpartition(".")[2], json.loads(body)))

    def fan_out(self, exchange: str, body: bytes, _phase: str, *, overhead: bool = True) -> None:
        assert overhead == (json.loads(body)["type"] == "F")
        self.sent.append((exchange.rpartition(".")[2], json.loads(body)))

    def told(self, kind: str) -> list[dict[str, Any]]:
        """What was sent of one type."""
        return [content for _, content in self.sent if content["type"] == kind]


def make_plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {"workers": 2, "epochs": 10, "options": {}}
    return Plan("run", "mlless", "lenet", "digits", 16, 4, 1024, **values | changes)


def report(worker: int, step: int, loss: float = 1.0, *, update: bool = True, leaving: bool = False) -> dict[str, Any]:
    return {"type": "I", "worker": worker, "step": step, "loss": loss, "update": update, "leaving": leaving}


def supervise(
    queues: Memory, context: Context | None = None, task: Supervision | None = None, **changes: Any
) -> Supervision | None:
    plan = make_plan(**changes)
    task = Supervision(plan, 0, plan.epochs * plan.batches) if task is None else task
    return Supervisor(task, context or Context(), queues).run()  # type: ignore[arg-type]


def steps(losses: list[float]) -> Reports:
    """Reports of both workers whose losses have these means."""
    return [report(worker, step, loss + worker - 0.5) for step, loss in enumerate(losses) for worker in (0, 1)]


def test_ten_steps_in_a_row_and_not_one_less() -> None:
    """Nine low steps, one above, then ten: the mean counts, one worker alone is below all the time."""
    queues = Memory(steps([0.5] * 9 + [0.51] + [0.5] * 12))
    assert supervise(queues, options={"end-threshold": 0.5}) is None
    assert [decision["end"] for decision in queues.told("C")] == [None] * 19 + ["loss"]
    assert [told["below"] for told in queues.told("TD")] == [*range(1, 10), 0, *range(1, 11)]


def test_a_loss_that_is_no_number_is_not_below() -> None:
    queues = Memory(steps([0.0] * 9 + [float("nan")] + [0.0] * 9 + [1.0] * 21))
    supervise(queues)
    assert len(queues.told("C")) == 40


def test_what_is_told_at_the_end_comes_before_the_last_statistics() -> None:
    """After those, the driver may take the queues away."""
    queues = Memory([report(worker, step) for step in range(4) for worker in (1, 0)])
    assert supervise(queues, epochs=1) is None
    said = [(address, content["type"]) for address, content in queues.sent]
    step = [("updates", "C"), ("client", "TD")]
    assert said == step * 3 + [("updates", "C"), ("updates", "F"), ("client", "T"), ("client", "TD")]
    assert queues.told("T")[0]["end"] == "epochs"


def test_updates_are_named_in_rank_order_and_only_those_that_are_there() -> None:
    queues = Memory([report(2, 0), report(0, 0), report(1, 0, update=False)])
    supervise(queues, workers=3, task=Supervision(make_plan(workers=3), 0, 1))
    assert [decision["updates"] for decision in queues.told("C")] == [[0, 2]]


def test_a_vote_to_leave_is_passed_on_but_not_after_the_last_step() -> None:
    reports = [report(worker, step, leaving=worker == 1) for step in range(3) for worker in (0, 1)]
    queues = Memory(reports)
    assert supervise(queues, task=Supervision(make_plan(), 0, 3)) is None, "the supervisor itself stays"
    assert [decision["leaving"] for decision in queues.told("C")] == [True, True, False]


def test_reports_that_come_twice_are_overhead_and_count_once() -> None:
    queues = Memory([report(0, 0), report(0, 0, loss=9.0), report(1, 0), report(1, 0), report(0, 1), report(1, 1)])
    supervise(queues, task=Supervision(make_plan(), 0, 2))
    assert queues.repeated == [False, True, False, True, False, False]
    assert len(queues.told("C")) == 2


def test_short_of_time_it_leaves_what_it_heard_to_the_next_invocation() -> None:
    """After three reports: step 0 is decided, and worker 1's of step 1 must not be lost."""
    queues = Memory([report(0, 0), report(1, 0), report(1, 1, loss=0.25), report(0, 1, loss=0.25)])
    plan = make_plan(options={"end-threshold": 0.5})
    rest = supervise(queues, Context(900, 900, 900, 29), Supervision(plan, 0, 2, below=4, since=7.0))
    assert rest is not None
    assert (rest.first, rest.until, rest.below, rest.since) == (1, 2, 0, 7.0)
    assert [(one["worker"], one["step"]) for one in rest.reports] == [(1, 1)]
    assert 0 < rest.began <= rest.heard
    again = Supervision.from_event(json.loads(json.dumps(rest.to_event())))
    assert again == rest
    assert supervise(queues, task=again) is None
    assert [(one["step"], one["updates"]) for one in queues.told("C")] == [(0, [0, 1]), (1, [0, 1])]
    assert [told["below"] for told in queues.told("TD")] == [0, 1]
    assert queues.repeated == [False] * 4


@pytest.mark.parametrize(("timeout", "kept_s"), [(900, 30), (120, 30), (60, 15), (7, 1.75), (1, 0.25)])
def test_time_to_hand_over_is_kept_of_any_time_out(timeout: int, kept_s: float) -> None:
    assert hand_over_s(timeout) == kept_s


def test_an_hour_of_silence_ends_even_a_supervisor_that_nobody_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver was killed, and the workers' time-outs have ended them: it must not invoke itself for ever."""
    now = [1000.0]
    monkeypatch.setattr("slslab_workers.mlless.supervisor.time.time", lambda: now[0])
    queues = Memory([report(0, 0)])
    rest = supervise(queues, Context(900, 29))
    assert rest is not None
    for _ in range(4):
        now[0] += 870
        rest = supervise(queues, Context(900, 29), rest)
        assert rest is not None
        assert rest.heard == 1000.0
    now[0] += 870
    with pytest.raises(TimeoutError, match=r"Workers \[1\] said nothing in step 0 for 4350 s"):
        supervise(queues, Context(900, 29), rest)


def test_a_supervisor_that_was_overtaken_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"another invocation has supervised .* Run the plan again"):
        supervise(Memory([report(0, 3)]))
