"""Who sends what to whom in AllReduce, step by step (`handlers.py`)."""

from slslab_workers.communication import OWN, UPDATE, Activity, Gathering, Part, Pattern, Signal, Workload, trainer
from slslab_workers.logs import Lines, logged_steps

PHASE = "synchronise"
MERGED = Signal("merged")


def pattern(workload: Workload) -> Pattern:
    """Everybody puts its gradient; rank 0 fetches, deletes and adds them as they come, its own too, puts the sum, and
    deletes the one of the step before; the others wait for the sum."""
    workers, parameters = workload.workers, workload.parameters
    size = 4 * parameters
    put = Activity("object.put", PHASE, bytes=size, makes=(Signal("gradient", of=OWN),), protocol=True)

    delete = Activity("object.delete", PHASE, protocol=True)
    # The first one that is added to nothing costs nothing.
    add = Activity("reduce", PHASE, work=size * (workers - 1) // workers)

    def merge(rank: int) -> tuple[Activity, ...]:
        needs = (Signal("gradient", of=rank),)
        get = Activity("object.get", PHASE, bytes=size, needs=needs, polling="list", protocol=True)
        return get, delete, add

    merged = Gathering(tuple(merge(rank) for rank in range(workers)))
    publish = (
        Activity("object.put", PHASE, bytes=size, makes=(MERGED,), protocol=True),
        Activity("object.list", PHASE),
        Activity("object.delete", PHASE, protocol=True, since=1),
    )
    get = Activity("object.get", PHASE, bytes=size, needs=(MERGED,), polling="get", protocol=True)

    def root(_step: int, log: Lines) -> tuple[Part, ...]:
        return (*next(log), put, *next(log), merged, *next(log), *publish, *next(log), UPDATE, *next(log))

    def others(_step: int, log: Lines) -> tuple[Part, ...]:
        waiting = (*next(log), put, *next(log), *next(log))
        return (*waiting, get, *next(log), UPDATE, *next(log), *next(log))

    roles = (
        trainer(range(1), parameters, *logged_steps(workload, root)),
        trainer(range(1, workers), parameters, *logged_steps(workload, others)),
    )
    return Pattern(workload, roles)
