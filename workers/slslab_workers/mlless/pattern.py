"""Messages and waits of MLLess, step by step (`handlers.py`, `supervisor.py`)."""

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial

from slslab_workers.mlless.counts import store_operations
from slslab_workers.patterns import (
    BUILD,
    CONNECT,
    OWN,
    UPDATE,
    Activity,
    Gathering,
    Part,
    Pattern,
    Role,
    Signal,
    Workload,
    trainer,
)
from slslab_workers.plan import PlanError
from slslab_workers.training.released_log import Blocks, logged_steps

PHASE = "synchronise"
# Bytes of a message, beside the list of ranks in a decision: 98 to 106 with the usual names of runs.
MESSAGE = 100
# A part of the updates is rounded to a fraction with at most this denominator.
TURNS = 16
DECISION = Signal("decision")


def pattern(workload: Workload) -> Pattern:
    """Return the pattern: workers store and announce their updates (U) and report (I); the supervisor receives the
    reports as they come, decides which updates to expect (C), and informs the client (TD); all workers get all of these
    updates, add them up and update.

    Updates that a filter lets pass are spread evenly over workers and steps, and as long as gradients. Raise PlanError
    with the scale-in auto-tuner, whose removals depend on the clock.
    """
    options, workers, parameters = workload.options, workload.workers, workload.parameters
    if any(options[name] != "off" for name in ("remove-threshold", "remove-interval")):
        raise PlanError(
            "The clock decides when MLLess's auto-tuner removes which worker, so another run cannot be predicted.",
            "scale a run without --remove-threshold and --remove-interval.",
        )
    turns = Fraction(workload.share).limit_denominator(TURNS)
    sends = [
        [(rank + step) * turns.numerator % turns.denominator < turns.numerator for step in range(turns.denominator)]
        for rank in range(turns.denominator)
    ]
    # How many send in each of the steps that take turns.
    sent = [sum(sends[rank % turns.denominator][step] for rank in range(workers)) for step in range(turns.denominator)]
    put, get = store_operations(options)
    size = 4 * parameters

    def exchange(sender: bool, updates: int) -> Blocks:
        decided = updates * MESSAGE + _decision_bytes(updates)
        return (
            (),
            (Activity("filter", PHASE),),
            _send(put, size) if sender else (),
            (Activity("queue.publish", PHASE, bytes=MESSAGE, makes=(Signal("report", of=OWN),), protocol=True),),
            (Activity("queue.deliver", PHASE, times=updates + 1, bytes=decided, needs=(DECISION,), protocol=True),),
            (Activity(get, PHASE, times=updates, bytes=updates * size, at=0, protocol=True),),
            (Activity("reduce", PHASE, work=updates * size), UPDATE) if updates else (),
        )

    def step(rank: int, number: int) -> Blocks:
        turn = number % turns.denominator
        return exchange(sends[rank % turns.denominator][turn], sent[turn])

    # The queue is connected to as S3 is.
    start = (replace(CONNECT, times=2), BUILD)
    roles = [
        trainer(ranks, parameters, *logged_steps(workload, partial(step, ranks[0]), turns.denominator), start=start)
        for ranks in _alike(workers, turns.denominator)
    ]
    roles.append(_supervisor(workers, sent))
    # The client takes TD.
    return Pattern(workload, tuple(roles), filtered=(put, PHASE), driver={"queue.deliver": workload.steps})


def _alike(workers: int, turns: int) -> list[range]:
    """Return ranks that send in the same steps; rank 0, which stores models, is by itself."""
    groups = [range(1), range(turns, workers, turns), *(range(first, workers, turns) for first in range(1, turns))]
    return [ranks for ranks in groups if ranks]


def _send(put: str, size: int) -> tuple[Part, ...]:
    return (
        Activity(put, PHASE, bytes=size, at=0, protocol=True),
        Activity("queue.publish", PHASE, bytes=MESSAGE, protocol=True),
    )


def _supervisor(workers: int, sent: list[int]) -> Role:
    def supervise(updates: int) -> tuple[Part, ...]:
        return (
            Gathering(
                tuple(
                    (
                        Activity(
                            "queue.deliver", PHASE, bytes=MESSAGE, needs=(Signal("report", of=rank),), protocol=True
                        ),
                    )
                    for rank in range(workers)
                )
            ),
            Activity("queue.publish", PHASE, bytes=_decision_bytes(updates), makes=(DECISION,), protocol=True),
            # After the last step F to all, and T to the client.
            Activity("queue.publish", "other", times=2, bytes=MESSAGE, since=-1),
            Activity("queue.publish", "other", bytes=MESSAGE, protocol=True),
        )

    return Role(range(workers, workers + 1), function="supervisor", start=(CONNECT,), steps=tuple(map(supervise, sent)))


def _decision_bytes(updates: int) -> int:
    return MESSAGE + len(json.dumps(list(range(updates))))
