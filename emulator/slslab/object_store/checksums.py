"""Verify, store and return the checksums of S3 that clients send.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
"""

import asyncio
import base64
import binascii
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from slslab.installation import lacking
from slslab.object_store.errors import failure, refusal

# Their names in the members of the API, such as ChecksumCRC32, and their lengths in bytes.
ALGORITHMS = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8, "SHA1": 20, "SHA256": 32}
FULL, COMPOSITE = "FULL_OBJECT", "COMPOSITE"
# documented: checking-object-integrity.html: the types for multipart uploads. The first is the default.
KINDS = {
    "CRC32": (COMPOSITE, FULL),
    "CRC32C": (COMPOSITE, FULL),
    "CRC64NVME": (FULL,),
    "SHA1": (COMPOSITE,),
    "SHA256": (COMPOSITE,),
}


class Cyclic:
    """A cyclic redundancy check; `step` computes it from the next bytes and the previous value."""

    def __init__(self, step: Callable[[bytes, int], int], length: int) -> None:
        self._step = step
        self._length = length
        self._value = 0

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self._value = self._step(data, self._value)

    def digest(self) -> bytes:
        """Return the check, highest byte first."""
        return self._value.to_bytes(self._length, "big")


if TYPE_CHECKING:
    Hash = hashlib._Hash | Cyclic


def new(algorithm: str) -> "Hash":
    """Return an empty checksum; InvalidRequest for an unknown algorithm, NotImplemented for one that needs awscrt."""
    if algorithm in ("SHA1", "SHA256"):
        return hashlib.new(algorithm.lower(), usedforsecurity=False)
    if algorithm == "CRC32":
        return Cyclic(zlib.crc32, 4)
    if algorithm not in ALGORITHMS:
        raise failure("InvalidRequest", f"Checksum algorithm provided is unsupported: {algorithm}.")
    try:
        # In pure Python a gradient would take seconds.
        from awscrt import checksums
    except ImportError as error:
        raise refusal(
            f"the checksum {algorithm} without the package awscrt",
            f"{lacking('awscrt').hint}, or choose CRC32, SHA1 or SHA256.",
        ) from error
    step: Callable[[bytes, int], int] = getattr(checksums, {"CRC32C": "crc32c", "CRC64NVME": "crc64nvme"}[algorithm])
    return Cyclic(step, ALGORITHMS[algorithm])


def given(members: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums in a request; InvalidRequest for a malformed one."""
    found = {name: members[f"Checksum{name}"] for name in ALGORITHMS if f"Checksum{name}" in members}
    if len(found) > 1:
        raise failure(
            "InvalidRequest", "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
        )
    for name, value in found.items():
        if not _is_digest(value, ALGORITHMS[name]):
            raise failure("InvalidRequest", f"Value for x-amz-checksum-{name.lower()} header is invalid.")
    return found


def check_md5(text: str | None, digest: bytes) -> None:
    """Raise InvalidDigest or BadDigest if Content-MD5 is given and isn't this digest."""
    if text is None:
        return
    if not _is_digest(text, 16):
        raise failure("InvalidDigest")
    if base64.b64decode(text) != digest:
        raise failure("BadDigest", "The Content-MD5 you specified did not match what we received.")


def composite(algorithm: str, values: Iterable[str]) -> str:
    """Return the checksum of the parts' checksums, with the number of parts."""
    values = list(values)
    total = new(algorithm)
    for value in values:
        total.update(base64.b64decode(value))
    return f"{encoded(total)}-{len(values)}"


async def add(parts: Iterator[bytes], update: Callable[[bytes], None]) -> None:
    """Add bytes to a checksum, two parts at a time on another thread, so that no request waits for a whole object's."""

    def step() -> bool:
        some = list(itertools.islice(parts, 2))
        for part in some:
            update(part)
        return bool(some)

    while await asyncio.to_thread(step):
        pass


def encoded(total: "Hash") -> str:
    """Return a digest in Base64."""
    return base64.b64encode(total.digest()).decode()


def _is_digest(text: str, length: int) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == length
    except (binascii.Error, ValueError):
        return False
