"""Decode, hash and store the bodies of requests as they arrive, never holding a whole body in memory.

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html
"""

import asyncio
import hashlib
import hmac
import re
from collections.abc import AsyncIterator
from typing import BinaryIO, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from slslab.host.state import only_owner
from slslab.object_store import checksums
from slslab.object_store.errors import failure
from slslab.object_store.signing import CHUNKED, UNSIGNED
from slslab.object_store.storage import IN_MEMORY_BYTES, MEMORY_BYTES, Piece, Store

# Hashed and written together, on another thread.
BATCH_BYTES = 1024 * 1024
LARGEST_PUT = 5 * 1024**3
# assumed: enough for a thousand keys of 1,024 bytes to delete, and less than half a second to parse.
LARGEST_DOCUMENT = 2 * 1024 * 1024
LONGEST_LINE = 16 * 1024
# recorded: only the last chunk may be smaller. assumed: clients send one trailer.
LEAST_CHUNK, MOST_TRAILERS = 8192, 16
CHUNK_HEAD = re.compile(rb"[0-9a-fA-F]{1,8}")


class Incoming:
    """The body of one request. It can be read once.

    `length` is the decoded length in the headers, and `payload` is x-amz-content-sha256.
    """

    def __init__(self, receive: Receive, length: int | None, payload: str) -> None:
        self._receive = receive
        self._more = True
        # Whether reading hasn't begun.
        self.untouched = True
        self.length = length
        self._payload = payload
        self.trailers: dict[str, str] = {}

    async def discard(self) -> None:
        """Read and drop the rest. Closing the connection instead would lose the client the answer."""
        async for _ in self.raw():
            pass

    async def document(self, md5: str | None, expected: dict[str, str]) -> bytes:
        """Return the whole body; S3's errors if it is too large or doesn't match the digests."""
        sums = Sums(self._payload, next(iter(expected), ""))
        parts, size = [], 0
        async for part in self._pieces():
            parts.append(part)
            size += len(part)
            if size > LARGEST_DOCUMENT:
                raise failure("MalformedXML")
            sums.update(part)
        sums.check(md5, expected)
        return b"".join(parts)

    async def store(self, store: Store, md5: str | None, algorithm: str, expected: dict[str, str]) -> "Stored":
        """Store the body; BadDigest and similar errors if it doesn't match its headers or trailers.

        `algorithm` names its checksum. `expected` contains the checksum unless a trailer does.
        """
        if self.length is None:
            raise failure("MissingContentLength")
        if self.length > LARGEST_PUT:
            raise failure("EntityTooLarge", MaxSizeAllowed=str(LARGEST_PUT))
        sums = Sums(self._payload, algorithm)
        sink = Sink(store, sums)
        try:
            async for part in self._pieces():
                await sink.write(part)
                if sink.size > self.length:
                    raise failure("IncompleteBody")
            if sink.size != self.length:
                raise failure("IncompleteBody")
            await sink.end()
            trailer = self.trailers.get(f"x-amz-checksum-{algorithm.lower()}")
            found = sums.check(md5, expected or ({algorithm: trailer} if trailer else {}))
            return Stored(sink.piece(), sums.md5.hexdigest(), found)
        finally:
            await sink.close()

    async def raw(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        self.untouched = False
        while self._more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._more = False
                raise ClientDisconnect
            self._more = message.get("more_body", False)
            if part := message.get("body", b""):
                yield part

    def _pieces(self) -> AsyncIterator[bytes]:
        return Chunks(self.raw(), self.trailers).parts() if self._payload == CHUNKED else self.raw()


class Stored(NamedTuple):
    """A stored body: its piece, its MD5 in hexadecimal, and its checksums as members of the API."""

    piece: Piece
    md5: str
    checksums: dict[str, str]


class Sums:
    """The digests of one body: MD5 for the ETag, SHA-256 if it was signed, and the checksum that the client chose."""

    def __init__(self, payload: str, algorithm: str) -> None:
        self._signed = payload if payload not in (CHUNKED, UNSIGNED) else ""
        self._algorithm = algorithm
        self.md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256() if self._signed else None
        self._chosen = checksums.new(algorithm) if algorithm else None

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self.md5.update(data)
        if self._sha256 is not None:
            self._sha256.update(data)
        if self._chosen is not None:
            self._chosen.update(data)

    def check(self, md5: str | None, expected: dict[str, str]) -> dict[str, str]:
        """Compare the digests with the client's; return the checksum as a member of the API."""
        checksums.check_md5(md5, self.md5.digest())
        if self._sha256 is not None and not hmac.compare_digest(self._sha256.hexdigest(), self._signed):
            raise failure("XAmzContentSHA256Mismatch")
        if self._chosen is None:
            return {}
        value = self._chosen.b64digest()
        if expected.get(self._algorithm, value) != value:
            raise failure("BadDigest", f"The {self._algorithm} you specified did not match the calculated checksum.")
        return {f"Checksum{self._algorithm}": value}


class Sink:
    """Takes a body in batches. A large one is hashed and written on other threads while the next batch arrives."""

    def __init__(self, store: Store, sums: Sums) -> None:
        self._store = store
        self._sums = sums
        self._batch: list[bytes] = []
        self._held = 0
        self._file: BinaryIO | None = None
        self._writing: asyncio.Future[None] | None = None
        self._data: bytes | None = None
        self.size = 0

    async def write(self, data: bytes) -> None:
        """Add the next bytes."""
        self._batch.append(data)
        self._held += len(data)
        self.size += len(data)
        if self._held >= BATCH_BYTES:
            await self._written()
            batch, self._batch, self._held = self._batch, [], 0
            self._writing = asyncio.get_running_loop().run_in_executor(None, self._take, batch)

    async def end(self) -> None:
        """Hash the last batch, and write it unless the whole body may stay in memory."""
        await self._written()
        if self._file is None and self.size <= IN_MEMORY_BYTES and self._store.in_memory < MEMORY_BYTES:
            self._data = b"".join(self._batch)
            self._sums.update(self._data)
        elif self._held > BATCH_BYTES // 4:
            await asyncio.to_thread(self._take, self._batch)
        else:
            self._take(self._batch)

    def piece(self) -> Piece:
        """Return the stored bytes as one piece; call `end` first."""
        if self._file is None:
            return Piece(self._store, self.size, self._data, None)
        self._file.close()
        self._file = None
        return Piece(self._store, self.size, None, self._path)

    async def close(self) -> None:
        """Remove the file, unless `piece` has returned it."""
        try:
            await self._written()
        finally:
            if self._file is not None:
                self._file.close()
                self._path.unlink()

    async def _written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing

    def _take(self, batch: list[bytes]) -> None:
        if self._file is None:
            self._path = self._store.new_file()
            self._file = open(self._path, "xb", buffering=0, opener=only_owner)  # noqa: SIM115 - closed by `close`
        data = batch[0] if len(batch) == 1 else b"".join(batch)
        self._sums.update(data)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]


