"""Closed-form messages, bytes and transitions of SPIRT (docs/protocols.md, "SPIRT" and "Counts and bytes")."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS
from slslab_workers.patterns import Counts
from slslab_workers.plan import Value
from slslab_workers.spirt.roster import Roster


def counts(
    workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
) -> Counts:
    """Return the counts of a run: per epoch and peer b gradients in, b + 1 reads of the parameters, n averages read and
    their aggregate written, n being the peers that take part in the epoch.

    By default average and update are two scripts in the database, with nothing on the wire; with other `options` the
    mean, all gradients or the model pass through a function. Gradients as JSON texts count as requests without bytes:
    their length depends on their numbers.
    """
    roster = Roster.of(workers, options)
    active = [len(roster.active(epoch)) for epoch in range(epochs)]
    peers, pairs = sum(active), sum(n * n for n in active)
    texts, momentum = options["gradients"] == "json", options["update-rule"] == "sgd-momentum"
    averaging, outside = options["averaging"], options["update"] == "naive"
    # By peer and epoch: tensors read, tensors stored beside the gradients, and scripts.
    read, stored, scripts = batches + 1, 1, 2
    if texts or averaging == "round-trip":
        # The mean of texts is the script's answer; the mean of tensors is fetched.
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
