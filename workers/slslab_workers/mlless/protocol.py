"""What MLLess's workers, supervisor and driver exchange, with or without removals (docs/protocols.md, "MLLess").

Traces don't contain messages, so a message's kind follows from its sender and queue.
"""

from collections.abc import Iterator

from slslab_workers.mlless.schedule import Schedule
from slslab_workers.mlless.settings import client_queue, exchange_name, removed_model_key, supervisor_queue, update_key
from slslab_workers.patterns import DRIVER
from slslab_workers.patterns.messages import Message, Name, Protocol, Recorded, Step, Wait, key_of, passing


def protocol(run: Recorded) -> Protocol:
    """Return the protocol: the filter chooses which workers send an update in a step, but all of them must fetch it."""
    plan, supervisor, exchange = run.plan, run.plan.workers, exchange_name(run.plan)
    chosen, sent = plan.options["filter"], _sent(run)
    sends_all = chosen == "none" or (chosen == "norm-ratio" and float(plan.options["threshold"]) == 0)
    # The size of sparse updates is unknown.
    size = None if chosen == "coordinate" else run.gradient_bytes
    schedule = _schedule(run)
    steps = dict(_supervised(run, schedule))
    decisions = {step: number for number, step in steps.items() if key_of(run.events[number]) == exchange}
    messages: list[Message] = []
    waits: list[Wait] = []
    minibatches: set[tuple[int, int, int]] = set()
    present = list(range(plan.workers))
    for position in range(_steps(run, schedule)):
        step = schedule.place(position)
        minibatches.update((rank, *step) for rank in present)
        everyone = dict.fromkeys(present, 1)
        for rank in present:
            if sends_all or (rank, *step) in sent:
                key = update_key(plan, rank, position)
                messages.append(Message("update", Name(key, rank, *step), everyone, size, step))
                messages.append(Message("announcement of an update", Name(exchange, rank, *step), everyone))
        reports = [Message("report", Name(supervisor_queue(plan), rank, *step), {supervisor: 1}) for rank in present]
        decision = Message("decision", Name(exchange, supervisor, *step), everyone, at=step)
        told = Message("statistics", Name(client_queue(plan), supervisor, *step), {DRIVER: 1})
        messages += (*reports, decision, told)
        decided = (decisions[step],) if step in decisions else ()
        waits.append(Wait(step, tuple(r.name for r in reports), (*decided, *passing(run, step, present, "update"))))
        for rank in (rank for at, rank in schedule.removals if at == position):
            # A removed worker leaves its model to the others.
            present = [other for other in present if other != rank]
            name, remaining = Name(removed_model_key(plan, rank=rank), rank, *step), dict.fromkeys(present, 1)
            messages.append(Message("model", name, remaining, run.gradient_bytes, step, overhead=True))
    return Protocol(tuple(messages), tuple(waits), frozenset(minibatches), steps=steps)


def _schedule(run: Recorded) -> Schedule:
    """Return the schedule with the recorded removals. Each removed worker tells the others with a message that isn't
    part of the training protocol."""
    plan = run.plan
    schedule = Schedule(plan.workers, plan.batches)
    for event in run.events:
        told = event["op"] == "queue.publish" and key_of(event) == exchange_name(plan) and not event["failed"]
        if told and event["overhead"] and 0 <= event["worker"] < plan.workers:
            schedule = schedule.after(schedule.start(event["epoch"]) + event["step"], event["worker"])
    return schedule


def _steps(run: Recorded, schedule: Schedule) -> int:
    """Return the plan's number of steps, or if training may end early, the number that any worker began."""
    plan = run.plan
    ends_early = plan.gradual or float(plan.options["max-time"]) or float(plan.options["end-threshold"])
    if run.complete and not ends_early:
        return schedule.start(plan.epochs)
    return max((schedule.start(epoch) + step + 1 for _, epoch, step in run.computed), default=0)


def _sent(run: Recorded) -> set[tuple[int, int, int]]:
    """Return the workers that stored or announced an update, with its epoch and step."""
    prefixes = exchange_name(run.plan), f"{run.plan.run}/mlless/"
    return {
        (event["worker"], event["epoch"], event["step"])
        for event in run.events
        if event["op"] in ("queue.publish", "tensor.set", "object.put")
        and not event["overhead"]
        and key_of(event).startswith(prefixes)
    }


def _supervised(run: Recorded, schedule: Schedule) -> Iterator[tuple[int, Step]]:
    """Yield the supervisor's messages with their steps. A decision belongs to the step in which workers received it; a
    message to the driver belongs to the decision before it."""
    taken: dict[str, Step] = {}
    for event in run.events:
        if event["op"] == "queue.deliver" and event["step"] >= 0 and not event["overhead"]:
            taken.setdefault(event["etag"], (event["epoch"], event["step"]))
    position = -1
    for event in run.events:
        if event["worker"] == run.plan.workers and event["op"] == "queue.publish" and not event["overhead"]:
            if key_of(event) == exchange_name(run.plan):
                epoch, step = taken.get(event["etag"], schedule.place(position + 1))
                position = schedule.start(epoch) + step
            yield event["event"], schedule.place(max(0, position))
