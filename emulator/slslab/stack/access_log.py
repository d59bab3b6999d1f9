"""The requests to the embedded S3 server, as it reports them: each becomes one of the requests that AWS bills.

SeaweedFS has an audit log for a Fluentd server, which is this process. It sends a message for each request, about when
it answers it. Its metrics would be cheaper; but a bucket's are lost when it is deleted, or after ten minutes of rest.
"""

import json
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

CHUNK_BYTES = 65_536
# Messages of so long are read together: each awakening costs more than ten messages do.
TOGETHER_MS = 20
SOCKET = "s3-access.sock"
# HEAD and all other reads cost what GET costs; a multipart upload's beginning and its end are POST. documented: Amazon
# S3 pricing, "Requests & data retrievals".
OPERATIONS = {"PUT": "object.put", "POST": "object.put", "DELETE": "object.delete"}
READ, LIST, DELETE = "object.get", "object.list", "object.delete"


class AccessLog:
    """Reads the audit log of one S3 server on a thread of its own, as a context manager that the server is within.

    The socket is in `directory`, which nobody else may enter. `on_request` is called with the operation of every
    request (`object.put`, `object.list`, `object.get`, `object.delete`), the last one before the context has ended.
    """

    def __init__(self, directory: Path, on_request: Callable[[str], None]) -> None:
        self._directory = directory
        self._on_request = on_request
        self._lock = threading.Lock()
        self._connections: dict[int, tuple[socket.socket, Messages]] = {}

    def settings(self, working_directory: Path) -> dict[str, Any]:
        """Return the audit log's settings for a server with this working directory."""
        path = os.path.relpath(self._directory / SOCKET, working_directory)
        return {"fluent_network": "unix", "fluent_socket_path": path, "marshal_as_json": True}

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._listener = undo.enter_context(socket.socket(socket.AF_UNIX))
            directory = os.open(self._directory, os.O_PATH | os.O_CLOEXEC)
            undo.callback(os.close, directory)
            # An address of a socket has 108 bytes, and a path may have more.
            self._listener.bind(f"/proc/self/fd/{directory}/{SOCKET}")
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
                        for operation in messages.feed(chunk):
                            self._on_request(operation)
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
                    self._connections[connection.fileno()] = connection, Messages()
                    self._poll.register(connection, select.POLLIN)
            self.drain()
            ending.poll(TOGETHER_MS)
        for connection, _ in self._connections.values():
            connection.close()


class Messages:
    """The messages of one connection, JSON values one after another."""

    def __init__(self) -> None:
        self._decoder = json.JSONDecoder()
        self._rest = ""
        self._latest = ""

    def feed(self, chunk: bytes) -> list[str]:
        """Return the operations of the requests whose messages end in these bytes."""
        # Keys of other alphabets become other letters, which nobody reads; no character is cut in two.
        text, place, operations = self._rest + chunk.decode("latin-1"), 0, []
        with suppress(json.JSONDecodeError):
            while place < len(text):
                (_, _, entry, *_), place = self._decoder.raw_decode(text, place)
                # One request may send its last message twice.
                if entry["request_id"] != self._latest and (operation := _operation(entry)):
                    self._latest = entry["request_id"]
                    operations.append(operation)
        self._rest = text[place:]
        return operations


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
