"""What it saves to average gradients and to update a model inside the tensor database instead of in the client.

    python benchmarks/in_database.py [--model mobilenet resnet18] [--count 24] [--repeat 7] [--threads 1 2] [--json]

The database is the embedded one, in a process of its own as in `slslab run`; the client is this process. Arms take
turns in alternating order, so that a busy machine weighs on all of them; a ratio is the median of the ratios of such
turns. The first turn is not timed.

  redis-py          naive: all gradients by AI.TENSORGET through redis-py, numpy's mean, AI.TENSORSET of the result; for
                    the update, parameters and gradient fetched, subtracted and set
  own client        naive, through the workers' client, which receives into and sends from the arrays themselves
  … on Redis        both against a redis-server with SET and GET, where one is installed
  in the database   the workers' client has the database run its script; by torch's threads for one operation
  memory            floor: the same arithmetic on the same arrays in this process, each byte read from memory once (the
                    mean in blocks whose sum stays in the cache) and written to memory that is there already
  loopback          floor: the bytes that a naive arm moves, over a bare loopback socket between two processes

Every result is compared with one computed here, and in-database averages must have the bits of the sum in rank order.
A naive arm's moving time is what it spends in getting and setting. ResNet-18 takes about 7 GB and two minutes.
"""

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import redis
import torch

from slslab.session import Session
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_workers import models
from slslab_workers.events import Tracer
from slslab_workers.gradients import sum_in_rank_order
from slslab_workers.tensors import TensorDatabase

Vector = npt.NDArray[np.float32]
Row = dict[str, Any]

FORK = multiprocessing.get_context("fork")
START_LIMIT_S = 30.0
RATE = 0.01
# Elements: a sum of 512 KB stays in one core's second-level cache while the gradients pass by.
BLOCK = 131_072
PARAMETERS = "parameters"
RESULT = "result"
OPERATIONS = ("average", "update")
PAPER = {"average": 1.8, "update": 5.7}
# What a naive arm should take at least, in-database = 1; and the in-database average at most, its floor = 1.
AIMS = {"redis-py": 5.0, "own client": 3.0}
FLOOR_AIM = 3.0
LOOPBACK = "loopback"


def counted(name: str, threads: int) -> str:
    """An arm's name with its number of threads."""
    return f"{name}, {threads} {'thread' if threads == 1 else 'threads'}"


inside, memory = partial(counted, "in the database"), partial(counted, "memory")


class Arm(Protocol):
    """Something that is timed; `moving_s` is what it has spent in fetching and storing, `exact` whether it must sum
    to the same bits as `sum_in_rank_order`."""

    moving_s: float
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


@dataclass
class Naive:
    """A client that fetches, computes and stores."""

    name: str
    url: str
    keys: Sequence[str]
    get: Callable[[str], Vector]
    put: Callable[[str, Vector], object]
    mean: Callable[[Iterator[Vector]], Vector]
    moving_s: float = 0.0
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
        began = time.perf_counter()
        vector = self.get(key)
        self.moving_s += time.perf_counter() - began
        return vector

    def _put(self, vector: Vector) -> None:
        began = time.perf_counter()
        self.put(RESULT, vector)
        self.moving_s += time.perf_counter() - began


@dataclass
class InDatabase:
    """The workers' client, which only says what the database shall compute."""

    name: str
    url: str
    keys: Sequence[str]
    client: TensorDatabase
    moving_s: float = 0.0
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


def naive_arms(database: str, keys: Sequence[str]) -> list[Naive]:
    """The naive arms on the tensor database."""
    ask: Callable[..., Any] = redis.Redis.from_url(database).execute_command
    client = thin(database)

    def get(key: str) -> Vector:
        return np.frombuffer(ask("AI.TENSORGET", key, "BLOB"), np.float32)

    def put(key: str, vector: Vector) -> object:
        return ask("AI.TENSORSET", key, "FLOAT", vector.size, "BLOB", body(vector))

    return [
        Naive("redis-py", database, keys, get, put, stacked_mean),
        Naive(
            *("own client", database, keys),
            partial(client.get, phase="synchronise"),
            partial(client.set, phase="synchronise"),
            running_mean,
        ),
    ]


