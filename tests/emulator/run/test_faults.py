"""What a fault plan did, and what a worker did last, by the trace."""

from typing import Any

import pytest

from slslab.run.faults import blame, injected, last_activity

PLAN = {"seed": 3, "fault": [{"kind": "straggler", "factor": 2}, {"kind": "kill", "worker": 1, "epoch": 0}]}


def event(op: str, start_s: float = 0, end_s: float = 0, **more: Any) -> dict[str, Any]:
    place = {"worker": 1, "epoch": 0, "step": 2, "phase": "compute", "resource": "", "failed": False, "function": "f"}
    place["invocation"] = "i"
    return {"op": op, **place, "start_ns": round(start_s * 1e9), "end_ns": round(end_s * 1e9), **more}


def test_every_fault_of_the_plan_says_what_it_did() -> None:
    events = [
        event("fault", 1, 1.5, resource="1 straggler"),
        event("compute", 1.5, 2),
        event("fault", 2, 4, resource="1 straggler", step=3),
    ]
    assert injected(events, PLAN) == [
        {
            "number": 1, "kind": "straggler", "times": 2, "function": "f",
            "worker": 1, "epoch": 0, "step": 2, "phase": "compute", "held_up_seconds": 2.5,
        },
        {
            "number": 2, "kind": "kill", "times": 0, "function": None,
            "worker": None, "epoch": None, "step": None, "phase": None, "held_up_seconds": 0.0,
        },
    ]  # fmt: skip
    assert injected(events, None) == []


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([event("compute"), event("fault", resource="2 kill")], "fault 2 (kill) in the fault plan caused this."),
        (
            [event("fault", resource="1 slow-down object.put"), event("object.put", failed=True)],
            "fault 1 (slow-down) in the fault plan caused this.",
        ),
        ([event("fault", resource="1 throttle")], "fault 1 (throttle) in the fault plan caused this."),
        ([event("fault", resource="1 slow-down object.put"), event("object.put")], None),
        ([event("fault", resource="1 slow-down object.put"), event("object.put"), event("wait", failed=True)], None),
        ([event("fault", resource="1 straggler")], None),
        (
            [event("fault", resource="2 kill", worker=0), event("compute")],
            "fault 2 (kill) in the fault plan happened to worker 0 before this.",
        ),
        ([], None),
    ],
)
def test_a_failure_is_blamed_on_a_fault_that_can_have_made_it(events: list[dict[str, Any]], says: str | None) -> None:
    assert blame(events, 1) == says


def test_the_failure_of_a_whole_run_is_blamed_on_any_death() -> None:
    events = [event("fault", resource="2 database-loss"), event("compute", worker=0)]
    assert blame(events, None) == "fault 2 (database-loss) in the fault plan happened to worker 1 before this."


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ({"op": "object.get", "failed": True, "resource": "b/k"}, "epoch 0, step 2: it waited for b/k."),
        ({"op": "object.list", "resource": "b/k/"}, "epoch 0, step 2: it waited for objects b/k/*."),
        ({"op": "object.get", "resource": "b/k"}, "its last event was object.get (compute) of b/k."),
        ({"op": "compute", "step": -1}, "Worker 1 was in epoch 0: its last event was compute (compute)."),
        ({"op": "build", "step": -1, "epoch": -1}, "Worker 1 was in no epoch: its last event was build (compute)."),
    ],
)
def test_the_last_activity_names_what_was_waited_for(last: dict[str, Any], says: str) -> None:
    events = [
        event("compute", 0, 1),
        event(**{"start_s": 1, "end_s": 2, **last}),
        event("wait", 2, 3),
        event("compute", 3, 4, worker=0),
    ]
    assert says in last_activity(events, 1)


def test_the_last_activity_is_that_of_the_invocation_that_a_fault_ended() -> None:
    events = [event("prepare", 0, 1), event("fault", 1, 1, resource="1 kill"), event("compute", 1, 2, invocation="j")]
    assert "its last event was prepare" in last_activity(events, 1)


def test_a_worker_that_never_was_has_done_nothing() -> None:
    assert last_activity([event("compute")], 0) == "Worker 0 had done nothing yet."
