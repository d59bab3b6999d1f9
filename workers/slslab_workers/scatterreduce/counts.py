"""Closed-form messages and bytes of ScatterReduce (protocol reference, chapters 4.5 and 11)."""

from slslab_workers.architecture import Counts


def counts(workers: int, batches: int, epochs: int, parameters: int) -> Counts:
    """Per step n² puts and 2n(n − 1) gets; n(n − 1) partial chunks are deleted, and n expired merged ones but once."""
    steps, size, others = batches * epochs, 4 * parameters, workers - 1
    operations = {
        "object.put": steps * workers * workers,
        "object.get": steps * 2 * workers * others,
        "object.delete": steps * workers * others + (steps - 1) * workers,
    }
    return Counts(operations, steps * workers * size, steps * 2 * others * size)
