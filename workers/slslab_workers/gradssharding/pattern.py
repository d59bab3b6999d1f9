"""Messages and waits of GradsSharding, λ-FL and LIFL, round by round (`client.py`, `aggregator.py`)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from slslab_workers.gradssharding.settings import UPLOADED, divisor
from slslab_workers.gradssharding.topology import Aggregator, levels, slices
from slslab_workers.patterns import (
    BUILD,
    CONNECT,
    MINIBATCH,
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

PHASE = "synchronise"
GRADIENTS, MEAN = Signal("gradients"), Signal("mean")
MEAN_BEFORE = replace(MEAN, ahead=-1)
EPOCH = Signal("rounds", each="epoch")


def pattern(workload: Workload) -> Pattern:
    """Return the pattern. In each step all clients store gradients and end, and the levels of aggregators follow each
    other. The clients' next invocations read the mean and update.

    A client's environment is assumed to have served another client before, so each reads its state, parameters and
    momentum.
    """
    roles = list(_aggregators(workload))
    if workload.options["gradients"] != UPLOADED:
        roles += _clients(workload)
    return Pattern(workload, tuple(roles))


def _aggregators(workload: Workload) -> Iterator[Role]:
    options, number = workload.options, workload.workers
    tree = levels(str(options["topology"]), workload.workers, int(options["shards"]))
    parts = slices(workload.parameters, len(tree[0]))

    def alike(one: Aggregator) -> tuple[int, int, bool]:
        """Return the number of inputs, their bytes, and whether their sum is divided."""
        part = slice(0, workload.parameters) if one.shard is None else parts[one.shard]
        return len(one.inputs), 4 * (part.stop - part.start), divisor(one, tree, str(options["averaging"])) > 1

    needs = MEAN_BEFORE if options["gradients"] == UPLOADED else GRADIENTS
    for depth, level in enumerate(tree, 1):
        last = depth == len(tree)
        makes = (MEAN, EPOCH) if last else (Signal(f"level {depth}"),)
        for (inputs, size, divides), group in groupby(level, alike):
            ranks = range(number, number + len(list(group)))
            number = ranks.stop
            computations = inputs - 1 + divides
            # A robust rule computes once, from all inputs.
            times, work = (1, inputs) if robust.name_of(options) is not None else (computations, computations)
            yield Role(
                ranks,
                "aggregate",
                each="step",
                needs=(needs,),
                makes=makes,
                start=(
                    CONNECT,
                    Activity("object.get", PHASE, times=inputs, bytes=inputs * size, protocol=True),
                    Activity("reduce", PHASE, times=times, work=work * size),
                    Activity("object.put", PHASE, bytes=size, protocol=True),
                ),
            )
        needs = makes[0]


def _clients(workload: Workload) -> Iterator[Role]:
    """Yield an invocation for each step, and one for the end of each epoch; rank 0's then stores the model."""
    size, batches, options = 4 * workload.parameters, workload.batches, workload.options
    pieces = int(options["shards"]) if options["topology"] == "shards" else 1
    restore = (Activity("object.get", "fetch", bytes=2 * size), Activity("restore", "fetch"))
    update = (Activity("object.get", PHASE, times=pieces, bytes=size, protocol=True), UPDATE)
    save = (Activity("serialise", "other"), Activity("object.put", "other", bytes=2 * size))
    train: tuple[Part, ...] = (
        *MINIBATCH,
        Activity("object.put", PHASE, times=pieces, bytes=size, protocol=True),
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
        steps=(first, *[(*restore, *update, *train)] * (batches - 1)),
    )
    for ranks in (range(1), range(1, workload.workers)):
        store = store_model(workload.parameters) if 0 in ranks else ()
        yield Role(
            ranks,
            each="epoch",
            needs=(EPOCH,),
            # The next epoch begins after this.
            makes=(replace(MEAN, ahead=batches - 1),),
            start=(CONNECT, *restore, *update, *store, *(replace(one, until=-1) for one in save)),
        )
