"""Documents, shares and rounds of an epoch: every document is trained with once, in the stored order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab_workers.kubeml.shares import ALL, Epoch, document_count, minibatches, share_of

CIFAR10 = 50_000


def test_cifar10_with_four_functions_is_as_the_protocol_reference_has_it() -> None:
    epoch = Epoch(4, CIFAR10, 128, 8)
    assert epoch.documents == 782
    assert [len(share_of(782, 4, function)) for function in range(4)] == [196, 196, 195, 195]
    intervals = [epoch.intervals(function) for function in range(4)]
    assert {len(documents) for documents in intervals[0][:-1]} == {16}, "a period is ⌈128 · 8 ÷ 64⌉ documents"
    assert [len(each) for each in intervals] == [13, 13, 13, 13]
    assert len(epoch.rounds) == 13


@pytest.mark.parametrize("functions", [1, 2, 4])
@pytest.mark.parametrize("k", [1, 8, ALL])
def test_intervals_and_rounds_by_hand(functions: int, k: int) -> None:
    """98 documents, minibatches of 32: half a document each, so that K = 1 has one a round and K = 8 four."""
    epoch = Epoch(functions, 98 * 64, 32, k)
    shares = {1: [98], 2: [49, 49], 4: [25, 25, 24, 24]}[functions]
    each = {1: shares, 8: [-(-share // 4) for share in shares], ALL: [1] * functions}[k]
    assert [len(epoch.intervals(function)) for function in range(functions)] == each
    assert len(epoch.rounds) == max(each)
    assert sum(map(len, epoch.rounds)) == sum(each)


def test_functions_that_have_ended_are_in_no_further_round() -> None:
    assert Epoch(3, 5 * 64, 64, 1).rounds == [[0, 1, 2], [0, 1]]


@given(st.integers(1, 12), st.integers(1, 3000), st.integers(1, 300), st.one_of(st.just(ALL), st.integers(1, 50)))
def test_every_document_and_sample_is_trained_with_once(functions: int, samples: int, size: int, k: int) -> None:
    functions = min(functions, document_count(samples))
    epoch = Epoch(functions, samples, size, k)
    intervals = [interval for function in range(functions) for interval in epoch.intervals(function)]
    assert [number for interval in intervals for number in interval] == list(range(epoch.documents))
    assert sum(map(epoch.samples_of, intervals)) == samples
    assert all(epoch.steps(one) == len(minibatches(epoch.samples_of(one), size)) for one in intervals)


def test_a_period_that_minibatches_do_not_fill_ends_with_a_short_one() -> None:
    assert [chosen.stop - chosen.start for chosen in minibatches(64, 50)] == [50, 14]
    assert Epoch(1, 128, 50, 1).steps(range(0, 1)) == 2
