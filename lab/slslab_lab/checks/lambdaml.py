"""What AllReduce and ScatterReduce exchange, by any algorithm and channel, and instances (docs/protocols.md)."""

from collections.abc import Callable, Iterator

from slslab.run.run import Place, Run
from slslab_lab.checks.exchange import Name, Parcel, Protocol, Wait
from slslab_workers.channels.choice import moved_bytes, sums
from slslab_workers.gloo import ring
from slslab_workers.scatterreduce.pattern import chunk
from slslab_workers.training.algorithms import (
    ALGORITHM,
    exchange_every,
    is_asynchronous,
    message_length,
    trains_locally,
)
from slslab_workers.training.keys import global_key, rendezvous_key

NOWHERE: Place = (-1, -1)


class Exchanges:
    """The steps of a run, and those of them that end with an exchange."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.plan = run.plan
        self.workers = range(run.plan.workers)
        self.others = self.workers[1:]
        self.every = exchange_every(run.plan.options, run.plan.batches)
        self.steps = [divmod(position, run.plan.batches) for position in range(steps_taken(run))]
        self.places = self.steps[self.every - 1 :: self.every]
        self.prefix = f"{run.plan.run}/{run.plan.architecture}"

    @property
    def size(self) -> int | None:
        """The bytes of a whole message."""
        if self.run.parameters is None:
            return None
        return moved_bytes(self.plan.options, 4 * message_length(self.plan.options, self.run.parameters))

    @property
    def minibatches(self) -> frozenset[tuple[int, int, int]]:
        """All that must be computed."""
        return frozenset((rank, *place) for rank in self.workers for place in self.steps)

    def first(self) -> Iterator[Parcel]:
        """Yield the first centroids, which rank 0 puts for the others (EM)."""
        if ALGORITHM.of(self.plan.options) == "em":
            name = Name(f"{self.prefix}/first", 0, *NOWHERE)
            yield Parcel("first model", name, dict.fromkeys(self.others, 1), at=NOWHERE)

    def leaving(self, place: Place) -> tuple[int, ...]:
        """Return the events with which workers use what they have exchanged, and with which they go on."""
        phase = "synchronise" if trains_locally(self.plan.options) else "update"
        used = [number for rank in self.workers for number in self.run.updated.get((rank, *place, phase), ())]
        gone = (self.run.entered(rank, place) for rank in self.workers)
        return (*used, *(number for number in gone if number is not None))

    def deleted(self, place: Place, later: int = 1) -> int | None:
        """Return rank 0 if it deletes, so many exchanges later, what is made in this one; None if there are not so
        many."""
        return None if place in self.places[-later:] else 0

    def protocol(self, exchange: Callable[[Place], tuple[list[Parcel], list[Parcel]]], *before: Parcel) -> Protocol:
        """Return the protocol, by what is made in an exchange: what nobody goes on before it has come, and the rest."""
        parcels, waits = [*before, *self.first()], []
        for place in self.places:
            awaited, others = exchange(place)
            parcels += (*awaited, *others)
            waits.append(Wait(place, tuple(parcel.name for parcel in awaited), self.leaving(place)))
        return Protocol(tuple(parcels), tuple(waits), self.minibatches)


def steps_taken(run: Run) -> int:
    """Return the steps of a run: the plan's, or as many as were begun where training may end before."""
    plan = run.plan
    whole = plan.epochs * plan.batches
    begun = max((epoch * plan.batches + step + 1 for _, epoch, step in run.computed), default=0)
    may_end = plan.gradual or ALGORITHM.of(plan.options) == "em" or not run.complete
    return begun if may_end else whole


def allreduce(run: Run) -> Protocol:
    """Return the protocol with a barrier, without one, or with a server that adds up."""
    exchanges = Exchanges(run)
    if is_asynchronous(run.plan.options):
        return _asynchronous(exchanges)
    if sums(run.plan.options):
        return _at_server(exchanges)

    def exchange(place: Place) -> tuple[list[Parcel], list[Parcel]]:
        epoch, step = place
        key = f"{exchanges.prefix}/gradients/e{epoch}/s{step}"
        gradients = [
            Parcel("gradient", Name(f"{key}/{rank}", rank, *place), {0: 1}, exchanges.size, place, 0)
            for rank in exchanges.workers
        ]
        name, others = (
            Name(f"{exchanges.prefix}/merged/e{epoch}_s{step}", 0, *place),
            dict.fromkeys(exchanges.others, 1),
        )
        return gradients, [Parcel("mean", name, others, exchanges.size, place, exchanges.deleted(place))]

    return exchanges.protocol(exchange)


