"""What SPIRT's peers keep in their databases and send each other, epoch by epoch (docs/protocols.md, "SPIRT")."""

from collections import Counter

from slslab.checks.exchange import Name, Parcel, Protocol, Wait, by_script
from slslab.checks.recorded import Place, Recorded
from slslab_workers.channels.queues import scoped
from slslab_workers.spirt.roster import Roster
from slslab_workers.spirt.settings import Keys
from slslab_workers.training import robust


def spirt(run: Recorded) -> Protocol:
    """Return the protocol, by options, until a peer or a message is lost or late: what is missing from then on is not
    told from what the failure takes away."""
    judged = run.failing
    epochs = {epoch for _, epoch, _ in run.computed if judged is None or epoch < judged}
    if judged is None and run.complete and not run.plan.gradual:
        epochs = set(range(run.plan.epochs))
    parcels: list[Parcel] = []
    waits: list[Wait] = []
    minibatches: set[tuple[int, int, int]] = set()
    cleared: set[tuple[int, int]] = set()
    for epoch in sorted(epochs):
        peers = _taking_part(run, epoch)
        follows = epoch + 1 in epochs
        announced = [
            Parcel(
                "announcement", Name(scoped(run.plan.run, "barrier", epoch), rank, epoch, -1), dict.fromkeys(peers, 1)
            )
            for rank in peers
        ]
        aggregates = []
        for rank in peers:
            minibatches.update((rank, epoch, batch) for batch in range(run.plan.batches))
            cleared.add((rank, epoch))
            aggregates.append(_aggregate(run, rank, epoch))
            parcels += (*_averaged(run, rank, epoch, peers), aggregates[-1], *_model(run, rank, epoch, follows))
            if _is_robust(run):
                parcels += _received(run, rank, epoch, peers)
        parcels += announced
        then = _made(run, [parcel.name for parcel in aggregates])
        waits.append(Wait((epoch, -1), tuple(parcel.name for parcel in announced), then))
    keys = Keys(run.plan)
    return Protocol(
        tuple(parcels),
        tuple(waits),
        frozenset(minibatches),
        appended=frozenset(keys.json_gradients(epoch) for epoch in epochs),
        judged=judged,
        unjudged="" if judged is None else f"a peer or a message was lost or late in epoch {judged}: epochs from it on",
        cleared=frozenset(cleared),
    )


def _taking_part(run: Recorded, epoch: int) -> list[int]:
    """Return the peers of an epoch: those that the plan has from the beginning, and those that join, once they do."""
    roster = Roster.of(run.plan.workers, run.plan.options)
    computing = {worker for worker, at, _ in run.computed if at == epoch}
    return sorted({*roster.founders, *(rank for rank in computing if rank in roster.joins)})


def _averaged(run: Recorded, rank: int, epoch: int, peers: list[int]) -> list[Parcel]:
    """Return a peer's gradients, and its average, which all peers take."""
    keys, options, batches = Keys(run.plan), run.plan.options, range(run.plan.batches)
    texts, own = options["gradients"] == "json", {rank: 1}
    size = None if run.parameters is None else 4 * run.parameters
    at: Place = (epoch, -1)
    parcels = [
        Parcel(
            "gradient",
            Name(keys.json_gradients(epoch) if texts else keys.gradient(epoch, batch), rank, epoch, batch),
            own,
            None if texts else size,
            at,
        )
        for batch in batches
    ]
    average, everyone = keys.average(epoch), dict.fromkeys(peers, 1)
    if texts:
        # The mean is the script's answer.
        parcels.append(Parcel("average", Name(by_script(keys.json_gradients(epoch)), rank, *at), {}))
    elif options["averaging"] == "in-database":
        return [*parcels, Parcel("average", Name(by_script(average), rank, *at), everyone, at=at)]
    elif options["averaging"] == "round-trip":
        parcels.append(Parcel("average", Name(by_script(average), rank, *at), own, at=at))
    return [*parcels, Parcel("average", Name(average, rank, *at), everyone, size, at)]


def _is_robust(run: Recorded) -> bool:
    return robust.name_of(run.plan.options) is not None


def _received(run: Recorded, rank: int, epoch: int, peers: list[int]) -> list[Parcel]:
    """Return the others' averages, which a peer copies into its database for the script of a robust rule."""
    keys, size = Keys(run.plan), None if run.parameters is None else 4 * run.parameters
    return [
        Parcel("copy of an average", Name(keys.received(epoch, other), rank, epoch, -1), {rank: 1}, size, (epoch, -1))
        for other in peers
        if other != rank
    ]


def _aggregate(run: Recorded, rank: int, epoch: int) -> Parcel:
    key, size = Keys(run.plan).aggregate(epoch), None if run.parameters is None else 4 * run.parameters
    if _is_robust(run):
        return Parcel("aggregate", Name(by_script(key), rank, epoch, -1), {rank: 1}, at=(epoch, -1))
    return Parcel("aggregate", Name(key, rank, epoch, -1), {rank: 1}, size, (epoch, -1))


def _model(run: Recorded, rank: int, epoch: int, follows: bool) -> list[Parcel]:
    """Return the parameters that a peer's update makes, and with momentum its velocity.

    They are read for each minibatch of the epoch that follows and by its update; before that the check of convergence
    reads the parameters, too.
    """
    keys, options = Keys(run.plan), run.plan.options
    outside = options["update"] == "naive"
    read = 1 + (run.plan.batches + 1 if follows else 0)
    parameters = keys.parameters if outside else by_script(keys.parameters)
    parcels = [Parcel("model", Name(parameters, rank, epoch, -1), {rank: read})]
    if outside and options["update-rule"] == "sgd-momentum":
        parcels.append(Parcel("velocity", Name(keys.velocity, rank, epoch, -1), {rank: 1} if follows else {}))
    return parcels


def _made(run: Recorded, names: list[Name]) -> tuple[int, ...]:
    """Return the events that stored these."""
    wanted = Counter(names)
    found = []
    for event in run.events:
        if event["op"] in ("tensor.set", "tensor.script") and not event["overhead"]:
            key = str(event["resource"]).partition("/")[2]
            key = by_script(key) if event["op"] == "tensor.script" else key
            if Name(key, event["worker"], event["epoch"], event["step"]) in wanted:
                found.append(event["event"])
    return tuple(found)
