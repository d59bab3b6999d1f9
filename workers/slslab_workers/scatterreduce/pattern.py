"""Messages and waits of ScatterReduce, step by step (`handlers.py`)."""

import math

from slslab_workers.patterns import UPDATE, Activity, Gathering, Part, Pattern, Role, Signal, Workload, trainer
from slslab_workers.training.released_log import Blocks, logged_steps

PHASE = "synchronise"
MERGED = Signal("merged")
# Steps 0, 10, 20, … of an epoch have one more line in the log.
SUMMARY_STEPS = 10
# Keys on a page of a list.
PAGE = 1000


def chunk(parameters: int, workers: int, index: int) -> slice:
    """Return where chunk `index` of `workers` is in a vector of `parameters` elements.

    q = P div n, r = P mod n; the first r chunks have q + 1 elements (docs/protocols.md, "ScatterReduce"). With more
    workers than parameters, the last chunks are empty.
    """
    quotient, remainder = divmod(parameters, workers)
    start = quotient * index + min(remainder, index)
    return slice(start, start + quotient + (index < remainder))


def pattern(workload: Workload) -> Pattern:
    """Return the pattern: all workers put the others' chunks, get, delete and add up their own, put the sum, and get
    those of all others; rank 0 also deletes the sums of the step before.

    The chunks of some workers are longer by one element. Rank 0, which deletes, begins each step after the others,
    which have collected all but its chunk by then.
    """
    workers, parameters = workload.workers, workload.parameters
    larger = parameters % workers
    groups = (range(1), range(1, max(1, larger)), range(max(1, larger), workers))
    return Pattern(workload, tuple(_role(ranks, workload) for ranks in groups if ranks))


def _role(ranks: range, workload: Workload) -> Role:
    workers, parameters = workload.workers, workload.parameters
    chunk_of = chunk(parameters, workers, ranks[0])
    own = 4 * (chunk_of.stop - chunk_of.start)
    rest, size, first = workers - 1, 4 * parameters, ranks[0] == 0
    sent = Signal("chunks", of=0) if first else Signal("chunks")
    collect: tuple[tuple[Activity, ...], ...] = (_collect(own, rest, Signal("chunks")),)
    if not first:
        collect = (_collect(own, rest - 1, Signal("chunks")), _collect(own, 1, Signal("chunks", of=0)))
    expire: tuple[Part, ...] = (
        Activity("object.list", PHASE, times=math.ceil(workers / PAGE), until=1),
        Activity("object.list", PHASE, times=math.ceil(2 * workers / PAGE), since=1),
        Activity("object.delete", PHASE, times=workers, protocol=True, since=1),
    )
    send = Activity("object.put", PHASE, times=rest, bytes=size - own, makes=(sent,), protocol=True)
    merge = (Gathering(collect), Activity("reduce", PHASE, work=workers * own))
    publish = Activity("object.put", PHASE, bytes=own, makes=(MERGED,), protocol=True)
    gather = (
        Activity("object.get", PHASE, times=rest, bytes=size - own, needs=(MERGED,), polling="list", protocol=True),
        Activity("reduce", PHASE, work=size),
    )

    def step(number: int) -> Blocks:
        summary = ((),) if number % workload.batches % SUMMARY_STEPS == 0 else ()
        return ((), (send,), merge, (publish,), gather, (*(expire if first else ()), UPDATE), *summary)

    return trainer(ranks, parameters, *logged_steps(workload, step))


def _collect(own: int, chunks: int, sent: Signal) -> tuple[Activity, ...]:
    return (
        Activity("object.get", PHASE, times=chunks, bytes=chunks * own, needs=(sent,), polling="list", protocol=True),
        Activity("object.delete", PHASE, times=chunks, protocol=True),
    )
