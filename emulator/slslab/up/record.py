"""Record the trace of users' functions during `slslab up` in `runs/up`, for the commands that read runs.

The records are the same as a run's, without samples of the Lambda clock and starts of invocations. They take about 1 KB
for each invocation, 0.4 KB for each state transition and each S3 request of a function, and at most 0.4 KB a second for
each other kind of request to a store.
"""

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import redis
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slslab.aws.gate import principal
from slslab.errors import HostError, RequestError
from slslab.processor.kept import load_processor
from slslab.run.directory import RunDirectory, root
from slslab.run.events import own_event
from slslab.run.log import SERVICE, TraceWriter, locked, replacing
from slslab.run.records import InvocationRecord, launch_record
from slslab.stack import Stack, without_passwords
from slslab_workers.architecture import Requirements

NAME = "up"
AWAY = "set SLSLAB_RUNS to another folder."
# A path of the Lambda endpoint.
PATH = "/slslab/record"
FLUSH_NS = 1_000_000_000
ANSWER_S = 5.0
# Commands that don't count as using a database; clients send some of them automatically.
IDLE = frozenset(
    "auth hello ping echo select quit reset client info command config memory time multi exec discard".split()
)
OPERATIONS = {
    **dict.fromkeys(("ai.tensorset", "set"), "tensor.set"),
    **dict.fromkeys(("ai.tensorget", "get"), "tensor.get"),
    **dict.fromkeys(("ai.scriptexecute", "eval", "evalsha"), "tensor.script"),
    **dict.fromkeys(("del", "unlink"), "tensor.delete"),
}
OTHER = "tensor.command"


