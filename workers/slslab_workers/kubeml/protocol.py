"""What KubeML's functions and job exchange, round by round (docs/protocols.md, "KubeML").

Steps in this protocol are rounds; the functions' own steps count minibatches.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from slslab_workers.kubeml import settings
from slslab_workers.kubeml.pattern import LAYER, pattern_of
from slslab_workers.kubeml.shares import Epoch
from slslab_workers.patterns import Pattern, Workload
from slslab_workers.patterns.messages import Event, Message, Name, Protocol, Recorded, Step, Wait, derive, key_of


def protocol(run: Recorded) -> Protocol:
    """Derive the protocol from the pattern of the epochs that ran. The run tells each epoch's number of functions, the
    entries of the model, and when rounds began."""
    failing = _failing(run)
    epochs = _epochs(run, failing)
    pattern, steps = _pattern(run, epochs), dict(_steps(run, epochs))
    derived = derive(pattern, run, pattern.workload.steps)
    messages = tuple(_of_layers(run, derived.messages))
    waits = tuple(_waits(run, epochs, steps, messages))
    unjudged = "" if failing is None else f"a function failed in epoch {failing}: epochs from it on"
    return replace(derived, messages=messages, waits=waits, steps=steps, judged=failing, unjudged=unjudged)


def _failing(run: Recorded) -> int | None:
    failed = {record["request_id"] for record in run.invocations if record["status"] != "success"}
    functions = (event for event in run.events if 0 <= event["worker"] < settings.job_rank(run.plan))
    epochs = [event["epoch"] for event in functions if event["invocation"] in failed]
    # The document also knows functions that failed at once and have no events.
    return min([*epochs, *([] if run.failing is None else [run.failing])], default=None)


def _epochs(run: Recorded, failing: int | None) -> Sequence[Epoch]:
    """Return the epochs that ran or should have run, each with its functions' shares, up to the first failure."""
    plan = run.plan
    read = {(e["epoch"], e["worker"]) for e in run.events if (e["op"], e["phase"]) == ("tensor.get", "fetch")}
    computed = {(epoch, function) for function, epoch, _ in run.computed}
    begun = {epoch: function + 1 for epoch, function in sorted(read | computed)}
    # The first epoch's model is there before any function reads it.
    count = plan.epochs if run.complete and not plan.gradual else max(begun, default=0) + 1
    static = plan.options[settings.PARALLELISM.name] == settings.STATIC
    functions = (plan.workers if static else begun.get(epoch, plan.workers) for epoch in range(count)[:failing])
    return [settings.epoch_of(plan, number) for number in functions]


def _pattern(run: Recorded, epochs: Sequence[Epoch]) -> Pattern:
    """Return the pattern of these epochs for a model of one entry. Its steps are rounds."""
    plan = run.plan
    rounds = max((len(epoch.rounds) for epoch in epochs), default=plan.batches)
    workload = Workload(settings.job_rank(plan), rounds, len(epochs), 0, evaluation=plan.evaluation)
    groups = [(epoch, list(alike)) for epoch, alike in groupby(range(len(epochs)), epochs.__getitem__)]
    roles = [
        replace(role, since=alike[0], until=alike[-1] + 1)
        for epoch, alike in groups
        for role in pattern_of(workload, epoch).roles
    ]
    return Pattern(workload, tuple(roles))


def _of_layers(run: Recorded, messages: Sequence[Message]) -> Iterator[Message]:
    """Yield messages, and one for each entry of a model. The first model is made in the first round, too."""
    prefix = settings.reference_key(run.plan, layer="")
    sets = (e for e in run.events if e["op"] == "tensor.set" and (e["worker"], e["phase"]) == (0, "other"))
    layers = [key_of(event).removeprefix(prefix) for event in sets if not event["failed"]]
    for message in messages:
        key, maker, epoch, step = message.name
        kind = message.kind if epoch >= 0 else "first model"
        for entry in [key.replace(LAYER, layer) for layer in layers] if LAYER in key else [key]:
            name = Name(entry, maker, max(0, epoch), max(0, step))
            yield replace(message, kind=kind, name=name, size=None, at=None)


def _waits(
    run: Recorded, epochs: Sequence[Epoch], steps: dict[int, Step], messages: Sequence[Message]
) -> Iterator[Wait]:
    """Yield each round's barrier: after all reports the job merges, and functions continue or validate."""
    job = settings.job_rank(run.plan)
    first: dict[tuple[int, Step], int] = {}
    for number, step in steps.items():
        event = run.events[number]
        if event["worker"] != job or event["op"] == "tensor.set":
            first.setdefault((event["worker"], step), number)
    # Messages are in the order of their rounds.
    for (epoch, round_), made in groupby(messages, lambda message: message.name[2:]):
        until = tuple(message.name for message in made if message.takers == {job: 1})
        following = [(epoch, round_ + 1)]
        if round_ + 1 == len(epochs[epoch].rounds):
            following.append((epoch + 1, 0))
        passed = [(job, (epoch, round_)), *((function, step) for step in following for function in range(job))]
        if then := tuple(first[each] for each in passed if each in first):
            yield Wait((epoch, round_), until, then)


def _steps(run: Recorded, epochs: Sequence[Epoch]) -> Iterator[tuple[int, Step]]:
    """Yield exchanged events with their round. A function's round begins with the reference model, the job's with the
    first report after a merge. Validation comes after an epoch's last round."""
    job = settings.job_rank(run.plan)
    rounds = [(epoch, number) for epoch, each in enumerate(epochs) for number in range(len(each.rounds))]
    invocations: dict[str, list[Event]] = defaultdict(list)
    for event in run.events:
        counts = event["worker"] >= 0 and event["epoch"] < len(epochs) and not event["failed"]
        if counts and event["op"].startswith(("tensor.", "queue.")):
            invocations[event["invocation"]].append(event)
    for events in invocations.values():
        is_job = events[0]["worker"] == job
        begin, end = ("queue.deliver", "tensor.set") if is_job else ("tensor.get", "queue.publish")
        number, ended = 0, False
        for event in events:
            epoch = event["epoch"]
            if ended and event["op"] == begin and not event["overhead"]:
                number, ended = number + 1, False
            ended = ended or event["op"] == end
            validates = (event["op"], event["phase"]) == ("tensor.get", "other")
            if not is_job:
                yield event["event"], (epoch, len(epochs[epoch].rounds) if validates else number)
            elif number < len(rounds):
                yield event["event"], rounds[number]