def plain_arms(server: str, keys: Sequence[str]) -> list[Naive]:
    """The naive arms on a plain Redis, with strings."""
    strings: Any = redis.Redis.from_url(server)
    client = thin(server)

    def get(key: str) -> Vector:
        return np.frombuffer(strings.get(key), np.float32)

    def put(key: str, vector: Vector) -> object:
        return strings.set(key, body(vector))

    def own_get(key: str) -> Vector:
        return np.frombuffer(client.command("GET", key), np.float32)

    def own_put(key: str, vector: Vector) -> object:
        return client.command("SET", key, body(vector))

    return [
        Naive("redis-py on Redis", server, keys, get, put, stacked_mean),
        Naive("own client on Redis", server, keys, own_get, own_put, running_mean),
    ]


@contextmanager
def plain_redis(session: Session) -> Iterator[str]:
    """The address of a redis-server of our own that keeps nothing on disk."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    # Its title would be written over its environment, where the reaper looks for the mark.
    command += ["--set-proc-title", "no"]
    with (session.home / "redis.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=session.home, env={**os.environ, **session.mark}, stdin=subprocess.DEVNULL, stdout=log
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        with thin(f"redis://127.0.0.1:{port}") as client:
            while not client.ping():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"redis-server did not start: {(session.home / 'redis.log').read_text()[-300:]}")
                time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


class Memory:
    """The floor of the arithmetic: `threads` threads over the same arrays, into memory that has been written before."""

    moving_s = 0.0
    exact = True

    def __init__(self, parameters: Vector, gradients: Sequence[Vector], threads: int) -> None:
        self.name = memory(threads)
        self._out = np.zeros_like(parameters)
        vectors = [torch.from_numpy(vector) for vector in (self._out, parameters, *gradients)]
        # For each block: the output, the parameters and every gradient.
        self._blocks = list(zip(*(torch.split(vector, BLOCK) for vector in vectors), strict=True))
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def average(self) -> None:
        """Every byte of the gradients read once."""
        self._run(_mean_block)

    def update(self) -> None:
        """Parameters and gradient read once."""
        self._run(_step_block)

    def result(self) -> Vector:
        """What was computed last."""
        return self._out

    def _run(self, work: Callable[[Sequence[torch.Tensor]], object]) -> None:
        def share(number: int) -> None:
            for block in self._blocks[number :: self._threads]:
                work(block)

        list(self._pool.map(share, range(self._threads)))


def _mean_block(block: Sequence[torch.Tensor]) -> None:
    total, _, first, second, *rest = block
    torch.add(first, second, out=total)
    for part in rest:
        total.add_(part)
    total.div_(2 + len(rest))


def _step_block(block: Sequence[torch.Tensor]) -> None:
    out, parameters, gradient, *_ = block
    torch.sub(parameters, gradient, alpha=RATE, out=out)


class Loopback:
    """The floor of moving: vectors over a socket from and to a process forked off, which does nothing else."""

    name = LOOPBACK
    moving_s = 0.0
    exact = False

    def __init__(self, gradients: Sequence[Vector]) -> None:
        self._count = len(gradients)
        self._buffer = memoryview(bytearray(gradients[0].nbytes))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._process = FORK.Process(target=_serve, args=(listener, gradients), daemon=True)
            self._process.start()
            self._socket = socket.create_connection(listener.getsockname())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """End the connection, and with it the other process."""
        self._socket.close()
        self._process.join()

    def average(self) -> None:
        """As many vectors here as there are gradients, one back."""
        self._move(self._count)

    def update(self) -> None:
        """Two vectors here, one back."""
        self._move(2)

    def result(self) -> None:
        """Nothing is computed."""

    def _move(self, count: int) -> None:
        self._socket.sendall(struct.pack("!I", count))
        for _ in range(count):
            _receive(self._socket, self._buffer)
        self._socket.sendall(self._buffer)
        if self._socket.recv(1) != b"+":
            raise EOFError("the other end of the loopback connection has gone")


def _serve(listener: socket.socket, vectors: Sequence[Vector]) -> None:
    """Send as many vectors as one is asked for, receive one, say so; until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other end's
    buffer = memoryview(bytearray(vectors[0].nbytes))
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while asked := connection.recv(4, socket.MSG_WAITALL):
        for vector in vectors[: struct.unpack("!I", asked)[0]]:
            connection.sendall(body(vector))
        _receive(connection, buffer)
        connection.sendall(b"+")


def _receive(connection: socket.socket, buffer: memoryview) -> None:
    position = 0
    while position < len(buffer):
        received = connection.recv_into(buffer[position:])
        if not received:
            raise EOFError("the other end of the loopback connection has gone")
        position += received


