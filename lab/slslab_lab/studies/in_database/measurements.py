"""Measurements of SPIRT's operations, averaging of gradients and update of a model, naive and in the database.

Arms take turns in alternating order, so that a busy machine affects all of them. After every turn each result is
compared with one computed here; in-database averages must equal the sum in rank order bit by bit."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from slslab.errors import RunError
from slslab.host.session import Session
from slslab.stack.channels import EmbeddedRedis, find_server
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab.toml_files import TomlTable
from slslab_lab.studies.kept import Kept, made_now
from slslab_lab.studies.study import Setup
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.scripts import LUA_AVERAGE
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.models import spec
from slslab_workers.training.aggregation import sum_in_rank_order

Vector = npt.NDArray[np.float32]
# Receives the progress of a stage: its name, done, total.
Report = Callable[[str, int, int], None]

# Learning rate of the update (SPIRT's own).
RATE = 0.01
PARAMETERS, RESULT = "parameters", "result"
AVERAGE, UPDATE = OPERATIONS = ("average", "update")
REDIS_PY, OWN_CLIENT = NAIVE = ("redis-py", "own client")
IN_DATABASE = "in the database"
ARMS = (*NAIVE, IN_DATABASE)
# A model's gradients take gigabytes as JSON, so measure fewer numbers; each takes the same time.
JSON_NUMBERS = 100_000

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


# What an arm spends on fetching and storing: `moving_s`, and its process's CPU seconds, `get_cpu_s` and `put_cpu_s`.
Moving = defaultdict[str, float]
# What an operation of an arm takes: its `seconds`, the `cpu_s` of this process, and what it spends on moving.
Taken = Mapping[str, float]


@contextmanager
def timed(moving: Moving, cpu: str) -> Iterator[None]:
    """Add the block's time to the seconds and to these CPU seconds."""
    cpu_s, began = time.process_time(), time.perf_counter()
    yield
    moving["moving_s"] += time.perf_counter() - began
    moving[cpu] += time.process_time() - cpu_s


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
            spent = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
            turns[-1][arm.name] = {**spent, **arm.moving}
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


class Samples(TomlTable):
    """One operation of one arm, turn by turn: seconds, and CPU seconds of the client in gets, arithmetic and puts, or
    of the database's script."""

    seconds: Annotated[tuple[Seconds, ...], Field(min_length=1)]
    get_cpu_s: tuple[Seconds, ...] = ()
    arithmetic_cpu_s: tuple[Seconds, ...] = ()
    put_cpu_s: tuple[Seconds, ...] = ()
    script_cpu_s: tuple[Seconds, ...] = ()


class Model(TomlTable):
    """A model's parameters, float32, and its samples by operation and arm."""

    parameters: Annotated[int, Field(gt=0)]
    operations: Mapping[str, Mapping[str, Samples]]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for operation in OPERATIONS:
            samples = self.operations.get(operation, {})
            if missing := [arm for arm in ARMS if arm not in samples]:
                raise ValueError(f"{operation} of {missing[0]} is missing")
            parts = [samples[IN_DATABASE].script_cpu_s, *(samples[arm].seconds for arm in ARMS)]
            for naive in map(samples.__getitem__, NAIVE):
                parts += [naive.get_cpu_s, naive.arithmetic_cpu_s, naive.put_cpu_s]
            if len(set(map(len, parts))) > 1:
                raise ValueError(f"the arms of {operation} differ in their numbers of turns")
        return self


class Released(TomlTable):
    """SPIRT's average as released, over JSON texts of `numbers` each: the bytes of the texts and the mean, CPU seconds
    of the Redis server for each run of the Lua script, and of a client that decodes all texts and averages them."""

    redis: str
    numbers: Annotated[int, Field(gt=0)]
    json_bytes: Annotated[tuple[int, ...], Field(min_length=1)]
    mean_bytes: Annotated[int, Field(gt=0)]
    lua_cpu_s: Annotated[tuple[Seconds, ...], Field(min_length=1)]
    decode_cpu_s: Annotated[tuple[Seconds, ...], Field(min_length=1)]

    @property
    def text_bytes(self) -> float:
        """Return bytes of JSON for a number of a gradient."""
        return sum(self.json_bytes) / len(self.json_bytes) / self.numbers

    @property
    def lua_s(self) -> float:
        """Return CPU seconds of Lua for each number read."""
        return median(self.lua_cpu_s) / (self.numbers * len(self.json_bytes))

    @property
    def decode_s(self) -> float:
        """Return CPU seconds of a client for each number read."""
        return median(self.decode_cpu_s) / (self.numbers * len(self.json_bytes))


class Measurements(Kept):
    """Measurements of one command, with load averages before and after; without redis-server `released` is None."""

    load: Mapping[str, tuple[float, float, float]]
    gradients: Annotated[int, Field(gt=1)]
    models: Annotated[Mapping[str, Model], Field(min_length=1)]
    released: Released | None


RESULTS = Measurements


def measure(setup: Setup) -> Measurements:
    """Measure the operations of the chosen models, with one gradient for each of Table 2's minibatches."""
    count = int(setup.paper.table("table2").inputs["batches"])
    return measure_models(setup.options["models"], count, setup.effort, setup.watcher.report)


