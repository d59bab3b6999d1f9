"""What an environment's processes write: the function's log with Lambda's tail of it, and trace records."""

import asyncio
import contextlib
import json
import logging
import os
from collections import deque
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

CHUNK_BYTES = 65_536
# A function that writes without end must not keep the emulator from everything else.
CHUNKS_AT_ONCE = 16
LOG_BYTES = 256 << 20
FRAME_BYTES = 1 << 20
LOG = logging.getLogger(__name__)
EVENT_FIELDS = frozenset(
    "op phase start_ns end_ns cpu_ns bytes requests resource etag overhead failed worker epoch step invocation".split()
)


class Stream:
    """The reading end of a pipe on the event loop; what arrives goes to `consume`, then its end to `ended`."""

    def __init__(self, consume: Callable[[bytes], None], ended: Callable[[], None] = lambda: None) -> None:
        self._consume = consume
        self._ended = ended
        self._descriptor = -1
        self._own_end = -1

    def open(self) -> int:
        """A new pipe; returns its writing end, which the caller closes when the processes have it."""
        self._descriptor, write = os.pipe()
        os.set_blocking(self._descriptor, False)
        asyncio.get_running_loop().add_reader(self._descriptor, self._read, CHUNKS_AT_ONCE)
        return write

    def open_named(self, path: Path) -> None:
        """A named pipe, whose writers wait until now; the end of one of them is not the stream's."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._own_end = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        asyncio.get_running_loop().add_reader(self._descriptor, self._read, CHUNKS_AT_ONCE)

    def drain(self) -> None:
        """Read what is there now."""
        self._read(CHUNKS_AT_ONCE)

    def close(self) -> None:
        """Read what is there, and close."""
        self.drain()
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if self._own_end >= 0:
            os.close(self._own_end)
            self._own_end = -1

    def _read(self, chunks: int) -> None:
        if self._descriptor < 0:
            return
        with contextlib.suppress(BlockingIOError):
            for _ in range(chunks):
                chunk = os.read(self._descriptor, CHUNK_BYTES)
                if not chunk:  # every writer is gone
                    asyncio.get_running_loop().remove_reader(self._descriptor)
                    self._ended()
                    return
                self._consume(chunk)
                if len(chunk) < CHUNK_BYTES:
                    return


class FunctionLog:
    """The log of one environment: a file, and the tail that Invoke returns."""

    def __init__(self, path: Path, tail_bytes: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: FileIO = path.open("ab", buffering=0)
        self._tail_bytes = tail_bytes
        self._written = 0
        self._tail: deque[bytes] = deque()
        self._size = 0

    def begin(self, request_id: str, version: str) -> None:
        """Begin an invocation's log with Lambda's START line; its tail holds nothing older."""
        self._tail.clear()
        self._size = 0
        self.write(f"START RequestId: {request_id} Version: {version}\n".encode())

    def write(self, chunk: bytes) -> None:
        """Append."""
        if not self._file.closed and self._written < LOG_BYTES:
            self._file.write(chunk)
            self._written += len(chunk)
            if self._written >= LOG_BYTES:
                self._file.write(b"\n(slslab keeps no more of this log)\n")
        self._tail.append(chunk[-self._tail_bytes :])
        self._size += len(self._tail[-1])
        while self._size - len(self._tail[0]) >= self._tail_bytes:
            self._size -= len(self._tail.popleft())

    def tail(self) -> bytes:
        """The last bytes of the log of the present or latest invocation."""
        return b"".join(self._tail)[-self._tail_bytes :]

    def close(self) -> None:
        """Close the file; what is written from now on is lost."""
        self._file.close()


class TraceFrames:
    """Takes the frames that workers write apart (4-byte big-endian length, JSON) and hands their events on."""

    def __init__(self, environment: str, hand_on: Callable[[dict[str, Any]], None]) -> None:
        self._environment = environment
        self._hand_on = hand_on
        self._buffer = bytearray()
        self._broken = False

    def feed(self, chunk: bytes) -> None:
        """Take bytes as they arrive."""
        if self._broken:
            return
        self._buffer += chunk
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if size > FRAME_BYTES:
                LOG.error("%s wrote a trace record of %d bytes: its trace ends here", self._environment, size)
                self._broken = True
                self._buffer.clear()
                return
            if len(self._buffer) < 4 + size:
                break
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            event = _event(frame)
            if event is None:
                LOG.error("%s wrote a trace record that is none: %r", self._environment, frame[:200])
                continue
            self._hand_on(event)


def _event(frame: bytes) -> dict[str, Any] | None:
    """The worker's event in a frame; None if it is not one, for a function may write anything to its descriptor."""
    try:
        event = json.loads(frame)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not event.keys() >= EVENT_FIELDS:
        return None
    start, end = event["start_ns"], event["end_ns"]
    return event if type(start) is int and type(end) is int and end >= start else None
