"""Leftovers: a finished run leaves only the objects that its protocol keeps, and no queue or execution environment."""

from collections import Counter
from collections.abc import Iterator

from slslab.run.run import Run
from slslab.run.table import PUTS
from slslab_lab.checks.exchange import DELETES, Exchange
from slslab_lab.checks.messages import step_name, who
from slslab_lab.checks.violation import Violation
from slslab_workers.patterns.messages import Event, key_of

# Keys that every run leaves below its own prefix; the driver empties the bucket later.
KEPT = ("data", "train", "test", "state", "model", "results", "logs", "validation", "verdicts")


def check_objects(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Check that objects are deleted once, as the protocol says, and that no others are left."""
    messages = {message.name.key: message for message in exchange.messages.values()}
    there: dict[str, Event] = {}
    event: Event
    for event in run.events:
        if event["failed"] or event["op"] not in (*PUTS, *DELETES):
            continue
        key = key_of(event)
        if event["op"] in PUTS:
            there[key] = event
        elif there.pop(key, None) is None:
            yield Violation.by(event, "objects", f"{who(run, event['worker'])} deleted {key}, which didn't exist")
    for key, event in there.items():
        message = messages.get(key)
        if message is None and key.split("/")[:2] not in [[run.plan.run, name] for name in KEPT]:
            yield Violation.by(event, "objects", f"{key} is left, and isn't part of the protocol")
        elif message is not None and message.deleted_by is not None:
            what = f"{message.kind} of {step_name(message.name[2:])}"
            yield Violation.by(
                event, "objects", f"The {what} is left: {who(run, message.deleted_by, inside=True)} didn't delete it"
            )
    for key, numbers in exchange.deleted.items():
        message = messages.get(key)
        for event in (run.events[number] for number in numbers):
            if message is None or message.deleted_by != event["worker"]:
                sentence = f"{who(run, event['worker'])} deleted {key}, which the protocol doesn't ask it to"
                yield Violation.by(event, "objects", sentence)
    yield from _check_cleared(run, exchange)


def _check_cleared(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Check that each worker that deletes several tensors in an epoch did so once."""
    cleared = Counter((e["worker"], e["epoch"]) for e in run.events if e["op"] == "tensor.delete" and not e["overhead"])
    for rank, epoch in sorted(exchange.protocol.cleared):
        if cleared[rank, epoch] != 1:
            sentence = f"{who(run, rank)} deleted its gradients of epoch {epoch} {cleared[rank, epoch]} times."
            yield Violation("objects", sentence, rank, epoch, event=exchange.after(rank, (epoch, -1)))


def check_queues(run: Run) -> Iterator[Violation]:
    """Check that every declared queue is deleted."""
    declared = {e["resource"]: e for e in run.events if e["op"] == "queue.declare" and not e["failed"]}
    deleted = {e["resource"]: e["end_ns"] for e in run.events if e["op"] == "queue.delete" and not e["failed"]}
    for queue, event in declared.items():
        if deleted.get(queue, 0) < event["start_ns"]:
            yield Violation("queues", f"The queue {queue} is left.", event["worker"], event=event["event"])


def check_environments(run: Run) -> Iterator[Violation]:
    """Check that every execution environment that started ended once."""
    started = {e["resource"]: e for e in run.events if e["op"] == "environment.start"}
    ended = Counter(e["resource"] for e in run.events if e["op"] == "environment.kill")
    for environment, event in started.items():
        if ended[environment] != 1:
            sentence = f"The execution environment {environment} ended {ended[environment]} times."
            yield Violation("environments", sentence, event["worker"], event=event["event"])