def measure_models(names: Sequence[str], count: int, repeat: int, report: Report) -> Measurements:
    """Measure these models' operations with `count` gradients, each arm `repeat` times.

    HostError if the embedded database doesn't start, RunError for a wrong result."""
    before = os.getloadavg()
    with Session() as session:
        by_model = {name: _model(name, count, repeat, session.mark, report) for name in names}
        released = None
        if (program := find_server("redis-server")) is not None:
            with EmbeddedRedis(program, session.home / "redis", session.mark) as server:
                times = time_json(server.endpoint, JSON_NUMBERS, count, repeat)
            released = Released(redis=server.version.removeprefix("Redis "), numbers=JSON_NUMBERS, **times)
    return Measurements(
        **{**made_now(), "versions": versions()},
        load={"before": before, "after": os.getloadavg()},
        gradients=count,
        models=by_model,
        released=released,
    )


def _model(name: str, count: int, repeat: int, mark: Mapping[str, str], report: Report) -> Model:
    size = spec(name).parameters
    assert size is not None
    vectors = Vectors.random(size, count)
    keys, expected = gradient_keys(count), vectors.expected
    events: list[dict[str, Any]] = []
    with ExitStack() as stack:
        database = stack.enter_context(EmbeddedTensorDatabases(1, environment=mark, on_event=events.append))
        url = database.endpoints[0]
        client = stack.enter_context(thin(url))
        vectors.store(partial(client.set, phase="other"))
        # The database has them now; a naive arm needs the memory.
        del vectors
        arms = [*naive_arms(url, keys, stack), database_arm(IN_DATABASE, keys, client)]
        turns = {
            operation: take_turns(operation, arms, expected[operation], repeat, partial(report, f"{name}, {operation}"))
            for operation in OPERATIONS
        }
    if len(events) != len(OPERATIONS) * (repeat + 1):
        raise RunError("The database didn't report every script.", "run it again.")
    scripts = {
        operation: [event["cpu_ns"] / 1e9 for event in events[begin + 1 : begin + repeat + 1]]
        for operation, begin in zip(OPERATIONS, range(0, len(events), repeat + 1), strict=True)
    }
    return Model(
        parameters=size,
        operations={
            operation: {arm: _samples([turn[arm] for turn in taken], arm, scripts[operation]) for arm in ARMS}
            for operation, taken in turns.items()
        },
    )


def _samples(taken: Sequence[Taken], arm: str, scripts: Sequence[float]) -> Samples:
    names = ("seconds", "cpu_s", "get_cpu_s", "put_cpu_s")
    seconds, cpu_s, get_cpu_s, put_cpu_s = (tuple(turn.get(name, 0.0) for turn in taken) for name in names)
    if arm == IN_DATABASE:
        return Samples(seconds=seconds, script_cpu_s=tuple(scripts))
    rest = (cpu - get - put for cpu, get, put in zip(cpu_s, get_cpu_s, put_cpu_s, strict=True))
    return Samples(
        seconds=seconds,
        get_cpu_s=get_cpu_s,
        arithmetic_cpu_s=tuple(max(0.0, spent) for spent in rest),
        put_cpu_s=put_cpu_s,
    )


def time_json(server: str, numbers: int, count: int, repeat: int) -> dict[str, Any]:
    """Return the bytes and times of both ways to average a list of `count` gradients of `numbers` numbers, each
    `repeat` times, as in a file of measurements; RunError for a wrong mean."""
    vectors = Vectors.random(numbers, count)
    texts = [json.dumps(gradient.tolist()).encode() for gradient in vectors.gradients]
    script, decode, reply = [], [], b""
    with thin(server) as client:
        for text in texts:
            client.command("RPUSH", "gradients", text)
        for _ in range(repeat):
            cpu = _server_cpu_s(client)
            reply = bytes(client.command("EVAL", LUA_AVERAGE, 1, "gradients", count))
            script.append(_server_cpu_s(client) - cpu)
            cpu = time.process_time()
            mean = stacked_mean(np.array(json.loads(text), np.float32) for text in texts)
            decode.append(time.process_time() - cpu)
            for computed in (np.array(json.loads(reply)), mean):
                if not np.allclose(computed, vectors.expected[AVERAGE], atol=1e-6):
                    raise RunError("The average of JSON texts is wrong.", "don't use its seconds; look for the reason.")
    return {"json_bytes": list(map(len, texts)), "mean_bytes": len(reply), "lua_cpu_s": script, "decode_cpu_s": decode}


def _server_cpu_s(client: TensorDatabase) -> float:
    lines = bytes(client.command("INFO", "cpu")).decode().splitlines()
    known = dict(line.split(":") for line in lines if ":" in line)
    return float(known["used_cpu_user"]) + float(known["used_cpu_sys"])


def versions() -> dict[str, str]:
    """Return the versions that figures depend on; hiredis makes redis-py faster if it is installed."""
    installed = {name: version(name) for name in ("torch", "numpy", "redis")}
    try:
        installed["hiredis"] = version("hiredis")
    except PackageNotFoundError:
        installed["hiredis"] = "none"
    return installed
