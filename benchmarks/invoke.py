"""Measure the emulator's warm latency, cold start and throughput, next to a floor and a peer.

    python benchmarks/invoke.py [--json] [--quick] [--peer-venv DIR | --no-peer]

The function returns its event and has 1,769 MB (one vCPU). Five arms run at the same time on loopback and take turns in
alternating order, so that a busy machine slows all of them; a ratio is the median of the turns' ratios.

  floor        the handler behind a bare TCP socket, length-prefixed JSON, one process: which emulators can't beat
  trivial      a server that returns the request's body at once, through boto3: what the client alone takes
  Runtime API  slslab's Runtime API alone, from handing the invocation out until awslambdaric's answer is read
  boto3        slslab.Emulator through boto3, client and emulator in one process as in `slslab run`
  peer         ministack, an AWS emulator from PyPI, in a process of its own, through a client with the same settings

Warm latency is measured with `{}`, with a handler that prints a line, and with 1 MB in and out. The line matters for
the peer: ministack 1.5.33 waits up to 50 ms for the log of a handler that prints nothing, so only the rows with a line
are a fair comparison. For throughput the handler therefore prints, too. Its connections are kept alive. One process
drives them all by repeating the bytes of one signed boto3 request, because boto3 needs more than half as much CPU per
call as the emulator and would be the bottleneck on few cores. A cold start is a boto3 invocation right after the
environment was retired; its floor is starting Python and importing awslambdaric and the handler, in pairs. `gate` is
the part of it that checks a request's origin and signature.

p50 shows the cost, p99 the host: on a busy machine the scheduler makes the tail. The first calls of each turn aren't
timed: after half a second without calls, the first ones through boto3 took up to twice as long. Without --peer-venv the
benchmark installs ministack into a temporary virtual environment and removes it. A full run takes about three minutes,
`--quick` half a minute. Nothing outlives the command, however it ends.
"""

import argparse
import asyncio
import io
import json
import operator
import os
import platform
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import boto3
import botocore.config
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table
from starlette.types import Message, Receive, Scope, Send

from slslab.aws.clients import signed_headers
from slslab.aws.gate import Gate
from slslab.aws.keys import Keyring, Pair
from slslab.aws.limits import lambda_limits
from slslab.host.session import Session
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.runtime_api import NextInvocation, RuntimeApi

Call = Callable[[bytes], float]
# The peer accepts any keys.
PAIR = Pair("benchmark", "loopback-only")
Row = dict[str, Any]

PEER, PEER_VERSION = "ministack", "1.5.33"
MEMORY_MB = 1769
CLIENTS = (1, 8, 64)
START_LIMIT_S = 60.0
DETAILS = ("failures", "cold_starts", "emulator_cores", "client_cores")
HANDLER = """
def handler(event, context):
    if "line" in event:
        print(event["line"])
    return event
"""
SMALL, LINE, LARGE = b"{}", b'{"line": "x"}', b'{"x": "' + b"a" * (1_000_000 - len('{"x": ""}')) + b'"}'
FLOOR = """
import json, os, socket, sys
from app import handler

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
sys.stdout = open(os.devnull, "w", buffering=1)
connection, _ = listener.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
stream = connection.makefile("rb")
while head := stream.read(4):
    event = json.loads(stream.read(int.from_bytes(head, "big")))
    answer = json.dumps(handler(event, None)).encode()
    connection.sendall(len(answer).to_bytes(4, "big") + answer)
"""
TRIVIAL = """
import socket

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
stream = connection.makefile("rb")
while stream.readline():
    fields = dict(line.lower().rstrip().split(b": ", 1) for line in iter(stream.readline, b"\\r\\n"))
    if fields.get(b"expect"):
        connection.sendall(b"HTTP/1.1 100 Continue\\r\\n\\r\\n")
    body = stream.read(int(fields[b"content-length"]))
    connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(body) + body)
"""
COLD_FLOOR = "import awslambdaric.__main__, app; print('ready', flush=True)"
FUNCTION = {
    "FunctionName": "echo",
    "Runtime": f"python{sys.version_info.major}.{sys.version_info.minor}",
    "Role": "arn:aws:iam::000000000000:role/lambda",
    "Handler": "app.handler",
    "MemorySize": MEMORY_MB,
    "Timeout": 60,
}


