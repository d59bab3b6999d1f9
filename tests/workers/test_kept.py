"""What one server keeps at once, by the patterns of all architectures that have one with memory of its own."""

from dataclasses import replace

import pytest

from slslab_workers.architecture import architectures
from slslab_workers.patterns import OWN, Activity, Kept, Pattern, Role, Signal, Workload
from slslab_workers.patterns.kept import kept
from slslab_workers.plan import Value

# Bytes of a vector.
SIZE = 4 * 1000
SHOWN = Signal("shown", key="{run}/{maker}/{step}", of=OWN)


def found(name: str, workers: int, options: dict[str, Value]) -> dict[str, Kept]:
    architecture = architectures()[name]
    workload = Workload(workers, 6, 3, 1000, architecture.complete(options), tensors=10)
    pattern = architecture.pattern(workload)
    assert pattern is not None
    return kept(pattern)


@pytest.mark.parametrize(
    ("name", "options", "least", "most"),
    [
        # All gradients, and the means of two steps; a mean is deleted in the next step.
        ("allreduce", {"channel": "memcached"}, 1, 5 + 2),
        ("allreduce", {"channel": "redis", "algorithm": "ma"}, 1, 5 + 2),
        # One model for all, which each overwrites.
        ("allreduce", {"channel": "redis", "algorithm": "ma", "synchronisation": "s-asp"}, 1, 1),
        # Every worker sends four of the five parts of its gradient, and sums are deleted in the next step.
        ("scatterreduce", {"channel": "redis"}, 1, 4 + 2),
        ("mlless", {"store": "tensordb"}, 0, 2 * 5),
        ("kubeml", {}, 6, 6),
        # Parameters, average and six gradients; then the aggregate, too.
        ("spirt", {}, 8, 9),
        ("spirt", {"update-rule": "sgd-momentum"}, 9, 10),
        ("spirt", {"combine": "median"}, 8, 13),
    ],
)
def test_what_a_server_keeps(name: str, options: dict[str, Value], least: int, most: int) -> None:
    ((_, each),) = found(name, 5, options).items()
    assert each == Kept(least * SIZE, most * SIZE)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("allreduce", {}),
        ("allreduce", {"channel": "dynamodb"}),
        ("allreduce", {"channel": "parameter-server"}),
        ("mlless", {"store": "s3"}),
        ("gpu", {}),
        ("gloo", {}),
        ("gradssharding", {}),
    ],
)
def test_nothing_is_known_of_other_servers(name: str, options: dict[str, Value]) -> None:
    assert found(name, 5, options) == {}


def test_what_is_never_removed_stays() -> None:
    put = Activity("redis.put", "synchronise", times=2, bytes=20, makes=(SHOWN,))

    def keeps(*activities: Activity) -> dict[str, Kept]:
        role = Role(range(3), steps=(activities, activities))
        return kept(Pattern(Workload(3, 4, 5, 1), (role,)))

    assert keeps(put) == {"redis": Kept(60, 20 * 60)}
    assert keeps(replace(put, makes=(replace(SHOWN, each="epoch", key="{epoch}/{maker}"),)))["redis"].most == 5 * 60
    assert keeps(put, Activity("redis.delete", "synchronise", removes=(SHOWN,))) == {"redis": Kept(0, 60)}
    assert keeps(replace(put, op="object.put")) == {}
