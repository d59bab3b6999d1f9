"""Closed-form messages, bytes and transitions of SPIRT (protocol reference, chapters 2.9 and 11)."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS, Counts
from slslab_workers.plan import Value
from slslab_workers.spirt.roster import Roster


def counts(
    workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
) -> Counts:
    """Per epoch and peer: b gradients in, b + 1 reads of the parameters, n averages read and their aggregate written.

    n counts the peers that take part in the epoch. The average and the update happen in the database: two scripts, and
    nothing on the wire.
    """
    roster = Roster.of(workers, options)
    active = [len(roster.active(epoch)) for epoch in range(epochs)]
    peers, pairs = sum(active), sum(n * n for n in active)
    size = 4 * parameters
    stored = peers * (batches + 1)
    read = peers * (batches + 1) + pairs
    operations = {
        "tensor.set": stored,
        "tensor.get": read,
        "tensor.script": 2 * peers,
        "tensor.delete": peers,
        "queue.publish": peers,
        "queue.deliver": pairs,
        "transition": peers * (batches + 8),
    }
    return Counts(operations, stored * size, read * size)
