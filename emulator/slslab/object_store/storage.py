"""Buckets, the versions of their objects, and bodies: names are in memory, bodies of more than 16 KB in files."""

import itertools
import os
import secrets
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from slslab.object_store.errors import failure

# A file takes about 50 µs more than memory, and a page of the disk.
IN_MEMORY_BYTES = 16 * 1024
# All bodies in memory together; further ones are in files.
MEMORY_BYTES = 256 * 1024 * 1024
READ_BYTES = 512 * 1024
NULL = "null"


class Folder:
    """The directory of bodies, which is this server's alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count()
        self.in_memory = 0

    def new(self) -> Path:
        """Return the path of a new file."""
        return self._path / str(next(self._numbers))


class Piece:
    """Bytes that were stored together, in memory or in a file, which goes with the last reference to them."""

    __slots__ = ("_data", "_folder", "_path", "size")

    def __init__(self, folder: Folder, size: int, data: bytes | None, path: Path | None) -> None:
        self._folder = folder
        self._data = data
        self._path = path
        self.size = size
        folder.in_memory += 0 if data is None else size

    def __del__(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        else:
            self._folder.in_memory -= self.size

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
    """A part of a piece: bodies share pieces, so that copies and parts need not be written again."""

    piece: Piece
    start: int
    length: int


Body = tuple[Slice, ...]


def whole(piece: Piece) -> Body:
    """Return the body that is one piece."""
    return (Slice(piece, 0, piece.size),)


def cut(body: Body, start: int, length: int) -> Body:
    """Return a range of a body."""
    slices, place = [], 0
    for piece, offset, size in body:
        first, last = max(start, place), min(start + length, place + size)
        if first < last:
            slices.append(Slice(piece, offset + first - place, last - first))
        place += size
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

    `settings` are the members of the API that come back as they were given, such as ContentType. ETags are without
    quotation marks. `upload` is the id of the multipart upload that made it.
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


@dataclass
class Upload:
    """A multipart upload that has not ended.

    `context` is what conditions of policies may ask of its beginning; `overtaken` is whether its key has been written
    or deleted since.
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


class Bucket:
    """One bucket: its keys in the order of their UTF-8 bytes, which is that of their characters."""

    def __init__(self, name: str, region: str) -> None:
        self.name = name
        self.region = region
        self.created = now()
        self.versioning = ""
        self.uploads: dict[str, Upload] = {}
        # The bucket's own settings: policy, cors, tags, publicAccessBlock.
        self.settings: dict[str, Any] = {}
        self._versions: dict[str, list[Version]] = {}
        self._keys: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether it has no version of any object, and no delete marker."""
        return not self._versions

    def current(self, key: str) -> Version | None:
        """Return the newest version of an object; None if there is none, or a delete marker."""
        versions = self._versions.get(key)
        return None if versions is None or versions[-1].marker else versions[-1]

    def latest(self, key: str) -> Version | None:
        """Return the newest version of an object, or its delete marker."""
        versions = self._versions.get(key)
        return None if versions is None else versions[-1]

    def find(self, key: str, version_id: str) -> Version | None:
        """Return a version of an object, or a delete marker."""
        return next((version for version in self._versions.get(key, ()) if version.id == version_id), None)

    def completed(self, key: str, upload_id: str) -> Version | None:
        """Return the version of an object that a multipart upload has made."""
        return next((version for version in self._versions.get(key, ()) if version.upload == upload_id), None)

    def put(self, version: Version) -> None:
        """Add a version, which replaces the null version if the bucket is not versioned."""
        self._overtake(version.key)
        version.id = secrets.token_urlsafe(24) if self.versioning == "Enabled" else NULL
        versions = self._versions.get(version.key)
        if versions is None:
            self._versions[version.key] = [version]
            insort(self._keys, version.key)
            return
        if version.id == NULL:
            versions[:] = [other for other in versions if other.id != NULL]
        versions.append(version)

    def delete(self, key: str) -> Version | None:
        """Delete an object: put a delete marker, which is returned, or remove it if the bucket is not versioned."""
        if not self.versioning:
            self.remove(key, NULL)
            return None
        marker = Version(key, "", now(), marker=True)
        self.put(marker)
        return marker

    def remove(self, key: str, version_id: str) -> Version | None:
        """Remove one version for good; returns it."""
        removed = self.find(key, version_id)
        if removed is not None:
            self._overtake(key)
            versions = self._versions[key]
            versions.remove(removed)
            if not versions:
                del self._versions[key]
                del self._keys[bisect_left(self._keys, key)]
        return removed

    def _overtake(self, key: str) -> None:
        for upload in self.uploads.values():
            upload.overtaken = upload.overtaken or upload.key == key

    def walk(self, prefix: str, delimiter: str, after: str, limit: int) -> tuple[list[str], list[str], bool]:
        """Return the keys and common prefixes after a name, at most `limit`, and whether there are more."""
        keys: list[str] = []
        groups: list[str] = []
        for name, is_group in names(self._keys, prefix, delimiter, after, lambda key: self.current(key) is not None):
            if len(keys) + len(groups) == limit:
                return keys, groups, limit > 0
            (groups if is_group else keys).append(name)
        return keys, groups, False

    def walk_versions(
        self, prefix: str, delimiter: str, after: tuple[str, str], limit: int
    ) -> tuple[list[tuple[Version, bool]], list[str], bool]:
        """Return versions, newest first, each with whether it is the latest, common prefixes, and if there are more.

        They are after a key and, if it is not empty, a version of it.
        """
        found: list[tuple[Version, bool]] = []
        groups: list[str] = []
        key_marker, version_marker = after
        rest = self._older(key_marker, version_marker) if version_marker else []
        following = names(self._keys, prefix, delimiter, key_marker, lambda _: True)
        for name, is_group in itertools.chain([(key_marker, False)] if rest else [], following):
            entries = rest if rest and name == key_marker else self._versions.get(name, [])[::-1]
            for version in [None] if is_group else entries:
                if len(found) + len(groups) == limit:
                    return found, groups, limit > 0
                if version is None:
                    groups.append(name)
                else:
                    found.append((version, version is self._versions[name][-1]))
        return found, groups, False

    def _older(self, key: str, version_id: str) -> list[Version]:
        """Return what is older than a version of an object, newest first."""
        versions = self._versions.get(key, [])[::-1]
        places = [place for place, version in enumerate(versions) if version.id == version_id]
        return versions[places[0] + 1 :] if places else []


def names(
    keys: Sequence[str], prefix: str, delimiter: str, after: str, visible: Callable[[str], bool]
) -> Iterator[tuple[str, bool]]:
    """Yield the visible keys with a prefix after a name, and the common prefixes of those with a delimiter."""
    place = max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0)
    while place < len(keys) and (key := keys[place]).startswith(prefix):
        place += 1
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        if end < 0:
            if visible(key):
                yield key, False
            continue
        group = key[: end + len(delimiter)]
        if group <= after:
            place = _end_of(keys, group, place)
        elif visible(key):
            yield group, True
            place = _end_of(keys, group, place)


def _end_of(keys: Sequence[str], prefix: str, place: int) -> int:
    """Return the place after the last key with a prefix."""
    return bisect_left(keys, True, place, key=lambda key: not key.startswith(prefix))


def now() -> datetime:
    """Return the time as S3 keeps it, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


class Store:
    """All buckets."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.buckets: dict[str, Bucket] = {}

    def bucket(self, name: str) -> Bucket:
        """Return a bucket; NoSuchBucket if there is none."""
        found = self.buckets.get(name)
        if found is None:
            raise failure("NoSuchBucket", BucketName=name)
        return found
