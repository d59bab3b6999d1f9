"""Closed-form messages and bytes of AllReduce (protocol reference, chapters 3.7 and 11, S = G)."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS, Counts
from slslab_workers.plan import Value


def counts(
    workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
) -> Counts:
    """Per step n + 1 puts, 2n − 1 gets, n deletes, and one of the expired merged gradient but at the first step."""
    steps, size = batches * epochs, 4 * parameters
    operations = {
        "object.put": steps * (workers + 1),
        "object.get": steps * (2 * workers - 1),
        "object.delete": steps * workers + steps - 1,
    }
    return Counts(operations, steps * (workers + 1) * size, steps * (2 * workers - 1) * size)
