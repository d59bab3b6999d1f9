"""Arms of a comparison: ways to average gradients and to update a model, naive in a client or inside the database.

Arms take turns in alternating order, so that a busy machine affects all of them. After every turn each result is
compared with one computed here; in-database averages must equal the sum in rank order bit by bit."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from slslab.errors import RunError
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.training.aggregation import sum_in_rank_order

Vector = npt.NDArray[np.float32]
# Receives the progress of a stage: its name, done, total.
Report = Callable[[str, int, int], None]

# Learning rate of the update (SPIRT's own).
RATE = 0.01
PARAMETERS, RESULT = "parameters", "result"
AVERAGE, UPDATE = OPERATIONS = ("average", "update")
REDIS_PY, OWN_CLIENT = NAIVE = ("redis-py", "own client")


# What an arm spends on fetching and storing: `seconds`, and its process's CPU seconds, `get_cpu_s` and `put_cpu_s`.
Moving = defaultdict[str, float]


@contextmanager
def timed(moving: Moving, cpu: str) -> Iterator[None]:
    """Add the block's time to the seconds and to these CPU seconds."""
    cpu_s, began = time.process_time(), time.perf_counter()
    yield
    moving["seconds"] += time.perf_counter() - began
    moving[cpu] += time.process_time() - cpu_s


@dataclass(frozen=True)
class Taken:
    """One operation of an arm: seconds, CPU seconds of this process, and the part spent on moving vectors."""

    seconds: float
    cpu_s: float
    moving: Moving


@dataclass(frozen=True)
class Arm:
    """A timed arm: what computes each of its operations, and what gets the last result (None if nothing is computed).

    `exact` says whether its sum must have the same bits as `sum_in_rank_order`.
    """

    name: str
    operations: Mapping[str, Callable[[], object]]
    result: Callable[[], Vector | None]
    exact: bool = False
    moving: Moving = field(default_factory=partial(defaultdict, float))


@dataclass(frozen=True)
class Vectors:
    """Parameters and gradients, float32 (P,) each, under their keys; `expected` is each operation's result."""

    parameters: Vector
    gradients: Sequence[Vector]
    expected: Mapping[str, Vector]

    @classmethod
    def random(cls, size: int, count: int) -> "Vectors":
        """Return the same vectors each time: standard normal, `count` gradients of `size` numbers."""
        import torch

        generator = np.random.default_rng(0)
        parameters, *gradients = (generator.standard_normal(size, np.float32) for _ in range(1 + count))
        total = sum_in_rank_order([torch.from_numpy(gradient) for gradient in gradients])
        expected = {AVERAGE: total.div_(count).numpy(), UPDATE: parameters - np.float32(RATE) * gradients[0]}
        return cls(parameters, gradients, expected)

    def store(self, put: Callable[[str, Vector], object]) -> None:
        """Put all of them into a database."""
        for key, vector in zip(gradient_keys(len(self.gradients)), self.gradients, strict=True):
            put(key, vector)
        put(PARAMETERS, self.parameters)


def gradient_keys(count: int) -> tuple[str, ...]:
    """Return the keys of `count` gradients."""
    return tuple(f"gradient:{number}" for number in range(count))


def naive_arm(
    name: str,
    keys: Sequence[str],
    get: Callable[[str], Vector],
    put: Callable[[str, Vector], object],
    mean: Callable[[Iterator[Vector]], Vector],
) -> Arm:
    """Return a client that fetches gradients by their keys, computes and stores."""
    moving = Moving(float)

    def fetch(key: str) -> Vector:
        with timed(moving, "get_cpu_s"):
            return get(key)

    def store(vector: Vector) -> None:
        with timed(moving, "put_cpu_s"):
            put(RESULT, vector)

    def update() -> None:
        parameters = fetch(PARAMETERS)
        change = np.float32(RATE) * fetch(keys[0])
        # Into our own memory, since redis-py's bytes aren't writable.
        store(np.subtract(parameters, change, out=change))

    operations = {AVERAGE: lambda: store(mean(map(fetch, keys))), UPDATE: update}
    return Arm(name, operations, partial(get, RESULT), moving=moving)


def database_arm(name: str, keys: Sequence[str], client: TensorDatabase) -> Arm:
    """Return the workers' client, which only names what the database should compute."""
    average = partial(client.execute, "average", keys, [RESULT], "synchronise")
    update = partial(client.execute, "sgd", [PARAMETERS, keys[0]], [RESULT], "update", arguments=(RATE,))
    return Arm(name, {AVERAGE: average, UPDATE: update}, partial(client.get, RESULT, "other"), exact=True)


def stacked_mean(vectors: Iterator[Vector]) -> Vector:
    """Return numpy's mean of all vectors, as in the paper's functions: it stacks them first."""
    mean: Vector = np.mean(list(vectors), axis=0)
    return mean


def running_mean(vectors: Iterator[Vector]) -> Vector:
    """Return the mean as SPIRT's naive worker computes it: each vector is added to the first when it arrives."""
    total, count = next(vectors), 1
    for vector in vectors:
        total += vector
        count += 1
    total /= np.float32(count)
    return total


def body(vector: Vector) -> memoryview:
    """Return a vector's bytes."""
    return vector.data.cast("B")


def thin(url: str) -> TensorDatabase:
    """Return the workers' client without a trace."""
    return TensorDatabase(url, Tracer(lambda _: None))


def naive_arms(database: str, keys: Sequence[str], parts: ExitStack) -> list[Arm]:
    """Return the naive arms on the tensor database: AI.TENSORGET and AI.TENSORSET through redis-py with numpy's mean,
    and the workers' client, which receives directly into arrays, sends from them, and adds each as it arrives. `parts`
    close their connections."""
    import redis

    connection: Any = parts.enter_context(redis.Redis.from_url(database))
    ask, client = connection.execute_command, parts.enter_context(thin(database))
    return [
        naive_arm(
            *(REDIS_PY, keys),
            lambda key: np.frombuffer(ask("AI.TENSORGET", key, "BLOB"), np.float32),
            lambda key, vector: ask("AI.TENSORSET", key, "FLOAT", vector.size, "BLOB", body(vector)),
            stacked_mean,
        ),
        naive_arm(
            *(OWN_CLIENT, keys),
            partial(client.get, phase="synchronise"),
            partial(client.set, phase="synchronise"),
            running_mean,
        ),
    ]


def take_turns(
    operation: str, arms: Sequence[Arm], expected: Vector, repeat: int, report: Callable[[int, int], None]
) -> list[dict[str, Taken]]:
    """Return each arm's figures for `repeat` turns, without an additional first turn that allocates memory. RunError
    for a wrong result."""
    turns: list[dict[str, Taken]] = []
    for index in range(repeat + 1):
        turns.append({})
        for arm in arms if index % 2 == 0 else arms[::-1]:
            arm.moving.clear()
            cpu, began = time.process_time(), time.perf_counter()
            arm.operations[operation]()
            turns[-1][arm.name] = Taken(time.perf_counter() - began, time.process_time() - cpu, arm.moving.copy())
            check(operation, arm, expected)
        report(index, repeat)
    return turns[1:]


def check(operation: str, arm: Arm, expected: Vector) -> None:
    """Raise RunError unless the arm's result is right."""
    result = arm.result()
    # A fused multiply-add may round an update differently.
    same = np.array_equal if operation == AVERAGE and arm.exact else np.allclose
    if result is not None and not same(result, expected):
        raise RunError(f"{arm.name}: the {operation} is wrong.", "don't use its seconds; look for the reason.")
