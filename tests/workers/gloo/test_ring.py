"""gloo's ring by hand: the order of its sums, which is in the bits, and what each peer sends."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slslab_workers.gloo import ring


@pytest.mark.parametrize(
    ("values", "expected"),
    [((1e8, 1.0, -1e8), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]), ((1.0, 1e8, -1e8), [1.0, 1.0, 0.0, 0.0, 0.0, 0.0])],
)
def test_each_chunk_is_added_from_the_rank_before_it_on_and_down(
    values: tuple[float, ...], expected: list[float]
) -> None:
    """Three chunks of two: in the order 2, 1, 0, then 0, 2, 1, then 1, 0, 2; (1e8 + 1) - 1e8 is 0 in float32."""
    parts = [torch.full((6,), value) for value in values]
    assert ring.add_up(parts).tolist() == expected
    assert [part[0].item() for part in parts] == list(values), "the parts stay as they are"


def test_all_of_a_vector_is_added_whether_or_not_its_chunks_are_whole() -> None:
    parts = [torch.arange(10.0) * 10**rank for rank in range(3)]
    assert ring.add_up(parts).tolist() == [111.0 * number for number in range(10)]
    short = [torch.tensor([2.0, 3.0]) for _ in range(5)]
    assert ring.add_up(short).tolist() == [10.0, 15.0]


def test_of_one_peer_the_sum_is_a_vector_of_its_own() -> None:
    part = torch.tensor([1.0, 2.0])
    total = ring.add_up([part])
    assert total.tolist() == [1.0, 2.0]
    assert total.data_ptr() != part.data_ptr()


def test_each_chunk_goes_around_twice() -> None:
    assert [ring.messages(workers) for workers in (1, 2, 5)] == [0, 2, 8]


@pytest.mark.parametrize(
    ("elements", "workers", "sent"),
    [
        (10, 3, [56, 48, 56]),  # chunks of 4, 4 and 2
        (3, 5, [16, 12, 20, 24, 24]),  # of 2, 1 and nothing
        (3_000_001, 3, [16_000_020, 15_999_976, 16_000_020]),  # four segments each: 1,000,004 twice, and the rest
        (1 << 20, 2, [4 << 20] * 2),
        (7, 1, [0]),
    ],
)
def test_a_peer_sends_all_chunks_but_its_own_and_then_all_but_that_before(
    elements: int, workers: int, sent: list[int]
) -> None:
    assert [ring.sent_bytes(elements, workers, rank) for rank in range(workers)] == sent


@pytest.mark.parametrize(
    ("elements", "workers", "ranges"),
    [
        (10, 3, [(range(1, 2), 48), (range(2, 3), 56)]),
        (3, 5, [(range(1, 2), 12), (range(2, 3), 20), (range(3, 5), 24)]),
        (12, 2, [(range(1, 2), 48)]),
    ],
)
def test_ranks_that_send_equally_many_bytes_are_one_range(
    elements: int, workers: int, ranges: list[tuple[range, int]]
) -> None:
    assert ring.ranks_by_bytes(elements, workers) == ranges


@given(st.integers(1, 2_000_000), st.one_of(st.integers(2, 64), st.just(4096)))
def test_all_send_as_much_as_the_closed_form_says_and_few_send_another_number(elements: int, workers: int) -> None:
    sent = [ring.sent_bytes(elements, workers, rank) for rank in range(workers)]
    assert sum(sent) == 2 * (workers - 1) * 4 * elements
    ranges = ring.ranks_by_bytes(elements, workers)
    assert len(ranges) <= 4
    by_rank = [(rank, size) for ranks, size in ranges for rank in ranks]
    assert by_rank == list(enumerate(sent))[1:]
