"""A function's code: a zip archive in the request or in the stack's S3, or a directory of this host.

https://docs.aws.amazon.com/lambda/latest/dg/configuration-function-zip.html
"""

import asyncio
import base64
import csv
import hashlib
import io
import shutil
import stat
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from slslab.aws.errors import invalid
from slslab.aws.limits import Limits

HOT_RELOAD_BUCKET = "hot-reload"
LAYER = "torch"
# What unpacking raises for bytes that are not an archive, or a broken one.
NO_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, RuntimeError)


@dataclass(frozen=True)
class Image:
    """A container image: the name in the request, and the image that had this name in the engine at that time."""

    uri: str
    id: str
    size: int


@dataclass(frozen=True)
class Code:
    """A function's code: a directory, with its size in bytes as Lambda counts it and its SHA-256 (Base64); or an image.

    The `sha256` of an image is its digest.
    """

    directory: Path | None
    size: int
    sha256: str
    image: Image | None = None


class Packages:
    """Unpacked packages below one directory.

    `fetch` returns the body of an object in the stack's S3, given bucket and key; `find_image` a container image by its
    name. `largest_bytes` is the unzipped size of the largest package since it was last set to 0.
    """

    def __init__(
        self, home: Path, limits: Limits, fetch: Callable[[str, str], bytes], find_image: Callable[[str], Image]
    ) -> None:
        self._home = home
        self._limits = limits
        self._fetch = fetch
        self._find_image = find_image
        self._known: set[Path] = set()
        self._held: set[Path | None] = set()
        self.largest_bytes = 0

    def store(self, name: str, code: Mapping[str, Any]) -> Code:
        """Store the code of a request and keep it until its `release`.

        Raises InvalidParameterValueException if the request holds no valid code.
        """
        bucket, key = code.get("S3Bucket"), str(code.get("S3Key", ""))
        if uri := code.get("ImageUri"):
            return self._of_image(str(uri))
        if bucket == HOT_RELOAD_BUCKET:
            return self._local_directory(key)
        if bucket is not None:
            return self._unpack(name, self._fetch(str(bucket), key))
        if "ZipFile" not in code:
            raise invalid(
                "Code needs ZipFile, S3Bucket and S3Key, or S3Bucket 'hot-reload' with the absolute path of a local "
                "directory as S3Key."
            )
        try:
            archive = base64.b64decode(code["ZipFile"], validate=True)
        except ValueError as error:
            raise _not_a_zip() from error
        return self._unpack(name, archive)

    def release(self, code: Code) -> None:
        """Keep the code, which is registered or refused by now, only as long as a function uses it."""
        self._held.discard(code.directory)

    async def remove_unused(self, codes: Iterable[Code]) -> None:
        """Remove the unpacked packages that are none of these codes."""
        unused = self._known - self._held - {code.directory for code in codes}
        self._known -= unused
        for directory in unused:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    def sizes(self) -> dict[str, Any]:
        """Return the bytes of the largest package so far and of the layer that functions share, and the limit."""
        layer, layer_bytes = layer_size() or (None, 0)
        limit = self._limits.unzipped_bytes
        return {
            "unzipped_bytes": self.largest_bytes,
            "layer": layer,
            "layer_bytes": layer_bytes,
            "limit_bytes": limit,
            "needs_container_image": self.largest_bytes + layer_bytes > limit,
        }

    def _of_image(self, uri: str) -> Code:
        image, limit = self._find_image(uri), self._limits.image_bytes
        if image.size > limit:
            raise invalid(f"The image {uri} has {image.size} bytes uncompressed; at most {limit} are allowed.")
        return Code(None, 0, image.id.removeprefix("sha256:"), image)

    def _unpack(self, name: str, archive: bytes) -> Code:
        directory = self._home / f"{name}-{uuid.uuid4().hex[:12]}"
        try:
            with zipfile.ZipFile(io.BytesIO(archive)) as package:
                if package.testzip() is not None or not package.infolist():
                    raise _not_a_zip()
                self._check_size(sum(entry.file_size for entry in package.infolist()))
                _extract(package, directory)
        except NO_ARCHIVE as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise _not_a_zip() from error
        self._held.add(directory)
        self._known.add(directory)
        return Code(directory, len(archive), base64.b64encode(hashlib.sha256(archive).digest()).decode())

    def _local_directory(self, path: str) -> Code:
        directory = Path(path)
        if not directory.is_absolute() or not directory.is_dir():
            raise invalid(f"The code directory {path!r} is not an absolute path of an existing directory.")
        size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
        self._check_size(size)
        return Code(directory, size, HOT_RELOAD_BUCKET)

    def _check_size(self, unzipped_bytes: int) -> None:
        limit = self._limits.unzipped_bytes
        if unzipped_bytes > limit:
            raise invalid(f"Unzipped size must be smaller than {limit} bytes")
        self.largest_bytes = max(self.largest_bytes, unzipped_bytes)


def unpacked(archive: bytes, directory: Path) -> Path:
    """Unpack an archive of our own making into a new directory; raises one of NO_ARCHIVE if it is not an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as package:
        _extract(package, directory)
    return directory


def _extract(package: zipfile.ZipFile, directory: Path) -> None:
    directory.mkdir(parents=True)
    for entry in package.infolist():
        path = Path(package.extract(entry, directory))
        # The environment's user must be able to read it; an executable file stays one.
        executable = path.is_dir() or entry.external_attr >> 16 & stat.S_IXUSR
        path.chmod(0o755 if executable else 0o644)


def layer_size() -> tuple[str, int] | None:
    """Return name with version, and size in bytes, of the package that functions share as a layer: torch, if installed.

    On Lambda a layer counts towards the 250 MB of an unzipped package, and a torch of this size needs a container
    image. Here it is the host's installation: no limit refuses it, so its size is reported instead.
    """
    try:
        layer = distribution(LAYER)
    except PackageNotFoundError:
        return None
    # `layer.files` makes a path of each of 15,000 lines, which takes half a second.
    lines = csv.reader((layer.read_text("RECORD") or "").splitlines())
    return f"{LAYER} {layer.version}", sum(int(size or 0) for _path, _hash, size in lines)


def _not_a_zip() -> Exception:
    return invalid("Could not unzip uploaded file. Please check your file, then try to upload again.")