def check(operation: str, arm: Arm, expected: Vector) -> None:
    """RuntimeError unless the arm's result is right."""
    found = arm.result()
    # A fused multiplication and addition may round an update otherwise.
    same = np.array_equal if operation == "average" and arm.exact else np.allclose
    if found is not None and not same(found, expected):
        raise RuntimeError(f"{arm.name}: the {operation} is wrong")


def turn(operation: str, arms: Iterable[Arm], expected: Vector) -> dict[str, tuple[float, float]]:
    """Every arm once: seconds in all and of them in moving, by the arm's name."""
    taken = {}
    for arm in arms:
        arm.moving_s = 0.0
        began = time.perf_counter()
        getattr(arm, operation)()
        taken[arm.name] = time.perf_counter() - began, arm.moving_s
        check(operation, arm, expected)
    return taken


def measure(
    model: str, count: int, repeat: int, threads: Sequence[int], server: str | None, mark: Mapping[str, str]
) -> list[Row]:
    """One model's rows: every arm and floor in turns."""
    size = models.spec(model).parameters
    assert size is not None
    generator = np.random.default_rng(0)
    print(f"{model}: {count} gradients of {4 * size / 1e6:.1f} MB", file=sys.stderr)
    parameters, *gradients = (generator.standard_normal(size, np.float32) for _ in range(1 + count))
    average = sum_in_rank_order([torch.from_numpy(gradient) for gradient in gradients]).div_(count).numpy()
    expected = {"average": average, "update": parameters - np.float32(RATE) * gradients[0]}
    keys = [f"gradient:{number}" for number in range(count)]
    with ExitStack() as stack:
        # First, before there are threads: it forks.
        floors: list[Loopback | Memory] = [Loopback(gradients)]
        floors += [Memory(parameters, gradients, number) for number in threads]
        for floor in floors:
            stack.callback(floor.close)
        databases = [
            stack.enter_context(EmbeddedTensorDatabases(1, threads=number, environment=mark)) for number in threads
        ]
        urls = [database.endpoints[0] for database in databases]
        inner = [InDatabase(inside(number), url, keys, thin(url)) for number, url in zip(threads, urls, strict=True)]
        outer = naive_arms(urls[0], keys) + (plain_arms(server, keys) if server else [])
        clients: list[InDatabase | Naive] = [*inner, *outer]
        stores: dict[str, Callable[[str, Vector], object]] = {arm.url: arm.put for arm in clients}
        for put in stores.values():
            for key, vector in zip([*keys, PARAMETERS], [*gradients, parameters], strict=True):
                put(key, vector)
        arms: list[Arm] = [*outer, *inner, *floors]
        rows = []
        for operation in OPERATIONS:
            turns = []
            for index in range(repeat + 1):
                print(f"{model}, {operation}: {index} of {repeat}", file=sys.stderr)
                turns.append(turn(operation, arms if index % 2 == 0 else arms[::-1], expected[operation]))
            about = {"model": model, "operation": operation}
            # In the first turn memory is taken that later ones find.
            rows += [about | row for row in summary([arm.name for arm in arms], turns[1:], threads)]
        return rows


def summary(
    names: Sequence[str], turns: Sequence[Mapping[str, tuple[float, float]]], threads: Sequence[int]
) -> list[Row]:
    """A row for each arm: seconds, and the medians of its ratios within turns."""
    rows = []
    for name in names:
        seconds = [taken[name][0] for taken in turns]
        row: Row = {"arm": name, "count": len(turns), "median_s": round(statistics.median(seconds), 6)}
        row |= {"least_s": round(min(seconds), 6), "greatest_s": round(max(seconds), 6)}
        row["moving_s"] = round(statistics.median(taken[name][1] for taken in turns), 6)
        row["ratios"] = {
            base: round(statistics.median(taken[name][0] / taken[base][0] for taken in turns), 3)
            for base in (*map(inside, threads), *map(memory, threads), LOOPBACK)
        }
        rows.append(row)
    return rows


