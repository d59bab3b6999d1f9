"""Closed-form messages and bytes of MLLess (protocol reference, chapters 5.10 and 11, Z = G)."""

from slslab_workers.architecture import Counts


def counts(
    workers: int, batches: int, epochs: int, parameters: int, *, updates: int | None = None, store: str = "tensordb"
) -> Counts:
    """Per step U, n I, one C and one TD; every update is stored once and fetched by all, its sender included.

    `updates` counts significant updates of all workers over all steps; without a filter every one is.
    """
    steps, size = batches * epochs, 4 * parameters
    sent = steps * workers if updates is None else updates
    put, get = ("tensor.set", "tensor.get") if store == "tensordb" else ("object.put", "object.get")
    operations = {
        put: sent,
        get: workers * sent,
        "queue.publish": sent + steps * (workers + 2),
        "queue.deliver": workers * sent + 2 * steps * workers + steps,
    }
    return Counts(operations, sent * size, workers * sent * size)
