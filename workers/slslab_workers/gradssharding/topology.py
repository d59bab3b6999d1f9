"""The functions of each level in a round of GradsSharding, λ-FL or LIFL, their inputs, and their memory.

A. Barrak, arXiv 2604.22072 v1 (2026), and the code released with it.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from slslab_workers.training.aggregation import chunk

TOPOLOGIES = ("shards", "lambda-fl", "lifl")
# A function's memory: a base, MiB, plus this many times its largest input, at most this many MB.
BASE_MIB, INPUTS, MOST_MB = 450, 3, 3008


@dataclass(frozen=True)
class Aggregator:
    """One function of a round.

    On level 1 its `inputs` are clients' gradients, above it the outputs of the level below. It reads the slice `shard`
    of each, or everything (None). `clients` is how many clients its output contains. Ranks in the trace follow the
    clients', level by level.
    """

    level: int
    number: int
    rank: int
    inputs: tuple[int, ...]
    shard: int | None
    clients: int


Levels = tuple[tuple[Aggregator, ...], ...]


def levels(topology: str, clients: int, shards: int = 1) -> Levels:
    """Return the functions of a round, level by level. A level runs at once; the last makes the mean."""
    if topology == "shards":
        everyone = tuple(range(clients))
        return (tuple(Aggregator(1, shard, clients + shard, everyone, shard, clients) for shard in range(shards)),)
    if topology == "lambda-fl":
        return _tree(clients, (math.isqrt(clients - 1) + 1,))
    branch = next(branch for branch in itertools.count(2) if branch**3 >= clients)
    return _tree(clients, (branch, branch))


def _tree(clients: int, branches: Sequence[int]) -> Levels:
    """Return a tree with this many inputs per function on each level; the last level has one function."""
    below = [1] * clients
    made: list[tuple[Aggregator, ...]] = []
    for level, branch in enumerate((*branches, None), 1):
        width = branch or len(below)
        groups = [range(first, min(first + width, len(below))) for first in range(0, len(below), width)]
        first = clients + sum(map(len, made))
        made.append(
            tuple(
                Aggregator(level, number, first + number, tuple(group), None, sum(below[one] for one in group))
                for number, group in enumerate(groups)
            )
        )
        below = [one.clients for one in made[-1]]
    return tuple(made)


def slices(parameters: int, shards: int) -> list[slice]:
    """Return the slices of a gradient of this many parameters; their lengths differ by one at most."""
    return [chunk(parameters, shards, number) for number in range(shards)]


def memory_mb(input_bytes: int, inputs: int = INPUTS) -> int:
    """Return the memory size, MB, of an aggregator with a largest input of this many bytes, by the released rule."""
    return min(MOST_MB, math.ceil(inputs * input_bytes / (1 << 20) + BASE_MIB))
