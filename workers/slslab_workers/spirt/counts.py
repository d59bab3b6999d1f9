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
    nothing on the wire; with other `options` the mean, or all gradients, or the model pass through a function. Of texts
    (gradients as JSON) requests are counted, and no bytes: how long they are depends on their numbers.
    """
    roster = Roster.of(workers, options)
    active = [len(roster.active(epoch)) for epoch in range(epochs)]
    peers, pairs = sum(active), sum(n * n for n in active)
    texts, momentum = options.get("gradients") == "json", options.get("update-rule") == "sgd-momentum"
    averaging, outside = options.get("averaging", "in-database"), options.get("update") == "naive"
    # Tensors beside the gradients, by peer and epoch: parameters, mean, aggregate, and those of the update.
    read, stored, scripts = batches + 1, 1, 2
    if texts or averaging == "round-trip":
        # A script's answer is the mean of texts; that of tensors is fetched.
        read, stored = read + (not texts), stored + 1
    elif averaging == "naive":
        read, stored, scripts = read + batches, stored + 1, scripts - 1
    if outside:
        read, stored, scripts = read + 2 + momentum, stored + 1 + momentum, scripts - 1
    operations = {
        "tensor.set": peers * (batches + stored),
        "tensor.get": peers * read + pairs,
        "tensor.script": peers * scripts,
        "tensor.delete": peers,
        "queue.publish": peers,
        "queue.deliver": pairs,
        "transition": peers * (batches + 8),
    }
    size = 4 * parameters
    return Counts(operations, peers * (stored + (0 if texts else batches)) * size, (peers * read + pairs) * size)