class Chunks:
    """Decodes a body of the content encoding `aws-chunked`, and adds its trailers to `trailers`."""

    def __init__(self, raw: AsyncIterator[bytes], trailers: dict[str, str]) -> None:
        self._raw = raw
        self._trailers = trailers
        self._buffer = bytearray()

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the decoded bytes as they arrive; IncompleteBody if the encoding is wrong or the last chunk missing."""
        size = LEAST_CHUNK
        while left := await self._head():
            if size < LEAST_CHUNK:
                raise failure("InvalidChunkSizeError", BadChunkSize=str(size))
            size = left
            while left:
                if not self._buffer and not await self._more():
                    raise failure("IncompleteBody")
                part = bytes(self._buffer[:left])
                del self._buffer[: len(part)]
                left -= len(part)
                yield part
            if await self._line():
                raise failure("IncompleteBody")
        while line := await self._line():
            name, _, value = line.decode("latin-1").partition(":")
            if len(self._trailers) > MOST_TRAILERS:
                raise failure("IncompleteBody")
            if not name:
                break
            self._trailers[name.strip().lower()] = value.strip()
        while not self._buffer.strip():  # white space may follow
            self._buffer.clear()
            if not await self._more():
                return
        raise failure("IncompleteBody")

    async def _head(self) -> int:
        line = await self._line()
        if not CHUNK_HEAD.fullmatch(line):
            raise failure("IncompleteBody")
        return int(line, 16)

    async def _line(self) -> bytes:
        """Return the next line; empty at the body's end, or if only white space follows."""
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > LONGEST_LINE:
                raise failure("IncompleteBody")
            if not await self._more():
                if self._buffer.strip():
                    raise failure("IncompleteBody")
                return b""
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    async def _more(self) -> bool:
        part = await anext(self._raw, b"")
        self._buffer += part
        return part != b""
