"""Closed-form messages and bytes of MLLess (protocol reference, chapters 5.10 and 11, Z = G).

When the scale-in auto-tuner removes workers is decided by the clock, so that a run with it is exact only afterwards,
given the removals that its document tells.
"""

from collections.abc import Mapping, Sequence

from slslab_workers.architecture import NO_OPTIONS, Counts
from slslab_workers.mlless.schedule import Schedule
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
    """Per step U, n I, one C and one TD; every update is stored once and fetched by all, its sender included.

    `updates` counts the significant updates of each step, of as many steps as there were; without a filter every one
    is. `removals` are steps and ranks: n is then how many took part in a step, and an epoch lasts as `Schedule` says.
    """
    schedule, size = Schedule(workers, batches, removals), 4 * parameters
    steps = schedule.start(epochs) if updates is None else len(updates)
    present = [schedule.workers(step) for step in range(steps)]
    sent = present if updates is None else updates
    fetched = sum(n * s for n, s in zip(present, sent, strict=True))
    put, get = _operations(options)
    operations = {
        put: sum(sent),
        get: fetched,
        "queue.publish": sum(sent) + sum(present) + 2 * steps,
        "queue.deliver": fetched + 2 * sum(present) + steps,
    }
    return Counts(operations, sum(sent) * size, fetched * size)


def removal_counts(workers: int, removals: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS) -> Counts:
    """What so many removals add to the overheads: of each K, a stored model and D, and who is left hears D and fetches.

    The j-th leaves n - j others, j = 1, 2, …
    """
    size, heard = 4 * parameters, sum(workers - number for number in range(1, removals + 1))
    put, get = _operations(options)
    operations = {put: removals, get: heard, "queue.publish": 2 * removals, "queue.deliver": removals + heard}
    return Counts(operations, removals * size, heard * size)


def _operations(options: Mapping[str, Value]) -> tuple[str, str]:
    """How updates are stored and fetched."""
    return ("object.put", "object.get") if options.get("store") == "s3" else ("tensor.set", "tensor.get")
