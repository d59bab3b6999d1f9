"""Aggregation rules by name, sums in rank order, and parts of vectors."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from slslab_workers.training import aggregation
from slslab_workers.training.aggregation import chunk


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
    assert aggregation.RULES[name](total, 4, 2) is total
    assert total.item() == expected


@example(61_706, 33)
@example(61_706, 7)
@example(1, 33)
@given(st.integers(1, 300), st.integers(1, 40))
def test_chunks_cover_the_vector_in_order_and_evenly(parameters: int, workers: int) -> None:
    chunks = [chunk(parameters, workers, index) for index in range(workers)]
    assert [position for chunk in chunks for position in range(parameters)[chunk]] == list(range(parameters))
    sizes = [chunk.stop - chunk.start for chunk in chunks]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_chunks_of_the_papers_models() -> None:
    def sizes(parameters: int) -> list[int]:
        return [c.stop - c.start for c in (chunk(parameters, 4, i) for i in range(4))]

    assert sizes(3_217_226) == [804_307, 804_307, 804_306, 804_306]
    assert sizes(11_173_962) == [2_793_491, 2_793_491, 2_793_490, 2_793_490]
