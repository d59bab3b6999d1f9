"""Inject a plan's faults into a worker's process: before its events, and in its requests.

Handlers don't know about it. `Tracer.fault` is called before every event and `Channel.fault` before every request. Each
fault that happens is an event of its own, `fault`, which is written first.
"""

import os
import signal
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn

import botocore.exceptions

from slslab_workers.channels.endpoints import tensor_urls
from slslab_workers.channels.resp import Connection
from slslab_workers.channels.stream import Unreachable
from slslab_workers.faults.plan import DEATHS, LOSSES, MESSAGES, REQUESTS, Fault, FaultPlan
from slslab_workers.plan import VCPU_MB
from slslab_workers.trace.event import Event
from slslab_workers.trace.operations import OPERATIONS

ANSWER_S = 5.0
PIECE_BYTES = 1 << 24
# A straggler's pauses are collected up to this length, s.
PAUSE_S = 0.001
# botocore uses the API's names of operations.
API = {
    "object.put": "PutObject",
    "object.get": "GetObject",
    "object.list": "ListObjectsV2",
    "object.delete": "DeleteObject",
}


class Injector:
    """Injects the faults of one process; `sink` receives their events."""

    def __init__(self, plan: FaultPlan, sink: Callable[[dict[str, Any]], None]) -> None:
        self._seed = plan.seed
        # A database is lost before its worker dies.
        self._once = (*plan.of_kinds(*LOSSES), *plan.of_kinds(*DEATHS))
        self._stragglers, self._requests = plan.of_kinds("straggler"), plan.of_kinds(*REQUESTS)
        self._messages = plan.of_kinds(*MESSAGES)
        self._sink = sink
        # Faults that happened in this process and don't happen again.
        self._past: set[int] = set()
        # The previous event, and the process's CPU time when it began, ns.
        self._last: Event | None = None
        self._cpu_ns = time.process_time_ns()
        # How long each straggler still has to pause, s, by fault.
        self._owed_s: defaultdict[int, float] = defaultdict(float)
        # How many requests met a fault, by fault and place.
        self._met: Counter[object] = Counter()

    def at(self, event: Event) -> None:
        """Inject the faults that belong before this event."""
        self._slow_down(event)
        self._last = event
        for fault in self._once:
            if _is_at(fault, event) and fault.number not in self._past and not _has_happened(fault):
                self._past.add(fault.number)
                self._record(fault, event, time.monotonic_ns())
                if fault.kind in DEATHS:
                    _die(fault.kind)
                else:
                    _lose_database(fault)

    def request(self, event: Event) -> None:
        """Delay this request, or raise the error that its client would raise."""
        for fault in self._requests:
            if not (_is_at(fault, event) and self._is_of(fault, event.op) and self._meets(fault, event)):
                continue
            began_ns = time.monotonic_ns()
            if fault.kind == "slow-store":
                time.sleep(fault.seconds)
            self._record(fault, event, began_ns, event.op)
            # The request itself starts now.
            event.start_ns = time.monotonic_ns()
            if fault.kind == "slow-down":
                raise _slow_down(event.op)
            if fault.kind == "unreachable":
                raise _cut(event)

    def copies(self, event: Event) -> int:
        """Return how often to send this message."""
        for fault in self._messages:
            if _is_at(fault, event) and self._meets(fault, event):
                self._record(fault, event, time.monotonic_ns(), event.op)
                event.start_ns = time.monotonic_ns()
                return MESSAGES[fault.kind]
        return 1

    def _slow_down(self, event: Event) -> None:
        """Wait for the extra time that a straggler would have computed since the previous event of the invocation.

        With 1/factor of its CPU share, its CPU seconds would have taken factor times as long.
        """
        now_ns = time.process_time_ns()
        used_ns, self._cpu_ns, last = now_ns - self._cpu_ns, now_ns, self._last
        if last is None or last.invocation != event.invocation:
            return
        for fault in self._stragglers:
            if _is_at(fault, last):
                self._owed_s[fault.number] += (fault.factor - 1) * used_ns / 1e9 / _share()
                if self._owed_s[fault.number] >= PAUSE_S:
                    began_ns = time.monotonic_ns()
                    time.sleep(self._owed_s.pop(fault.number))
                    self._record(fault, last, began_ns)

    @staticmethod
    def _is_of(fault: Fault, op: str) -> bool:
        if fault.op is not None:
            return fault.op == op
        return fault.kind == "slow-store" or OPERATIONS[op].channel == "object"

    def _meets(self, fault: Fault, event: Event) -> bool:
        """Return whether this request is among the first at its place. The run's id isn't part of the place."""
        key = event.resource.rpartition(event.run)[2] if event.run else event.resource
        place = (event.worker, event.epoch, event.step, event.op, key)
        if not fault.is_drawn(self._seed, *place):
            return False
        if fault.kind == "slow-store":
            return True
        self._met[fault.number, place] += 1
        return self._met[fault.number, place] <= fault.count

    def _record(self, fault: Fault, event: Event, began_ns: int, op: str = "") -> None:
        happened = Event(
            run=event.run,
            invocation=event.invocation,
            worker=event.worker,
            epoch=event.epoch,
            step=event.step,
            phase=event.phase,
            op="fault",
            start_ns=began_ns,
            end_ns=time.monotonic_ns(),
            resource=f"{fault.number} {fault.kind} {op}".rstrip(),
        )
        self._sink(happened.record())


def _has_happened(fault: Fault) -> bool:
    """Return whether another process has met this fault, as when the worker died of it and was restarted. The third
    number in SLSLAB_CLOCK_FILE has a bit for each fault that the emulator knows of (see `training.lifetime`)."""
    path = os.environ.get("SLSLAB_CLOCK_FILE")
    return path is not None and bool(struct.unpack_from("<Q", Path(path).read_bytes(), 16)[0] >> fault.number & 1)


def _is_at(fault: Fault, event: Event) -> bool:
    return fault.is_at(event.worker, event.epoch, event.step, event.phase)


def _lose_database(fault: Fault) -> None:
    urls = tensor_urls()
    url = urls[fault.worker or 0] if len(urls) > 1 else urls[0]
    with closing(Connection("the tensor database", url, ANSWER_S)) as database:
        if fault.kind == "database-restart":
            database.command(("FLUSHALL",), ANSWER_S)
            return
        with suppress(Unreachable):  # it ends without returning
            database.command(("SHUTDOWN", "NOSAVE"), ANSWER_S)


def _share() -> float:
    """Return the CPU share of this process's function, vCPUs; 1 for an instance."""
    return int(os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", VCPU_MB)) / VCPU_MB


def _die(kind: str) -> NoReturn:
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    pieces: list[bytes] = []
    if kind == "out-of-memory":
        limit_bytes = int(os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]) << 20
        while len(pieces) * PIECE_BYTES <= limit_bytes:
            # Pages that were never written don't take memory.
            pieces.append(b"\1" * PIECE_BYTES)
    while True:
        time.sleep(60)


def _slow_down(op: str) -> Exception:
    """Return boto3's error when S3 answers 503 (documented: S3 user guide, "Request routing and throttling")."""
    answer: Any = {
        "Error": {"Code": "SlowDown", "Message": "Please reduce your request rate."},
        "ResponseMetadata": {"HTTPStatusCode": 503},
    }
    return botocore.exceptions.ClientError(answer, API[op])


def _cut(event: Event) -> Exception:
    if OPERATIONS[event.op].channel in ("object", "dynamodb"):
        return botocore.exceptions.EndpointConnectionError(endpoint_url=event.resource)
    return Unreachable(f"{event.resource} cannot be reached: a fault plan has cut it off")
