"""Closed-form messages and bytes of MLLess (docs/protocols.md, "MLLess" and "Counts and bytes").

The clock decides when the scale-in auto-tuner removes workers. So the counts of a run with the tuner can only be
computed from the removals in its document.
"""

from collections.abc import Mapping, Sequence

from slslab_workers.architecture import NO_OPTIONS
from slslab_workers.mlless.schedule import Schedule
from slslab_workers.patterns import Counts
from slslab_workers.plan import Value


def counts(
    workers: int,
    batches: int,
    epochs: int,
    parameters: int,
    options: Mapping[str, Value] = NO_OPTIONS,
    *,
    updates: Sequence[int] | None = None,
    removals: Sequence[Sequence[int]] = (),
) -> Counts:
    """Count per step U, n I, one C and one TD; every update is stored once and fetched by all, including its sender.

    `updates` lists the number of significant updates in each step, by default all of them. `removals` lists (step,
    rank): n is then the number of workers in a step, and `Schedule` gives an epoch's length.
    """
    schedule, size = Schedule(workers, batches, removals), 4 * parameters
    steps = schedule.start(epochs) if updates is None else len(updates)
    present = [workers - sum(at < step for at, _ in removals) for step in range(steps)]
    sent = present if updates is None else updates
    fetched = sum(n * s for n, s in zip(present, sent, strict=True))
    put, get = store_operations(options)
    operations = {
        put: sum(sent),
        get: fetched,
        "queue.publish": sum(sent) + sum(present) + 2 * steps,
        "queue.deliver": fetched + 2 * sum(present) + steps,
    }
    return Counts(operations, sum(sent) * size, fetched * size)


def removal_counts(workers: int, removals: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS) -> Counts:
    """Count the overheads of this many removals.

    Each adds one K, a stored model and D, which every remaining worker receives before it fetches the model. After the
    j-th removal n - j workers remain, j = 1, 2, …
    """
    size, received = 4 * parameters, sum(workers - number for number in range(1, removals + 1))
    put, get = store_operations(options)
    operations = {put: removals, get: received, "queue.publish": 2 * removals, "queue.deliver": removals + received}
    return Counts(operations, removals * size, received * size)


def store_operations(options: Mapping[str, Value]) -> tuple[str, str]:
    """Return the operations that store and fetch updates."""
    return ("object.put", "object.get") if options.get("store") == "s3" else ("tensor.set", "tensor.get")
