"""Messages and waits of MLLess, step by step (`handlers.py`, `supervisor.py`)."""

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial

from slslab_workers.patterns import (
    BUILD,
    CONNECT,
    DRIVER,
    OWN,
    PHASE,
    UPDATE,
    Activity,
    Gathering,
    Kept,
    Part,
    Pattern,
    Role,
    Signal,
    Workload,
    trainer,
)
from slslab_workers.plan import PlanError
from slslab_workers.training.released_log import Blocks, logged_steps

# Size of a message, bytes, without a decision's list of ranks: 98 to 106 with the usual names of runs.
MESSAGE = 100
# The share of significant updates is rounded to a fraction with at most this denominator.
TURNS = 16
DECISION = Signal("decision")


def pattern(workload: Workload) -> Pattern:
    """Return the pattern. Workers store and announce their updates (U) and report (I). The supervisor receives the
    reports as they arrive, decides which updates to expect (C), and informs the client (TD). All workers fetch and add
    up these updates.

    Updates that pass a filter are spread evenly over workers and steps, and are as long as gradients. PlanError with
    the scale-in auto-tuner, as the clock decides its removals.
    """
    options, workers, parameters = workload.options, workload.workers, workload.parameters
    if any(options[name] != "off" for name in ("remove-threshold", "remove-interval")):
        raise PlanError(
            "MLLess's auto-tuner removes workers by the clock, so another run can't be predicted.",
            "scale a run without --remove-threshold and --remove-interval.",
        )
    turns = Fraction(workload.share).limit_denominator(TURNS)
    cycle = turns.denominator

    def sends(rank: int, number: int) -> bool:
        return (rank + number) * turns.numerator % cycle < turns.numerator

    # In a cycle of steps, how many workers send in each.
    sent = [sum(sends(rank, number) for rank in range(workers)) for number in range(cycle)]
    put, get = ("object.put", "object.get") if options["store"] == "s3" else ("tensor.set", "tensor.get")
    size = 4 * parameters

    def step(rank: int, number: int) -> Blocks:
        updates = sent[number % cycle]
        decided = updates * MESSAGE + _decision_bytes(updates)
        return (
            (),
            (Activity("filter", PHASE),),
            _send(put, size) if sends(rank, number) else (),
            (Activity("queue.publish", PHASE, bytes=MESSAGE, makes=(Signal("report", of=OWN),), protocol=True),),
            (Activity("queue.deliver", PHASE, times=updates + 1, bytes=decided, needs=(DECISION,), protocol=True),),
            (Activity(get, PHASE, times=updates, bytes=updates * size, at=0, protocol=True),),
            (Activity("reduce", PHASE, work=updates * size), UPDATE) if updates else (),
        )

    # Workers connect to S3 and to the queue.
    start = (replace(CONNECT, times=2), BUILD)
    # Workers of a group send in the same steps. Rank 0, which stores models, has its own.
    groups = [range(1), *(range(first, workers, cycle) for first in (cycle, *range(1, cycle)))]
    roles = [
        trainer(ranks, parameters, *logged_steps(workload, partial(step, ranks[0]), cycle), start=start)
        for ranks in filter(None, groups)
    ]
    roles.append(_supervisor(workers, sent))
    # The client receives TD.
    client = Role(range(DRIVER, 0), steps=((Activity("queue.deliver", PHASE, protocol=True),),))
    # A worker's updates have two keys, used in turns, and the filter may hold any back.
    tensors = Kept(most=2 * workers * size if put == "tensor.set" else 0)
    return Pattern(workload, tuple(roles), filtered=(put, PHASE), driver=(client,), tensors=tensors)


def _send(put: str, size: int) -> tuple[Part, ...]:
    return (
        Activity(put, PHASE, bytes=size, at=0, protocol=True),
        Activity("queue.publish", PHASE, bytes=MESSAGE, protocol=True),
    )


def _supervisor(workers: int, sent: list[int]) -> Role:
    report = Activity("queue.deliver", PHASE, bytes=MESSAGE, protocol=True)
    reports = tuple((replace(report, needs=(Signal("report", of=rank),)),) for rank in range(workers))

    def supervise(updates: int) -> tuple[Part, ...]:
        return (
            Gathering(reports),
            Activity("queue.publish", PHASE, bytes=_decision_bytes(updates), makes=(DECISION,), protocol=True),
            # After the last step, F to all workers, and T to the client.
            Activity("queue.publish", "other", times=2, bytes=MESSAGE, since=-1),
            Activity("queue.publish", "other", bytes=MESSAGE, protocol=True),
        )

    return Role(range(workers, workers + 1), function="supervisor", start=(CONNECT,), steps=tuple(map(supervise, sent)))


def _decision_bytes(updates: int) -> int:
    return MESSAGE + len(json.dumps(list(range(updates))))
