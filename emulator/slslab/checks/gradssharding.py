"""What GradsSharding's clients and aggregators exchange, in any topology (docs/protocols.md, "GradsSharding")."""

from slslab.checks.exchange import Name, Parcel, Protocol, Wait
from slslab.checks.lambdaml import NOWHERE, steps_taken
from slslab.checks.recorded import Place, Recorded
from slslab_workers.gradssharding.settings import UPLOADED, gradient_key, output_key, shards_of, tree_of
from slslab_workers.gradssharding.topology import slices

DRIVER = -1


def gradssharding(run: Recorded) -> Protocol:
    """Return the protocol: level after level takes all that the one before made; the driver deletes a round's objects
    in the next."""
    plan, tree = run.plan, tree_of(run.plan)
    clients, uploaded = range(plan.workers), plan.options["gradients"] == UPLOADED
    parts = _bytes(run, shards_of(plan))
    # Numbers in the trace: after the clients, level by level.
    ranks = [
        [plan.workers + sum(map(len, tree[:depth])) + one.number for one in level] for depth, level in enumerate(tree)
    ]
    steps = plan.epochs * plan.batches if uploaded else steps_taken(run)
    parcels: list[Parcel] = []
    waits: list[Wait] = []
    for position in range(steps):
        place = divmod(position, plan.batches)
        deleted_by = DRIVER if position + 1 < steps else None
        below = []
        for client in clients:
            for shard, size in enumerate(parts):
                takers = {ranks[0][one.number]: 1 for one in tree[0] if client in one.inputs and one.shard in (None, shard)}
                key = gradient_key(plan, position, client, shard)
                if not uploaded:
                    below.append(Parcel("gradient", Name(key, client, *place), takers, size, place, deleted_by))
                elif position == 0:
                    often = {rank: steps for rank in takers}
                    parcels.append(Parcel("gradient", Name(key, DRIVER, *NOWHERE), often, size, overhead=True))
        parcels += below
        for depth, level in enumerate(tree):
            last = depth + 1 == len(tree)
            made = []
            for one in level:
                if not last:
                    takers = {ranks[depth + 1][other.number]: 1 for other in tree[depth + 1] if one.number in other.inputs}
                else:
                    takers = {} if uploaded else dict.fromkeys(clients, 1)
                key = output_key(plan, position, one.level, one.number)
                name = Name(key, ranks[depth][one.number], *place)
                size = parts[one.shard or 0]
                made.append(Parcel("mean" if last else "sum", name, takers, size, place, deleted_by))
            waits.append(Wait(place, tuple(p.name for p in below), _puts(run, [p.name for p in made])))
            parcels += made
            below = made
        used = [number for rank in clients for number in run.updated.get((rank, *place, "update"), ())]
        waits.append(Wait(place, tuple(p.name for p in below), tuple(used)))
    trained = frozenset((rank, *divmod(position, plan.batches)) for rank in clients for position in range(steps))
    return Protocol(tuple(parcels), tuple(waits), frozenset() if uploaded else trained)


def _puts(run: Recorded, names: list[Name]) -> tuple[int, ...]:
    """Return the events that put these."""
    return tuple(number for name in names for number in run.puts.get((name.maker, name.epoch, name.step), ()))


def _bytes(run: Recorded, shards: int) -> list[int | None]:
    """Return the bytes of each slice of a gradient."""
    parameters = int(run.plan.options["parameters"]) or run.parameters
    if parameters is None:
        return [None] * shards
    return [4 * (part.stop - part.start) for part in slices(parameters, shards)]
