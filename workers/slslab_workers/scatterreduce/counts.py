"""Closed-form messages and bytes of ScatterReduce (protocol reference, chapters 4.5 and 11)."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS, Counts
from slslab_workers.plan import Value


def counts(
    workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
) -> Counts:
    """Per step n² puts and 2n(n − 1) gets; n(n − 1) partial chunks are deleted, and n expired merged ones but once."""
    steps, size, others = batches * epochs, 4 * parameters, workers - 1
    operations = {
        "object.put": steps * workers * workers,
        "object.get": steps * 2 * workers * others,
        "object.delete": steps * workers * others + (steps - 1) * workers,
    }
    return Counts(operations, steps * workers * size, steps * 2 * others * size)
