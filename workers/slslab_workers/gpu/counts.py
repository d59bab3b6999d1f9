"""Closed-form messages and bytes of the GPU baseline (docs/protocols.md, "GPU baseline" and "Counts and bytes")."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS
from slslab_workers.patterns import Counts
from slslab_workers.plan import Value


def counts(
    workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
) -> Counts:
    """Count per step n puts and n(n − 1) gets; the gradients of all steps but the last two are deleted."""
    steps, size, others = batches * epochs, 4 * parameters, workers - 1
    operations = {
        "object.put": steps * workers,
        "object.get": steps * workers * others,
        "object.delete": max(0, steps - 2) * workers,
    }
    return Counts(operations, steps * workers * size, steps * workers * others * size)
