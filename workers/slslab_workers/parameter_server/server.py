"""Add up the vectors that workers push, in memory.

A worker pushes a vector and pulls the sum, which is ready once all have pushed. Vectors are added in rank order, so
that equal plans give equal bits. A sum is deleted once all have pulled it. The server also stores objects under keys.
docs/protocols.md, "Parameter server", has every request.
"""

import hmac
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slslab_workers.channels.events import Sink
from slslab_workers.channels.serialisation import SERIALISATIONS, Vector
from slslab_workers.trace.event import Event

# The words of a request; keys don't contain spaces.
LINE_BYTES = 4096


@dataclass
class Round:
    """One sum: vectors that arrived early, by rank, how many were added, and how many workers have pulled it."""

    workers: int
    parts: dict[int, Vector] = field(default_factory=dict)
    total: "Vector | None" = None
    added: int = 0
    pulled: int = 0
    leaving: bool = False


class Sums:
    """Sums and objects, shared by all connections."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, bytes]] = {}
        self._rounds: dict[str, Round] = {}
        self._changed = threading.Condition()
        self._cleared = 0

    def clear(self) -> None:
        """Delete everything; workers that wait for a sum don't get any."""
        with self._changed:
            self._rounds.clear()
            self.objects.clear()
            self._cleared += 1
            self._changed.notify_all()

    def push(self, key: str, rank: int, workers: int, vector: Vector, *, leaving: bool) -> None:
        """Add a worker's vector, and waiting vectors that follow it in rank order; ValueError if it doesn't match the
        others."""
        with self._changed:
            one = self._rounds.setdefault(key, Round(workers))
            if workers != one.workers or not one.added <= rank < workers or rank in one.parts:
                raise ValueError(f"rank {rank} of {workers} does not belong to {key}")
            one.parts[rank] = vector
            one.leaving |= leaving
            while one.added in one.parts:
                part = one.parts.pop(one.added)
                if one.total is None:
                    one.total = part
                elif one.total.shape != part.shape:
                    raise ValueError(f"{key} is a sum of vectors of {one.total.size} numbers, not of {part.size}")
                else:
                    np.add(one.total, part, out=one.total)
                one.added += 1
            self._changed.notify_all()

    def pull(self, key: str) -> tuple[Vector, bool]:
        """Return a sum, and whether any worker leaves, once all have pushed. The last worker to pull deletes it.

        ValueError if everything is deleted meanwhile.
        """
        with self._changed:
            before = self._cleared
            self._changed.wait_for(
                lambda: (
                    self._cleared != before
                    or (key in self._rounds and self._rounds[key].added == self._rounds[key].workers)
                )
            )
            if self._cleared != before:
                raise ValueError("the run has ended")
            one = self._rounds[key]
            one.pulled += 1
            if one.pulled == one.workers:
                del self._rounds[key]
            assert one.total is not None
            return one.total, one.leaving


class Server(socketserver.ThreadingTCPServer):
    """Serves each connection in its own thread, and writes its computations as events to `sink`."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], token: str, sink: Sink | None) -> None:
        super().__init__(address, Connection)
        self.token = token.encode()
        self.sums = Sums()
        self.sink = sink
        self._writing = threading.Lock()

    @contextmanager
    def span(self, op: str, resource: str, size: int, worker: int = -1) -> Iterator[None]:
        """Measure the block with this thread's CPU time."""
        event = Event(op=op, phase="other", resource=resource, bytes=size, worker=worker, function="parameter-server")
        event.environment, cpu_ns, event.start_ns = "parameter-server", time.thread_time_ns(), time.monotonic_ns()
        yield
        event.end_ns, event.cpu_ns = time.monotonic_ns(), time.thread_time_ns() - cpu_ns
        # If the reader has gone, only trace records are lost.
        if (sink := self.sink) is not None:
            with self._writing, suppress(OSError):
                sink({"record": "event", **event.record()})


class Connection(socketserver.StreamRequestHandler):
    """The requests of one client, in order."""

    disable_nagle_algorithm = True
    server: Server

    def handle(self) -> None:
        """Answer requests until the client closes the connection, breaks the protocol, or presents another token."""
        with suppress(OSError, EOFError):
            word, _, token = self._line().partition(b" ")
            if word != b"token" or not hmac.compare_digest(token, self.server.token):
                self.wfile.write(b"error: another token\r\n")
                return
            self.wfile.write(b"ok\r\n")
            while True:
                words = self._line().decode(errors="replace").split(" ")
                if words == ["record"]:
                    self._record()
                    return
                try:
                    self._answer(*words)
                except (ValueError, TypeError, LookupError) as error:
                    self.wfile.write(f"error: {error}".splitlines()[0].encode() + b"\r\n")
                    return

    def _answer(self, request: str, key: str, *words: str) -> None:
        sums, span = self.server.sums, self.server.span
        match request, words:
            case "push", (rank, workers, leaving, name, size):
                body = self._body(int(size))
                with span("parameter.deserialise", key, len(body), int(rank)):
                    vector = SERIALISATIONS[name].read(body)
                with span("parameter.merge", key, vector.nbytes, int(rank)):
                    sums.push(key, int(rank), int(workers), vector, leaving=leaving == "1")
                self.wfile.write(b"ok\r\n")
            case "pull", (name,):
                total, left = sums.pull(key)
                with span("parameter.serialise", key, total.nbytes):
                    written = SERIALISATIONS[name].write(total)
                self._send(f"sum {int(left)} {len(written)}\r\n", written)
            case "put", (metadata_bytes, size):
                sums.objects[key] = bytes(self._body(int(metadata_bytes))), bytes(self._body(int(size)))
                self.wfile.write(b"ok\r\n")
            case "get", ():
                if key not in sums.objects:
                    self.wfile.write(b"none\r\n")
                    return
                found, stored = sums.objects[key]
                self._send(f"object {len(found)} {len(stored)}\r\n", found, stored)
            case "delete", ():
                sums.objects.pop(key, None)
                self.wfile.write(b"ok\r\n")
            case _:
                raise ValueError(f"unknown request {request[:40]}, or a wrong number of words")

    def _record(self) -> None:
        """Write the events, one a line, until the client closes its side; clear the sums before and after."""
        sums, sink = self.server.sums, self.server.sink
        sums.clear()
        self.wfile.write(b"ok\r\n")
        self.server.sink = lambda record: self._send(json.dumps(record, separators=(",", ":")) + "\n")
        try:
            self.rfile.read()
        finally:
            self.server.sink = sink
            sums.clear()

    def _line(self) -> bytes:
        line = self.rfile.readline(LINE_BYTES)
        if not line.endswith(b"\r\n"):
            raise EOFError
        return line[:-2]

    def _body(self, size: int) -> bytearray:
        body = bytearray(size)
        if self.rfile.readinto(body) < size:
            raise EOFError
        return body

    def _send(self, line: str, *bodies: Any) -> None:
        self.wfile.write(line.encode())
        for body in bodies:
            self.wfile.write(body)
