"""What of a recording becomes a program, and which recordings are refused."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.lab.replay.recordings import TRACES

from slslab.errors import RunError
from slslab.run.run import Run
from slslab_lab.replay.kernel.program import Gathering, Step
from slslab_lab.replay.programs.recorded import gather, make_program
from slslab_lab.replay.programs.recording import check, find_calls, operation, read_recording


@pytest.fixture(scope="module")
def allreduce() -> Run:
    return read_recording(TRACES / "allreduce")


def flat(items: tuple[Step | Gathering, ...]) -> list[Step]:
    return [
        step
        for item in items
        for step in ((item,) if isinstance(item, Step) else [one for group in item.groups for one in group])
    ]


def test_waits_and_polls_go_and_all_cpu_seconds_of_the_rest_stay(allreduce: Run) -> None:
    program = make_program(allreduce)
    steps = [step for track in program.tracks for step in flat(track.steps)]
    assert not any(step.op == "wait" for step in steps)
    # Six epochs of five steps: each worker's gradient, the sum, and what is not of the protocol.
    protocol = [e for e in allreduce.events if not e["overhead"] and e["worker"] >= 0]
    counted = {op: sum(e["requests"] for e in protocol if e["op"] == op) for op in ("object.put", "object.delete")}
    assert counted == {"object.put": 30 * 3, "object.delete": 30 * 2 + 29}
    waiting = [step for step in steps if step.awaits]
    assert len(waiting) == 30 * 2
    assert {(step.op, step.polling) for step in waiting} == {("object.get", "list"), ("object.get", "get")}
    kept = {step.event for step in steps}
    dropped = [e for e in allreduce.events if e["worker"] >= 0 and e["event"] not in kept]
    assert {e["op"] for e in dropped} == {"wait", "object.get", "object.list"}
    assert all(e["failed"] for e in dropped if e["op"] == "object.get")
    spent = sum(step.cpu_ns for step in steps) + sum(track.init_cpu_ns for track in program.tracks)
    lost = sum(e["cpu_ns"] + e["cpu_before_ns"] for e in dropped)
    assert spent + lost == pytest.approx(sum(r["cpu_ms"] for r in allreduce.invocations) * 1e6, rel=1e-3)


def test_a_state_machine_begins_its_invocations_and_waits_for_them() -> None:
    program = make_program(read_recording(TRACES / "spirt"))
    executions = [track for track in program.tracks if track.kind == "execution"]
    assert len(executions) == 2 * 6
    for execution in executions:
        # Eight states of which one has a branch (b = 1), each entered once, and a wait after each.
        transitions = [step for step in flat(execution.steps) if step.op == "transition"]
        assert sum(step.requests for step in transitions) == 9
        assert len(execution.steps) == 9 + 8
        assert len(execution.awaits) == 1


def test_an_execution_that_the_driver_starts_waits_for_those_that_had_ended() -> None:
    """With --until-accuracy the driver starts each epoch; no function's `execute` says so."""
    recording = read_recording(TRACES / "spirt")
    transitions = [e for e in recording.events if e["op"] == "transition"]
    apart = [
        {**e, "event": number, "causes": [], **{name: e[name] + e["epoch"] * 10**12 for name in ("start_ns", "end_ns")}}
        for number, e in enumerate(transitions)
    ]
    executions = make_program(recording.replace(events=apart, invocations=())).tracks
    ends = {
        epoch: {gate for each in executions if each.epoch == epoch for gate in each.opens} for epoch in range(-1, 6)
    }
    assert {len(gates) for epoch, gates in ends.items() if epoch >= 0} == {2}
    assert all(set(each.awaits) == ends[each.epoch - 1] for each in executions)


def test_groups_that_wait_one_after_another_are_gathered() -> None:
    def get(gate: int) -> Step:
        return Step("object.get", "synchronise", awaits=(gate,), polling="list")

    delete, put = Step("object.delete", "synchronise"), Step("object.put", "synchronise")
    assert gather([put, get(0), delete, get(1), delete, put]) == (
        put,
        Gathering(((get(0), delete), (get(1), delete))),
        put,
    )
    assert gather([get(0), delete, put, get(1)]) == (get(0), delete, put, get(1))
    polled = Step("object.get", "synchronise", awaits=(2,), polling="get")
    assert gather([polled, polled]) == (polled, polled)


def test_a_call_is_the_invocation_that_was_accepted_meanwhile() -> None:
    def event(number: int, op: str, worker: int, start: int, end: int, **more: Any) -> dict[str, Any]:
        return {"event": number, "op": op, "worker": worker, "start_ns": start, "end_ns": end, **more}

    events = [
        event(0, "invoke", -1, 0, 90, function="f", invocation="a"),
        event(1, "invoke", 0, 10, 50, resource="arn:aws:lambda:us-east-1:1:function:f"),
        event(2, "invoke", -1, 20, 45, function="f", invocation="b"),
        event(3, "invoke", 1, 60, 70, resource="f"),
    ]
    assert find_calls(events) == {1: "b"}


def test_a_script_is_run_or_stored() -> None:
    assert operation({"op": "tensor.script", "overhead": False}) == "tensor.script"
    assert operation({"op": "tensor.script", "overhead": True}) == "tensor.compile"
    assert operation({"op": "ping", "overhead": True}) == "tensor.command"


def test_an_event_of_an_invocation_that_was_never_metered_is_refused(allreduce: Run) -> None:
    events = list(allreduce.events)
    events[100] = {**events[100], "worker": 0, "op": "compute", "invocation": "nobody"}
    with pytest.raises(RunError, match=r"Event 100 \(compute\) of \S+ belongs to invocation 'nobody', which was never"):
        check(allreduce.replace(events=events))


def unfinished(directory: Path) -> None:
    (directory / "run.json").unlink()


def say(status: str, directory: Path) -> None:
    document = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps({**document, "status": status}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (unfinished, "was interrupted, so its trace is incomplete"),
        (partial(say, "failed"), "failed, so its trace"),
        (partial(say, "interrupted"), "was interrupted, so its trace"),
    ],
)
def test_a_run_that_is_not_done_is_refused(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    shutil.copytree(TRACES / "gpu", tmp_path / "run")
    spoil(tmp_path / "run")
    with pytest.raises(RunError, match=message):
        read_recording(tmp_path / "run")
