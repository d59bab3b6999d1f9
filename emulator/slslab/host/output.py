"""Read the output of an environment's processes: the function's log with Lambda's tail of it, and trace records."""

import asyncio
import json
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slslab_workers.trace.event import FIELDS, REQUIRED, wrong_field
from slslab_workers.trace.operations import EMULATED

CHUNK_BYTES = 65_536
# A function that writes endlessly must not keep the emulator from its other work.
CHUNKS_AT_ONCE = 16
LOG_BYTES = 256 << 20
LINE_BYTES = 1 << 20
TOO_LONG = f"a trace record of more than {LINE_BYTES} bytes"
# Every log record begins like this; the last byte of its type depends on level and kind.
RECORD, RECORD_HEAD = b"\xa5\x5a\x00", 16
MOST_INVALID = 100
LOG = logging.getLogger(__name__)


class Stream:
    """The reading end of a pipe on the event loop. `consume` receives the data; `ended` is called at the end."""

    def __init__(self, consume: Callable[[bytes], object], ended: Callable[[], None] = lambda: None) -> None:
        self._consume = consume
        self._ended = ended
        self._descriptors: list[int] = []

    def open(self) -> int:
        """Make a pipe and return its writing end. The caller closes that once the processes have it."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        self._attach(read)
        return write

    def open_named(self, path: Path) -> None:
        """Open a named pipe, which lets its waiting writers proceed. It stays open when one of them closes it."""
        self._attach(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        self._descriptors.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

    def _attach(self, descriptor: int) -> None:
        self._descriptors = [descriptor]
        asyncio.get_running_loop().add_reader(descriptor, self.drain)

    def close(self) -> None:
        """Read the remaining data and close."""
        self.drain()
        if self._descriptors:
            asyncio.get_running_loop().remove_reader(self._descriptors[0])
        while self._descriptors:
            os.close(self._descriptors.pop())

    def drain(self) -> None:
        """Read all data that is available now."""
        for _ in range(CHUNKS_AT_ONCE if self._descriptors else 0):
            try:
                chunk = os.read(self._descriptors[0], CHUNK_BYTES)
            except BlockingIOError:
                return
            if chunk:
                self._consume(chunk)
            else:  # every writer has closed it
                asyncio.get_running_loop().remove_reader(self._descriptors[0])
                self._ended()
            if len(chunk) < CHUNK_BYTES:
                return


class PipeReader:
    """The reading end of a pipe on a thread of its own, which reads until every writer closes.

    `consume` receives the data. The caller closes its `writing` end once the processes have it. After each reading the
    thread rests for `rest_s`, because a wake-up may cost more than reading what is there.
    """

    def __init__(self, name: str, consume: Callable[[bytes], object], rest_s: float = 0.0) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._consume, self._rest_s = consume, rest_s
        self._lock, self._ended = threading.Lock(), False
        self._thread = threading.Thread(target=self._read, name=name, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Pass on everything written so far."""
        with self._lock, suppress(BlockingIOError):
            while not self._ended:
                chunk = os.read(self._reading, CHUNK_BYTES)
                self._consume(chunk)
                self._ended = not chunk

    def join(self) -> None:
        """Wait until everything is passed on and every writer has closed."""
        self._thread.join()

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        while not self._ended:
            poll.poll()
            self.settle()
            time.sleep(self._rest_s)
        os.close(self._reading)


