"""What MLLess's workers, supervisor and driver exchange, with or without removals (docs/protocols.md, "MLLess").

Traces don't contain messages, so a message's kind follows from its sender and queue.
"""

import itertools
from collections.abc import Iterator

from slslab_workers.mlless.schedule import Schedule
from slslab_workers.mlless.settings import client_queue, exchange_name, removed_model_key, supervisor_queue, update_key
from slslab_workers.patterns import DRIVER
from slslab_workers.patterns.messages import Event, Message, Name, Protocol, Recorded, Step, Wait, key_of, passing

WHOLE_UPDATES = ("none", "norm-ratio")


def protocol(run: Recorded) -> Protocol:
    """Return the protocol: the filter chooses which workers send an update in a step, but all of them must fetch it."""
    plan, supervisor = run.plan, run.plan.workers
    removals = _removals(run)
    schedule = Schedule(plan.workers, plan.batches, removals)
    steps = dict(_supervised(run, schedule))
    messages: list[Message] = []
    waits: list[Wait] = []
    minibatches: set[tuple[int, int, int]] = set()
    sent = _sent(run)
    decisions = {step: number for number, step in steps.items() if _is_decision(run, run.events[number])}
    for position in range(_steps(run, schedule)):
        step = schedule.place(position)
        gone = {rank for at, rank in removals if at < position}
        present = [rank for rank in range(plan.workers) if rank not in gone]
        minibatches.update((rank, *step) for rank in present)
        everyone = dict.fromkeys(present, 1)
        for rank in present if _sends_all(run) else sorted(rank for rank, *at in sent if tuple(at) == step):
            key = update_key(plan, rank, position)
            messages.append(Message("update", Name(key, rank, *step), everyone, _size(run), step))
            messages.append(Message("announcement of an update", Name(exchange_name(plan), rank, *step), everyone))
        for rank in (rank for at, rank in removals if at == position):
            # A removed worker leaves its model to the others.
            remaining = {other: 1 for other in present if other != rank}
            key = removed_model_key(plan, rank)
            messages.append(
                Message("model", Name(key, rank, *step), remaining, run.gradient_bytes, step, overhead=True)
            )
        reports = [Message("report", Name(supervisor_queue(plan), rank, *step), {supervisor: 1}) for rank in present]
        decision = Message("decision", Name(exchange_name(plan), supervisor, *step), everyone, at=step)
        told = Message("statistics", Name(client_queue(plan), supervisor, *step), {DRIVER: 1})
        messages += (*reports, decision, told)
        decided = (decisions[step],) if step in decisions else ()
        waits.append(Wait(step, tuple(r.name for r in reports), (*decided, *passing(run, step, present))))
    return Protocol(tuple(messages), tuple(waits), frozenset(minibatches), steps=steps)


def _removals(run: Recorded) -> list[tuple[int, int]]:
    """Return the steps after which workers were removed, with their ranks. Each removed worker tells the others with a
    message that isn't part of the training protocol."""
    plan = run.plan
    removals: list[tuple[int, int]] = []
    for event in run.events:
        told = event["op"] == "queue.publish" and event["resource"] == exchange_name(plan) and not event["failed"]
        if told and event["overhead"] and 0 <= event["worker"] < plan.workers:
            schedule = Schedule(plan.workers, plan.batches, removals)
            removals.append((_position(schedule, (event["epoch"], event["step"])), event["worker"]))
    return removals


def _steps(run: Recorded, schedule: Schedule) -> int:
    """Return the number of steps that any worker began, since losses or the clock may end training early."""
    reached = max(((epoch, step) for _, epoch, step in run.computed), default=None)
    if reached is None:
        return 0
    steps = _position(schedule, reached) + 1
    ends_by_itself = run.plan.gradual or float(run.plan.options["max-time"]) or float(run.plan.options["end-threshold"])
    return steps if ends_by_itself or not run.complete else max(steps, schedule.start(run.plan.epochs))


def _position(schedule: Schedule, step: Step) -> int:
    """Return the step of the run, counted over all epochs."""
    return next(position for position in itertools.count() if schedule.place(position) >= step)


def _sends_all(run: Recorded) -> bool:
    options = run.plan.options
    return options["filter"] == "none" or (options["filter"] == "norm-ratio" and float(options["threshold"]) == 0)


def _size(run: Recorded) -> int | None:
    """Return the size of an update, bytes; the size of sparse updates is unknown."""
    return run.gradient_bytes if run.plan.options["filter"] in WHOLE_UPDATES else None


def _sent(run: Recorded) -> set[tuple[int, int, int]]:
    exchange, prefix = exchange_name(run.plan), f"{run.plan.run}/mlless/"
    return {
        (event["worker"], event["epoch"], event["step"])
        for event in run.events
        if not event["overhead"]
        and 0 <= event["worker"] < run.plan.workers
        and (
            (event["op"] == "queue.publish" and event["resource"] == exchange)
            or (event["op"] in ("tensor.set", "object.put") and key_of(event).startswith(prefix))
        )
    }


def _is_decision(run: Recorded, event: Event) -> bool:
    return str(event["resource"]) == exchange_name(run.plan)


def _supervised(run: Recorded, schedule: Schedule) -> Iterator[tuple[int, Step]]:
    """Yield the supervisor's messages with their steps. A decision belongs to the step in which workers received it; a
    message to the driver belongs to the decision before it."""
    taken: dict[str, Step] = {}
    for event in run.events:
        if event["op"] == "queue.deliver" and event["step"] >= 0 and not event["overhead"]:
            taken.setdefault(event["etag"], (event["epoch"], event["step"]))
    position = -1
    for event in run.events:
        if event["worker"] != run.plan.workers or event["op"] != "queue.publish" or event["overhead"]:
            continue
        if _is_decision(run, event):
            position += 1
            step = taken.get(event["etag"], schedule.place(position))
            while schedule.place(position) < step:
                position += 1
            yield event["event"], step
        else:
            yield event["event"], schedule.place(max(0, position))
