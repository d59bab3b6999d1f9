"""Measurements of SPIRT's operations, naive and in the database, as they are taken here and kept in a file."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, date, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from slslab.documents import check_schema, validate
from slslab.errors import RequestError, RunError
from slslab.reproductions import FOLDERS
from slslab.reproductions.calls import Estimate
from slslab.reproductions.in_database.arms import (
    NAIVE,
    OPERATIONS,
    Arm,
    InDatabase,
    Report,
    Taken,
    Vectors,
    gradient_keys,
    naive_arms,
    take_turns,
    thin,
)
from slslab.reproductions.in_database.redis import installed_version, is_installed, plain_redis, time_json
from slslab.session import Session
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab.trace import replacing
from slslab_workers import models

SCHEMA = 1
FILE = "measurements.json"
IN_DATABASE = "in the database"
ARMS = (*NAIVE, IN_DATABASE)
REPEATS = {"sampled": 5, "full": 15}
# As JSON a model's gradients take gigabytes, and each number the same time.
JSON_NUMBERS = 100_000

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Samples(_Entry):
    """One operation of one arm, turn by turn: seconds, and CPU seconds of the client in gets, in arithmetic and in
    puts, or of the database's script."""

    seconds: Annotated[tuple[Seconds, ...], Field(min_length=1)]
    get_cpu_s: tuple[Seconds, ...] = ()
    arithmetic_cpu_s: tuple[Seconds, ...] = ()
    put_cpu_s: tuple[Seconds, ...] = ()
    script_cpu_s: tuple[Seconds, ...] = ()


class Model(_Entry):
    """A model's parameters, float32, and its samples by operation and arm."""

    parameters: Annotated[int, Field(gt=0)]
    operations: Mapping[str, Mapping[str, Samples]]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for operation in OPERATIONS:
            found = self.operations.get(operation, {})
            if missing := [arm for arm in ARMS if arm not in found]:
                raise ValueError(f"there is no {operation} of {missing[0]}")
            counts = {len(found[arm].seconds) for arm in ARMS} | {len(found[IN_DATABASE].script_cpu_s)}
            for arm in NAIVE:
                counts |= {len(part) for part in (found[arm].get_cpu_s, found[arm].arithmetic_cpu_s)}
                counts.add(len(found[arm].put_cpu_s))
            if len(counts) > 1:
                raise ValueError(f"the arms of {operation} have not the same number of turns")
        return self


class Released(_Entry):
    """SPIRT's average as released, over JSON texts of `numbers` each: their bytes and the mean's, CPU seconds of the
    Redis server for each run of the Lua script, and those of a client that decodes all texts and averages them."""

    redis: str
    numbers: Annotated[int, Field(gt=0)]
    json_bytes: Annotated[tuple[int, ...], Field(min_length=1)]
    mean_bytes: Annotated[int, Field(gt=0)]
    lua_cpu_s: Annotated[tuple[Seconds, ...], Field(min_length=1)]
    decode_cpu_s: Annotated[tuple[Seconds, ...], Field(min_length=1)]

    @property
    def text_bytes(self) -> float:
        """Bytes of JSON for a number of a gradient."""
        return sum(self.json_bytes) / len(self.json_bytes) / self.numbers

    @property
    def mean_text_bytes(self) -> float:
        """Bytes of JSON for a number of the mean."""
        return self.mean_bytes / self.numbers

    @property
    def lua_s(self) -> float:
        """CPU seconds of Lua for each number that is read."""
        return median(self.lua_cpu_s) / (self.numbers * len(self.json_bytes))

    @property
    def decode_s(self) -> float:
        """CPU seconds of a client for each number that is read."""
        return median(self.decode_cpu_s) / (self.numbers * len(self.json_bytes))


