"""When training stops before the plan's last epoch (protocol reference 10.1)."""

import math

from slslab_workers.plan import Plan

PATIENCE_EPOCHS = 10


class Stopping:
    """Hears of every epoch's test accuracy and loss: on the held-out images, if the plan stops by itself.

    `best` is the lowest loss so far, `since` for how many epochs it was not beaten, by however little.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.best, self.since = math.inf, 0

    def hear(self, accuracy: float, loss: float) -> str | None:
        """Why training stops after this epoch, `accuracy` or `patience`; None if it goes on."""
        better = loss < self.best
        self.best, self.since = (loss, 0) if better else (self.best, self.since + 1)
        if self.plan.until_accuracy is not None and accuracy >= self.plan.until_accuracy:
            return "accuracy"
        return "patience" if self.plan.early_stopping and self.since >= PATIENCE_EPOCHS else None
