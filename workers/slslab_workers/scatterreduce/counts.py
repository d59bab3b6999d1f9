"""Closed-form messages and bytes of ScatterReduce (docs/protocols.md, "ScatterReduce" and "Counts and bytes")."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS
from slslab_workers.patterns import Counts
from slslab_workers.plan import Value


def counts(
    workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
) -> Counts:
    """Count per step n² puts, 2n(n − 1) gets, n(n − 1) deletes of partial chunks, and from the second step n of expired
    merged ones."""
    steps, size, others = batches * epochs, 4 * parameters, workers - 1
    operations = {
        "object.put": steps * workers * workers,
        "object.get": steps * 2 * workers * others,
        "object.delete": steps * workers * others + (steps - 1) * workers,
    }
    return Counts(operations, steps * workers * size, steps * 2 * others * size)
