"""KubeML's merge rounds: how many there are, and whether published times follow them."""

import pytest

from slslab.papers.paper import load_paper
from slslab.reproductions.merges import fit_merges, merges


@pytest.mark.parametrize(
    ("functions", "batch_size", "steps", "rounds"),
    [(4, 128, 8, 13), (2, 32, 8, 98), (4, 32, 8, 49), (2, 256, 32, 4), (1, 64, 1, 782), (8, 64, 0, 1)],
)
def test_merge_rounds_of_an_epoch(functions: int, batch_size: int, steps: int, rounds: int) -> None:
    """CIFAR-10's 782 documents of 64 images."""
    assert merges(782, 64, functions, batch_size, steps) == rounds


def test_published_seconds_are_linear_in_the_merge_rounds() -> None:
    """One time of a round for all minibatches; with each by itself it is 1.92 to 2.24 s."""
    fit = fit_merges(load_paper("kubeml-2023"))
    assert 1.8 < fit.seconds < 2.3
    assert len(fit.errors) == 16
    assert max(map(abs, fit.errors)) < 0.07
