"""Messages and waits of ScatterReduce, step by step (`handlers.py`)."""

import math
from dataclasses import replace

from slslab_workers.channels.choice import deleted_bytes, lists, traced
from slslab_workers.patterns import PHASE, Activity, Chain, Gathering, Part, Pattern, Polling, Role, Signal, Workload
from slslab_workers.training import robust
from slslab_workers.training.aggregation import chunk
from slslab_workers.training.algorithms import exchange_every, is_em, message_length, role
from slslab_workers.training.released_log import Blocks

CHUNK = Signal("chunk of a gradient", key="{run}/scatterreduce/partial/e{epoch}/s{step}/{taker}/{maker}")
SUM = Signal("sum of a chunk", key="{run}/scatterreduce/merged/e{epoch}_s{step}/{maker}")
# In steps 0, 10, 20, … of an epoch, the log has one more line.
SUMMARY_STEPS = 10
# Keys on a page of a listing.
PAGE = 1000


def longest_chain(workers: int) -> Chain:
    """Return w - 1 puts and w - 1 gets of chunks, and a put and w - 1 gets of sums: 3w - 2 (LambdaML, SIGMOD 2021,
    Section 5.3)."""
    return Chain(workers, 2 * workers - 2, workers, published=True)


def pattern(workload: Workload) -> Pattern:
    """Return the pattern: all workers put the others' chunks, get, delete and merge their own, put the result, and get
    the others' results; rank 0 also deletes the previous step's results.

    Some workers' chunks are longer by one element. Rank 0, which deletes, begins each step later than the others, which
    have collected all except its chunk by then.
    """
    workers = workload.workers
    larger = message_length(workload.options, workload.parameters) % workers
    groups = (range(1), range(1, max(1, larger)), range(max(1, larger), workers))
    roles = tuple(_role(ranks, workload) for ranks in groups if ranks)
    return Pattern(workload, roles, open_ended=is_em(workload.options))


def _role(ranks: range, workload: Workload) -> Role:
    workers, elements = workload.workers, message_length(workload.options, workload.parameters)
    every = exchange_every(workload.options, workload.batches)
    chunk_of = chunk(elements, workers, ranks[0])
    own = 4 * (chunk_of.stop - chunk_of.start)
    rest, size, first = workers - 1, 4 * elements, ranks[0] == 0
    sent = replace(CHUNK, of=0) if first else CHUNK
    channel, listed = traced(workload.options), lists(workload.options)
    polling: Polling = "list" if listed else "get"

    def collect(chunks: int, sent: Signal) -> tuple[Activity, ...]:
        whole = chunks * own
        get = Activity(f"{channel}.get", PHASE, chunks, whole, needs=(sent,), polling=polling, protocol=True)
        removed = deleted_bytes(workload.options, whole)
        return get, Activity(f"{channel}.delete", PHASE, chunks, removed, removes=(sent,), protocol=True)

    collected: tuple[tuple[Activity, ...], ...] = (collect(rest, CHUNK),)
    if not first:
        collected = (collect(rest - 1, CHUNK), collect(1, replace(CHUNK, of=0)))
    expired, size_deleted = (replace(SUM, ahead=-every),), deleted_bytes(workload.options, size)
    lists_of_sums: tuple[Part, ...] = (
        Activity(f"{channel}.list", PHASE, times=math.ceil(workers / PAGE), until=every),
        Activity(f"{channel}.list", PHASE, times=math.ceil(2 * workers / PAGE), since=every),
    )
    expire: tuple[Part, ...] = (
        *(lists_of_sums if listed else ()),
        Activity(f"{channel}.delete", PHASE, workers, size_deleted, removes=expired, protocol=True, since=every),
    )
    send = Activity(f"{channel}.put", PHASE, times=rest, bytes=size - own, makes=(sent,), protocol=True)
    merge = (Gathering(collected), Activity("reduce", PHASE, work=workers * own))
    publish = Activity(f"{channel}.put", PHASE, bytes=own, makes=(SUM,), protocol=True)
    gather: tuple[Part, ...] = (
        Activity(f"{channel}.get", PHASE, rest, size - own, needs=(SUM,), polling=polling, protocol=True),
        # Sums are divided; a robust rule's result is already the aggregate.
        *(() if robust.name_of(workload.options) else (Activity("reduce", PHASE, work=size),)),
    )

    def exchange(number: int, receive: Part) -> Blocks:
        summary = ((),) if number % workload.batches % SUMMARY_STEPS == 0 else ()
        return ((), (send,), merge, (publish,), gather, (*(expire if first else ()), receive), *summary)

    return role(ranks, workload, exchange)