@contextmanager
def running(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], log: Path | None = None
) -> Iterator[Any]:
    """Run a process in its own session, so that Ctrl-C reaches only this command; kill it with its children."""
    with (log or Path(os.devnull)).open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **variables},
            stdin=subprocess.DEVNULL,
            stdout=output if log else subprocess.PIPE,
            stderr=output if log else None,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def same(payload: bytes, answer: bytes) -> None:
    """Raise an error unless the handler returned its event."""
    if json.loads(answer) != json.loads(payload):
        raise RuntimeError(f"{len(payload)} bytes were sent, and others returned: {answer[:200]!r}")


@contextmanager
def floor(code: Path, mark: Mapping[str, str]) -> Iterator[Call]:
    """Yield a function that calls the handler behind a bare socket and returns ms."""
    with running([sys.executable, "-c", FLOOR], code, mark) as process:
        address = ("127.0.0.1", int(process.stdout.readline()))
        with socket.create_connection(address) as connection, connection.makefile("rb") as stream:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def call(payload: bytes) -> float:
                began = time.perf_counter()
                connection.sendall(len(payload).to_bytes(4, "big") + payload)
                answer = stream.read(int.from_bytes(stream.read(4), "big"))
                took = 1e3 * (time.perf_counter() - began)
                same(payload, answer)
                return took

            yield call


@contextmanager
def trivial(code: Path, mark: Mapping[str, str]) -> Iterator[Call]:
    """Give what measures the milliseconds of a boto3 invocation that a server answers at once."""
    with running([sys.executable, "-c", TRIVIAL], code, mark) as process:
        yield partial(invoke, connected(f"http://127.0.0.1:{int(process.stdout.readline())}"))


async def anybody(*_addresses: object) -> bool:
    """Let any process answer for the function."""
    return True


@contextmanager
def runtime_api(code: Path, mark: Mapping[str, str]) -> Iterator[Call]:
    """Yield a function that times an invocation from handing it out to awslambdaric's answer, ms; no control group."""
    with asyncio.Runner() as runner:
        changed = asyncio.Event()
        api = RuntimeApi(anybody, lambda_limits().response_bytes, changed=changed.set)

        async def start() -> str:
            return api.start()

        async def wait_for(is_so: Callable[[], object]) -> None:
            while not is_so():
                changed.clear()
                await changed.wait()

        address = runner.run(start())
        variables = {"AWS_LAMBDA_RUNTIME_API": address, "LAMBDA_TASK_ROOT": str(code), "_HANDLER": "app.handler"}
        about = {"NAME": "echo", "MEMORY_SIZE": str(MEMORY_MB), "VERSION": "$LATEST"}
        variables |= {f"AWS_LAMBDA_FUNCTION_{name}": value for name, value in about.items()}

        async def invoke(payload: bytes) -> float:
            deadline_ms = time.time_ns() // 1_000_000 + 60_000
            invocation = NextInvocation(str(uuid.uuid4()), payload, "arn:aws:lambda:::echo", deadline_ms, "Root=1-0-0")
            began = time.perf_counter()
            api.hand_out(invocation)
            await wait_for(lambda: api.report)
            took = 1e3 * (time.perf_counter() - began)
            assert api.report is not None
            same(payload, api.report.body)
            # The runtime's request for its next invocation isn't part of this one.
            await wait_for(lambda: api.ready_ns)
            return took

        try:
            command = [sys.executable, "-m", "awslambdaric", "app.handler"]
            with running(command, code, {**mark, **variables}, Path(os.devnull)):
                runner.run(asyncio.wait_for(wait_for(lambda: api.ready_ns), START_LIMIT_S))
                yield lambda payload: runner.run(invoke(payload))
        finally:
            api.stop()


