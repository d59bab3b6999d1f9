"""The papers' crossings as they are read off their files, and whether the atlas has them."""

import pytest

from slslab_lab.studies.atlas.published import FUNCTIONS, GPU, Published, published


def find(figure: str, second: str, workers: int) -> Published:
    """Return one published crossing."""
    (found,) = (one for one in published() if (one.figure, one.second, one.workers) == (figure, second, workers))
    return found


def bounds(crossing: Published) -> list[float]:
    """Return between which sizes it lies, MB; 0 for none."""
    return [crossing.low or 0, crossing.high or 0]


def test_crossings_of_barrak() -> None:
    cost = find("epoch_usd", GPU, 4)
    assert cost.first == FUNCTIONS
    assert bounds(cost) == pytest.approx([12.868904, 44.695848])
    seconds = find("epoch_seconds", GPU, 4)
    assert bounds(seconds) == pytest.approx([0, 12.868904])
    patterns = find("epoch_seconds", "scatterreduce/s3/ga", 16)
    assert bounds(patterns) == pytest.approx([12.868904, 94.083368])


def test_crossings_of_lambdaml() -> None:
    # Memcached is slower with k-means of 1,000 clusters, and faster with MobileNet.
    memcached = find("seconds", "allreduce/memcached/ga", 50)
    assert bounds(memcached) == pytest.approx([0.116, 12.868904])
    assert find("seconds", "allreduce/memcached/ga", 10).low == pytest.approx(232e-6)
    assert find("seconds", "allreduce/dynamodb/ga", 10).low is None
    server = find("epoch_seconds", "allreduce/parameter-server/ga", 10)
    assert bounds(server) == pytest.approx([12.868904, 0])


@pytest.mark.parametrize(
    ("low", "high", "modelled", "ends", "verdict"),
    [
        (1.0, 2.0, [1.5], "ab", "agrees"),
        (1.0, 2.0, [1.5], "ba", "differs"),
        (1.0, 2.0, [2.5], "ab", "differs"),
        (1.0, 2.0, [1.5, 3.0], "aa", "differs"),
        (1.0, 2.0, [], "aa", "differs"),
        (1.0, None, [], "aa", "agrees"),
        (1.0, None, [], "bb", "differs"),
        (None, 2.0, [], "bb", "agrees"),
        (None, 2.0, [3.0], "ab", "differs"),
        # Beyond what was published anything may be.
        (None, 2.0, [1.0], "ab", "agrees"),
        (1.0, None, [2.0], "ab", "agrees"),
    ],
)
def test_verdicts(low: float | None, high: float | None, modelled: list[float], ends: str, verdict: str) -> None:
    crossing = Published("source", "seconds", 4, "a", "b", low, high)
    assert crossing.verdict(modelled, ends) == verdict
