"""Closed-form messages and bytes of MLLess (protocol reference, chapters 5.10 and 11, Z = G)."""

from collections.abc import Mapping

from slslab_workers.architecture import NO_OPTIONS, Counts
from slslab_workers.plan import Value


def counts(
    workers: int,
    batches: int,
    epochs: int,
    parameters: int,
    options: Mapping[str, Value] = NO_OPTIONS,
    *,
    updates: int | None = None,
) -> Counts:
    """Per step U, n I, one C and one TD; every update is stored once and fetched by all, its sender included.

    `updates` counts significant updates of all workers over all steps; without a filter every one is.
    """
    steps, size = batches * epochs, 4 * parameters
    sent = steps * workers if updates is None else updates
    in_bucket = options.get("store") == "s3"
    put, get = ("object.put", "object.get") if in_bucket else ("tensor.set", "tensor.get")
    operations = {
        put: sent,
        get: workers * sent,
        "queue.publish": sent + steps * (workers + 2),
        "queue.deliver": workers * sent + 2 * steps * workers + steps,
    }
    return Counts(operations, sent * size, workers * sent * size)
