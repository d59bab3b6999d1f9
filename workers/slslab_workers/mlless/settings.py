"""MLLess's options as its functions read them, and the names of its queues and updates. Imports no torch."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from slslab_workers.channels.queues import Message, QueueError, scoped
from slslab_workers.plan import Plan, PlanError

END_STEPS = 10
# Why training ended for a worker that the tuner removed.
REMOVED = "removed"
# The supervisor's place among ranks, as the sender of a message.
SUPERVISOR = -1


@dataclass(frozen=True)
class Settings:
    """MLLess's options.

    `filter` is none, norm-ratio or coordinate, with its `threshold`; `mean_over` is workers or senders; `store` is
    tensordb or s3; `end_threshold` is the loss at or below which training ends after ten steps in a row; `max_time` is
    in s, 0 for none. Workers are removed only with `remove_threshold` (per cent) and `remove_interval` (s), of which
    both are None or neither.
    """

    filter: str
    threshold: float
    mean_over: str
    store: str
    end_threshold: float
    max_time: float
    remove_threshold: float | None
    remove_interval: float | None

    def __post_init__(self) -> None:
        for name in ("threshold", "end_threshold", "max_time", "remove_threshold", "remove_interval"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise PlanError(f"{name.replace('_', '-')} is {value}.", "it must be 0 or more.")
        if (self.remove_threshold is None) != (self.remove_interval is None):
            names = ("threshold", "interval") if self.remove_interval is None else ("interval", "threshold")
            raise PlanError(
                "remove-{} is given without remove-{}.".format(*names),
                "give both or neither, such as --remove-threshold 15 --remove-interval 20.",
            )

    @property
    def scales_in(self) -> bool:
        """Return whether workers may be removed."""
        return self.remove_threshold is not None

    def count_below(self, loss: float, below: int) -> int:
        """Return the steps in a row at or below the end threshold: `below`, and one more that has this mean loss."""
        return below + 1 if loss <= self.end_threshold else 0

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return the settings that the plan's options describe; raise PlanError for impossible ones."""
        options = plan.options
        tuner = (options[f"remove-{name}"] for name in ("threshold", "interval"))
        threshold, interval = (None if value == "off" else value for value in tuner)
        return cls(
            filter=str(options["filter"]),
            threshold=float(options["threshold"]),
            mean_over=str(options["mean-over"]),
            store=str(options["store"]),
            end_threshold=float(options["end-threshold"]),
            max_time=float(options["max-time"]),
            remove_threshold=None if threshold is None else float(threshold),
            remove_interval=None if interval is None else float(interval),
        )


def exchange_name(plan: Plan) -> str:
    """Return the fan-out to all workers: updates (U), continue (C), a removed worker's model (D), finish (F)."""
    return scoped(plan.run, "updates")


def worker_queue(plan: Plan, rank: int) -> str:
    """Return a worker's queue, bound to the fan-out; the supervisor informs it here that it is removed (K)."""
    return scoped(plan.run, f"w{rank}")


def supervisor_queue(plan: Plan) -> str:
    """Return the queue of the workers' reports to the supervisor (I)."""
    return scoped(plan.run, "supervisor")


def client_queue(plan: Plan) -> str:
    """Return the queue of what the supervisor sends to the client (TD, T)."""
    return scoped(plan.run, "client")


def update_key(plan: Plan, rank: int, step: int) -> str:
    """Return the key of a worker's update; steps count from the beginning of the run.

    The original never deletes updates. Nor does this, but as a database's memory is limited, two keys of each worker
    take turns there: a worker sends in step t + 2 after all workers have applied the updates of step t.
    """
    turn = step if Settings.of(plan).store == "s3" else step % 2
    return f"{plan.run}/mlless/up_w{rank}_i{turn}"


def removed_model_key(plan: Plan, rank: int) -> str:
    """Return the key of a removed worker's model, in the store of the updates."""
    return f"{plan.run}/mlless/model_w{rank}"


def acknowledge(message: Message) -> None:
    """Acknowledge a message that was read; if its connection has ended it comes again, and receivers ignore it."""
    with suppress(QueueError):
        message.ack()
