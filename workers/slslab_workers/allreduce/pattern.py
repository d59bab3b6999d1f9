"""Messages and waits of AllReduce, step by step (`handlers.py`)."""

from dataclasses import replace

from slslab_workers.channels.choice import adds_up, deleted_bytes, lists, moved_bytes, traced
from slslab_workers.patterns import (
    ANYONE,
    OWN,
    PHASE,
    Activity,
    Chain,
    Gathering,
    Part,
    Pattern,
    Polling,
    Signal,
    Workload,
)
from slslab_workers.training.algorithms import exchange_every, is_asynchronous, is_em, message_length, role
from slslab_workers.training.released_log import Blocks

GRADIENT = Signal("gradient", of=OWN, key="{run}/allreduce/gradients/e{epoch}/s{step}/{maker}")
MEAN = Signal("mean", key="{run}/allreduce/merged/e{epoch}_s{step}")
# The parameter server gets it, and answers with the sum.
PUSHED = Signal("gradient", key=f"{MEAN.key}/{{maker}}")
# Each worker overwrites the global model with its own.
MODEL = Signal("model", key="{run}/allreduce/global")


def longest_chain(workers: int) -> Chain:
    """Return a put by all at once, rank 0's gets and put, and a get by all others at once."""
    return Chain(2, workers + (workers > 1))


def pattern(workload: Workload) -> Pattern:
    """Return the pattern: with a barrier, without one, or with a server that adds up."""
    if is_asynchronous(workload.options):
        return _asynchronous(workload)
    return _at_server(workload) if adds_up(workload.options) else _synchronous(workload)


def _at_server(workload: Workload) -> Pattern:
    """Return the pattern: workers push vectors to the parameter server, and pull the sum after the last push."""
    size = 4 * message_length(workload.options, workload.parameters)
    sent = moved_bytes(workload.options, size)
    exchanged = (
        Activity("serialise", PHASE, work=sent),
        Activity("parameter.push", PHASE, bytes=sent, makes=(PUSHED,), protocol=True),
        Activity("parameter.pull", PHASE, bytes=sent, needs=(PUSHED,), protocol=True),
        Activity("deserialise", PHASE, work=sent),
        Activity("reduce", PHASE, work=size),
    )

    def exchange(_number: int, receive: Part) -> Blocks:
        return ((*exchanged, receive),)

    roles = tuple(role(ranks, workload, exchange) for ranks in (range(1), range(1, workload.workers)))
    return Pattern(workload, roles, open_ended=is_em(workload.options))


def _asynchronous(workload: Workload) -> Pattern:
    """Return the pattern: every worker gets the global model and replaces it with its own; all except rank 0, which
    seeds it, wait for the first."""
    size, every = 4 * workload.parameters, exchange_every(workload.options, workload.batches)
    seed, channel = Signal("seed", each="run"), traced(workload.options)
    put = Activity(f"{channel}.put", PHASE, bytes=size, makes=(MODEL,), protocol=True)
    get = Activity(f"{channel}.get", PHASE, bytes=size, takes=(replace(MODEL, of=ANYONE),), protocol=True)

    def root(_number: int, receive: Part) -> Blocks:
        return ((replace(put, makes=(seed, MODEL), until=every), get, replace(put, since=every), receive),)

    def others(_number: int, receive: Part) -> Blocks:
        return ((replace(get, needs=(seed,), polling="get"), put, receive),)

    return Pattern(workload, (role(range(1), workload, root), role(range(1, workload.workers), workload, others)))


def _synchronous(workload: Workload) -> Pattern:
    """Return the pattern. All workers put their gradients; rank 0 gets, deletes and adds them as they arrive, its own
    included, puts the aggregate, and deletes the previous step's. The others wait for it."""
    workers = workload.workers
    size = moved_bytes(workload.options, 4 * message_length(workload.options, workload.parameters))
    every = exchange_every(workload.options, workload.batches)
    channel, listed = traced(workload.options), lists(workload.options)
    put = Activity(f"{channel}.put", PHASE, bytes=size, makes=(GRADIENT,), protocol=True)
    delete = Activity(f"{channel}.delete", PHASE, bytes=deleted_bytes(workload.options, size), protocol=True)
    # Adding n gradients takes n - 1 additions.
    add = Activity("reduce", PHASE, work=size * (workers - 1) // workers)

    def merge(rank: int) -> tuple[Activity, ...]:
        gradient = (replace(GRADIENT, of=rank),)
        polling: Polling = "list" if listed else "get"
        get = Activity(f"{channel}.get", PHASE, bytes=size, needs=gradient, polling=polling, protocol=True)
        return get, replace(delete, removes=gradient), add

    merged = Gathering(tuple(merge(rank) for rank in range(workers)))
    publish = (
        Activity(f"{channel}.put", PHASE, bytes=size, makes=(MEAN,), protocol=True),
        *((Activity(f"{channel}.list", PHASE),) if listed else ()),
        replace(delete, since=every, removes=(replace(MEAN, ahead=-every),)),
    )
    get = Activity(f"{channel}.get", PHASE, bytes=size, needs=(MEAN,), polling="get", protocol=True)

    def root(_number: int, receive: Part) -> Blocks:
        return ((), (put,), (merged,), publish, (receive,))

    def others(_number: int, receive: Part) -> Blocks:
        return ((), (put,), (), (get,), (receive,), ())

    roles = role(range(1), workload, root), role(range(1, workers), workload, others)
    return Pattern(workload, roles, open_ended=is_em(workload.options))
