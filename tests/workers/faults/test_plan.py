"""Fault plans: what is read, what is refused with which sentence, and that a seed decides what happens where."""

from typing import Any

import pytest

from slslab_workers.faults.plan import DEATHS, KINDS, LOSSES, MESSAGES, FaultPlan
from slslab_workers.plan import Plan, PlanError

KILL = {"kind": "kill", "worker": 1, "epoch": 0}
LEAST: dict[str, dict[str, Any]] = {
    **{kind: {**KILL, "kind": kind} for kind in (*DEATHS, *LOSSES)},
    "straggler": {"kind": "straggler", "factor": 3},
    "slow-store": {"kind": "slow-store", "seconds": 0.5},
    "slow-down": {"kind": "slow-down"},
    "unreachable": {"kind": "unreachable", "op": "tensor.get"},
    "message-lost": {"kind": "message-lost"},
    "message-duplicated": {"kind": "message-duplicated"},
    "throttle": {"kind": "throttle"},
}


def read(*faults: Any, **more: Any) -> FaultPlan:
    return FaultPlan.from_document({"fault": list(faults), **more})


def check(faults: FaultPlan, *, instances: bool = False, databases: int = 0, queue: bool = False) -> None:
    """Check the faults of a run of 2 workers, 4 epochs and 3 minibatches."""
    plan = Plan("r", "allreduce", "lenet", "digits", 64, batches=3, memory_mb=1024, workers=2, epochs=4)
    faults.check(plan, instances=instances, databases=databases, queue=queue)


def test_every_kind_is_read_with_what_it_needs_at_least() -> None:
    assert LEAST.keys() == KINDS.keys()
    assert [fault.kind for fault in read(*LEAST.values()).faults] == list(LEAST)
    assert [fault.number for fault in read(*LEAST.values()).faults] == list(range(1, len(LEAST) + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_needs_what_it_needs(kind: str) -> None:
    for name in KINDS[kind][0]:
        with pytest.raises(PlanError) as refused:
            read({key: value for key, value in LEAST[kind].items() if key != name})
        assert refused.value.message == f"Fault 1 ({kind}) has no {name}."


def test_a_death_in_a_step_is_in_its_first_unless_it_says_which() -> None:
    """Of a minibatch's phases; SPIRT synchronises in no step."""
    assert read({**KILL, "phase": "compute"}).faults[0].step == 0
    assert read({**KILL, "phase": "compute", "step": 2}).faults[0].step == 2
    assert read({**KILL, "phase": "synchronise"}).faults[0].step is None


@pytest.mark.parametrize(
    ("entry", "message", "hint"),
    [
        ({}, "Fault 1 has no kind.", "kinds are kill, out-of-memory, timeout"),
        ({"kind": "flood"}, "Fault 1 is of kind 'flood', which does not exist.", "kinds are kill"),
        ({"kind": ["kill"]}, "Fault 1 is of kind ['kill'], which does not exist.", "kinds are kill"),
        ({**KILL, "wroker": 1}, "Fault 1 (kill) has 'wroker', which does not apply to it.", "it has worker, epoch"),
        ({**KILL, "factor": 2}, "Fault 1 (kill) has 'factor', which does not apply to it.", "it has worker, epoch"),
        ({**KILL, "worker": "1"}, "Fault 1 (kill) has worker '1'.", "type int"),
        ({**KILL, "worker": True}, "Fault 1 (kill) has worker True.", "type int"),
        ({**KILL, "phase": "dream"}, "Fault 1 (kill) has phase 'dream'.", "phases are fetch, compute, synchronise"),
        ({**LEAST["straggler"], "factor": 0.5}, "Fault 1 (straggler) has factor 0.5.", "1 to 1,000 times slower"),
        ({**LEAST["straggler"], "factor": float("nan")}, "Fault 1 (straggler) has factor nan.", "times slower"),
        ({**LEAST["slow-store"], "seconds": -1}, "Fault 1 (slow-store) has seconds -1.", "0 to 900 s"),
        ({"kind": "slow-down", "op": "tensor.get"}, "has op 'tensor.get'", "object.put, object.list, object.get"),
        ({"kind": "unreachable", "op": "queue.publish"}, "has op 'queue.publish'", "object.put"),
        ({"kind": "slow-down", "probability": 0}, "has probability 0.", "more than 0 and at most 1"),
        ({"kind": "slow-down", "count": 0}, "has count 0.", "1 to 1,000,000"),
        ("kill", "The fault plan has no faults.", "[[fault]]"),
    ],
)
def test_a_wrong_entry_is_named(entry: Any, message: str, hint: str) -> None:
    with pytest.raises(PlanError) as refused:
        read(entry)
    assert message in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "The fault plan has no faults."),
        ({"fault": []}, "The fault plan has no faults."),
        ({"fault": KILL}, "The fault plan has no faults."),
        ({"fault": [KILL], "seed": -1}, "The fault plan's seed is -1."),
        ({"fault": [KILL], "seed": "a"}, "The fault plan's seed is 'a'."),
        ({"fault": [KILL] * 64}, "The fault plan has 64 faults."),
        ({"faults": [KILL]}, "A fault plan can't contain 'faults'."),
    ],
)
def test_a_wrong_document_is_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as refused:
        FaultPlan.from_document(document)
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("name", "value", "known"),
    [("worker", 2, "are 0 to 1"), ("worker", -1, "are 0 to 1"), ("epoch", 4, "0 to 3"), ("step", 3, "0 to 2")],
)
def test_a_place_that_the_run_does_not_have_is_refused(name: str, value: int, known: str) -> None:
    check(read({"kind": "slow-down"}, {**KILL, "worker": 1, "epoch": 3, "step": 2}))
    with pytest.raises(PlanError) as refused:
        check(read({"kind": "slow-down"}, {**KILL, name: value}))
    assert refused.value.message.startswith(f"Fault 2 (kill) has {name} {value}, but the plan's {name}s are")
    assert known in refused.value.message


