"""What KubeML's protocol asks for: all messages and barriers of a small run, and of what may be missing in one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.lab.checks.small import Event, event, of_events
from tests.lab.replay.recordings import make_plan

from slslab.run.run import Place, Run
from slslab_workers.kubeml.protocol import protocol as kubeml
from slslab_workers.patterns.messages import Message, Name, Wait

# Three documents, of two minibatches each: function 0 has two of them and so two rounds, function 1 has one.
RUN = "20261121-000000-kubeml-lenet-abcd"
PLAN = make_plan("kubeml")
PLAN = replace(PLAN, batch_size=32, batches=3, options={**PLAN.options, "k": 2})
JOB = 2
REFERENCE, JOB_QUEUE, ANSWERS = f"{RUN}:weight", f"slslab.{RUN}.job", f"slslab.{RUN}.f0"
ROUNDS = ((0, 0), (0, 1), (1, 0), (1, 1))


def did(op: str, worker: int, epoch: int, resource: str, invocation: str = "job", **more: Any) -> Event:
    """An event by its operation, `tensor.` or `queue.`."""
    if op in ("get", "set"):
        return event(f"tensor.{op}", worker, (epoch, -1), resource=f"host:1/{resource}", invocation=invocation, **more)
    return event(f"queue.{op}", worker, (epoch, -1), resource=resource, invocation=invocation, **more)


def trained(function: int, epoch: int) -> Iterator[Event]:
    """What a function does in a round; a model may have several entries to get."""
    for _ in range(2):
        yield did("get", function, epoch, REFERENCE, f"{epoch}.{function}", phase="fetch")
    yield did("set", function, epoch, f"{REFERENCE}/{function}", f"{epoch}.{function}", phase="synchronise")
    yield did("publish", function, epoch, JOB_QUEUE, f"{epoch}.{function}")


def merged(epoch: int, *functions: int, late: int = 0) -> Iterator[Event]:
    """The job's events in a round; it takes the first report in the epoch before."""
    for number, function in enumerate(functions):
        yield did("deliver", JOB, epoch - (late if number == 0 else 0), JOB_QUEUE)
        yield did("get", JOB, epoch, f"{REFERENCE}/{function}")
    yield did("set", JOB, epoch, REFERENCE)


def recorded() -> Iterator[tuple[Event, Place | None]]:
    """The events of the run, with the rounds that they belong to."""
    yield did("set", 0, 0, REFERENCE, "init"), (0, 0)
    yield did("set", 0, 0, f"{RUN}:failed", "init", failed=True), None
    yield event("connect", 0, (0, -1), invocation="init"), None
    for epoch in (0, 1):
        for function in (0, 1):
            yield event("compute", function, (epoch, 0), overhead=True, invocation=f"{epoch}.{function}"), None
            yield from ((each, (epoch, 0)) for each in trained(function, epoch))
        yield from ((each, (epoch, 0)) for each in merged(epoch, 0, 1, late=epoch))
        yield did("publish", JOB, epoch, ANSWERS), (epoch, 0)
        yield did("deliver", 0, epoch, ANSWERS, f"{epoch}.0"), (epoch, 0)
        yield from ((each, (epoch, 1)) for each in trained(0, epoch))
        yield from ((each, (epoch, 1)) for each in merged(epoch, 0))
        yield did("publish", JOB, epoch, f"slslab.{RUN}.client", overhead=True), (epoch, 1)
        # It validates; and is told to stop.
        for function in (0, 1):
            yield did("get", function, epoch, REFERENCE, f"v{epoch}.{function}"), (epoch, 2)
    yield did("deliver", JOB, 1, JOB_QUEUE, overhead=True), (1, 1)
    yield did("get", -1, -1, REFERENCE), None


EVENTS = [each for each, _ in recorded()]


def small(*events: Event, options: dict[str, Any] | None = None, **more: Any) -> Run:
    return of_events(*(events or EVENTS), plan=replace(PLAN, options={**PLAN.options, **(options or {})}, **more))


def references(*takers: dict[int, int]) -> list[Message]:
    """The first model and the later reference models, by taker."""
    first = Message("first model", Name(REFERENCE, 0, 0, 0), takers[0])
    rounds = zip(ROUNDS, takers[1:], strict=False)
    return [first, *(Message("reference model", Name(REFERENCE, JOB, *place), each) for place, each in rounds)]


def reported(place: Place) -> list[Message]:
    """What functions report in a round, and what they are answered."""
    functions = (0,) if place[1] else (0, 1)
    models = [Message("model", Name(f"{REFERENCE}/{function}", function, *place), {JOB: 1}) for function in functions]
    reports = [Message("report", Name(JOB_QUEUE, function, *place), {JOB: 1}) for function in functions]
    answers = [] if place[1] else [Message("answer", Name(ANSWERS, JOB, *place), {0: 1})]
    return [*models, *reports, *answers]


PLACES = [place for _, place in recorded()]


def first(op: str, worker: int, place: Place) -> int:
    """The first event of a worker in a round, except the first model's."""
    events = enumerate(zip(EVENTS, PLACES, strict=True))
    return next(n for n, (each, at) in events if n and (each["op"], each["worker"], at) == (op, worker, place))


