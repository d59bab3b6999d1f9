"""Helpers for MLLess's options, and the names of its queues and updates. Imports no torch."""

from slslab_workers.channels.queues import scoped
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.keys import Key

END_STEPS = 10
# The reason that a removed worker gives for ending its training.
REMOVED = "removed"
# The supervisor's rank as the sender of a message.
SUPERVISOR = -1
# The fan-out to all workers: updates (U), continue (C), a removed worker's model (D), finish (F).
exchange_name = Key(scoped("{run}", "updates"))
# A worker's queue, which is bound to the fan-out; here the supervisor tells it that it is removed (K).
worker_queue = Key(scoped("{run}", "w{rank}"))
# The queue for the workers' reports to the supervisor (I).
supervisor_queue = Key(scoped("{run}", "supervisor"))
# The queue for the supervisor's messages to the client (TD, T).
client_queue = Key(scoped("{run}", "client"))
# A removed worker's model, in the store of the updates.
removed_model_key = Key("{run}/mlless/model_w{rank}")


def check(plan: Plan) -> None:
    """Raise PlanError if an option is out of range, or only one of the auto-tuner's two options is given."""
    for name in ("threshold", "end-threshold", "max-time", "remove-threshold", "remove-interval"):
        value = plan.options[name]
        if value != "off" and not float(value) >= 0:
            raise PlanError(f"{name} is {float(value)}.", "it must be 0 or more.")
    given = [name for name in ("threshold", "interval") if plan.options[f"remove-{name}"] != "off"]
    if len(given) == 1:
        raise PlanError(
            f"remove-{given[0]} is given without remove-{'interval' if given == ['threshold'] else 'threshold'}.",
            "give both or neither, such as --remove-threshold 15 --remove-interval 20.",
        )


def scales_in(plan: Plan) -> bool:
    """Return whether workers may be removed."""
    return plan.options["remove-threshold"] != "off"


def count_below(plan: Plan, loss: float, below: int) -> int:
    """Return how many steps in a row are at or below the end threshold: `below` before, and this mean loss."""
    return below + 1 if loss <= float(plan.options["end-threshold"]) else 0


def update_key(plan: Plan, rank: int, step: int) -> str:
    """Return the key of a worker's update; steps count from the start of the run.

    The original never deletes updates, and neither does this. To save memory, a database has two keys per worker, used
    in turns: a worker sends in step t + 2 only after all workers have applied the updates of step t.
    """
    turn = step if plan.options["store"] == "s3" else step % 2
    return f"{plan.run}/mlless/up_w{rank}_i{turn}"
