"""MLLess's options as its functions read them, and the names of its queues and updates; imports no torch."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from slslab_workers.plan import Plan, PlanError
from slslab_workers.queues import Message, QueueError, scoped

END_STEPS = 10
# Why training ended for a worker that the tuner removed.
REMOVED = "removed"
# The supervisor as the sender of a message, among ranks.
SUPERVISOR = -1


@dataclass(frozen=True)
class Settings:
    """`filter` none, norm-ratio or coordinate, with its `threshold`; an aggregate is the mean over all `workers`, or
    over the `senders` among them; `store` tensordb or s3; `end_threshold` is the loss at or below which training ends
    after ten steps in a row; `max_time` (s, 0 for none). Workers are removed only with `remove_threshold` (per cent)
    and `remove_interval` (s), both None or neither."""

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
                raise PlanError(f"{name.replace('_', '-')} is {value}.", "it is not negative.")
        if (self.remove_threshold is None) != (self.remove_interval is None):
            given, missing = ("threshold", "interval") if self.remove_interval is None else ("interval", "threshold")
            raise PlanError(
                f"remove-{given} is given without remove-{missing}.",
                "give both or neither, such as --remove-threshold 15 --remove-interval 20.",
            )

    @property
    def scales_in(self) -> bool:
        """Whether workers may be removed."""
        return self.remove_threshold is not None

    def divisor(self, workers: int, senders: int) -> int:
        """By what the sum of a step's significant updates is divided, of so many workers that took part.

        With all of them every gradient counts once and for 1/n, when it is sent: the original adds updates as they are,
        so nothing depends on who happens to send at once. The released code divides by those whose updates came, of
        which each may hold many steps' gradients; its Adam does not see that scale, SGD does (protocol reference 5.6).
        """
        return workers if self.mean_over == "workers" else senders

    def count_below(self, loss: float, below: int) -> int:
        """Steps in a row at or below the end threshold, the last one of this mean loss, after `below` before it."""
        return below + 1 if loss <= self.end_threshold else 0

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """What the plan's options say, or the defaults; PlanError for what cannot be."""
        given = plan.options
        threshold, interval = (given.get(f"remove-{name}") for name in ("threshold", "interval"))
        return cls(
            filter=str(given.get("filter", "norm-ratio")),
            threshold=float(given.get("threshold", 1.0)),
            mean_over=str(given.get("mean-over", "workers")),
            store=str(given.get("store", "tensordb")),
            end_threshold=float(given.get("end-threshold", 0.0)),
            max_time=float(given.get("max-time", 0.0)),
            remove_threshold=None if threshold is None else float(threshold),
            remove_interval=None if interval is None else float(interval),
        )


def exchange_name(plan: Plan) -> str:
    """The fan-out to all workers: updates (U), continue (C), a removed worker's model (D), finish (F)."""
    return scoped(plan.run, "updates")


def worker_queue(plan: Plan, rank: int) -> str:
    """A worker's queue, bound to the fan-out; the supervisor tells it here that it is removed (K)."""
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


def removed_model_key(plan: Plan, rank: int) -> str:
    """Key of the model that a removed worker leaves, in the store of the updates."""
    return f"{plan.run}/mlless/model_w{rank}"


def acknowledge(message: Message) -> None:
    """Have the broker forget a message that was read; receivers ignore it should it come again, as its connection
    ended in between."""
    with suppress(QueueError):
        message.ack()