class Measurements(_Entry):
    """What one command measured, on which host, with what; `load` are the load averages before and after.

    `released` is None where no redis-server is installed."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    measured: date
    command: str
    host: Mapping[str, str | int]
    versions: Mapping[str, str]
    load: Mapping[str, tuple[float, float, float]]
    gradients: Annotated[int, Field(gt=1)]
    models: Annotated[Mapping[str, Model], Field(min_length=1)]
    released: Released | None


def middle(samples: Sequence[float]) -> Estimate:
    """The median, and the least and the greatest of several."""
    if len(samples) == 1:
        return Estimate(samples[0], None, None, 1)
    return Estimate(median(samples), min(samples), max(samples), len(samples))


def measure(names: Sequence[str], count: int, repeat: int, report: Report) -> Measurements:
    """Measure these models' operations with `count` gradients, each arm `repeat` times.

    HostError if the embedded database does not start, RunError for a wrong result."""
    before = os.getloadavg()
    with Session() as session:
        found = {name: _model(name, count, repeat, session.mark, report) for name in names}
        released = None
        if is_installed():
            with plain_redis(session) as server:
                times = time_json(server, JSON_NUMBERS, count, repeat)
            released = Released(redis=installed_version(), numbers=JSON_NUMBERS, **asdict(times))
    return Measurements(
        measured=datetime.now(UTC).date(),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        host=host(),
        versions=versions(),
        load={"before": before, "after": os.getloadavg()},
        gradients=count,
        models=found,
        released=released,
    )


def _model(name: str, count: int, repeat: int, mark: Mapping[str, str], report: Report) -> Model:
    size = models.spec(name).parameters
    assert size is not None
    vectors = Vectors.random(size, count)
    keys, expected = gradient_keys(count), vectors.expected
    events: list[dict[str, Any]] = []
    turns = {}
    with ExitStack() as stack:
        database = stack.enter_context(EmbeddedTensorDatabases(1, environment=mark, on_event=events.append))
        url = database.endpoints[0]
        client = stack.enter_context(thin(url))
        inside = InDatabase(IN_DATABASE, url, keys, client)
        vectors.store(inside.put)
        # The database has them now, and a naive arm needs the memory.
        del vectors
        arms: list[Arm] = [*naive_arms(url, keys, stack), inside]

        def told(operation: str, done: int, total: int) -> None:
            report(f"{name}, {operation}", done, total)

        for operation in OPERATIONS:
            turns[operation] = take_turns(operation, arms, expected[operation], repeat, told)
    if len(events) != len(OPERATIONS) * (repeat + 1):
        raise RunError("The database does not tell of every script.", "run it again.")
    scripts = {
        operation: [event["cpu_ns"] / 1e9 for event in events[begin + 1 : begin + repeat + 1]]
        for operation, begin in zip(OPERATIONS, range(0, len(events), repeat + 1), strict=True)
    }
    samples = {
        operation: {arm: _samples([turn[arm] for turn in found], arm, scripts[operation]) for arm in ARMS}
        for operation, found in turns.items()
    }
    return Model(parameters=size, operations=samples)


def _samples(taken: Sequence[Taken], arm: str, scripts: Sequence[float]) -> Samples:
    seconds = tuple(one.seconds for one in taken)
    if arm == IN_DATABASE:
        return Samples(seconds=seconds, script_cpu_s=tuple(scripts))
    moved = [one.moving for one in taken]
    return Samples(
        seconds=seconds,
        get_cpu_s=tuple(one.get_cpu_s for one in moved),
        arithmetic_cpu_s=tuple(max(0.0, one.cpu_s - one.moving.get_cpu_s - one.moving.put_cpu_s) for one in taken),
        put_cpu_s=tuple(one.put_cpu_s for one in moved),
    )


def host() -> dict[str, str | int]:
    """This host, as far as figures depend on it."""
    return {
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """What figures depend on; hiredis makes redis-py faster where it is installed."""
    found = {name: version(name) for name in ("torch", "numpy", "redis")}
    try:
        found["hiredis"] = version("hiredis")
    except PackageNotFoundError:
        found["hiredis"] = "none"
    return found


def write(found: Measurements, directory: Path) -> Path:
    """Write `measurements.json`; RequestError if it cannot be written."""
    path = directory / FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write((found.model_dump_json(by_alias=True, indent=1) + "\n").encode())
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}.", "choose another --out.") from error
    return path


def read(directory: Path) -> Measurements:
    """The measurements in this directory; RequestError if there are none, or for the first entry that is wrong."""
    path = directory / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(
            f"There are no measurements {str(path)!r}: {error.strerror}.", "take them with --fidelity sampled."
        ) from error
    except ValueError as error:
        raise RequestError(f"{path} is not JSON: {error}.", "take the measurements again.") from error
    if not isinstance(document, dict):
        raise RequestError(f"{path} holds no measurements.", "take them with --fidelity sampled.")
    check_schema(document, SCHEMA, path, "file of measurements", RequestError)
    return validate(Measurements, document, path, "file of measurements", RequestError)


def committed() -> Path:
    """Where the project's own measurements are; RunError if there are none."""
    found = next((folder / "in-database" for folder in FOLDERS if (folder / "in-database" / FILE).is_file()), None)
    if found is None:
        raise RunError("There are no measurements of in-database operations.", "take them with --fidelity sampled.")
    return found
