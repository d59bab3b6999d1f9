"""MLLess's supervisor against a queue in memory: endings, duplicates, and what it leaves to its next invocation."""

import json
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from slslab_workers.architecture import architectures
from slslab_workers.mlless.supervisor import Supervision, Supervisor
from slslab_workers.mlless.tuner import Decision, Tuner
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
        assert overhead == (json.loads(body)["type"] in ("T", "K"))
        self.sent.append((queue.rpartition(".")[2], json.loads(body)))

    def fan_out(self, exchange: str, body: bytes, _phase: str, *, overhead: bool = True) -> None:
        assert overhead == (json.loads(body)["type"] == "F")
        self.sent.append((exchange.rpartition(".")[2], json.loads(body)))

    def told(self, kind: str) -> list[dict[str, Any]]:
        """What was sent of one type."""
        return [content for _, content in self.sent if content["type"] == kind]


def make_plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {"workers": 2, "batches": 4, "epochs": 10, "options": {}, **changes}
    values["options"] = architectures()["mlless"].complete(values["options"])
    return Plan("run", "mlless", "lenet", "digits", 16, memory_mb=1024, **values)


def report(worker: int, step: int, loss: float = 1.0, *, update: bool = True, leaving: bool = False) -> dict[str, Any]:
    return {"type": "I", "worker": worker, "step": step, "loss": loss, "update": update, "leaving": leaving}


def supervise(
    queues: Memory, context: Context | None = None, task: Supervision | None = None, **changes: Any
) -> Supervision | None:
    plan = make_plan(**changes)
    task = Supervision(plan, 0, plan.epochs * plan.batches) if task is None else task
    return Supervisor(task, context or Context(), queues).run()  # type: ignore[arg-type]


def steps(losses: list[float]) -> Reports:
    """Reports of both workers with losses that have these means."""
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
    assert 0 < rest.began <= rest.reported
    again = Supervision.from_event(json.loads(json.dumps(rest.to_event())))
    assert again == rest
    assert supervise(queues, task=again) is None
    assert [(one["step"], one["updates"]) for one in queues.told("C")] == [(0, [0, 1]), (1, [0, 1])]
    assert [told["below"] for told in queues.told("TD")] == [0, 1]
    assert queues.repeated == [False] * 4


@pytest.mark.parametrize(("timeout", "kept_s"), [(900, 30), (120, 30), (60, 15), (7, 1.75), (1, 0.25)])
def test_time_to_hand_over_is_kept_of_any_time_out(timeout: int, kept_s: float) -> None:
    for left_s, heard in ((kept_s, 0), (kept_s + 0.01, 1)):
        queues = Memory([report(0, 0)])
        supervise(queues, Context(left_s, kept_s), Supervision(make_plan(timeout=timeout), 0, 2))
        assert len(queues.repeated) == heard


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
        assert rest.reported == 1000.0
    now[0] += 870
    with pytest.raises(TimeoutError, match=r"Workers \[1\] reported nothing in step 0 for 4350 s"):
        supervise(queues, Context(900, 29), rest)


def test_a_supervisor_that_was_overtaken_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"another invocation supervises .* Run the plan again"):
        supervise(Memory([report(0, 3)]))


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float, float | None]]:
    """A tuner that removes a worker after steps 1 and 3; what it was told: steps, losses and seconds."""
    told: list[tuple[int, float, float | None]] = []

    def decide(self: Tuner, step: int) -> Decision | None:
        return Decision(step, self.workers, True, 0, 1.0) if step in (1, 3) else None

    monkeypatch.setattr(Tuner, "record", lambda _self, *what: told.append(what))
    monkeypatch.setattr(Tuner, "decide", decide)
    return told


