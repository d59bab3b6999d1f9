"""Messages and waits of the GPU baseline's instances, step by step (`instance.py`)."""

from dataclasses import replace

from slslab_workers.patterns import PHASE, UPDATE, Activity, Part, Pattern, Signal, Workload, trainer

GRADIENTS = Signal("gradient", key="{run}/gpu/gradients/e{epoch}_s{step}/{maker}")
FIRST = replace(GRADIENTS, of=0)


def pattern(workload: Workload) -> Pattern:
    """Return the pattern: all workers put their gradients and get the others' in rank order; rank 0 deletes them
    afterwards.

    Rank 0 is late, so the others wait for it first. They add while they get; the pattern adds after the last get.
    """
    workers, parameters = workload.workers, workload.parameters
    size = 4 * parameters
    reduce = (Activity("reduce", PHASE, times=workers + 1, work=workers * size), UPDATE)

    def get(times: int, needs: Signal) -> Activity:
        return Activity(
            "object.get", PHASE, times=times, bytes=times * size, needs=(needs,), polling="get", protocol=True
        )

    def put(makes: Signal) -> Activity:
        return Activity("object.put", PHASE, bytes=size, makes=(makes,), protocol=True)

    expired = tuple(replace(gradients, ahead=-2) for gradients in (FIRST, GRADIENTS))
    expire = Activity("object.delete", PHASE, times=workers, removes=expired, protocol=True, since=2)
    first: tuple[Part, ...] = (put(FIRST), expire, get(workers - 1, GRADIENTS), *reduce)
    others: tuple[Part, ...] = (put(GRADIENTS), get(1, FIRST), get(workers - 2, GRADIENTS), *reduce)
    roles = (
        trainer(range(1), parameters, first, kind="instance"),
        trainer(range(1, workers), parameters, others, kind="instance"),
    )
    return Pattern(workload, roles)