def archive(source: str) -> bytes:
    """Return a package that contains this module."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as package:
        package.writestr("app.py", source)
    return packed.getvalue()


def connected(endpoint: str) -> Any:
    """Return a boto3 client, set alike for every arm."""
    config = botocore.config.Config(read_timeout=START_LIMIT_S, retries={"total_max_attempts": 1})
    session: Any = boto3.session.Session(PAIR.key_id, PAIR.secret, region_name="us-east-1")
    return session.client("lambda", endpoint_url=endpoint, config=config)


def deployed(endpoint: str) -> Any:
    """Return a client of an emulator on which the function has just become active."""
    client = connected(endpoint)
    client.create_function(**FUNCTION, Code={"ZipFile": archive(HANDLER)})
    client.get_waiter("function_active_v2").wait(FunctionName="echo", WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    return client


def invoke(client: Any, payload: bytes) -> float:
    """Invoke through boto3, read the answer's body, and return ms."""
    began = time.perf_counter()
    answer = client.invoke(FunctionName="echo", Payload=payload)["Payload"].read()
    took = 1e3 * (time.perf_counter() - began)
    same(payload, answer)
    return took


@contextmanager
def peer(venv: Path, folder: Path, mark: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the peer's version and endpoint; install it first if necessary. Its handlers are processes, like ours."""
    program, python = str(venv / "bin" / PEER), str(venv / "bin" / "python")
    if not Path(program).exists():
        print(f"installing {PEER} into {venv}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, capture_output=True)
        for required in (f"{PEER}=={PEER_VERSION}", PEER):  # the newest, if that version is gone
            done = subprocess.run([python, "-m", "pip", "install", "-q", required], capture_output=True, text=True)
            if done.returncode == 0:
                break
        else:
            raise RuntimeError(f"pip could not install it: {done.stderr.strip()[-300:]}")
    ask = f"from importlib.metadata import version; print(version('{PEER}'))"
    installed = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    variables = {name: str(folder) for name in ("HOME", "TMPDIR", "STATE_DIR")} | {"LAMBDA_EXECUTOR": "local"}
    # Otherwise it listens on every interface, with another listener for IoT.
    variables |= {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "IOT_MTLS_ENABLED": "0"}
    with running([program], folder, {**mark, **variables}, folder / "log") as process:
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"it did not start: {(folder / 'log').read_text()[-300:]}") from None
                time.sleep(0.05)
        yield installed, f"http://127.0.0.1:{port}"


def row(what: str, unit: str, values: Sequence[float], aim: tuple[str, float] | None = None, **details: Any) -> Row:
    """Return a figure with its aim: the median, the 99th percentile of many values, and their number."""
    p50 = statistics.median(values)
    p99 = statistics.quantiles(values, n=100, method="inclusive")[98] if unit == "ms" else None
    made = {"what": what, "unit": unit, "p50": round(p50, 3), "p99": p99 and round(p99, 3), "count": len(values)}
    if aim is not None:
        sign, bound = aim
        met = {"<": operator.lt, "<=": operator.le, ">=": operator.ge}[sign](p50, bound)
        made |= {"aim": f"{sign} {bound:g}", "met": met}
    return made | details


def warm(calls: Mapping[str, Call], size: str, payload: bytes, rounds: int, batch: int) -> list[Row]:
    """Return the latency of every arm, in batches that take turns, and ratios of the medians within a turn."""
    untimed = batch // 3  # after a pause every arm's first calls find cold caches
    turns: list[dict[str, list[float]]] = []
    for index in range(rounds + 1):
        order = list(calls) if index % 2 == 0 else list(calls)[::-1]
        turns.append({name: [calls[name](payload) for _ in range(untimed + batch)][untimed:] for name in order})
    del turns[0]  # the first environments start here
    latencies = {"Runtime API": ("<", 1.0), "boto3": ("<", 2.5)} if payload == SMALL else {}
    aims = latencies | ({"peer / boto3": (">=", 5.0), "boto3 / trivial": ("<=", 1.8)} if payload != LARGE else {})
    rows = [
        row(f"warm, {size}, {name}", "ms", [value for turn in turns for value in turn[name]], aims.get(name))
        for name in calls
    ]
    pairs = ("Runtime API", "floor"), ("boto3", "floor"), ("boto3", "Runtime API"), ("boto3", "trivial")
    for one, other in (*pairs, ("peer", "boto3")):
        if one in calls:
            ratios = [statistics.median(turn[one]) / statistics.median(turn[other]) for turn in turns]
            rows.append(row(f"warm, {size}, {one} / {other}", "ratio", ratios, aims.get(f"{one} / {other}")))
    return rows


def gate(rounds: int) -> list[Row]:
    """Return the gate's own time for a request, from its headers until the body is read and the signature checked."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        await receive()

    async def refused(message: Message) -> None:
        raise RuntimeError(f"the gate refused a signed request: {message}")

    path = "/2015-03-31/functions/echo/invocations"
    limit = (lambda_limits().request_bytes, "InvokeFunction")
    guarded, rows = Gate(application, (), Keyring(PAIR), lambda _scope: limit), []
    for size, payload in (("{}", SMALL), ("1 MB", LARGE)):
        headers = {"Host": "127.0.0.1", **signed_headers(PAIR, "POST", f"http://127.0.0.1{path}", payload)}
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope["headers"] = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

        async def timed(scope: Scope = scope, payload: bytes = payload) -> list[float]:
            async def receive() -> Message:
                return {"type": "http.request", "body": payload}

            took = []
            for _ in range(rounds):
                began = time.perf_counter()
                await guarded(dict(scope), receive, refused)
                took.append(1e3 * (time.perf_counter() - began))
            return took

        rows.append(row(f"gate, {size}", "ms", asyncio.run(timed()), ("<=", 0.1) if payload == SMALL else None))
    return rows


def cold(emulator: Emulator, client: Any, code: Path, mark: Mapping[str, str], pairs: int) -> list[Row]:
    """Return a cold invocation, its floor, and the difference within each pair."""

    def start() -> float:
        # This retires the idle environment, whose end isn't part of the next start.
        client.update_function_configuration(FunctionName="echo", Description=str(time.monotonic_ns()))
        took = invoke(client, SMALL)
        if not emulator.records[-1].cold_start:
            raise RuntimeError("an invocation meant to be cold met a warm environment")
        return took

    def bare() -> float:
        began = time.perf_counter()
        with running([sys.executable, "-c", COLD_FLOOR], code, mark) as process:
            answer = process.stdout.readline()
            took = 1e3 * (time.perf_counter() - began)
        if answer != b"ready\n":
            raise RuntimeError("Python could not import awslambdaric and the handler")
        return took

    bares, starts = [], []
    for index in range(pairs + 1):
        if index % 2 == 0:
            bares.append(bare())
        starts.append(start())
        if index % 2 == 1:
            bares.append(bare())
    del bares[0], starts[0]  # later pairs find the first pair's files in memory
    above = [value - other for value, other in zip(starts, bares, strict=True)]
    return [
        row("cold start, floor", "ms", bares),
        row("cold start, boto3", "ms", starts),
        row("cold start, boto3 - floor", "ms", above, ("<=", 60.0)),
    ]


def signed(client: Any) -> bytes:
    """Return one invocation as boto3 sends it."""
    caught: list[Any] = []
    client.meta.events.register("before-send.lambda.Invoke", lambda request, **_: caught.append(request))
    invoke(client, LINE)
    host, _, path = caught[0].url.removeprefix("http://").partition("/")
    fields = [(name, value if isinstance(value, str) else value.decode()) for name, value in caught[0].headers.items()]
    lines = [f"POST /{path} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*lines, "", ""]).encode() + LINE


def load(port: int, request: bytes, clients: int, seconds: float) -> None:
    """Keep `clients` connections busy in one process: each sends again as soon as it is answered.

    Prints a line when every connection has been answered twice, so that all environments exist. After `seconds` it
    prints a document: answers, failures among them, wall and CPU seconds of this process.
    """
    selector = selectors.DefaultSelector()
    answered: dict[socket.socket, int] = {}
    buffers: dict[socket.socket, bytes] = {}
    for _ in range(clients):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answered[connection], buffers[connection] = 0, b""
        selector.register(connection, selectors.EVENT_READ, connection)
        connection.sendall(request)
    done = failed = 0
    began = cpu = 0.0
    while not began or time.monotonic() < began + seconds:
        for key, _ in selector.select(1):
            connection = key.data
            if not (chunk := connection.recv(65_536)):
                raise RuntimeError("the server closed a connection")
            buffers[connection] += chunk
            head, complete, body = buffers[connection].partition(b"\r\n\r\n")
            if not complete or len(body) < int(head.lower().partition(b"content-length:")[2].split()[0]):
                continue
            buffers[connection] = b""
            connection.sendall(request)
            done, answered[connection] = done + 1, answered[connection] + 1
            failed += not (head.startswith(b"HTTP/1.1 200") and json.loads(body) == json.loads(LINE))
        if not began and min(answered.values()) >= 2:
            began, cpu, done, failed = time.monotonic(), time.process_time(), 0, 0
            print("began", flush=True)
    taken = {"seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}
    print(json.dumps({"done": done, "failed": failed, **taken}), flush=True)


def rate(emulator: Emulator | None, client: Any, clients: int, seconds: float, mark: Mapping[str, str]) -> Row:
    """Return one window's invocations per second, and CPU in cores; the emulator's also counts cold starts."""
    port = int(client.meta.endpoint_url.rpartition(":")[2])
    program = f"import invoke; invoke.load({port}, {signed(client)!r}, {clients}, {seconds})"
    variables = {**mark, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    with running([sys.executable, "-c", program], Path("/"), variables) as process:
        if not process.stdout.readline():
            raise RuntimeError(f"{clients} connections could not be kept busy")
        cpu, since = emulator.cpu_seconds() if emulator else 0.0, time.monotonic_ns()
        answers = json.loads(process.stdout.readline())
    made = {"rate": answers["done"] / answers["seconds"], "failures": answers["failed"]}
    made["client_cores"] = round(answers["cpu"] / answers["seconds"], 3)
    if emulator:
        made["emulator_cores"] = round((emulator.cpu_seconds() - cpu) / answers["seconds"], 3)
        made["cold_starts"] = sum(record.cold_start for record in list(emulator.records) if record.start_ns > since)
    return made


def throughput(
    emulator: Emulator, clients: Mapping[str, Any], mark: Mapping[str, str], rounds: int, seconds: float
) -> list[Row]:
    """Return each arm's invocations per second by number of connections, in turns."""
    rows = []
    for count in CLIENTS:
        turns: list[dict[str, Row]] = []
        for index in range(rounds):
            order = list(clients) if index % 2 == 0 else list(clients)[::-1]
            emulators = {"boto3": emulator}
            turns.append({name: rate(emulators.get(name), clients[name], count, seconds, mark) for name in order})
        for name, label in (("boto3", "emulator"), ("peer", "peer")):
            if name in clients:
                details = {}
                for figure in (figure for figure in DETAILS if figure in turns[0][name]):
                    values = [turn[name][figure] for turn in turns]
                    details[figure] = statistics.median(values) if figure.endswith("cores") else sum(values)
                what = f"throughput, {count} connections, {label}"
                rows.append(row(what, "1/s", [turn[name]["rate"] for turn in turns], **details))
        if "peer" in clients:
            ratios = [turn["boto3"]["rate"] / turn["peer"]["rate"] for turn in turns]
            aim = (">=", 3.0) if count > 1 else None
            rows.append(row(f"throughput, {count} connections, emulator / peer", "ratio", ratios, aim))
    return rows


def measure(session: Session, quick: bool, venv: Path | None, with_peer: bool) -> dict[str, Any]:
    """Return the document of every arm in one run."""
    began, before = time.monotonic(), os.getloadavg()
    code = session.home / "benchmark"
    code.mkdir()
    (code / "app.py").write_text(HANDLER)
    versions = {name: version(name) for name in ("awslambdaric", "boto3", "botocore", "uvicorn")}
    about = "left out by --no-peer"
    with ExitStack() as stack:
        # Room for one environment per connection: each really uses about 30 MB.
        budget_mb = 2 * max(CLIENTS) * MEMORY_MB
        emulator = stack.enter_context(Emulator(session=session, keys=Keyring(PAIR), budget_mb=budget_mb))
        clients = {"boto3": deployed(emulator.endpoint)}
        if with_peer:
            try:
                arm = peer(venv or session.home / "peer-venv", session.home / "peer", session.mark)
                versions[PEER], endpoint = stack.enter_context(arm)
                clients["peer"] = deployed(endpoint)
                about = f"{PEER} {versions[PEER]}"
            except (OSError, RuntimeError, subprocess.CalledProcessError, BotoCoreError, ClientError) as error:
                about = f"{PEER} NOT MEASURED: {error}"
                print(about, file=sys.stderr)
        calls: dict[str, Call] = {
            "floor": stack.enter_context(floor(code, session.mark)),
            "trivial": stack.enter_context(trivial(code, session.mark)),
            "Runtime API": stack.enter_context(runtime_api(code, session.mark)),
        }
        calls |= {name: partial(invoke, client) for name, client in clients.items()}
        rows = warm(calls, "{}", SMALL, *((5, 12) if quick else (30, 20)))
        rows += warm(calls, "a printed line", LINE, *((5, 12) if quick else (30, 20)))
        rows += warm(calls, "1 MB", LARGE, *((2, 6) if quick else (20, 6)))
        rows += gate(100 if quick else 1000)
        rows += cold(emulator, clients["boto3"], code, session.mark, 8 if quick else 100)
        rows += throughput(emulator, clients, session.mark, *((1, 1) if quick else (3, 3)))
        confinement = emulator.hierarchy.description
    host = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "kernel": platform.release()}
    host |= {"load_average_before": before, "load_average_after": os.getloadavg(), "confinement": confinement}
    seconds = round(time.monotonic() - began, 1)
    return {"schema": 1, "peer": about, "host": host, "versions": versions, "seconds": seconds, "rows": rows}


