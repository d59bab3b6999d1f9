"""The requests to the embedded S3 server, as it reports them: each becomes one of the requests that AWS bills.

SeaweedFS has an audit log for a Fluentd server, which is this process. It sends a message for each request, about when
it answers it. Its metrics would be cheaper; but a bucket's are lost when it is deleted, or after ten minutes of rest.
The messages have no bytes, so the sizes of objects that functions moved are asked of the server's filer.
"""

import http.client
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from slslab.aws.keys import SESSION_ARN

CHUNK_BYTES = 65_536
# Messages of so long are read together: each awakening costs more than ten messages do.
TOGETHER_MS = 20
SOCKET, FILER_SOCKET = "s3-access.sock", "filer.sock"
FILER_LIMIT_S = 2.0
# The first 16 hexadecimal digits of a request's id are ns since 1970 when it began; the message has whole seconds.
STAMP_DIGITS, STAMP_LIMIT_NS = 16, 3_600_000_000_000
# HEAD and all other reads cost what GET costs; a multipart upload's beginning and its end are POST. documented: Amazon
# S3 pricing, "Requests & data retrievals".
OPERATIONS = {"PUT": "object.put", "POST": "object.put", "DELETE": "object.delete"}
READ, LIST, DELETE = "object.get", "object.list", "object.delete"


@dataclass(frozen=True)
class Logged:
    """A request that the server has answered.

    `operation` is `object.put`, `object.list`, `object.get` or `object.delete`. `function` is the name of the function
    that sent it, empty for other clients. `start_ns` is when it began, and `end_ns` when its message was read, at most
    20 ms after the answer (ns of CLOCK_MONOTONIC). `size` is the bytes of the body that a function sent or received,
    None if it was a part of an object, or if the object is gone already.
    """

    operation: str
    function: str
    start_ns: int
    end_ns: int
    size: int | None


class AccessLog:
    """Reads the audit log of one S3 server on a thread of its own, as a context manager that the server is within.

    The socket is in `directory`, which nobody else may enter. `on_request` is called with every request, the last one
    before the context has ended.
    """

    def __init__(self, directory: Path, on_request: Callable[[Logged], None]) -> None:
        self._directory = directory
        self._on_request = on_request
        self._sizes = _Sizes()
        self._lock = threading.Lock()
        self._connections: dict[int, tuple[socket.socket, Messages]] = {}

    def settings(self, working_directory: Path) -> dict[str, Any]:
        """Return the audit log's settings for a server with this working directory."""
        path = os.path.relpath(self._directory / SOCKET, working_directory)
        self._sizes.directory = working_directory
        return {"fluent_network": "unix", "fluent_socket_path": path, "marshal_as_json": True}

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._listener = undo.enter_context(socket.socket(socket.AF_UNIX))
            undo.callback(self._sizes.close)
            with _short(self._directory) as directory:
                self._listener.bind(f"{directory}/{SOCKET}")
            undo.callback((self._directory / SOCKET).unlink)
            self._listener.listen()
            self._ending = os.eventfd(0, os.EFD_CLOEXEC)
            undo.callback(os.close, self._ending)
            self._poll = select.poll()
            for descriptor in (self._listener.fileno(), self._ending):
                self._poll.register(descriptor, select.POLLIN)
            reader = threading.Thread(target=self._read, name="s3-access", daemon=True)
            reader.start()
            undo.callback(reader.join)
            undo.callback(os.eventfd_write, self._ending, 1)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def drain(self) -> None:
        """Pass on what the server has sent until now."""
        with self._lock:
            for descriptor, (connection, messages) in list(self._connections.items()):
                with suppress(BlockingIOError, ConnectionResetError):
                    while chunk := connection.recv(CHUNK_BYTES, socket.MSG_DONTWAIT):
                        for logged in messages.feed(chunk):
                            self._on_request(logged)
                    # The server has ended.
                    self._poll.unregister(descriptor)
                    del self._connections[descriptor]
                    connection.close()

    def _read(self) -> None:
        over = False
        ending = select.poll()
        ending.register(self._ending, select.POLLIN)
        while not over:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            over = self._ending in ready
            if self._listener.fileno() in ready:
                connection, _ = self._listener.accept()
                with self._lock:
                    self._connections[connection.fileno()] = connection, Messages(self._sizes.find)
                    self._poll.register(connection, select.POLLIN)
            self.drain()
            ending.poll(TOGETHER_MS)
        for connection, _ in self._connections.values():
            connection.close()


