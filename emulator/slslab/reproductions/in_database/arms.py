"""Arms of a comparison: ways to average gradients and to update a model, naive in a client or inside the database.

Arms take turns in alternating order, so that a busy machine weighs on all of them. After every turn each arm's result
is compared with one computed here; in-database averages must have the bits of the sum in rank order."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from slslab.errors import RunError
from slslab_workers.events import Tracer
from slslab_workers.gradients import sum_in_rank_order
from slslab_workers.tensors import TensorDatabase

Vector = npt.NDArray[np.float32]
# What hears how far a stage has come: its name, done, of how much.
Report = Callable[[str, int, int], None]

# Learning rate of the update (SPIRT's own).
RATE = 0.01
PARAMETERS, RESULT = "parameters", "result"
AVERAGE, UPDATE = OPERATIONS = ("average", "update")
REDIS_PY, OWN_CLIENT = NAIVE = ("redis-py", "own client")


@dataclass
class Moving:
    """What a naive arm has spent in fetching and storing: seconds, and CPU seconds of its process in either."""

    seconds: float = 0.0
    get_cpu_s: float = 0.0
    put_cpu_s: float = 0.0


@dataclass(frozen=True)
class Taken:
    """What one operation of an arm took: seconds, CPU seconds of this process, and the moving among them."""

    seconds: float
    cpu_s: float
    moving: Moving


class Arm(Protocol):
    """Something that is timed; `exact` says whether it must sum to the same bits as `sum_in_rank_order`."""

    moving: Moving
    exact: bool

    @property
    def name(self) -> str:
        """What it is called."""

    def average(self) -> None:
        """The mean of the gradients."""

    def update(self) -> None:
        """A step of SGD with the first gradient."""

    def result(self) -> Vector | None:
        """What came of it, None where nothing is computed."""


@dataclass(frozen=True)
class Vectors:
    """Parameters and gradients, float32 (P,) each, under their keys; `expected` is each operation's result."""

    parameters: Vector
    gradients: Sequence[Vector]
    expected: Mapping[str, Vector]

    @classmethod
    def random(cls, size: int, count: int) -> "Vectors":
        """The same ones each time: standard normal, `count` gradients of `size` numbers."""
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
    """The keys of so many gradients."""
    return tuple(f"gradient:{number}" for number in range(count))


@dataclass
class Naive:
    """A client that fetches, computes and stores."""

    name: str
    url: str
    keys: Sequence[str]
    get: Callable[[str], Vector]
    put: Callable[[str, Vector], object]
    mean: Callable[[Iterator[Vector]], Vector]
    moving: Moving = field(default_factory=Moving)
    exact = False

    def average(self) -> None:
        """Set the result to the mean of the gradients."""
        self._put(self.mean(self._get(key) for key in self.keys))

    def update(self) -> None:
        """Set the result to the parameters after a step of SGD."""
        parameters = self._get(PARAMETERS)
        change = np.float32(RATE) * self._get(self.keys[0])
        # Into memory of our own: redis-py's bytes are not writable.
        self._put(np.subtract(parameters, change, out=change))

    def result(self) -> Vector:
        """What the database has now."""
        return self.get(RESULT)

    def _get(self, key: str) -> Vector:
        cpu, began = time.process_time(), time.perf_counter()
        vector = self.get(key)
        self.moving.seconds += time.perf_counter() - began
        self.moving.get_cpu_s += time.process_time() - cpu
        return vector

    def _put(self, vector: Vector) -> None:
        cpu, began = time.process_time(), time.perf_counter()
        self.put(RESULT, vector)
        self.moving.seconds += time.perf_counter() - began
        self.moving.put_cpu_s += time.process_time() - cpu


@dataclass
class InDatabase:
    """The workers' client, which only says what the database shall compute."""

    name: str
    url: str
    keys: Sequence[str]
    client: TensorDatabase
    moving: Moving = field(default_factory=Moving)
    exact = True

    def average(self) -> None:
        """Have the result set to the mean of the gradients."""
        self.client.execute("average", self.keys, [RESULT], "synchronise")

    def update(self) -> None:
        """Have the result set to the parameters after a step of SGD."""
        self.client.execute("sgd", [PARAMETERS, self.keys[0]], [RESULT], "update", arguments=(RATE,))

    def result(self) -> Vector:
        """What the database has now."""
        return self.client.get(RESULT, "other")

    def put(self, key: str, vector: Vector) -> None:
        """Store a vector."""
        self.client.set(key, vector, "other")


def stacked_mean(vectors: Iterator[Vector]) -> Vector:
    """numpy's mean of them all, as in the paper's functions: it stacks them first."""
    mean: Vector = np.mean(list(vectors), axis=0)
    return mean


def running_mean(vectors: Iterator[Vector]) -> Vector:
    """The mean as SPIRT's naive worker computes it: each is added to the first as it comes."""
    total, count = next(vectors), 1
    for vector in vectors:
        total += vector
        count += 1
    total /= np.float32(count)
    return total


def body(vector: Vector) -> memoryview:
    """A vector's own bytes."""
    return vector.data.cast("B")


def thin(url: str) -> TensorDatabase:
    """The workers' client without a trace."""
    return TensorDatabase(url, Tracer(lambda _: None))


def naive_arms(database: str, keys: Sequence[str], parts: ExitStack) -> list[Naive]:
    """The naive arms on the tensor database: by AI.TENSORGET and AI.TENSORSET through redis-py with numpy's mean, and
    through the workers' client, which receives into and sends from the arrays themselves and adds as it goes. `parts`
    close their connections."""
    import redis

    connection: Any = parts.enter_context(redis.Redis.from_url(database))
    ask, client = connection.execute_command, parts.enter_context(thin(database))

    def get(key: str) -> Vector:
        return np.frombuffer(ask("AI.TENSORGET", key, "BLOB"), np.float32)

    def put(key: str, vector: Vector) -> object:
        return ask("AI.TENSORSET", key, "FLOAT", vector.size, "BLOB", body(vector))

    return [
        Naive(REDIS_PY, database, keys, get, put, stacked_mean),
        Naive(
            *(OWN_CLIENT, database, keys),
            partial(client.get, phase="synchronise"),
            partial(client.set, phase="synchronise"),
            running_mean,
        ),
    ]


def take_turns(
    operation: str, arms: Sequence[Arm], expected: Vector, repeat: int, report: Report
) -> list[dict[str, Taken]]:
    """`repeat` turns of all arms, what each took by its name; one more before them is not counted, for in it memory is
    taken that later ones find. RunError for a wrong result."""
    turns = []
    for index in range(repeat + 1):
        turns.append(_turn(operation, arms if index % 2 == 0 else arms[::-1], expected))
        report(operation, index, repeat)
    return turns[1:]


def _turn(operation: str, arms: Iterable[Arm], expected: Vector) -> dict[str, Taken]:
    taken = {}
    for arm in arms:
        arm.moving = Moving()
        cpu, began = time.process_time(), time.perf_counter()
        getattr(arm, operation)()
        taken[arm.name] = Taken(time.perf_counter() - began, time.process_time() - cpu, arm.moving)
        check(operation, arm, expected)
    return taken


def check(operation: str, arm: Arm, expected: Vector) -> None:
    """RunError unless the arm's result is right."""
    found = arm.result()
    # A fused multiplication and addition may round an update otherwise.
    same = np.array_equal if operation == AVERAGE and arm.exact else np.allclose
    if found is not None and not same(found, expected):
        raise RunError(f"{arm.name}: the {operation} is wrong.", "its seconds mean nothing; look for the reason.")
