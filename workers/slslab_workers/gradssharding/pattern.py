"""Messages and waits of GradsSharding, λ-FL and LIFL, round by round (`client.py`, `aggregator.py`)."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from slslab_workers.gradssharding.settings import UPLOADED, divisor
from slslab_workers.gradssharding.topology import Aggregator, Levels, levels, slices
from slslab_workers.patterns import (
    BUILD,
    CONNECT,
    DRIVER,
    MINIBATCH,
    PHASE,
    UPDATE,
    Activity,
    Part,
    Pattern,
    Role,
    Signal,
    Workload,
    store_model,
)
from slslab_workers.training import robust

KEY = "{run}/gradssharding"
ROUND = f"{KEY}/e{{epoch}}/s{{step}}"
# What ends the clients' and the aggregators' invocations of a round.
GRADIENTS, MEAN = Signal("gradients"), Signal("round")
MEAN_BEFORE = replace(MEAN, ahead=-1)
EPOCH = Signal("rounds", each="epoch")
Signals = tuple[Signal, ...]


def pattern(workload: Workload) -> Pattern:
    """Return the pattern. In each step all clients store gradients and end, and the levels of aggregators follow each
    other. The clients' next invocations read the mean and update. Then the driver deletes the previous step's objects.

    A client's environment is assumed to have served another client before, so each reads its state, parameters and
    momentum.
    """
    options, uploaded = workload.options, workload.options["gradients"] == UPLOADED
    workload = replace(workload, parameters=int(options["parameters"]) or workload.parameters)
    tree = levels(str(options["topology"]), workload.workers, int(options["shards"]))
    gradients = tuple(_uploaded(tree[0]) if uploaded else _trained(tree[0]))
    exchanged = [gradients, *(tuple(_outputs(*pair)) for pair in itertools.zip_longest(tree, tree[1:], fillvalue=()))]
    roles = () if uploaded else tuple(_clients(workload, gradients, exchanged[-1]))
    size = 4 * workload.parameters * workload.workers
    upload = Activity("object.put", "other", times=len(gradients), bytes=size, makes=gradients)
    removed = itertools.chain.from_iterable(exchanged[uploaded:])
    delete = Activity("object.delete", "other", removes=_moved(removed, -1), since=1)
    driver = Role(range(DRIVER, 0), start=(upload,) if uploaded else (), steps=((delete,),))
    return Pattern(workload, (*roles, *_aggregators(workload, tree, exchanged)), driver=(driver,))


def _uploaded(level: Sequence[Aggregator]) -> Iterator[Signal]:
    """Yield the gradients that the driver stores, client by client, each with the aggregator that reads it."""
    read = ((client, one) for one in level for client in one.inputs)
    for client, one in sorted(read, key=itemgetter(0)):
        yield Signal("gradient", "run", key=f"{KEY}/uploaded/{client}/{one.shard or 0}", to=(one.rank,))


def _trained(level: Sequence[Aggregator]) -> Iterator[Signal]:
    """Yield the clients' gradients, each with the aggregator that reads it; of a shard, one signal for all clients."""
    for one in level:
        if one.shard is None:
            for client in one.inputs:
                yield Signal("gradient", of=client, key=f"{ROUND}/{client}/0", to=(one.rank,))
        else:
            yield Signal("gradient", key=f"{ROUND}/{{maker}}/{one.shard}", to=(one.rank,))


def _outputs(level: Sequence[Aggregator], above: Sequence[Aggregator]) -> Iterator[Signal]:
    """Yield a level's sums, each with the aggregator above that reads it, or the last level's mean."""
    for one in level:
        to = tuple(other.rank for other in above if one.number in other.inputs)
        key = f"{ROUND}/level{one.level}/{one.number}"
        yield Signal("sum" if above else "mean", of=one.rank, key=key, to=to)


def _moved(signals: Iterable[Signal], steps: int) -> Signals:
    """Return the signals of this many steps later."""
    return tuple(replace(signal, ahead=steps) for signal in signals)


def _aggregators(workload: Workload, tree: Levels, exchanged: list[Signals]) -> Iterator[Role]:
    """Yield the roles of each level's aggregators, which read what the level before has `exchanged`."""
    options = workload.options
    parts = slices(workload.parameters, len(tree[0]))

    def alike(one: Aggregator) -> tuple[int, int, bool]:
        """Return the number of inputs, their bytes, and whether their sum is divided."""
        part = slice(0, workload.parameters) if one.shard is None else parts[one.shard]
        return len(one.inputs), 4 * (part.stop - part.start), divisor(one, tree, str(options["averaging"])) > 1

    needs = MEAN_BEFORE if options["gradients"] == UPLOADED else GRADIENTS
    for depth, level in enumerate(tree, 1):
        makes = (MEAN, EPOCH) if depth == len(tree) else (Signal(f"level {depth}"),)
        for (inputs, size, divides), group in itertools.groupby(level, alike):
            ranks = [one.rank for one in group]
            computations = inputs - 1 + divides
            # A robust rule computes once, from all inputs.
            times, work = (1, inputs) if robust.name_of(options) is not None else (computations, computations)
            yield Role(
                range(ranks[0], ranks[-1] + 1),
                "aggregate",
                each="step",
                needs=(needs,),
                makes=makes,
                start=(
                    CONNECT,
                    Activity("object.get", PHASE, inputs, inputs * size, takes=exchanged[depth - 1], protocol=True),
                    Activity("reduce", PHASE, times=times, work=work * size),
                    Activity("object.put", PHASE, bytes=size, makes=exchanged[depth], protocol=True),
                ),
            )
        needs = makes[0]


def _clients(workload: Workload, gradients: Signals, mean: Signals) -> Iterator[Role]:
    """Yield an invocation for each step, and one for the end of each epoch; rank 0's then stores the model."""
    size, batches, options = 4 * workload.parameters, workload.batches, workload.options
    pieces = int(options["shards"]) if options["topology"] == "shards" else 1
    restore = (Activity("object.get", "fetch", bytes=2 * size), Activity("restore", "fetch"))
    get = Activity("object.get", PHASE, times=pieces, bytes=size, takes=_moved(mean, -1), protocol=True)
    save = (Activity("serialise", "other"), Activity("object.put", "other", bytes=2 * size))
    train: tuple[Part, ...] = (
        *MINIBATCH,
        Activity("object.put", PHASE, times=pieces, bytes=size, makes=gradients, protocol=True),
        *save,
    )
    # The epoch before has already ended with an update.
    first = (replace(BUILD, until=1), *(replace(one, since=1) for one in restore), *train)
    yield Role(
        range(workload.workers),
        each="step",
        needs=(MEAN_BEFORE,),
        makes=(GRADIENTS,),
        start=(CONNECT,),
        steps=(first, *[(*restore, get, UPDATE, *train)] * (batches - 1)),
    )
    last = replace(get, takes=_moved(mean, batches - 1))
    for ranks in (range(1), range(1, workload.workers)):
        store = store_model(workload.parameters) if 0 in ranks else ()
        yield Role(
            ranks,
            each="epoch",
            needs=(EPOCH,),
            # The next epoch begins after this.
            makes=(replace(MEAN, ahead=batches - 1),),
            start=(CONNECT, *restore, last, UPDATE, *store, *(replace(one, until=-1) for one in save)),
        )
