"""Who adds up what in a round of GradsSharding, λ-FL or LIFL: the functions of each level, and the memory they need.

A. Barrak, arXiv 2604.22072 v1 (2026), and the code released with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

TOPOLOGIES = ("shards", "lambda-fl", "lifl")
# What a function needs beside its inputs, MiB, how many times the largest of them, and the most that it gets, MB.
BASE_MIB, INPUTS, MOST_MB = 450, 3, 3008


@dataclass(frozen=True)
class Aggregator:
    """One function of a round.

    It reads the gradients of the clients `inputs` if its `level` is 1, else the outputs of those aggregators of the
    level below; of each the slice `shard`, or all of it (None). `clients` counts whose gradients are in its output.
    """

    level: int
    number: int
    inputs: tuple[int, ...]
    shard: int | None
    clients: int


Levels = tuple[tuple[Aggregator, ...], ...]


def levels(topology: str, clients: int, shards: int = 1) -> Levels:
    """Return the functions of a round, level by level; those of a level run at once, the last one's make the mean."""
    if topology == "shards":
        everyone = tuple(range(clients))
        return (tuple(Aggregator(1, shard, everyone, shard, clients) for shard in range(shards)),)
    if topology == "lambda-fl":
        return _tree(clients, (math.isqrt(clients - 1) + 1,))
    branch = max(2, _cube_root(clients))
    return _tree(clients, (branch, branch))


def _cube_root(number: int) -> int:
    """Return the least whole number whose cube is at least `number`."""
    root = round(math.cbrt(number))
    return root if root**3 >= number else root + 1


def _tree(clients: int, branches: Sequence[int]) -> Levels:
    """Return a tree whose functions read so many inputs at each level, the last level's one function all of them."""
    below = [1] * clients
    made: list[tuple[Aggregator, ...]] = []
    for level, branch in enumerate((*branches, None), 1):
        width = branch or len(below)
        groups = [range(first, min(first + width, len(below))) for first in range(0, len(below), width)]
        made.append(
            tuple(
                Aggregator(level, number, tuple(group), None, sum(below[one] for one in group))
                for number, group in enumerate(groups)
            )
        )
        below = [one.clients for one in made[-1]]
    return tuple(made)


def slices(parameters: int, shards: int) -> list[slice]:
    """Return the parts of a gradient of so many parameters, which differ by one element at most."""
    least, more = divmod(parameters, shards)
    starts = [number * least + min(number, more) for number in range(shards + 1)]
    return [slice(first, last) for first, last in pairwise(starts)]


def memory_mb(input_bytes: int, inputs: int = INPUTS) -> int:
    """Return the memory size of an aggregator whose largest input has so many bytes, MB, as the released code does."""
    return min(MOST_MB, math.ceil(inputs * input_bytes / (1 << 20) + BASE_MIB))
