"""Who sends what to whom in MLLess, step by step (`handlers.py`, `supervisor.py`)."""

import json
from dataclasses import replace
from fractions import Fraction

from slslab_workers.communication import (
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
from slslab_workers.logs import Lines, logged_steps
from slslab_workers.plan import PlanError

PHASE = "synchronise"
# Bytes of a message, beside the list of ranks in a decision: 98 to 106 with the usual names of runs.
MESSAGE = 100
# A part of the updates is rounded to a fraction with at most this denominator.
TURNS = 16
DECISION = Signal("decision")


def pattern(workload: Workload) -> Pattern:
    """Workers store and announce their updates (U) and report (I); the supervisor takes the reports as they come, says
    which updates to expect (C), and tells the client (TD); all fetch all of these, add them up and update.

    Updates that a filter lets pass are spread evenly over workers and steps, and as long as gradients. PlanError with
    the scale-in auto-tuner: the clock says when it removes whom.
    """
    options, workers, parameters = workload.options, workload.workers, workload.parameters
    if "remove-threshold" in options or "remove-interval" in options:
        raise PlanError(
            "Whom MLLess's auto-tuner removes when is decided by the clock, so nobody can say it of another run.",
            "scale a run without --remove-threshold and --remove-interval.",
        )
    turns = Fraction(workload.share).limit_denominator(TURNS)
    sends = [
        [(rank + step) * turns.numerator % turns.denominator < turns.numerator for step in range(turns.denominator)]
        for rank in range(turns.denominator)
    ]
    # How many send in each of the steps that take turns.
    sent = [sum(sends[rank % turns.denominator][step] for rank in range(workers)) for step in range(turns.denominator)]
    in_s3 = options.get("store") == "s3"
    put, get = ("object.put", "object.get") if in_s3 else ("tensor.set", "tensor.get")
    size = 4 * parameters

    def exchange(sender: bool, updates: int, log: Lines) -> tuple[Part, ...]:
        hear = Activity(
            "queue.deliver",
            PHASE,
            times=updates + 1,
            bytes=updates * MESSAGE + _decision_bytes(updates),
            needs=(DECISION,),
            protocol=True,
        )
        return (
            *next(log),
            Activity("filter", PHASE),
            *next(log),
            *(_send(put, size) if sender else ()),
            *next(log),
            Activity("queue.publish", PHASE, bytes=MESSAGE, makes=(Signal("report", of=OWN),), protocol=True),
            *next(log),
            hear,
            *next(log),
            Activity(get, PHASE, times=updates, bytes=updates * size, at=0, protocol=True),
            *next(log),
            *((Activity("reduce", PHASE, work=updates * size), UPDATE) if updates else ()),
            *next(log),
        )

    def steps(rank: int) -> tuple[tuple[Part, ...], ...]:
        """What a worker of this rank does in each step, or in those that take turns."""

        def step(number: int, log: Lines) -> tuple[Part, ...]:
            turn = number % turns.denominator
            return exchange(sends[rank % turns.denominator][turn], sent[turn], log)

        return logged_steps(workload, step, turns.denominator)

    # The queue is connected to as S3 is.
    start = (replace(CONNECT, times=2), BUILD)
    roles = [trainer(ranks, parameters, *steps(ranks[0]), start=start) for ranks in _alike(workers, turns.denominator)]
    roles.append(_supervisor(workers, sent))
    # The client takes TD.
    return Pattern(workload, tuple(roles), filtered=(put, PHASE), driver={"queue.deliver": workload.steps})


def _alike(workers: int, turns: int) -> list[range]:
    """Ranks that send in the same steps, rank 0, which stores models, by itself."""
    found = [range(1), range(turns, workers, turns), *(range(first, workers, turns) for first in range(1, turns))]
    return [ranks for ranks in found if ranks]


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

    return Role(
        range(workers, workers + 1),
        function="supervisor",
        start=(CONNECT,),
        steps=tuple(supervise(updates) for updates in sent),
    )


def _decision_bytes(updates: int) -> int:
    return MESSAGE + len(json.dumps(list(range(updates))))
