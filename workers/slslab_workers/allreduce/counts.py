"""Closed-form messages and bytes of AllReduce (docs/protocols.md, "AllReduce" and "Counts and bytes")."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS
from slslab_workers.patterns import Counts
from slslab_workers.plan import Value


def counts(
    workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
) -> Counts:
    """Count per step n + 1 puts, 2n − 1 gets, n deletes, and from the second step one more of the expired aggregate."""
    steps, size = batches * epochs, 4 * parameters
    operations = {
        "object.put": steps * (workers + 1),
        "object.get": steps * (2 * workers - 1),
        "object.delete": steps * workers + steps - 1,
    }
    return Counts(operations, steps * (workers + 1) * size, steps * (2 * workers - 1) * size)
