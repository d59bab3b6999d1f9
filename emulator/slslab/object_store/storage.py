"""Store buckets, versions of objects, and bodies: names in memory, bodies above 16 KB in files."""

import itertools
import os
import re
import secrets
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from slslab.object_store.errors import failure

# A file costs about 50 µs more than memory, and a page of the disk.
IN_MEMORY_BYTES = 16 * 1024
# For all bodies together. Further ones go to files.
MEMORY_BYTES = 256 * 1024 * 1024
READ_BYTES = 512 * 1024
NULL = "null"
VERSION_ID = re.compile("[0-9a-f]{32}")
Entry = TypeVar("Entry")


class Piece:
    """Bytes that were stored together, in memory or in a file. The file is removed with the piece's last reference."""

    __slots__ = ("_data", "_path", "_store", "size")

    def __init__(self, store: "Store", size: int, data: bytes | None, path: Path | None) -> None:
        self._store = store
        self._data = data
        self._path = path
        self.size = size
        store.in_memory += 0 if data is None else size

    def __del__(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        else:
            self._store.in_memory -= self.size

    def read(self, start: int, length: int) -> Iterator[bytes]:
        """Yield these bytes in parts of at most READ_BYTES."""
        if self._data is not None:
            yield self._data[start : start + length]
            return
        assert self._path is not None
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while length > 0:
                part = os.pread(descriptor, min(length, READ_BYTES), start)
                if not part:
                    raise OSError(f"{self._path} is {length} bytes too short")
                yield part
                start, length = start + len(part), length - len(part)
        finally:
            os.close(descriptor)


class Slice(NamedTuple):
    """A range of a piece. Bodies share pieces: copies and parts aren't written again."""

    piece: Piece
    start: int
    length: int


Body = tuple[Slice, ...]


def whole(piece: Piece) -> Body:
    """Return one piece as a body."""
    return (Slice(piece, 0, piece.size),)


def cut(body: Body, start: int, length: int) -> Body:
    """Return a range of a body."""
    slices, passed = [], 0
    for piece, offset, size in body:
        first, last = max(start, passed), min(start + length, passed + size)
        if first < last:
            slices.append(Slice(piece, offset + first - passed, last - first))
        passed += size
    return tuple(slices)


def read(body: Body) -> Iterator[bytes]:
    """Yield a body's bytes."""
    for piece, start, length in body:
        yield from piece.read(start, length)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a multipart upload; `checksums` are members of the API, such as ChecksumCRC32."""

    number: int
    etag: str
    size: int
    body: Body
    checksums: Mapping[str, str]
    modified: datetime


@dataclass(slots=True, eq=False)
class Version:
    """A version of an object, or a delete marker.

    `settings` are members of the API that are returned as they were set, such as ContentType. ETags have no quotation
    marks. `upload` is the id of the multipart upload that made it. Newer versions have larger numbers.
    """

    key: str
    id: str
    modified: datetime
    etag: str = ""
    size: int = 0
    body: Body = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    upload: str | None = None
    marker: bool = False
    number: int = 0


@dataclass
class Upload:
    """A multipart upload that hasn't ended.

    `context` has the first request's values for policy conditions. `overtaken` says whether its key has been written or
    deleted since.
    """

    id: str
    key: str
    initiated: datetime
    settings: Mapping[str, Any]
    tags: Mapping[str, str]
    algorithm: str
    checksum_type: str
    context: Mapping[str, str]
    parts: dict[int, Part] = field(default_factory=dict)
    overtaken: bool = False

    @property
    def checksum(self) -> dict[str, str]:
        """Its checksum as members of the API; empty without one."""
        return {"ChecksumAlgorithm": self.algorithm, "ChecksumType": self.checksum_type} if self.algorithm else {}


class Bucket:
    """One bucket. Keys are in the order of their UTF-8 bytes, the same as the order of characters."""

    def __init__(self, name: str, region: str) -> None:
        self.name = name
        self.region = region
        self.created = now()
        self.versioning = ""
        # Uploads by key and id.
        self.uploads: dict[str, dict[str, Upload]] = {}
        # policy and its statements, cors, tags, publicAccessBlock
        self.settings: dict[str, Any] = {}
        # Versions by key and id, newest last.
        self._versions: dict[str, dict[str, Version]] = {}
        # Sorted; a key may have only delete markers.
        self.keys: list[str] = []
        self._numbers = itertools.count(1)

    def current(self, key: str) -> Version | None:
        """Return the newest version of an object; None if it is missing or a delete marker."""
        latest = self.latest(key)
        return None if latest is None or latest.marker else latest

    def latest(self, key: str) -> Version | None:
        """Return the newest version of an object, or its delete marker."""
        versions = self._versions.get(key)
        return None if versions is None else next(reversed(versions.values()))

    def visible(self, key: str) -> list[Version]:
        """Return the current version of an object, or nothing."""
        current = self.current(key)
        return [] if current is None else [current]

    def find(self, key: str, version_id: str) -> Version | None:
        """Return a version of an object, or a delete marker."""
        return self._versions.get(key, {}).get(version_id)

    def completed(self, key: str, upload_id: str) -> Version | None:
        """Return the version made by a multipart upload."""
        return next((version for version in self._versions.get(key, {}).values() if version.upload == upload_id), None)

    def upload(self, key: str, upload_id: str) -> Upload | None:
        """Return a multipart upload of an object."""
        return self.uploads.get(key, {}).get(upload_id)

    def end(self, upload: Upload) -> None:
        """Remove a multipart upload."""
        del self.uploads[upload.key][upload.id]
        if not self.uploads[upload.key]:
            del self.uploads[upload.key]

    def put(self, version: Version) -> None:
        """Add a version; it replaces the null version unless versioning is enabled."""
        self._overtake(version.key)
        version.number = next(self._numbers)
        # The id tells the position: the next page may start after a version that was deleted in between.
        version.id = f"{version.number:012x}{secrets.token_hex(10)}" if self.versioning == "Enabled" else NULL
        if version.key not in self._versions:
            self._versions[version.key] = {}
            insort(self.keys, version.key)
        versions = self._versions[version.key]
        versions.pop(version.id, None)
        versions[version.id] = version

    def delete(self, key: str) -> Version | None:
        """Put and return a delete marker, or remove the object if the bucket was never versioned."""
        if not self.versioning:
            self.remove(key, NULL)
            return None
        marker = Version(key, "", now(), marker=True)
        self.put(marker)
        return marker

    def remove(self, key: str, version_id: str) -> Version | None:
        """Remove one version permanently; return it."""
        versions = self._versions.get(key, {})
        if version_id not in versions:
            return None
        self._overtake(key)
        # `pop` would leave a gap at the end, and `latest` would have to skip all gaps.
        removed = versions.popitem()[1] if version_id == next(reversed(versions)) else versions.pop(version_id)
        if not versions:
            del self._versions[key]
            del self.keys[bisect_left(self.keys, key)]
        return removed

    def _overtake(self, key: str) -> None:
        for upload in self.uploads.get(key, {}).values():
            upload.overtaken = True

    def versions(self, key: str) -> Iterator[Version]:
        """Yield the versions of an object, newest first."""
        return reversed(self._versions.get(key, {}).values())

    def older(self, key: str, version_id: str) -> Iterator[Version]:
        """Yield the versions older than this one, newest first; nothing if the id isn't ours."""
        version = self.find(key, version_id)
        removed = int(version_id[:12], 16) if VERSION_ID.fullmatch(version_id) else 0
        number = removed if version is None else version.number
        return itertools.dropwhile(lambda other: other.number >= number, self.versions(key))


def named(
    keys: Sequence[str], prefix: str, delimiter: str, after: str, entries: Callable[[str], Iterable[Entry]]
) -> Iterator[Entry | str]:
    """Yield the entries of keys with a prefix after a name, and a common prefix for all keys with the delimiter."""
    index = max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0)
    while index < len(keys) and (key := keys[index]).startswith(prefix):
        index += 1
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        if end < 0:
            yield from entries(key)
            continue
        group = key[: end + len(delimiter)]
        if group <= after:
            index = _end_of(keys, group, index)
        elif any(entries(key)):
            yield group
            index = _end_of(keys, group, index)


def first_page(entries: Iterable[Entry], limit: int) -> tuple[list[Entry], bool]:
    """Return at most `limit` entries, and whether there are more; never after an empty page."""
    page = list(itertools.islice(entries, limit + 1))
    return page[:limit], len(page) > limit > 0


def _end_of(keys: Sequence[str], prefix: str, index: int) -> int:
    return bisect_left(keys, True, index, key=lambda key: not key.startswith(prefix))


def now() -> datetime:
    """Return the time in S3's resolution, whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


class Store:
    """All buckets, with the bodies of objects in files of the directory `path`, which no other program uses.

    `in_memory` is the size of the bodies in memory, bytes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count()
        self.in_memory = 0
        self.buckets: dict[str, Bucket] = {}

    def new_file(self) -> Path:
        """Return the path of a new file."""
        return self._path / str(next(self._numbers))

    def bucket(self, name: str) -> Bucket:
        """Return a bucket; NoSuchBucket if it doesn't exist."""
        found = self.buckets.get(name)
        if found is None:
            raise failure("NoSuchBucket", BucketName=name)
        return found
