"""Aggregation rules by name, and sums in rank order."""

import pytest
import torch

from slslab_workers.plan import PlanError
from slslab_workers.training import aggregation


def test_sum_is_in_rank_order() -> None:
    """In float32 (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1: the order is in the bits."""
    parts = [torch.tensor([value]) for value in (1e8, 1.0, -1e8)]
    assert aggregation.sum_in_rank_order(parts).item() == 0.0
    assert aggregation.sum_in_rank_order(iter([parts[0], parts[2], parts[1]])).item() == 1.0
    assert parts[0].item() == 1e8, "the parts stay as they are"


@pytest.mark.parametrize(
    ("name", "expected"), [("mean", 3.0), ("sum", 12.0), ("mean-over-workers", 3.0), ("mean-over-senders", 6.0)]
)
def test_rules_change_the_sum_in_place(name: str, expected: float) -> None:
    """12 is the sum of what two of four workers sent."""
    total = torch.tensor([12.0])
    assert aggregation.rule(name)(total, 4, 2) is total
    assert total.item() == expected


def test_an_unknown_rule_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(PlanError, match="There is no aggregation rule 'median'") as refused:
        aggregation.rule("median")
    assert refused.value.hint == "choose mean, sum, mean-over-workers, mean-over-senders."