class LogRecords:
    """Splits a runtime's output into text and records; a record may have several lines.

    awslambdaric puts a header before the output of `logging` and before errors: 4 bytes of type (the last is the
    level), 4 of length and 8 of time, big-endian. Everything else is text.
    """

    def __init__(self) -> None:
        self._held = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield pieces, each with whether it is a record; the beginning of a record is held until the rest arrives."""
        rest, self._held = self._held + chunk, b""
        while rest:
            start = rest.find(RECORD)
            # The end may be the beginning of a record.
            text = rest[:start] if start >= 0 else rest.removesuffix(RECORD[:2]).removesuffix(RECORD[:1])
            if text:
                yield text, False
            rest = rest[len(text) :]
            size = int.from_bytes(rest[4:8], "big")
            if len(rest) >= 8 and size > LINE_BYTES:  # not written by a runtime
                yield rest[: len(RECORD)], False
                rest = rest[len(RECORD) :]
            elif len(rest) < RECORD_HEAD or len(rest) < RECORD_HEAD + size:
                self._held = rest
                return
            else:
                yield rest[RECORD_HEAD : RECORD_HEAD + size], True
                rest = rest[RECORD_HEAD + size :]

    def end(self) -> bytes:
        """Return the beginning of a record that was never completed."""
        held, self._held = self._held, b""
        return held


class FunctionLog:
    """The log of one environment: a file, and the tail that Invoke returns.

    `tail` holds the last bytes of the present or latest invocation's log; it is emptied when an invocation begins.
    `wrote` is called after each piece with the positions in the file where its first line begins, perhaps in an earlier
    piece, and where it ends, and whether it is one record. Of the printed lines, only the ones that `keeps` accepts are
    written.
    """

    def __init__(
        self,
        path: Path,
        tail_bytes: int,
        wrote: Callable[[int, int, bool], None] = lambda _start, _end, _record: None,
        keeps: Callable[[bytes], bool] | None = None,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._wrote = wrote
        self._keeps = keeps
        self._line = b""
        self._file: FileIO = path.open("ab", buffering=0)
        self._tail_bytes = tail_bytes
        self._written = 0
        self._line_start = 0
        self._records = LogRecords()
        self._line_ended = True
        self.tail = b""

    def write(self, chunk: bytes) -> None:
        """Append a runtime's output: text and records; each record begins and ends a line."""
        for piece, record in self._records.feed(chunk):
            if record:
                self._end_line(b"")
                self._append(piece.removesuffix(b"\n") + b"\n", True)
            else:
                self._print(piece)

    def say(self, text: bytes) -> None:
        """Append Lambda's own output. An incomplete record before it counts as text."""
        held = self._records.end()
        if held or self._line or not self._line_ended:
            self._end_line(held)
        self._append(text, False)

    def _end_line(self, text: bytes) -> None:
        """Append text and end the line, because the next output is Lambda's or a record."""
        self._print(text, whole=True)
        if not self._line_ended:
            self._append(b"\n", False)

    def _print(self, text: bytes, *, whole: bool = False) -> None:
        """Append text. With a filter, append only complete lines that it accepts; `whole` text is complete already."""
        if self._keeps is None:
            self._append(text, False)
            return
        *ended, rest = (self._line + text).split(b"\n")
        waits = not whole and len(rest) <= LINE_BYTES
        self._line = rest if waits else b""
        lines = [line + b"\n" for line in ended] + ([] if waits else [rest])
        self._append(b"".join(line for line in lines if self._keeps(line)), False)

    def _append(self, chunk: bytes, record: bool) -> None:
        if not chunk:
            return
        self._line_ended = chunk.endswith(b"\n")
        if not self._file.closed and self._written < LOG_BYTES:
            try:
                self._file.write(chunk)
                self._written += len(chunk)
                self._wrote(self._line_start, self._written, record)
                if b"\n" in chunk:
                    self._line_start = self._written - len(chunk) + chunk.rindex(b"\n") + 1
                if self._written >= LOG_BYTES:
                    self._file.write(b"\n(slslab keeps no more of this log)\n")
            except OSError as error:
                LOG.error("%s cannot be written: %s", self._file.name, error.strerror)
                self._file.close()
        self.tail = (self.tail + chunk[-self._tail_bytes :])[-self._tail_bytes :]

    def close(self) -> None:
        """Close the file; later writes reach only the tail."""
        self._print(self._records.end(), whole=True)
        self._file.close()


class TraceLines:
    """Parses the lines that a `writer` sends to its trace, each a JSON object, and passes their events to `on_event`.

    These are records for the log, with the fields in `source`, whatever the writer says of these.
    """

    def __init__(
        self,
        writer: str,
        on_event: Callable[[dict[str, Any]], None],
        source: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._writer = writer
        self._on_event = on_event
        self._source = source
        self._held = bytearray()
        self._broken = False
        self._invalid = 0

    def feed(self, chunk: bytes) -> None:
        """Parse bytes as they arrive. A line that is too long, or too many invalid ones, end the trace."""
        if self._broken:
            return
        self._held += chunk
        if b"\n" in chunk:
            *lines, self._held = self._held.split(b"\n")
            for line in lines:
                if len(line) > LINE_BYTES:
                    self._end(TOO_LONG)
                    return
                if (event := _event(line, self._source)) is not None:
                    self._on_event(event)
                    continue
                LOG.error("%s wrote an invalid trace record: %r", self._writer, bytes(line[:200]))
                self._invalid += 1
                if self._invalid == MOST_INVALID:
                    self._end(f"{MOST_INVALID} invalid trace records")
                    return
        if len(self._held) > LINE_BYTES:
            self._end(TOO_LONG)

    def _end(self, what: str) -> None:
        LOG.error("%s wrote %s: its trace ends here", self._writer, what)
        self._broken = True
        self._held.clear()


def _event(line: bytearray, source: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the worker's event in a line, as a record; None for anything else, which a function may write, too."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or wrong_field(event, REQUIRED) or event["op"] in EMULATED:
        return None
    if event["end_ns"] < event["start_ns"]:
        return None
    return {"record": "event", **{name: event[name] for name in FIELDS if name in event}, **source}
