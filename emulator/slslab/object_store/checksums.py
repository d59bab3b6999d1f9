"""Verify, store and return the checksums of S3 that clients send.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
"""

import asyncio
import base64
import binascii
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from botocore.compat import HAS_CRT
from botocore.httpchecksum import (
    BaseChecksum,
    Crc32Checksum,
    CrtCrc32cChecksum,
    CrtCrc64NvmeChecksum,
    Sha1Checksum,
    Sha256Checksum,
)

from slslab.installation import lacking
from slslab.object_store.errors import failure, refusal

# By their names in the members of the API, such as ChecksumCRC32.
ALGORITHMS: Mapping[str, type[BaseChecksum]] = {
    "CRC32": Crc32Checksum,
    "CRC32C": CrtCrc32cChecksum,
    "CRC64NVME": CrtCrc64NvmeChecksum,
    "SHA1": Sha1Checksum,
    "SHA256": Sha256Checksum,
}
FULL, COMPOSITE = "FULL_OBJECT", "COMPOSITE"
# documented: checking-object-integrity.html: the types for multipart uploads. The first is the default.
KINDS = {
    "CRC32": (COMPOSITE, FULL),
    "CRC32C": (COMPOSITE, FULL),
    "CRC64NVME": (FULL,),
    "SHA1": (COMPOSITE,),
    "SHA256": (COMPOSITE,),
}


def new(algorithm: str) -> BaseChecksum:
    """Return an empty checksum; InvalidRequest for an unknown algorithm, NotImplemented for one that needs awscrt."""
    if algorithm not in ALGORITHMS:
        raise failure("InvalidRequest", f"Checksum algorithm provided is unsupported: {algorithm}.")
    if algorithm in ("CRC32C", "CRC64NVME") and not HAS_CRT:
        # In pure Python a gradient would take seconds.
        raise refusal(
            f"the checksum {algorithm} without the package awscrt",
            f"{lacking('awscrt').hint}, or choose CRC32, SHA1 or SHA256.",
        )
    return ALGORITHMS[algorithm]()


def given(members: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums in a request; InvalidRequest for a malformed one."""
    found = {name: members[f"Checksum{name}"] for name in ALGORITHMS if f"Checksum{name}" in members}
    if len(found) > 1:
        raise failure(
            "InvalidRequest", "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
        )
    for name, value in found.items():
        if not _is_digest(value, len(ALGORITHMS[name]().digest())):
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
    return f"{total.b64digest()}-{len(values)}"


async def add(parts: Iterator[bytes], update: Callable[[bytes], None]) -> None:
    """Add bytes to a checksum, two parts at a time on another thread, so that no request waits for a whole object's."""

    def step() -> bool:
        some = list(itertools.islice(parts, 2))
        for part in some:
            update(part)
        return bool(some)

    while await asyncio.to_thread(step):
        pass


def _is_digest(text: str, length: int) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == length
    except (binascii.Error, ValueError):
        return False