class Record:
    """The record of a service, a context manager around the service's stack. It records from `begin` on.

    Methods are thread-safe. If writing fails, the record ends there and `say`
    reports it; the service continues.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._updating = threading.Lock()
        self._databases: dict[str, str] = {}
        self._writer: TraceWriter | None = None
        self._requests: Counter[str] = Counter()
        self._calls: dict[str, Counter[str]] = {}
        self._hosts: dict[str, str] = {}
        self._began_ns = self._flushed_ns = time.monotonic_ns()
        self._trouble = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._writer is not None:
            self._end(self._writer)

    def begin(self, about: Mapping[str, Any], stack: Stack) -> Path:
        """Start recording in `runs/up`, replacing the last service's record; return the directory.

        `about` describes the service; a comparison of this host's processor with Lambda's is added. Raises RequestError
        if a running service uses the directory, or it can't be made.
        """
        self._about = {"started_at": _now(), **about, "processor": load_processor().to_dict()}
        self._directory, self._locked = _make_directory(self._about)
        self._stack, queue_url = stack, stack.queue_url or ""
        self._databases = dict.fromkeys(stack.tensor_urls, Requirements.tensor_host)
        if queue_url.startswith("redis"):
            self._databases[queue_url] = Requirements.queue_host
        self._began_ns = self._flushed_ns = time.monotonic_ns()
        self._writer = TraceWriter(self._directory.trace_log, NAME)
        if queue_url and queue_url not in self._databases:
            # Only RabbitMQ's plug-ins could tell whether it is used. The user chose it, so bill its host.
            self._use(queue_url, Requirements.queue_host)
        return self._directory.path

    def event(self, record: Mapping[str, Any]) -> None:
        """Write a trace event; drop other kinds of records."""
        if record["record"] == "event":
            self._write(record)

    def invocation(self, record: InvocationRecord) -> None:
        """Write a metered invocation, and print its REPORT line."""
        self._write(record.as_record())
        self._say(f"{record.function} {record.report.strip()}")

    def update(self) -> None:
        """Write what the stores have done until now. Raises HostError if a record was lost."""
        with self._updating:
            self._look_at_processor()
            self._stack.settle()
            for url, host in self._databases.items():
                self._ask(url, host)
            self._flush()
        if self._trouble:
            raise HostError(self._trouble, "make room for runs, and restart `slslab up`.")

    def update_at_end(self) -> None:
        """Update once more before the stores stop; print what fails."""
        try:
            self.update()
        except HostError as error:
            self._say(f"{error.message} The stores' last requests aren't recorded.")

    def route(self) -> Route:
        """Return the route with which commands update the record before they read it; only the owner may call it."""

        async def answer(request: Request) -> JSONResponse:
            principal(request).require("slslab:UpdateRecord", "*")
            try:
                await run_in_threadpool(self.update)
            except HostError as error:
                return JSONResponse({"message": error.message, "hint": error.hint}, 503)
            return JSONResponse({})

        return Route(PATH, answer, methods=["POST"])

    def _end(self, writer: TraceWriter) -> None:
        self._flush()
        for host in self._hosts.values():
            self._write(own_event("host.run", self._began_ns, "", resource=host, function="stack"))
        writer.__exit__()
        if not self._trouble:
            with suppress(OSError):  # without it, the record counts as interrupted
                _describe(self._directory, {**self._about, "ended_at": _now()})
        self._directory.unlock(self._locked)

    def request(self, event: dict[str, Any]) -> None:
        """Write a function's request to S3; merge other requests of one kind within a second into one event."""
        if event["function"]:
            self._write(event)
            return
        with self._lock:
            self._requests[event["op"]] += 1
        if time.monotonic_ns() - self._flushed_ns >= FLUSH_NS:
            self._flush()

    def _look_at_processor(self) -> None:
        """Update the description if the processor has been measured in the meantime."""
        processor = load_processor().to_dict()
        if self._writer is not None and processor != self._about["processor"]:
            self._about["processor"] = processor
            with suppress(OSError):  # the old description stays
                _describe(self._directory, self._about)

    def _ask(self, url: str, host: str) -> None:
        """Count the commands that a database has executed since the last call."""
        try:
            with redis.Redis.from_url(url, socket_timeout=ANSWER_S) as client:
                stats: Mapping[str, Any] = client.info("commandstats")
        except redis.RedisError as error:  # it may be busy; its counters lose nothing until the next call
            self._say(f"{without_passwords(url)} doesn't answer, so its last requests aren't recorded yet: {error}")
            return
        names = ((name.removeprefix("cmdstat_"), entry["calls"]) for name, entry in stats.items())
        calls = Counter({name: number for name, number in names if name.partition("|")[0] not in IDLE})
        if calls:
            self._use(url, host)
        if host == Requirements.tensor_host:
            with self._lock:
                for name, number in (calls - self._calls.get(url, Counter())).items():
                    self._requests[OPERATIONS.get(name, OTHER)] += number
                self._calls[url] = calls

    def _use(self, url: str, host: str) -> None:
        """Record that AWS would bill the host of a database or queue from the service's start."""
        if url not in self._hosts:
            self._hosts[url] = host
            self._write(launch_record("host", str(len(self._hosts)), host, self._began_ns))

    def _flush(self) -> None:
        with self._lock:
            since_ns, self._flushed_ns = self._flushed_ns, time.monotonic_ns()
            requests, self._requests = self._requests, Counter()
        for operation, number in requests.items():
            counts = {"requests": number, "overhead": False}
            self._write(own_event(operation, since_ns, "", resource="", function="", **counts))

    def _write(self, record: Mapping[str, Any]) -> None:
        if self._writer is None or self._trouble:
            return
        try:
            self._writer.write(record)
        except HostError as error:
            self._trouble = f"{error.message} The record of `slslab up` ends here."
            self._say(self._trouble)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _describe(directory: RunDirectory, about: Mapping[str, Any]) -> None:
    with replacing(directory.path / SERVICE) as file:
        file.write(json.dumps(about, indent=2).encode() + b"\n")


def _make_directory(about: Mapping[str, Any]) -> tuple[RunDirectory, int]:
    """Return a new directory, locked and described; it replaces the directory of an ended service."""
    folder = root()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):  # other services must not choose a directory at the same time
            directory = RunDirectory(folder.absolute() / NAME)
            directory.path.mkdir(exist_ok=True)
            if any(directory.path.iterdir()):
                if not (directory.path / SERVICE).exists() or directory.status() == "running":
                    raise RequestError(f"{directory.path} is a run, or another service's record.", AWAY)
                shutil.rmtree(directory.path)
                directory.path.mkdir()
            _describe(directory, about)
            return directory, directory.lock()
    except OSError as error:
        raise RequestError(f"slslab can't record in {folder.absolute()}: {error.strerror}.", AWAY) from error
