"""Closed-form messages, bytes and transitions of SPIRT (protocol reference, chapters 2.9 and 11)."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS, Counts
from slslab_workers.plan import Value


def counts(
    workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
) -> Counts:
    """Per epoch and peer: b gradients in, b + 1 reads of the parameters, n averages read and their aggregate written.

    The average and the update happen in the database: two scripts, and nothing on the wire.
    """
    size = 4 * parameters
    stored = workers * batches + workers
    read = workers * (batches + 1) + workers * workers
    operations = {
        "tensor.set": epochs * stored,
        "tensor.get": epochs * read,
        "tensor.script": epochs * 2 * workers,
        "tensor.delete": epochs * workers,
        "queue.publish": epochs * workers,
        "queue.deliver": epochs * workers * workers,
        "transition": epochs * workers * (batches + 8),
    }
    return Counts(operations, epochs * stored * size, epochs * read * size)