class Messages:
    """The messages of one connection, JSON values one after another; `find_size` is asked for the size of an object."""

    def __init__(self, find_size: Callable[[str], int | None] = lambda _: None) -> None:
        self._decoder = json.JSONDecoder()
        self._find_size = find_size
        self._rest = ""
        self._latest = ""
        # Objects that are being uploaded in parts.
        self._uploads: set[str] = set()

    def feed(self, chunk: bytes) -> list[Logged]:
        """Return the billed requests whose messages end in these bytes."""
        # A character of another alphabet becomes several, and is put together again below.
        text, place, requests = self._rest + chunk.decode("latin-1"), 0, []
        with suppress(json.JSONDecodeError):
            while place < len(text):
                (_, _, entry, *_), place = self._decoder.raw_decode(text, place)
                # One request may send its last message twice.
                if entry["request_id"] != self._latest and (operation := _operation(entry)):
                    self._latest = entry["request_id"]
                    requests.append(self._logged(operation, entry))
        self._rest = text[place:]
        return requests

    def _logged(self, operation: str, entry: Mapping[str, Any]) -> Logged:
        now = time.monotonic_ns()
        role, _, name = str(entry.get("requester_arn", "")).rpartition("/")
        began = _began_ns(entry["request_id"])
        if role != SESSION_ARN or began is None:
            return Logged(operation, "", now, now, None)
        return Logged(operation, name, min(began, now), now, self._size(entry))

    def _size(self, entry: Mapping[str, Any]) -> int | None:
        method, path = entry["operation"].split(".")[1], f"{entry.get('bucket', '')}/{entry['key']}"
        if method == "POST" and entry["key"]:
            # The first begins an upload in parts, the second completes it.
            self._uploads ^= {path}
        if method not in ("GET", "PUT") or not entry["key"] or entry["status"] >= 300:
            return 0
        if entry["status"] == http.HTTPStatus.PARTIAL_CONTENT or path in self._uploads:
            return None
        return self._find_size(path.encode("latin-1", "replace").decode("utf-8", "replace"))


class _Sizes:
    """The sizes of a server's objects, asked of its filer at the socket in its working directory."""

    def __init__(self) -> None:
        self.directory: Path | None = None
        self._connection: _Connection | None = None

    def find(self, path: str) -> int | None:
        """Return the bytes of an object (`bucket/key`); None if it is gone, or if the filer doesn't answer."""
        # The server may have closed a connection that rested.
        for _ in range(1 if self._connection is None else 2):
            try:
                return self._ask(path)
            except (OSError, http.client.HTTPException):
                self.close()
        return None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, path: str) -> int | None:
        if self.directory is None:
            return None
        if self._connection is None:
            self._connection = _Connection(self.directory)
        self._connection.request("HEAD", f"/buckets/{quote(path)}")
        answer = self._connection.getresponse()
        answer.read()
        return int(answer.getheader("Content-Length", "0")) if answer.status == http.HTTPStatus.OK else None


class _Connection(http.client.HTTPConnection):
    def __init__(self, directory: Path) -> None:
        super().__init__("filer", timeout=FILER_LIMIT_S)
        self._directory = directory

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(FILER_LIMIT_S)
        with _short(self._directory) as directory:
            self.sock.connect(f"{directory}/{FILER_SOCKET}")


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """Yield a short name of a directory: an address of a socket has 108 bytes, and a path may have more."""
    descriptor = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _began_ns(request_id: str) -> int | None:
    """Return when a request began (ns of CLOCK_MONOTONIC), by its id; None if the id has no time."""
    try:
        ago_ns = time.time_ns() - int(request_id[:STAMP_DIGITS], 16)
    except ValueError:
        return None
    return time.monotonic_ns() - ago_ns if abs(ago_ns) < STAMP_LIMIT_NS else None


def _operation(entry: Mapping[str, Any]) -> str:
    """Return what AWS bills the request as; empty for what is not billed.

    That is an object of a DeleteObjects, which is billed as one request, and what the server itself failed at, or
    refused to a stranger. documented: S3 user guide, "Billing for Amazon S3 error responses".
    """
    method, status, of_bucket = entry["operation"].split(".")[1], entry["status"], not entry["key"]
    if status >= 500 or (status == 403 and not entry["requester"]):
        return ""
    if method == "POST" and of_bucket:
        return DELETE
    if method == "POST" and status == 204:
        return ""
    if method == "GET" and of_bucket:
        return LIST
    return OPERATIONS.get(method, READ)
