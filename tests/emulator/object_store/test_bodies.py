"""Bodies arrive in any pieces, encoded by chunks or not, and what does not match its digests is not stored."""

import asyncio
import base64
import hashlib
import hmac
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slslab.aws.errors import ServiceError
from slslab.aws.signatures import Signature
from slslab.object_store.bodies import Chunks, Incoming, Stored
from slslab.object_store.signing import CHUNKED_SIGNED, CHUNKED_UNSIGNED, EMPTY, UNSIGNED, ChunkSigner
from slslab.object_store.storage import Folder, read, whole

BODY = bytes(range(256)) * 80
CRC = base64.b64encode(zlib.crc32(BODY).to_bytes(4, "big")).decode()
KEY, STAMP, SCOPE = b"k" * 32, "20260101T000000Z", "20260101/us-east-1/s3/aws4_request"


def signer() -> ChunkSigner:
    signed: Any = type("Signed", (), {"signature": "0" * 64, "stamp": STAMP, "scope": SCOPE})
    signature: Signature = signed
    return ChunkSigner(signature, KEY)


def chunked(sizes: list[int], *, sign: bool, trailer: str = "") -> bytes:
    """Return BODY in chunks of these sizes."""
    encoded, place, previous = b"", 0, "0" * 64
    for size in [*sizes, 0]:
        data = BODY[place : place + size]
        place += size
        text = f"AWS4-HMAC-SHA256-PAYLOAD\n{STAMP}\n{SCOPE}\n{previous}\n{EMPTY}\n{hashlib.sha256(data).hexdigest()}"
        previous = hmac.digest(KEY, text.encode(), "sha256").hex()
        encoded += f"{len(data):x}{f';chunk-signature={previous}' * sign}\r\n".encode()
        encoded += data + b"\r\n" if data else b""
    return encoded + (f"{trailer}\r\n" if trailer else "").encode() + b"\r\n"


@pytest.mark.parametrize("sign", [True, False])
def test_chunks_may_be_cut_anywhere(sign: bool) -> None:
    data = chunked([8192, 8193, 4095], sign=sign, trailer=f"x-amz-checksum-crc32:{CRC}")
    for step in (1, 2, 3, 7, 100, 1024, len(data)):
        chunks = Chunks(signer() if sign else None)
        found = [part for place in range(0, len(data), step) for part in chunks.feed(data[place : place + step])]
        assert b"".join(found) == BODY
        assert chunks.end() == {"x-amz-checksum-crc32": CRC}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-4],
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"2328", b"2327", 1),
        lambda data: b"zz" + data,
        lambda data: data + b"more",
        lambda data: b"1" * 100_000 + data,
    ],
)
def test_chunks_that_are_none_are_refused(change: Callable[[bytes], bytes]) -> None:
    chunks = Chunks(None)

    def decode(data: bytes) -> None:
        chunks.feed(data)
        chunks.end()

    with pytest.raises(ServiceError, match="bytes specified"):
        decode(change(chunked([9000, 11_480], sign=False)))


def test_a_chunk_that_was_changed_on_its_way_is_refused() -> None:
    data = bytearray(chunked([9000, 11_480], sign=True))
    data[600] ^= 1
    with pytest.raises(ServiceError) as refused:
        Chunks(signer()).feed(bytes(data))
    assert refused.value.error_type == "SignatureDoesNotMatch"


def stored(folder: Path, data: bytes, payload: str, size: int = 1000, **more: Any) -> Stored:
    """Store what arrives in pieces of this size."""
    parts = [data[place : place + size] for place in range(0, len(data), size)] or [b""]
    messages = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)} for number, part in enumerate(parts, 1)
    ]

    async def receive() -> Any:
        return messages.pop(0)

    given = {"md5": None, "algorithm": "", "expected": {}} | more
    incoming = Incoming(
        receive, more.pop("length", len(BODY)), payload, signer() if payload in CHUNKED_SIGNED else None
    )
    given.pop("length", None)
    return asyncio.run(incoming.store(Folder(folder), **given))


def test_a_body_is_what_was_sent(tmp_path: Path) -> None:
    for body in (b"", b"x", BODY[:1000], BODY * 250):
        found = stored(tmp_path, body, UNSIGNED, length=len(body), size=100_000)
        assert b"".join(read(whole(found.piece))) == body
        assert found.md5 == hashlib.md5(body).hexdigest()
    del found
    assert list(tmp_path.iterdir()) == []


def test_the_checksum_in_a_trailer_is_verified(tmp_path: Path) -> None:
    for payload, sign in ((CHUNKED_UNSIGNED, False), (CHUNKED_SIGNED[1], True)):
        data = chunked([10_000, 10_480], sign=sign, trailer=f"x-amz-checksum-crc32:{CRC}")
        assert stored(tmp_path, data, payload, algorithm="CRC32").checksums == {"ChecksumCRC32": CRC}
        wrong = chunked([10_000, 10_480], sign=sign, trailer="x-amz-checksum-crc32:AAAAAA==")
        with pytest.raises(ServiceError, match="CRC32 you specified"):
            stored(tmp_path, wrong, payload, algorithm="CRC32")


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
