"""The rules of messages on a few events: each violation's full text, cases without one, and what they can't judge."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.lab.checks.small import PLAN, Event, event, of_events
from tests.lab.replay.recordings import make_plan

from slslab.run.run import Run
from slslab_lab.checks import messages
from slslab_lab.checks.exchange import Exchange
from slslab_lab.checks.messages import (
    check_altered,
    check_counts,
    check_early,
    check_lost,
    check_stray,
    check_twice,
    exchange_of,
    step_name,
    who,
)
from slslab_lab.checks.violation import NotChecked, Violation
from slslab_workers.architecture import architectures
from slslab_workers.patterns import Counts
from slslab_workers.patterns.messages import Message, Name, Protocol, by_script
from slslab_workers.plan import PlanError

# Worker 1 makes two messages in step 3 of epoch 2.
PLACE = (2, 3)
KINDS = ("gradient", "mean")
ALL = {0: 1, 1: 1}
Check = Callable[[Run, Exchange], Iterable[Violation]]


def messages_for(takers: Mapping[int, int] | None, **more: Any) -> tuple[Message, ...]:
    return tuple(Message(kind, Name(kind, 1, *PLACE), takers, **more) for kind in KINDS)


def found(check: Check, asked: Sequence[Message], *events: Event, **protocol: Any) -> list[Violation]:
    """What a rule says of these events, if the protocol has these messages."""
    run = of_events(*events)
    return list(check(run, Exchange(run.events, Protocol(tuple(asked), **protocol))))


def put(kind: str = "gradient", **more: Any) -> Event:
    return {**event("object.put", 1, PLACE, resource=f"bucket/{kind}"), **more}


def get(worker: int = 0, kind: str = "gradient", **more: Any) -> Event:
    return {**event("object.get", worker, PLACE, resource=f"bucket/{kind}"), **more}


def compute(worker: int = 1, place: tuple[int, int] = PLACE, **more: Any) -> Event:
    return event("compute", worker, place, **{"overhead": True, **more})


def test_what_was_not_made_is_lost_and_so_is_what_was_not_taken() -> None:
    made_none = [Violation("lost", f"Worker 1 made no {kind} of epoch 2, step 3.", 1, 2, 3, 1) for kind in KINDS]
    assert found(check_lost, messages_for(ALL), compute(), compute()) == made_none
    assert found(check_lost, messages_for(ALL)) == [replace(violation, event=None) for violation in made_none]
    said = "Worker {} did not take the {} of epoch 2, step 3, from worker 1."
    put_both = [compute(), *map(put, KINDS)]
    assert found(check_lost, messages_for(ALL), *put_both, get(0)) == [
        Violation("lost", said.format(1, "gradient"), 1, 2, 3, 1),
        Violation("lost", said.format(0, "mean"), 0, 2, 3, 2),
        Violation("lost", said.format(1, "mean"), 1, 2, 3, 2),
    ]
    seldom = "Worker 0 did not always take the gradient of epoch 2, step 3, from worker 1."
    thrice, _ = messages_for({0: 3})
    assert found(check_lost, [thrice], put(), get(0)) == [Violation("lost", seldom, 0, 2, 3, 0)]
    never = seldom.replace("did not always take", "did not take")
    assert found(check_lost, [thrice], put(), get(1)) == [Violation("lost", never, 0, 2, 3, 0)]
    for takers in (None, {}, {0: 1}):
        assert found(check_lost, messages_for(takers), *put_both, get(0), get(0, "mean")) == []


def test_minibatches_and_models_that_are_lost() -> None:
    minibatches = frozenset({(1, 2, 3), (0, 2, 3), (0, 2, 4)})
    assert found(check_lost, (), compute(1), event("wait", 0, PLACE), compute(0, (2, 4)), minibatches=minibatches) == [
        Violation("lost", "Worker 0 computed no gradient.", 0, 2, 3, 1)
    ]
    drawn = frozenset({(0, 2, 3), (1, 2, 3)})
    took_none = [
        Violation("lost", "Worker 0 took no model.", 0, 2, 3, None),
        Violation("lost", "Worker 1 took no model.", 1, 2, 3, 1),
    ]
    assert found(check_lost, messages_for(None), *map(put, KINDS), drawn=drawn) == took_none
    assert found(check_lost, messages_for(None), *map(put, KINDS), get(0), drawn=drawn) == took_none[1:]


def test_what_is_made_twice() -> None:
    again = [Violation("twice", f"Worker 1 made a second {kind} of epoch 2, step 3.", 1, 2, 3, 3) for kind in KINDS]
    other = replace(again[0], event=4)
    assert found(check_twice, messages_for(None), put(), put("mean"), compute(), put(), put()) == [again[0], other]
    assert found(check_twice, messages_for(None), put(), put("mean"), compute(), put("mean")) == [again[1]]
    assert found(check_twice, messages_for(ALL), put("mean"), get(0, "mean"), get(1, "mean")) == []


def test_what_is_taken_twice() -> None:
    said = "Worker 0 took the mean of epoch 2, step 3 more often than the protocol says."
    asked = Message("model", Name("model", 1, *PLACE), None), *messages_for({0: 1})
    events = put("model"), put("mean"), *(get(0, "mean") for _ in range(3))
    assert found(check_twice, asked, *events) == [Violation("twice", said, 0, 2, 3, number) for number in (3, 4)]
    assert found(check_twice, messages_for({0: 3}), *events) == []
    # It is not for that one at all.
    assert found(check_twice, messages_for({1: 1}), *events) == []


def test_minibatches_and_models_that_were_taken_twice() -> None:
    said = Violation("twice", "Worker 1 computed a second gradient.", 1, 2, 3, 1)
    others = compute(0), compute(1, (2, 4)), compute(1, (2, -1)), compute(1, (2, -1))
    assert found(check_twice, (), compute(), compute(), *others, compute()) == [said, replace(said, event=6)]
    said = Violation("twice", "Worker 0 took a second model.", 0, 2, 3, 2)
    events = put(), get(), get(), get(1), get(1)
    assert found(check_twice, messages_for(None), *events, drawn=frozenset({(0, 2, 3)})) == [said]
    assert found(check_twice, messages_for(None), *events, get(), drawn=frozenset({(0, 2, 3)})) == [
        said,
        replace(said, event=5),
    ]


def test_what_the_protocol_does_not_have_is_stray() -> None:
    made = "Worker 1 made scratch, which isn't part of the protocol there."
    assert found(check_stray, messages_for(ALL), put(), compute(), put("scratch"), put("scratch")) == [
        Violation("stray", made, 1, 2, 3, 2)
    ]
    took = "Worker {} took the mean of epoch 2, step 3, which isn't meant for it."
    events = put("mean"), get(0, "mean"), get(1, "mean")
    assert found(check_stray, messages_for(ALL), *events) == []
    assert found(check_stray, messages_for(ALL, at=PLACE), *events) == []
    assert found(check_stray, messages_for({0: 1}), *events) == [Violation("stray", took.format(1), 1, 2, 3, 2)]
    assert found(check_stray, messages_for(ALL, at=PLACE), put("mean"), get(0, "mean", step=4), get(1, "mean")) == [
        Violation("stray", took.format(0), 0, 2, 4, 1)
    ]
    # Of those that whoever comes may take, only in a step that has one.
    drawn = frozenset({(0, 2, 3)})
    assert found(check_stray, messages_for(None), *events, drawn=drawn) == [
        Violation("stray", took.format(1), 1, 2, 3, 2)
    ]
    orphan = Violation("stray", "Worker 0 took mean, which no worker made.", 0, 2, 3, 0)
    assert found(check_stray, messages_for(ALL), get(0, "mean")) == [orphan]


def test_what_a_killed_worker_made_may_be_missing_in_the_trace_of_a_failed_run() -> None:
    run = of_events(get(0, "mean"), put("scratch")).replace(complete=False)
    violations = check_stray(run, Exchange(run.events, Protocol(messages_for(ALL))))
    assert [violation.sentence for violation in violations] == [
        "Worker 1 made scratch, which isn't part of the protocol there."
    ]


def test_what_is_altered() -> None:
    said = "The mean of epoch 2, step 3, has 1,000 bytes instead of 2,000."
    event_0 = put("mean", bytes=1000)
    assert found(check_altered, messages_for(ALL, size=2000), event_0) == [Violation("altered", said, 1, 2, 3, 0)]
    assert found(check_altered, messages_for(ALL, size=1000), event_0) == []
    assert found(check_altered, messages_for(ALL), event_0) == []
    other = Violation("altered", "Worker 0 took a changed version of the mean of epoch 2, step 3.", 0, 2, 3, 2)
    took = get(0, "mean", bytes=1000, causes=(0,))
    assert found(check_altered, messages_for(ALL), event_0, took) == []
    for changes in ({"bytes": 999}, {"etag": "y"}):
        assert found(check_altered, messages_for(ALL), event_0, took, {**took, **changes}) == [other]


def test_what_a_script_or_a_server_makes_of_it_is_not_altered() -> None:
    here: dict[str, Any] = {"resource": "host:1/gradient", "bytes": 1}
    asked = Message("gradient", Name("gradient", 1, *PLACE), ALL)
    scripted = Message("gradient", Name(by_script("gradient"), 1, *PLACE), ALL)
    stored = put(op="tensor.set", **here)
    script, got = (get(op=op, causes=(0,), **here, etag="y") for op in ("tensor.script", "tensor.get"))
    assert found(check_altered, [asked], stored, script) == []
    assert len(found(check_altered, [asked], stored, script, got)) == 1
    assert found(check_altered, [scripted], put(op="tensor.script", **here), got) == []
    pushed = put(op="parameter.push", bytes=1)
    assert found(check_altered, [asked], pushed, get(op="parameter.pull", causes=(0,), bytes=2)) == []


def timed(start_ns: int, end_ns: int, made: Event) -> Event:
    return {**made, "start_ns": start_ns, "end_ns": end_ns}


def test_what_is_taken_early() -> None:
    said = Violation("early", "Worker 0 took the gradient of epoch 2, step 3, before it was made.", 0, 2, 3, 0)
    made = timed(5, 9, put()), timed(7, 9, put())
    assert found(check_early, messages_for(ALL), timed(3, 4, get(causes=(2,))), *made) == [said]
    assert found(check_early, messages_for(ALL), timed(3, 5, get(causes=(2,))), *made) == []


def test_what_is_deleted_early() -> None:
    said = Violation("early", "The gradient of epoch 2, step 3, was deleted before worker 0 had it.", 1, 2, 3, 2)
    deletion = timed(3, 4, put(op="object.delete"))
    made = timed(0, 0, put())
    assert found(check_early, messages_for(ALL), made, timed(3, 5, get()), deletion) == [said]
    assert found(check_early, messages_for(ALL), made, timed(1, 4, get(1)), deletion) == []
    # The first of those that come too late; the others in time.
    others = timed(1, 2, get(1)), deletion, timed(1, 5, get()), timed(1, 6, get(1))
    assert found(check_early, messages_for(ALL), made, *others) == [said]
    assert found(check_early, messages_for(None), made, timed(3, 5, get()), deletion) == []


def test_counts() -> None:
    said = "The training protocol made {} {}; its formula says {}."
    events = [event("queue.publish", requests=1000), event("object.get", requests=6), event("object.put", requests=6)]
    # Five objects of two epochs are deleted, and six are put and got.
    assert list(check_counts(of_events(*events))) == [
        Violation("counts", said.format(0, "object.delete", 5)),
        Violation("counts", said.format("1,000", "queue.publish", 0)),
    ]
    one_epoch = list(check_counts(of_events(compute(1, (0, 0)))))
    assert [violation.sentence for violation in one_epoch] == [
        said.format(0, f"object.{op}", number) for op, number in (("delete", 2), ("get", 3), ("put", 3))
    ]
    two_steps = replace(PLAN, batches=2)
    an_epoch = list(check_counts(of_events(plan=replace(two_steps, epochs=1))))
    assert an_epoch == list(check_counts(of_events(compute(1, (0, 0)), compute(1, (0, 1)), plan=two_steps)))


MLLESS = make_plan("mlless")
SENT = {**MLLESS.options, "filter": "none"}
SPIRT = make_plan("spirt")
FAULT = event("fault", resource="x message-lost")


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (of_events(plan=replace(PLAN, architecture="x")), "x is not installed"),
        (of_events(plan=MLLESS), "a filter or the clock decides how many messages are sent"),
        (
            of_events(plan=replace(MLLESS, options={**SENT, "remove-threshold": 0.5})),
            "a filter or the clock decides how many messages are sent",
        ),
        (of_events(FAULT, plan=SPIRT), "a peer or a message was lost"),
        (
            of_events(plan=make_plan("kubeml"), document={"parameters": 1, "details": {"failed_functions": [1]}}),
            "a function failed",
        ),
        (of_events(compute(place=(1, 0)), plan=replace(PLAN, batches=2)), "training ended within an epoch"),
        (of_events(plan=replace(PLAN, model="x")), "the model's size is not known"),
    ],
)
def test_what_has_no_closed_form(run: Run, reason: str) -> None:
    with pytest.raises(NotChecked, match=f"^{reason}$"):
        list(check_counts(run))


def joined(*epochs: int | None) -> Run:
    """A run that one peer began and the others joined in these epochs, whatever the plan says."""
    joins = [{"worker": worker, "epoch": epoch} for worker, epoch in enumerate(epochs, start=1)]
    plan = replace(SPIRT, workers=1 + len(epochs))
    return of_events(plan=plan, document={"parameters": 1, "details": {"joins": joins}})


OBJECTS = {"object.delete": 5, "object.get": 6, "object.put": 6}


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (
            of_events(plan=replace(MLLESS, options={**SENT, "remove-threshold": "off"})),
            {"queue.deliver": 18, "queue.publish": 12, "tensor.get": 8, "tensor.set": 4},
        ),
        (of_events(FAULT), OBJECTS),
        (
            of_events(plan=SPIRT),
            {
                **{"queue.deliver": 8, "queue.publish": 4, "tensor.delete": 4, "tensor.get": 16},
                **{"tensor.script": 8, "tensor.set": 8, "transition": 36},
            },
        ),
        # Both peers in the second epoch only, or never.
        (
            joined(1),
            {
                **{"queue.deliver": 5, "queue.publish": 3, "tensor.delete": 3, "tensor.get": 11},
                **{"tensor.script": 6, "tensor.set": 6, "transition": 27},
            },
        ),
        (
            joined(None),
            {
                **{"queue.deliver": 2, "queue.publish": 2, "tensor.delete": 2, "tensor.get": 6},
                **{"tensor.script": 4, "tensor.set": 4, "transition": 18},
            },
        ),
        # Two peers in the second epoch only.
        (
            joined(1, 1),
            {
                **{"queue.deliver": 10, "queue.publish": 4, "tensor.delete": 4, "tensor.get": 18},
                **{"tensor.script": 8, "tensor.set": 8, "transition": 36},
            },
        ),
        (of_events(document={"parameters": 1, "details": {}}), OBJECTS),
        (of_events(document={"parameters": 1, "details": {"failed_functions": []}}), OBJECTS),
        (
            of_events(compute(place=(1, 1)), plan=replace(PLAN, batches=2)),
            {"object.delete": 11, "object.get": 12, "object.put": 12},
        ),
    ],
)
def test_what_has_a_closed_form_all_the_same(run: Run, expected: Mapping[str, int]) -> None:
    """A run without messages lacks all that the formula has; a run with exactly these holds."""
    assert [violation.sentence for violation in check_counts(run)] == [
        f"The training protocol made 0 {op}; its formula says {number}." for op, number in expected.items()
    ]
    sent = [event(op, requests=number) for op, number in expected.items()]
    numbered = [{**each, "event": number} for number, each in enumerate([*run.events, *sent])]
    assert list(check_counts(run.replace(events=numbered))) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (NotImplementedError(), "allreduce doesn't say how many messages it sends"),
        (PlanError("It has no formula.", ""), "It has no formula."),
        (
            Counts({"wait": 1, "ping": 1, "object.put": 1}, 0, 0),
            "traces don't count ping as an operation of the training protocol",
        ),
    ],
)
def test_formulas_of_other_packages(monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str) -> None:
    asked = []

    class Other:
        def counts_in(self, *arguments: Any) -> Any:
            asked.append(arguments)
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(messages, "architectures", lambda: {"allreduce": Other()})
    run = of_events()
    with pytest.raises(NotChecked, match=f"^{reason}$"):
        list(check_counts(run))
    assert asked == [(run, 2)]


def test_exchanges_that_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exchange_of(of_events(put())).events == of_events(put()).events
    assert len(exchange_of(of_events()).messages) == 6
    with pytest.raises(NotChecked, match=r"^x is not installed$"):
        exchange_of(of_events(plan=replace(PLAN, architecture="x")))
    with pytest.raises(NotChecked, match=r"^the checks can't follow messages through pigeon$"):
        exchange_of(of_events(plan=replace(PLAN, options={**PLAN.options, "channel": "pigeon"})))
    monkeypatch.setattr(messages, "architectures", lambda: {"mlless": architectures()["mlless"]})
    with pytest.raises(NotChecked, match=r"^allreduce is not installed$"):
        exchange_of(of_events())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (PlanError("Its clock decides.", ""), "Its clock decides."),
        (None, "allreduce doesn't declare the keys of its messages"),
    ],
)
def test_why_an_exchange_is_not_known(monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str) -> None:
    class Other:
        def protocol(self, _run: Run) -> None:
            if answer is not None:
                raise answer

    monkeypatch.setattr(messages, "architectures", lambda: {"allreduce": Other()})
    with pytest.raises(NotChecked, match=f"^{reason}$"):
        exchange_of(of_events())


@pytest.mark.parametrize(
    ("architecture", "worker", "name"),
    [
        ("allreduce", -1, "The driver"),
        ("allreduce", 0, "Worker 0"),
        ("allreduce", 2, "Worker 2"),
        ("mlless", 1, "Worker 1"),
        ("mlless", 2, "The supervisor"),
        ("kubeml", 1, "Worker 1"),
        ("kubeml", 2, "The job"),
        ("gradssharding", 1, "Worker 1"),
        ("gradssharding", 2, "Aggregator 0"),
        ("gradssharding", 4, "Aggregator 2"),
        ("of-another-package", 1, "Worker 1"),
    ],
)
def test_whose_number_it_is(architecture: str, worker: int, name: str) -> None:
    run = of_events(plan=make_plan(architecture))
    assert who(run, worker) == name
    assert who(run, worker, inside=True) == name[0].lower() + name[1:]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ((-1, -1), "before the first step"),
        ((-1, 0), "before the first step"),
        ((0, -1), "epoch 0"),
        ((2, 0), "epoch 2, step 0"),
    ],
)
def test_the_name_of_a_step(place: tuple[int, int], name: str) -> None:
    assert step_name(place) == name
