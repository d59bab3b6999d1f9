"""Messages and waits of AllReduce, step by step (`handlers.py`)."""

from slslab_workers.patterns import OWN, Activity, Gathering, Part, Pattern, Signal, Workload, trainer
from slslab_workers.training.algorithms import exchange_every, message_length, start, steps
from slslab_workers.training.released_log import Blocks

PHASE = "synchronise"
MERGED = Signal("merged")


def pattern(workload: Workload) -> Pattern:
    """Return the pattern: all workers put their gradients; rank 0 gets, deletes and adds them as they come, its own
    too, puts the aggregate, and deletes the one of the step before; the others wait for it."""
    workers, parameters = workload.workers, workload.parameters
    size = 4 * message_length(workload.options, parameters)
    every = exchange_every(workload.options, workload.batches)
    put = Activity("object.put", PHASE, bytes=size, makes=(Signal("gradient", of=OWN),), protocol=True)
    delete = Activity("object.delete", PHASE, protocol=True)
    # n gradients are n - 1 additions.
    add = Activity("reduce", PHASE, work=size * (workers - 1) // workers)

    def merge(rank: int) -> tuple[Activity, ...]:
        needs = (Signal("gradient", of=rank),)
        get = Activity("object.get", PHASE, bytes=size, needs=needs, polling="list", protocol=True)
        return get, delete, add

    merged = Gathering(tuple(merge(rank) for rank in range(workers)))
    publish = (
        Activity("object.put", PHASE, bytes=size, makes=(MERGED,), protocol=True),
        Activity("object.list", PHASE),
        Activity("object.delete", PHASE, protocol=True, since=every),
    )
    get = Activity("object.get", PHASE, bytes=size, needs=(MERGED,), polling="get", protocol=True)

    def root(_number: int, receive: Part) -> Blocks:
        return ((), (put,), (merged,), publish, (receive,))

    def others(_number: int, receive: Part) -> Blocks:
        return ((), (put,), (), (get,), (receive,), ())

    roles = (
        trainer(range(1), parameters, *steps(workload, root), start=start(workload, root=True)),
        trainer(range(1, workers), parameters, *steps(workload, others), start=start(workload, root=False)),
    )
    return Pattern(workload, roles)
