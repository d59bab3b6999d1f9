"""What KubeML's functions and job exchange, round by round (docs/protocols.md, "KubeML").

Steps in this protocol are rounds; the functions' own steps count minibatches.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from slslab_workers.kubeml import settings
from slslab_workers.kubeml.shares import Epoch
from slslab_workers.patterns.messages import Event, Message, Name, Protocol, Recorded, Step, Wait, key_of

# Worker 0 in the trace also stores the first model.
INIT, FIRST = 0, (0, 0)
# A round, and the functions that report in it.
Round = tuple[Step, Sequence[int]]


def protocol(run: Recorded) -> Protocol:
    """Return the protocol: in each round the job reads all reported models, and makes the reference model."""
    plan, job, failing = run.plan, settings.job_rank(run.plan), _failing(run)
    epochs = _epochs(run, failing)
    rounds: list[Round] = [((epoch, n), who) for epoch in epochs for n, who in enumerate(epochs[epoch].rounds)]
    steps = dict(_steps(run, epochs, [step for step, _ in rounds]))
    first: dict[tuple[int, Step], int] = {}
    for number, step in steps.items():
        event = run.events[number]
        if event["worker"] != job or event["op"] == "tensor.set":
            first.setdefault((event["worker"], step), number)
    layers, reports = _layers(run), settings.job_queue(plan)
    references = [settings.reference_key(plan, layer) for layer in layers]
    messages: list[Message] = []
    waits: list[Wait] = []
    # The first model is made in the first epoch, too.
    for one, following in pairwise((None, *rounds, None) if failing != 0 else ()):
        followers = list(_followers(run, epochs, one, following))
        takers = Counter(follower for follower, _ in followers)
        maker, step = (INIT, FIRST) if one is None else (job, one[0])
        kind = "first model" if one is None else "reference model"
        messages += (Message(kind, Name(key, maker, *step), takers) for key in references)
        if one is None:
            continue
        reported = [
            Message("model", Name(settings.copy_key(plan, layer, function), function, *step), {job: 1})
            for function in one[1]
            for layer in layers
        ]
        reported += [Message("report", Name(reports, function, *step), {job: 1}) for function in one[1]]
        waiting = following[1] if following is not None and following[0][0] == step[0] else ()
        answers = [Message("answer", Name(settings.function_queue(plan, f), job, *step), {f: 1}) for f in waiting]
        messages += (*reported, *answers)
        then = (first.get(follower) for follower in ((job, step), *followers))
        waits.append(Wait(step, tuple(p.name for p in reported), tuple(event for event in then if event is not None)))
    return Protocol(
        tuple(messages),
        tuple(waits),
        frozenset(_minibatches(epochs)),
        steps=steps,
        judged=failing,
        unjudged="" if failing is None else f"a function failed in epoch {failing}: epochs from it on",
    )


def _failing(run: Recorded) -> int | None:
    job = settings.job_rank(run.plan)
    epochs = {event["invocation"]: event["epoch"] for event in run.events if 0 <= event["worker"] < job}
    failed = (record["request_id"] for record in run.invocations if record["status"] != "success")
    found = [epochs[invocation] for invocation in failed if invocation in epochs]
    # A function that fails at once has no events.
    left_out = () if run.document is None else run.document["details"].get("failed_functions", ())
    found += [function["epoch"] for function in left_out]
    found += [] if run.failing is None else [run.failing]
    return min(found, default=None)


def _epochs(run: Recorded, failing: int | None) -> Mapping[int, Epoch]:
    """Return the epochs that ran or should have run, each with its functions' shares, up to the first failure."""
    plan = run.plan
    begun: dict[int, int] = {}
    for function, epoch, _ in sorted(run.computed):
        begun[epoch] = function + 1
    whole = run.complete and not plan.gradual
    count = plan.epochs if whole else max((epoch + 1 for epoch in begun), default=0)
    static = plan.options[settings.PARALLELISM.name] == settings.STATIC
    return {
        epoch: settings.epoch_of(plan, plan.workers if static else begun.get(epoch, plan.workers))
        for epoch in range(count if failing is None else min(count, failing))
    }


def _minibatches(epochs: Mapping[int, Epoch]) -> Iterator[tuple[int, int, int]]:
    for number, epoch in epochs.items():
        for function in range(epoch.functions):
            for step in range(sum(map(epoch.steps, epoch.intervals(function)))):
                yield function, number, step


def _layers(run: Recorded) -> list[str]:
    prefix = settings.reference_key(run.plan, "")
    sets = (e for e in run.events if e["op"] == "tensor.set" and (e["worker"], e["phase"]) == (INIT, "other"))
    return [key_of(event).removeprefix(prefix) for event in sets if not event["failed"]]


def _followers(
    run: Recorded, epochs: Mapping[int, Epoch], one: Round | None, following: Round | None
) -> Iterator[tuple[int, Step]]:
    """Yield the functions that read a round's reference, with where they do: in an epoch's last round they validate it,
    else they train from it in the next round."""
    if one is not None and run.plan.evaluation and (following is None or following[0][0] != one[0][0]):
        epoch, number = one[0]
        for function in range(epochs[epoch].functions):
            yield function, (epoch, number + 1)
    if following is not None:
        for function in following[1]:
            yield function, following[0]


def _steps(run: Recorded, epochs: Mapping[int, Epoch], rounds: Sequence[Step]) -> Iterator[tuple[int, Step]]:
    """Yield exchanged events with their round. A function's round begins with the reference model, the job's with the
    first report after a merge. Validation comes after an epoch's last round."""
    job = settings.job_rank(run.plan)
    exchanged = [e for e in run.events if e["op"].startswith(("tensor.", "queue.")) and not e["failed"]]
    functions: dict[str, list[Event]] = {}
    for event in exchanged:
        if 0 <= event["worker"] < job:
            functions.setdefault(event["invocation"], []).append(event)
    for events in functions.values():
        number, reported = 0, False
        for event in events:
            epoch = event["epoch"]
            if reported and event["op"] == "tensor.get":
                number, reported = number + 1, False
            reported = reported or event["op"] == "queue.publish"
            validates = (event["op"], event["phase"]) == ("tensor.get", "other") and epoch in epochs
            yield event["event"], (epoch, len(epochs[epoch].rounds) if validates else number)
    index, merged = 0, False
    for event in exchanged:
        if event["worker"] == job:
            if merged and event["op"] == "queue.deliver" and not event["overhead"]:
                index, merged = index + 1, False
            merged = merged or event["op"] == "tensor.set"
            if index < len(rounds):
                yield event["event"], rounds[index]
