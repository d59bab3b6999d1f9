"""Closed-form messages and bytes of the GPU baseline (protocol reference, chapters 6 and 11, S = G)."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS, Counts
from slslab_workers.plan import Value


def counts(
    workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
) -> Counts:
    """Per step n puts and n(n − 1) gets; the gradients of all steps but the last two are deleted."""
    steps, size, others = batches * epochs, 4 * parameters, workers - 1
    operations = {
        "object.put": steps * workers,
        "object.get": steps * workers * others,
        "object.delete": max(0, steps - 2) * workers,
    }
    return Counts(operations, steps * workers * size, steps * workers * others * size)