TUNED = {"remove-threshold": 15.0, "remove-interval": 20.0}
# Three workers of two batches: epochs of 2 steps, of 3 with two workers, of 6 with one. Worker 2 is the last in step 1,
# which ends an epoch, and worker 0 in step 3, which ends none.
SCRIPT = [
    *(report(worker, 0, loss=worker) for worker in (2, 1, 0)),
    *(report(worker, 1, leaving=worker == 2, update=worker != 1) for worker in (0, 1, 2)),
    *(report(worker, 2) for worker in (1, 0)),
    *(report(worker, 3) for worker in (1, 0)),
    *(report(1, step) for step in range(4, 8)),
]


def test_who_completed_the_step_is_removed_and_the_others_go_on(heard: list[tuple[int, float, float | None]]) -> None:
    queues = Memory(SCRIPT)
    assert supervise(queues, workers=3, batches=2, epochs=2, options=TUNED) is None
    kinds = [(address, content["type"]) for address, content in queues.sent]
    step = [("updates", "C"), ("client", "TD")]
    assert kinds[:5] == [*step, ("w2", "K"), *step]
    assert kinds[5:10] == [*step, ("w0", "K"), *step]
    assert kinds[10:] == [*step * 3, ("updates", "C"), ("updates", "F"), ("client", "T"), ("client", "TD")]
    assert [kill["updates"] for kill in queues.told("K")] == [[0, 2], [0, 1]]
    assert [decision["removed"] for decision in queues.told("C")] == [None, 2, None, 0, None, None, None, None]
    assert not any(decision["leaving"] for decision in queues.told("C")), "only worker 2 was short of time"
    assert [decision["end"] for decision in queues.told("C")] == [None] * 7 + ["epochs"]
    assert [told["tuned"] and told["tuned"]["removed"] for told in queues.told("TD")] == [
        *(None, 2, None, 0),
        *[None] * 4,
    ]
    assert [(step, loss) for step, loss, _ in heard] == [(step, 1.0) for step in range(8)]
    assert [seconds is None for _, _, seconds in heard] == [True] + [False] * 7, "the first step began in the dark"


def test_nobody_is_removed_after_the_last_step(heard: list[tuple[int, float, float | None]]) -> None:
    queues = Memory([report(worker, step) for step in range(2) for worker in (0, 1)])
    assert supervise(queues, batches=2, epochs=1, options=TUNED) is None
    assert (queues.told("K"), len(heard)) == ([], 2)


def test_the_next_invocation_knows_who_is_left(heard: list[tuple[int, float, float | None]]) -> None:
    """After one of the two reports of step 3, and again after each one that follows."""
    queues, plan = Memory(SCRIPT), make_plan(workers=3, batches=2, epochs=2, options=TUNED)
    rest = supervise(queues, Context(*[900] * 9, 29), Supervision(plan, 0, 4))
    assert rest is not None
    assert (rest.first, rest.removals, len(rest.reports)) == (3, ((1, 2),), 1)
    assert rest.tuner is not None
    hand_overs = 0
    while rest is not None:
        task = Supervision.from_event(json.loads(json.dumps(rest.to_event())))
        assert task.removals == rest.removals
        rest = supervise(queues, Context(900, 29), task)
        hand_overs += 1
    assert hand_overs == 5
    assert [decision["removed"] for decision in queues.told("C")] == [None, 2, None, 0, None, None, None, None]
    assert queues.told("C")[-1]["end"] == "epochs"
    assert [step for step, _, seconds in heard if seconds is None] == [0]


def test_a_stretch_leaves_its_tuner_to_the_next() -> None:
    """With its last step's statistics, and with no others; without a tuner there isn't any."""
    queues = Memory([report(worker, step, loss=2.0 - step) for step in range(3) for worker in (0, 1)])
    supervise(queues, task=Supervision(make_plan(options=TUNED), 0, 3))
    left = [told["tuner"] for told in queues.told("TD")]
    assert left[:2] == [None, None]
    assert (left[2]["steps"], left[2]["losses"], left[2]["workers"]) == ([0, 1, 2], [2.0, 1.0, 0.0], 2)
    plain = Memory([report(worker, 0) for worker in (0, 1)])
    supervise(plain, task=Supervision(make_plan(), 0, 1))
    assert "tuner" not in plain.told("TD")[0]
