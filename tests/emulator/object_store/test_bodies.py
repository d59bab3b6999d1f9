"""Bodies arrive in any pieces, encoded by chunks or not, and what does not match its digests is not stored."""

import asyncio
import base64
import hashlib
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from slslab.aws.errors import ServiceError
from slslab.object_store.bodies import Chunks, Incoming, Stored
from slslab.object_store.signing import CHUNKED, UNSIGNED
from slslab.object_store.storage import Store, read, whole

BODY = bytes(range(256)) * 80
CRC = base64.b64encode(zlib.crc32(BODY).to_bytes(4, "big")).decode()


def chunked(sizes: list[int], trailer: str = "") -> bytes:
    """Return BODY in chunks of these sizes."""
    encoded, place = b"", 0
    for size in sizes:
        encoded += f"{size:x}\r\n".encode() + BODY[place : place + size] + b"\r\n"
        place += size
    return encoded + b"0\r\n" + (f"{trailer}\r\n" if trailer else "").encode() + b"\r\n"


def decoded(data: bytes, step: int) -> tuple[bytes, dict[str, str]]:
    """Return the body and the trailers of what arrives in pieces of this size."""
    trailers: dict[str, str] = {}

    async def arriving() -> AsyncIterator[bytes]:
        for place in range(0, len(data), step):
            yield data[place : place + step]

    async def body() -> bytes:
        return b"".join([part async for part in Chunks(arriving(), trailers).parts()])

    return asyncio.run(body()), trailers


def test_chunks_may_be_cut_anywhere() -> None:
    data = chunked([8192, 8193, 4095], f"x-amz-checksum-crc32:{CRC}")
    for step in (1, 2, 3, 7, 100, 1024, len(data)):
        assert decoded(data, step) == (BODY, {"x-amz-checksum-crc32": CRC})


@pytest.mark.parametrize("step", [1, 100_000])
@pytest.mark.parametrize("end", ["\r\n", " \t", "\r\n \n", ":b\r\n", ":b\r\n "])
def test_an_empty_name_ends_the_trailers_and_white_space_may_follow(end: str, step: int) -> None:
    data = chunked([9000, 11_480], "a:b").removesuffix(b"\r\n") + end.encode()
    assert decoded(data, step) == (BODY, {"a": "b"})


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-4],
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"2328", b"2327", 1),
        lambda data: b"zz" + data,
        lambda data: data + b"more",
        lambda data: data + b" " * 200 + b"more",
        lambda data: b"1" * 100_000 + data,
    ],
)
def test_chunks_that_are_none_are_refused(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ServiceError, match="bytes specified"):
        decoded(change(chunked([9000, 11_480])), 100)


def stored(folder: Path, data: bytes, payload: str, size: int = 1000, **more: Any) -> Stored:
    """Store what arrives in pieces of this size."""
    parts = [data[place : place + size] for place in range(0, len(data), size)] or [b""]
    messages = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)} for number, part in enumerate(parts, 1)
    ]

    async def receive() -> Any:
        return messages.pop(0)

    given = {"md5": None, "algorithm": "", "expected": {}} | more
    incoming = Incoming(receive, more.pop("length", len(BODY)), payload)
    given.pop("length", None)
    return asyncio.run(incoming.store(Store(folder), **given))


def test_a_body_is_what_was_sent(tmp_path: Path) -> None:
    for body in (b"", b"x", BODY[:1000], BODY * 250):
        found = stored(tmp_path, body, UNSIGNED, length=len(body), size=100_000)
        assert b"".join(read(whole(found.piece))) == body
        assert found.md5 == hashlib.md5(body).hexdigest()
    del found
    assert list(tmp_path.iterdir()) == []


def test_the_checksum_in_a_trailer_is_verified(tmp_path: Path) -> None:
    data = chunked([10_000, 10_480], f"x-amz-checksum-crc32:{CRC}")
    assert stored(tmp_path, data, CHUNKED, algorithm="CRC32").checksums == {"ChecksumCRC32": CRC}
    wrong = chunked([10_000, 10_480], "x-amz-checksum-crc32:AAAAAA==")
    with pytest.raises(ServiceError, match="CRC32 you specified"):
        stored(tmp_path, wrong, CHUNKED, algorithm="CRC32")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"length": 5}, "IncompleteBody"),
        ({"length": None}, "MissingContentLength"),
        ({"length": 6 * 1024**3}, "EntityTooLarge"),
        ({"payload": "0" * 64}, "XAmzContentSHA256Mismatch"),
        ({"md5": "AAAAAAAAAAAAAAAAAAAAAA=="}, "BadDigest"),
        ({"algorithm": "CRC32", "expected": {"CRC32": "AAAAAA=="}}, "BadDigest"),
    ],
)
@pytest.mark.parametrize("factor", [1, 500])
def test_what_does_not_match_is_refused_and_leaves_nothing(
    tmp_path: Path, change: dict[str, Any], code: str, factor: int
) -> None:
    body = BODY * factor
    arguments = {"length": len(body), "payload": UNSIGNED, **change}
    with pytest.raises(ServiceError) as refused:
        stored(tmp_path, body, size=50_000, **arguments)
    assert refused.value.error_type == code
    assert list(tmp_path.iterdir()) == []