def _at_server(exchanges: Exchanges) -> Protocol:
    """Return the protocol: every worker pushes its vector, and pulls the sum, for which all must have been pushed."""
    everyone = dict.fromkeys(exchanges.workers, 1)

    def exchange(place: Place) -> tuple[list[Parcel], list[Parcel]]:
        key = f"{exchanges.prefix}/merged/e{place[0]}_s{place[1]}"
        return [
            Parcel("gradient", Name(f"{key}/{rank}", rank, *place), everyone, exchanges.size, place)
            for rank in exchanges.workers
        ], []

    return exchanges.protocol(exchange)


def _asynchronous(exchanges: Exchanges) -> Protocol:
    """Return the protocol: every worker puts its model once a round. It takes what is there, whosever that is, and a
    model that another has replaced is taken by nobody: that is no loss."""
    key = global_key(exchanges.plan)
    rounds = [(rank, *place) for place in exchanges.places for rank in exchanges.workers]
    parcels = tuple(Parcel("model", Name(key, *each), None, exchanges.size) for each in rounds)
    return Protocol(parcels, minibatches=exchanges.minibatches, drawn=frozenset(rounds))


def scatterreduce(run: Run) -> Protocol:
    """Return the protocol: worker i takes chunk i of all others, and all others take its sum."""
    exchanges = Exchanges(run)

    def exchange(place: Place) -> tuple[list[Parcel], list[Parcel]]:
        epoch, step = place
        chunks = [
            Parcel(
                "chunk of a gradient",
                Name(f"{exchanges.prefix}/partial/e{epoch}/s{step}/{owner}/{rank}", rank, *place),
                {owner: 1},
                _chunk_bytes(exchanges, owner),
                place,
                owner,
            )
            for rank in exchanges.workers
            for owner in exchanges.workers
            if owner != rank
        ]
        merged = [
            Parcel(
                "sum of a chunk",
                Name(f"{exchanges.prefix}/merged/e{epoch}_s{step}/{owner}", owner, *place),
                {rank: 1 for rank in exchanges.workers if rank != owner},
                _chunk_bytes(exchanges, owner),
                place,
                exchanges.deleted(place),
            )
            for owner in exchanges.workers
        ]
        return chunks + merged, []

    return exchanges.protocol(exchange)


def _chunk_bytes(exchanges: Exchanges, owner: int) -> int | None:
    if exchanges.run.parameters is None:
        return None
    part = chunk(message_length(exchanges.plan.options, exchanges.run.parameters), exchanges.plan.workers, owner)
    return moved_bytes(exchanges.plan.options, 4 * (part.stop - part.start))


def gpu(run: Run) -> Protocol:
    """Return the GPU baseline's protocol: every instance takes the gradients of all others."""
    exchanges = Exchanges(run)

    def exchange(place: Place) -> tuple[list[Parcel], list[Parcel]]:
        return [
            Parcel(
                "gradient",
                Name(f"{exchanges.prefix}/gradients/e{place[0]}_s{place[1]}/{rank}", rank, *place),
                {other: 1 for other in exchanges.workers if other != rank},
                exchanges.size,
                place,
                exchanges.deleted(place, 2),
            )
            for rank in exchanges.workers
        ], []

    return exchanges.protocol(exchange)


def gloo(run: Run) -> Protocol:
    """Return the protocol of IaaS peers: all find rank 0, and take part in the all-reduce of each step with as many
    bytes as the ring has each send."""
    exchanges = Exchanges(run)
    if run.plan.workers == 1:
        return Protocol((), minibatches=exchanges.minibatches)
    address = Name(rendezvous_key(run.plan), 0, *NOWHERE)

    def exchange(place: Place) -> tuple[list[Parcel], list[Parcel]]:
        key = f"{exchanges.prefix}/e{place[0]}_s{place[1]}"
        return [Parcel("part", Name(key, rank, *place), {}, _sent(run, rank), place) for rank in exchanges.workers], []

    found = Parcel("address", address, dict.fromkeys(exchanges.others, 1), overhead=True)
    return exchanges.protocol(exchange, found)


def _sent(run: Run, rank: int) -> int | None:
    return None if run.parameters is None else ring.sent_bytes(run.parameters, run.plan.workers, rank)