def judged(rows: Sequence[Row], threads: int) -> list[Row]:
    """The aims, and whether each was met, for the in-database arm of so many threads."""
    found = []
    for row in rows:
        about = f"{row['model']}, {row['operation']}: "
        if row["arm"] in AIMS:
            ratio, aim = row["ratios"][inside(threads)], AIMS[row["arm"]]
            found.append({"what": f"{about}{row['arm']} / {inside(threads)}", "ratio": ratio, "aim": f">= {aim:g}"})
            found[-1] |= {"met": ratio >= aim, "paper": PAPER[row["operation"]]}
        elif row["arm"] == inside(threads) and row["operation"] == "average":
            ratio = row["ratios"][memory(threads)]
            found.append({"what": f"{about}{row['arm']} / {memory(threads)}", "ratio": ratio})
            found[-1] |= {"aim": f"<= {FLOOR_AIM:g}", "met": ratio <= FLOOR_AIM, "paper": None}
    return found


def tables(document: Mapping[str, Any]) -> str:
    """The document in Markdown."""
    threads = document["threads"][0]
    bases = (inside(threads), memory(threads), LOOPBACK)
    lines = []
    for model, operation in dict.fromkeys((row["model"], row["operation"]) for row in document["rows"]):
        lines += [f"| {model}, {operation} | ms | least | greatest | moving | / {' | / '.join(bases)} |"]
        lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
        for row in document["rows"]:
            if (row["model"], row["operation"]) == (model, operation):
                figures = [row["median_s"], row["least_s"], row["greatest_s"], row["moving_s"]]
                cells = [f"{1e3 * seconds:,.1f}" if seconds else "" for seconds in figures]
                cells += [f"{row['ratios'][base]:.2f}" for base in bases]
                lines.append(f"| {row['arm']} | {' | '.join(cells)} |")
        lines.append("")
    lines += ["| ratio | | aim | | the paper's |", "|---|---:|---:|---|---:|"]
    for aim in document["aims"]:
        met = "met" if aim["met"] else "MISSED"
        lines.append(f"| {aim['what']} | {aim['ratio']:.2f} | {aim['aim']} | {met} | {aim['paper'] or ''} |")
    facts = {**document["host"], **document["versions"], "date": document["date"], "seconds": document["seconds"]}
    return "\n".join([*lines, "", ", ".join(f"{name} {value}" for name, value in facts.items())])


def versions(server: bool) -> dict[str, str]:
    """What the figures depend on; hiredis makes redis-py faster where it is installed."""
    found = {name: version(name) for name in ("torch", "numpy", "redis")}
    try:
        found["hiredis"] = version("hiredis")
    except PackageNotFoundError:
        found["hiredis"] = "none"
    if server:
        said = subprocess.run(["redis-server", "--version"], check=True, capture_output=True, text=True).stdout
        found["redis-server"] = said.split("v=")[1].split()[0]
    return found


def at_least(least: int) -> Callable[[str], int]:
    """A parser of integers from `least` on."""

    def integer(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return number

    return integer


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sized = [name for name, spec in models.SPECS.items() if spec.parameters is not None]
    both = ["mobilenet", "resnet18"]
    parser.add_argument("--model", nargs="+", choices=sized, default=both, help="whose gradients, by size")
    parser.add_argument("--count", type=at_least(2), default=24, help="gradients (default: %(default)s)")
    parser.add_argument("--repeat", type=at_least(1), default=7, help="turns (default: %(default)s)")
    what = "torch's threads in the database; the aims are those of the first (default: 1 2)"
    parser.add_argument("--threads", type=at_least(1), nargs="+", default=[1, 2], help=what)
    parser.add_argument("--no-redis", action="store_true", help="without the arms on a plain redis-server")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # The memory floor has threads of its own.
    torch.set_num_threads(1)
    began, before = time.monotonic(), os.getloadavg()
    threads = list(dict.fromkeys(options.threads))
    with_redis = not options.no_redis and shutil.which("redis-server") is not None
    rows: list[Row] = []
    try:
        # The session's reaper kills what carries its mark, should this process be killed.
        with Session() as session:
            for model in options.model:
                with plain_redis(session) if with_redis else nullcontext() as server:
                    rows += measure(model, options.count, options.repeat, threads, server, session.mark)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    host = {"machine": platform.machine(), "cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}
    host |= {"python": platform.python_version(), "load_average_before": before, "load_average_after": os.getloadavg()}
    document = {
        **{"schema": 1, "date": f"{datetime.now(UTC):%Y-%m-%d}", "command": " ".join(sys.argv)},
        **{"gradients": options.count, "threads": threads, "host": host, "versions": versions(with_redis)},
        "seconds": round(time.monotonic() - began, 1),
        **{"rows": rows, "aims": judged(rows, threads[0])},
    }
    print(json.dumps(document, indent=1) if options.json else tables(document))


if __name__ == "__main__":
    main()