@pytest.mark.parametrize("kind", ["out-of-memory", "timeout", "throttle"])
def test_instances_have_no_limits_of_lambda(kind: str) -> None:
    check(read(LEAST[kind]))
    with pytest.raises(PlanError, match="is a limit of Lambda"):
        check(read(LEAST[kind]), instances=True)


@pytest.mark.parametrize("kind", LOSSES)
def test_a_database_is_lost_where_there_is_one(kind: str) -> None:
    check(read(LEAST[kind]), databases=1)
    with pytest.raises(PlanError, match="needs a tensor database, and the plan doesn't have one"):
        check(read(LEAST[kind]))


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_is_lost_where_there_are_messages(kind: str) -> None:
    check(read(LEAST[kind]), queue=True)
    with pytest.raises(PlanError, match="needs a queue, and the plan doesn't have one"):
        check(read(LEAST[kind]))


def test_a_place_is_any_where_the_fault_names_none() -> None:
    [fault] = read({"kind": "slow-down", "worker": 1, "step": 2}).faults
    assert fault.is_at(1, 0, 2, "fetch")
    assert fault.is_at(1, 3, 2, "synchronise")
    assert not fault.is_at(0, 0, 2, "fetch")
    assert not fault.is_at(1, 0, -1, "other")


def test_the_seed_decides_where_a_probable_fault_happens() -> None:
    [fault, other] = read({"kind": "slow-down", "probability": 0.25}, {"kind": "slow-down", "probability": 0.25}).faults
    places = [(worker, step, "object.put") for worker in range(10) for step in range(200)]
    drawn = [fault.is_drawn(7, *place) for place in places]
    assert drawn == [fault.is_drawn(7, *place) for place in places]
    assert 0.2 < sum(drawn) / len(drawn) < 0.3
    assert drawn != [fault.is_drawn(8, *place) for place in places], "another seed"
    assert drawn != [other.is_drawn(7, *place) for place in places], "another fault of the same plan"
