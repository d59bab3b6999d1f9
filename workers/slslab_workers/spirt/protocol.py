"""What SPIRT's peers store in their databases and send each other, by epoch (docs/protocols.md, "SPIRT")."""

from slslab_workers.channels.queues import scoped
from slslab_workers.patterns.messages import Message, Name, Protocol, Recorded, Step, Wait, by_script, key_of
from slslab_workers.spirt.roster import Roster
from slslab_workers.spirt.settings import Keys
from slslab_workers.training import robust
from slslab_workers.training.attacks import Attack


def protocol(run: Recorded) -> Protocol:
    """Return the protocol for these options. It ends where a peer or a message is lost or late: from then on, what is
    missing by mistake looks like what the failure removed."""
    judged = run.failing
    epochs = {epoch for _, epoch, _ in run.computed if judged is None or epoch < judged}
    if judged is None and run.complete and not run.plan.gradual:
        epochs = set(range(run.plan.epochs))
    messages: list[Message] = []
    waits: list[Wait] = []
    trained: set[tuple[int, int]] = set()
    for epoch in sorted(epochs):
        peers = _taking_part(run, epoch)
        for rank in peers:
            messages += (*_averaged(run, rank, epoch, peers), *_model(run, rank, epoch, epoch + 1 in epochs))
            messages += _received(run, rank, epoch, peers) if _is_robust(run) else ()
            trained.add((rank, epoch))
        aggregates = [_aggregate(run, rank, epoch) for rank in peers]
        queue = scoped(run.plan.run, "barrier", epoch)
        announced = [Message("announcement", Name(queue, rank, epoch, -1), dict.fromkeys(peers, 1)) for rank in peers]
        messages += (*aggregates, *announced)
        then = _made(run, {message.name for message in aggregates})
        waits.append(Wait((epoch, -1), tuple(message.name for message in announced), then))
    keys = Keys(run.plan)
    return Protocol(
        tuple(messages),
        tuple(waits),
        frozenset((*each, batch) for each in trained for batch in range(run.plan.batches)),
        appended=frozenset(keys.json_gradients(epoch) for epoch in epochs),
        judged=judged,
        unjudged="" if judged is None else f"a peer or a message was lost or late in epoch {judged}: epochs from it on",
        cleared=frozenset(trained),
    )


def _taking_part(run: Recorded, epoch: int) -> list[int]:
    roster = Roster.of(run.plan.workers, run.plan.options)
    computing = {worker for worker, at, _ in run.computed if at == epoch}
    return sorted({*roster.founders, *(computing & roster.joins.keys())})


def _averaged(run: Recorded, rank: int, epoch: int, peers: list[int]) -> list[Message]:
    keys, options, batches = Keys(run.plan), run.plan.options, range(run.plan.batches)
    texts, own = options["gradients"] == "json", {rank: 1}
    at: Step = (epoch, -1)
    messages = [
        Message(
            "gradient",
            Name(keys.json_gradients(epoch) if texts else keys.gradient(epoch, batch), rank, epoch, batch),
            own,
            None if texts else run.gradient_bytes,
            at,
        )
        for batch in batches
    ]
    average, attack = keys.average(epoch), Attack.of(run.plan)
    # An attacker's replacement counts as overhead, so the average itself is never read.
    everyone = None if attack is not None and attack.replaces(rank) else dict.fromkeys(peers, 1)
    if texts:
        # The script returns the mean.
        messages.append(Message("average", Name(by_script(keys.json_gradients(epoch)), rank, *at), {}))
    elif options["averaging"] == "in-database":
        return [*messages, Message("average", Name(by_script(average), rank, *at), everyone, at=at)]
    elif options["averaging"] == "round-trip":
        messages.append(Message("average", Name(by_script(average), rank, *at), own, at=at))
    return [*messages, Message("average", Name(average, rank, *at), everyone, run.gradient_bytes, at)]


def _is_robust(run: Recorded) -> bool:
    return robust.name_of(run.plan.options) is not None


def _received(run: Recorded, rank: int, epoch: int, peers: list[int]) -> list[Message]:
    """Return the others' averages, which a peer copies into its database for the script of a robust rule."""
    names = [Name(Keys(run.plan).received(epoch, other), rank, epoch, -1) for other in peers if other != rank]
    return [Message("copy of an average", name, {rank: 1}, run.gradient_bytes, (epoch, -1)) for name in names]


def _aggregate(run: Recorded, rank: int, epoch: int) -> Message:
    key, size = Keys(run.plan).aggregate(epoch), run.gradient_bytes
    if _is_robust(run):
        key, size = by_script(key), None
    return Message("aggregate", Name(key, rank, epoch, -1), {rank: 1}, size, (epoch, -1))


def _model(run: Recorded, rank: int, epoch: int, follows: bool) -> list[Message]:
    """Return the parameters after a peer's update, and with momentum its velocity.

    They are read for each minibatch of the next epoch and by its update. Before that, the convergence check reads the
    parameters.
    """
    keys, options = Keys(run.plan), run.plan.options
    outside = options["update"] == "naive"
    read = 1 + (run.plan.batches + 1 if follows else 0)
    parameters = keys.parameters if outside else by_script(keys.parameters)
    messages = [Message("model", Name(parameters, rank, epoch, -1), {rank: read})]
    if outside and options["update-rule"] == "sgd-momentum":
        messages.append(Message("velocity", Name(keys.velocity, rank, epoch, -1), {rank: 1} if follows else {}))
    return messages


def _made(run: Recorded, names: set[Name]) -> tuple[int, ...]:
    stored = (e for e in run.events if e["op"] in ("tensor.set", "tensor.script") and not e["overhead"])
    return tuple(e["event"] for e in stored if (key_of(e), e["worker"], e["epoch"], e["step"]) in names)
