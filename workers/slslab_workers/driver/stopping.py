"""When training stops before the plan's last epoch (docs/protocols.md, "What all architectures share")."""

import math

from slslab_workers.plan import Plan

PATIENCE_EPOCHS = 10


class Stopping:
    """Decides when training ends from every epoch's test accuracy and loss, on the held-out images if the plan stops by
    patience.

    `best` is the lowest loss so far, `since` how many epochs ago it was.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.best, self.since = math.inf, 0

    def record(self, accuracy: float, loss: float) -> str | None:
        """Record an epoch; return why training stops after it, `accuracy` or `patience`, or None if it continues."""
        self.best, self.since = (loss, 0) if loss < self.best else (self.best, self.since + 1)
        if self.plan.until_accuracy is not None and accuracy >= self.plan.until_accuracy:
            return "accuracy"
        return "patience" if self.plan.early_stopping and self.since >= PATIENCE_EPOCHS else None
