"""MLLess's options as its functions read them, and the names of its queues and updates; imports no torch."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from slslab_workers.plan import Plan, PlanError
from slslab_workers.queues import Message, QueueError, scoped

END_STEPS = 10
# The supervisor as the sender of a message, among ranks.
SUPERVISOR = -1


@dataclass(frozen=True)
class Settings:
    """`filter` none, norm-ratio or coordinate, with its `threshold`; `store` tensordb or s3; `end_threshold` is the
    loss at or below which training ends after ten steps in a row; `max_time` (s, 0 for none)."""

    filter: str
    threshold: float
    store: str
    end_threshold: float
    max_time: float

    def __post_init__(self) -> None:
        for name in ("threshold", "end_threshold", "max_time"):
            value = getattr(self, name)
            if not value >= 0:
                raise PlanError(f"{name.replace('_', '-')} is {value}.", "it is not negative.")

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """What the plan's options say, or the defaults; PlanError for what cannot be."""
        given = plan.options
        return cls(
            filter=str(given.get("filter", "norm-ratio")),
            threshold=float(given.get("threshold", 1.0)),
            store=str(given.get("store", "tensordb")),
            end_threshold=float(given.get("end-threshold", 0.0)),
            max_time=float(given.get("max-time", 0.0)),
        )


def exchange_name(plan: Plan) -> str:
    """The fan-out to all workers: updates (U), continue (C), finish (F)."""
    return scoped(plan.run, "updates")


def worker_queue(plan: Plan, rank: int) -> str:
    """A worker's queue, bound to the fan-out."""
    return scoped(plan.run, f"w{rank}")


def supervisor_queue(plan: Plan) -> str:
    """What workers tell the supervisor (I)."""
    return scoped(plan.run, "supervisor")


def client_queue(plan: Plan) -> str:
    """What the supervisor tells the client (TD, T)."""
    return scoped(plan.run, "client")


def update_key(plan: Plan, rank: int, step: int) -> str:
    """Key of a worker's update; steps count from the beginning of the run.

    The original deletes none, nor does this, but a database's memory is no bucket: two keys a worker take turns there.
    Whoever sends in step t + 2 has heard of all workers after they applied those of step t.
    """
    turn = step if Settings.of(plan).store == "s3" else step % 2
    return f"{plan.run}/mlless/up_w{rank}_i{turn}"


def acknowledge(message: Message) -> None:
    """Have the broker forget a message that was read; receivers ignore it should it come again, as its connection
    ended in between."""
    with suppress(QueueError):
        message.ack()
