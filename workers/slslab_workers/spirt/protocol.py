"""What SPIRT's peers store in their databases and send each other, by epoch (docs/protocols.md, "SPIRT")."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from slslab_workers.channels.queues import scoped
from slslab_workers.patterns.messages import Message, Name, Protocol, Recorded, Wait, by_script, key_of
from slslab_workers.spirt.roster import Roster
from slslab_workers.spirt.settings import Keys
from slslab_workers.training import robust
from slslab_workers.training.attacks import Attack


def protocol(run: Recorded) -> Protocol:
    """Return the protocol for these options. It ends where a peer or a message is lost or late: from then on, what is
    missing by mistake looks like what the failure removed."""
    plan, keys, judged = run.plan, Keys(run.plan), run.failing
    epochs = {epoch for _, epoch, _ in run.computed if judged is None or epoch < judged}
    if judged is None and run.complete and not plan.gradual:
        epochs = set(range(plan.epochs))
    joins = Roster.of(plan.workers, plan.options).joins
    computing = {(worker, epoch) for worker, epoch, _ in run.computed}
    stored: dict[Name, list[int]] = defaultdict(list)
    for event in run.events:
        if event["op"] in ("tensor.set", "tensor.script") and not event["overhead"]:
            stored[Name(key_of(event), event["worker"], event["epoch"], event["step"])].append(event["event"])
    messages: list[Message] = []
    waits: list[Wait] = []
    trained: set[tuple[int, int]] = set()
    for epoch in sorted(epochs):
        peers = [rank for rank in range(plan.workers) if rank not in joins or (rank, epoch) in computing]
        trained.update((rank, epoch) for rank in peers)
        made = [message for rank in peers for message in _made(run, rank, epoch, peers, epoch + 1 in epochs)]
        queue = scoped(plan.run, "barrier", epoch)
        announced = [Message("announcement", Name(queue, rank, epoch, -1), dict.fromkeys(peers, 1)) for rank in peers]
        messages += (*made, *announced)
        then = (number for message in made if message.kind == "aggregate" for number in stored[message.name])
        waits.append(Wait((epoch, -1), tuple(message.name for message in announced), tuple(then)))
    return Protocol(
        tuple(messages),
        tuple(waits),
        frozenset((*each, batch) for each in trained for batch in range(plan.batches)),
        appended=frozenset(keys.json_gradients(epoch=epoch) for epoch in epochs),
        judged=judged,
        unjudged="" if judged is None else f"a peer or a message was lost or late in epoch {judged}: epochs from it on",
        cleared=frozenset(trained),
    )


def _made(run: Recorded, rank: int, epoch: int, peers: Sequence[int], follows: bool) -> Iterator[Message]:
    """Yield what a peer stores in an epoch; `follows` tells whether another epoch comes after it."""
    keys, options, batches, size = Keys(run.plan), run.plan.options, run.plan.batches, run.gradient_bytes
    at, own = (epoch, -1), {rank: 1}

    def message(kind: str, key: str, takers: Mapping[int, int] | None = own, size: int | None = size) -> Message:
        return Message(kind, Name(key, rank, *at), takers, size, at)

    average, texts = keys.average(epoch=epoch), keys.json_gradients(epoch=epoch)
    averaging = "json" if options["gradients"] == "json" else options["averaging"]
    for batch in range(batches):
        key, length = (texts, None) if averaging == "json" else (keys.gradient(epoch=epoch, batch=batch), size)
        yield Message("gradient", Name(key, rank, epoch, batch), own, length, at)
    # An attacker's replacement counts as overhead, so the average itself is never read.
    everyone = None if Attack.of(run.plan).replaces(rank) else dict.fromkeys(peers, 1)
    if averaging == "json":
        # The script returns the mean.
        yield message("average", by_script(texts), {}, None)
    elif averaging != "naive":
        yield message("average", by_script(average), everyone if averaging == "in-database" else own, None)
    if averaging != "in-database":
        yield message("average", average, everyone)
    # The convergence check reads the parameters. If an epoch follows, its minibatches and its update read them, too.
    outside, read = options["update"] == "naive", batches + 2 if follows else 1
    parameters = keys.parameters if outside else by_script(keys.parameters)
    yield Message("model", Name(parameters, rank, *at), {rank: read})
    if outside and options["update-rule"] == "sgd-momentum":
        yield Message("velocity", Name(keys.velocity, rank, *at), own if follows else {})
    if robust.name_of(options) is None:
        yield message("aggregate", keys.aggregate(epoch=epoch))
    else:
        # The others' averages are copied for the script of the rule.
        for other in peers:
            if other != rank:
                yield message("copy of an average", keys.received(epoch=epoch, rank=other))
        yield message("aggregate", by_script(keys.aggregate(epoch=epoch)), size=None)
