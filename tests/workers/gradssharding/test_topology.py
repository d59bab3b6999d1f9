"""Who adds up what in a round, by hand; what an aggregator divides by; slices; memory as the released code has it."""

import pytest

from slslab_workers.gradssharding.settings import divisor
from slslab_workers.gradssharding.topology import Aggregator, levels, memory_mb, slices


def inputs(topology: str, clients: int) -> list[list[list[int]]]:
    return [[list(one.inputs) for one in level] for level in levels(topology, clients)]


def test_each_shard_has_an_aggregator_that_reads_all_clients() -> None:
    assert levels("shards", 3, 2) == ((Aggregator(1, 0, 3, (0, 1, 2), 0, 3), Aggregator(1, 1, 4, (0, 1, 2), 1, 3)),)
    assert levels("shards", 2) == ((Aggregator(1, 0, 2, (0, 1), 0, 2),),), "without slices one of them has all"


def test_lambda_fl_has_as_many_leaves_as_the_root_of_the_clients_and_a_root() -> None:
    assert levels("lambda-fl", 5) == (
        (Aggregator(1, 0, 5, (0, 1, 2), None, 3), Aggregator(1, 1, 6, (3, 4), None, 2)),
        (Aggregator(2, 0, 7, (0, 1), None, 5),),
    )
    assert inputs("lambda-fl", 4) == [[[0, 1], [2, 3]], [[0, 1]]], "of a square number of clients all are full"
    assert inputs("lambda-fl", 2) == [[[0, 1]], [[0]]]
    assert inputs("lambda-fl", 1) == [[[0]], [[0]]]


def test_lifl_has_three_levels_of_the_cube_root_of_the_clients() -> None:
    assert levels("lifl", 5) == (
        tuple(
            Aggregator(1, number, 5 + number, group, None, len(group))
            for number, group in enumerate(((0, 1), (2, 3), (4,)))
        ),
        (Aggregator(2, 0, 8, (0, 1), None, 4), Aggregator(2, 1, 9, (2,), None, 1)),
        (Aggregator(3, 0, 10, (0, 1), None, 5),),
    )
    assert [len(level) for level in levels("lifl", 27)] == [9, 3, 1], "of 3³ clients each reads 3"
    assert [len(level) for level in levels("lifl", 28)] == [7, 2, 1], "of one more the first ones read 4"
    assert inputs("lifl", 1) == [[[0]], [[0]], [[0]]], "a group has two members at least"
    assert inputs("lifl", 2) == [[[0, 1]], [[0]], [[0]]]


@pytest.mark.parametrize(
    ("topology", "averaging", "divisors"),
    [
        ("shards", "weighted", [[5]]),
        ("lambda-fl", "weighted", [[1, 1], [5]]),
        ("lambda-fl", "unweighted", [[1, 1], [5]]),
        ("lifl", "weighted", [[1, 1, 1], [1, 1], [5]]),
        ("lifl", "unweighted", [[2, 2, 1], [2, 1], [2]]),
    ],
)
def test_the_last_level_divides_and_lifls_unweighted_averages_do_on_each(
    topology: str, averaging: str, divisors: list[list[int]]
) -> None:
    tree = levels(topology, 5)
    assert [[divisor(one, tree, averaging) for one in level] for level in tree] == divisors


def test_slices_are_all_of_a_gradient_and_the_first_ones_are_longer() -> None:
    assert slices(7, 3) == [slice(0, 3), slice(3, 5), slice(5, 7)]
    assert slices(6, 2) == [slice(0, 3), slice(3, 6)]
    assert slices(1, 2) == [slice(0, 1), slice(1, 1)]


def test_memory_is_thrice_the_input_and_450_mib_within_the_releases_limits() -> None:
    assert memory_mb(0) == 450
    assert memory_mb(1) == 451, "what is begun is counted whole"
    assert memory_mb(100 << 20) == 750
    assert memory_mb(100 << 20, inputs=2) == 650
    assert memory_mb(1000 << 20) == 3008