def test_two_epochs() -> None:
    found = kubeml(small())
    assert found.steps == {n: place for n, place in enumerate(PLACES) if place is not None}
    # Both train; function 0 goes on; both validate and train again; as before; both validate.
    once, alone, twice = {0: 1, 1: 1}, {0: 1}, {0: 2, 1: 2}
    model, *others = references(once, alone, twice, alone, once)
    messages = [model]
    for place, reference in zip(ROUNDS, others, strict=True):
        messages += [reference, *reported(place)]
    assert found.messages == tuple(messages)
    # A barrier is before the merge, and before what functions do next: they go on, or validate and train again.
    until = [tuple(message.name for message in reported(place) if message.kind != "answer") for place in ROUNDS]
    followers: list[list[tuple[int, Place]]] = [
        [(0, (0, 1))],
        [(0, (0, 2)), (1, (0, 2)), (0, (1, 0)), (1, (1, 0))],
        [(0, (1, 1))],
        [(0, (1, 2)), (1, (1, 2))],
    ]
    assert found.waits == tuple(
        Wait(place, names, (first("tensor.set", JOB, place), *(first("tensor.get", *each) for each in gone)))
        for place, names, gone in zip(ROUNDS, until, followers, strict=True)
    )
    steps = {0: 4, 1: 2}
    assert found.minibatches == {(f, e, step) for f in (0, 1) for e in (0, 1) for step in range(steps[f])}
    assert (found.judged, found.unjudged, found.drawn) == (None, "", frozenset())


def test_without_evaluation_nobody_validates() -> None:
    found = kubeml(small(evaluation=False))
    takers = [message.takers for message in found.messages if "model" in message.kind and message.kind != "model"]
    assert takers == [{0: 1, 1: 1}, {0: 1}, {0: 1, 1: 1}, {0: 1}, {}]


def test_a_model_of_two_entries() -> None:
    bias = did("set", 0, 0, f"{RUN}:bias", "init")
    others = [
        did("set", 0, 0, f"{RUN}:x", "init", phase="fetch"),
        did("set", 1, 0, f"{RUN}:y"),
        did("get", 0, 0, f"{RUN}:z"),
    ]
    found = kubeml(small(EVENTS[0], bias, *others, epochs=1))
    keys = [
        (message.kind, message.name.key.removeprefix(RUN))
        for message in found.messages
        if message.kind.endswith("model")
    ]
    assert keys[:2] == [("first model", ":weight"), ("first model", ":bias")]
    assert keys[4:8] == [("model", f":{layer}/{function}") for function in (0, 1) for layer in ("weight", "bias")]


def epochs(run: Run) -> list[int]:
    return sorted({place for _, place, _ in kubeml(run).minibatches})


def test_epochs_that_may_end_before() -> None:
    begun = [event("compute", function, (epoch, 0), overhead=True) for function, epoch in ((1, 0), (0, 0), (0, 1))]
    assert epochs(small(*begun, epochs=4)) == [0, 1, 2, 3]
    assert epochs(small(*begun, epochs=4, early_stopping=True)) == [0, 1]
    assert epochs(small(*begun, epochs=4).replace(complete=False)) == [0, 1]
    assert epochs(small(event("wait"), early_stopping=True)) == [0], "the first model is there already"


def test_a_run_that_was_killed_after_a_function_had_read_the_model() -> None:
    cut = [each for each in EVENTS if each["epoch"] == 0]
    read = did("get", 0, 1, REFERENCE, "1.0", phase="fetch")
    found = kubeml(small(*cut, read).replace(complete=False))
    assert [message.takers for message in found.messages if message.name == Name(REFERENCE, JOB, 0, 1)] == [
        {0: 2, 1: 2}  # validation, and the next epoch's functions
    ]
    assert [wait.step for wait in kubeml(small(EVENTS[0]).replace(complete=False)).waits] == [], "nobody waits yet"


def test_functions_that_vary() -> None:
    """The functions that began train; in an epoch that none began, as in the first one."""
    begun = [
        event("compute", function, (epoch, 0), overhead=True)
        for function, epoch in ((1, 0), (0, 0), (2, 1), (1, 1), (0, 2))
    ]
    varying = {"parallelism": "throughput"}
    each = [
        sorted({function for function, epoch, _ in kubeml(small(*begun, epochs=4, **more)).minibatches if epoch == at})
        for more in ({"options": varying}, {})
        for at in range(4)
    ]
    assert each == [[0, 1], [0, 1, 2], [0], [0, 1], *4 * [[0, 1]]]
    # The job's number comes after those of all functions that there may be.
    job = kubeml(small(*begun, epochs=4, options=varying)).messages[-1].takers
    assert job == {3: 1}


FAILED = {"request_id": "1.1", "status": "error"}
DOCUMENT = {"parameters": 1, "details": {"failed_functions": [{"epoch": 1}]}}
FAULT = event("fault", 0, (1, 0), resource="x message-lost")


@pytest.mark.parametrize(
    "run",
    [
        small().replace(invocations=({"request_id": "0.0", "status": "success"}, FAILED)),
        small().replace(document=DOCUMENT),
        small(*EVENTS, FAULT),
        small(*EVENTS, FAULT).replace(document={"parameters": 1, "details": {"failed_functions": [{"epoch": 3}]}}),
    ],
)
def test_epochs_from_a_failure_on_are_not_judged(run: Run) -> None:
    found = kubeml(run)
    assert {wait.step for wait in found.waits} == {(0, 0), (0, 1)}
    assert found.judged == 1
    assert found.unjudged == "a function failed in epoch 1: epochs from it on"
    # What is exchanged after it belongs to no round.
    assert {place[0] for n, place in found.steps.items() if run.events[n]["worker"] == JOB} == {0}


def test_of_a_first_epoch_with_a_failure_nothing_is_judged() -> None:
    found = kubeml(small().replace(invocations=({**FAILED, "request_id": "0.0"},)))
    assert (found.messages, found.waits, found.judged) == ((), (), 0)


def test_failures_that_are_none_of_a_function() -> None:
    """The job's failures, and failures of invocations that did nothing."""
    failed = [{**FAILED, "request_id": request_id} for request_id in ("job", "nobody")]
    run = small().replace(invocations=failed, document={"parameters": 1, "details": {}})
    assert kubeml(run).judged is None
