"""What is left: no object but those that the protocol leaves, no queue, and no execution environment."""

from collections import Counter
from collections.abc import Iterator

from slslab.run.run import Run
from slslab_lab.checks.exchange import DELETES, Exchange
from slslab_lab.checks.messages import where, who
from slslab_lab.checks.violation import NotChecked, Violation
from slslab_workers.patterns.messages import Event, key_of
from slslab_workers.trace.operations import KEYED

PUTS = tuple(f"{channel}.put" for channel in KEYED)
# What every run leaves in its bucket, which its driver empties: names below the run's own.
KEPT = ("data", "train", "test", "state", "model", "results", "logs", "validation", "verdicts")
UNFINISHED = "the run did not come to its end, and left what there was"


def check_objects(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Objects are deleted as the protocol says, once, and no others are left."""
    if not run.complete:
        raise NotChecked(UNFINISHED)
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
            yield Violation.by(event, "objects", f"{who(run, event['worker'])} deleted {key}, which was not there")
    for key, event in there.items():
        message = messages.get(key)
        if message is None and not _is_kept(run, key):
            yield Violation.by(event, "objects", f"{key} is left, which the protocol does not have")
        elif message is not None and message.deleted_by is not None:
            what = f"{message.kind} of {where(message.name[2:])}"
            yield Violation.by(
                event, "objects", f"The {what} is left, which {who(run, message.deleted_by, inside=True)} deletes"
            )
    for key, numbers in exchange.deleted.items():
        message = messages.get(key)
        for event in (run.events[number] for number in numbers):
            if message is None or message.deleted_by != event["worker"]:
                sentence = f"{who(run, event['worker'])} deleted {key}, which the protocol does not have it delete"
                yield Violation.by(event, "objects", sentence)
    yield from _check_cleared(run, exchange)


def _check_cleared(run: Run, exchange: Exchange) -> Iterator[Violation]:
    """Check that who has several tensors to delete in an epoch did, once."""
    cleared = Counter((e["worker"], e["epoch"]) for e in run.events if e["op"] == "tensor.delete" and not e["overhead"])
    for rank, epoch in sorted(exchange.protocol.cleared):
        if cleared[rank, epoch] != 1:
            sentence = f"{who(run, rank)} deleted its gradients of epoch {epoch} {cleared[rank, epoch]} times."
            yield Violation("objects", sentence, rank, epoch, event=exchange.after(rank, (epoch, -1)))


def check_queues(run: Run) -> Iterator[Violation]:
    """Every queue that was declared is deleted."""
    if not run.complete:
        raise NotChecked(UNFINISHED)
    declared = {e["resource"]: e for e in run.events if e["op"] == "queue.declare" and not e["failed"]}
    deleted = {e["resource"]: e["end_ns"] for e in run.events if e["op"] == "queue.delete" and not e["failed"]}
    for queue, event in declared.items():
        if deleted.get(queue, 0) < event["start_ns"]:
            yield Violation("queues", f"The queue {queue} is left.", event["worker"], event=event["event"])


def check_environments(run: Run) -> Iterator[Violation]:
    """Every execution environment that was started has ended, once."""
    if not run.complete:
        raise NotChecked(UNFINISHED)
    started = {e["resource"]: e for e in run.events if e["op"] == "environment.start"}
    ended = Counter(e["resource"] for e in run.events if e["op"] == "environment.kill")
    for environment, event in started.items():
        if ended[environment] != 1:
            sentence = f"The execution environment {environment} ended {ended[environment]} times."
            yield Violation("environments", sentence, event["worker"], event=event["event"])


def _is_kept(run: Run, key: str) -> bool:
    prefix, _, name = key.partition("/")
    return prefix == run.plan.run and name.partition("/")[0] in KEPT
