"""When training stops: patience, an accuracy, or neither."""

import math
from typing import Any

import pytest

from slslab_workers.driver.stopping import Stopping
from slslab_workers.plan import Plan


def verdicts(losses: list[float], **changes: Any) -> list[str | None]:
    """The verdicts after each epoch; every epoch has a test accuracy of a half."""
    stopping = Stopping(Plan("run", "allreduce", "lenet", "digits", 16, 2, 1024, **changes))
    return [stopping.record(0.5, loss) for loss in losses]


def test_patience_is_ten_epochs_in_a_row_without_the_least_improvement() -> None:
    flat = [1.0] * 11
    assert verdicts(flat, early_stopping=True) == [None] * 10 + ["patience"]
    better = [*[1.0] * 10, 1.0 - 1e-12, *[2.0] * 10]
    assert verdicts(better, early_stopping=True) == [None] * 20 + ["patience"]
    assert verdicts([math.nan] * 10, early_stopping=True) == [None] * 9 + ["patience"], "NaN is no gain"
    assert verdicts(flat) == [None] * 11


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.5, "accuracy"), (0.51, None)])
def test_an_accuracy_that_is_reached_ends_training(accuracy: float, verdict: str | None) -> None:
    assert verdicts([1.0], until_accuracy=accuracy) == [verdict]