def show(document: Mapping[str, Any]) -> None:
    """Print the document as a table."""
    table = Table("", "unit", "p50", "p99", "count", "aim", "")
    for row in document["rows"]:
        figures = ["" if row[name] is None else f"{row[name]:,.2f}" for name in ("p50", "p99")]
        aim = [row["aim"], "met" if row["met"] else "[red]missed"] if "aim" in row else ["", ""]
        table.add_row(row["what"], row["unit"], *figures, str(row["count"]), *aim)
        details = [f"{name.replace('_', ' ')} {row[name]}" for name in DETAILS if name in row]
        if details:
            table.add_row(f"[dim]  {', '.join(details)}")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(table)
    facts = document["host"] | document["versions"] | {"seconds": document["seconds"]}
    console.print(f"peer: {document['peer']}\n" + ", ".join(f"{name} {value}" for name, value in facts.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter measurements, with unusable p99")
    what = f"the peer's virtual environment, which stays; {PEER} {PEER_VERSION} is installed there if it is missing"
    parser.add_argument("--peer-venv", type=Path, metavar="DIR", help=what)
    parser.add_argument("--no-peer", action="store_true", help="measure no peer and install nothing")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        # If this process is killed, the session's reaper kills everything with its mark and removes its home.
        with Session() as session:
            venv = options.peer_venv.resolve() if options.peer_venv else None
            document = measure(session, options.quick, venv, not options.no_peer)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    print(json.dumps(document, indent=1)) if options.json else show(document)


if __name__ == "__main__":
    main()
