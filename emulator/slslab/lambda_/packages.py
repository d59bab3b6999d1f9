"""A function's code: a zip archive in the request or in the stack's S3, or a directory of this host.

https://docs.aws.amazon.com/lambda/latest/dg/configuration-function-zip.html
"""

import asyncio
import base64
import csv
import hashlib
import io
import os
import shutil
import stat
import threading
import uuid
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from slslab.aws.arns import REGION
from slslab.aws.errors import ServiceError, invalid, missing
from slslab.aws.gate import principal
from slslab.aws.keys import Pair
from slslab.aws.limits import Limits
from slslab.host.spawner import open_directory

HOT_RELOAD_BUCKET = "hot-reload"
LAYER = "torch"
# What unpacking raises for anything but a valid archive; IndexError is for an entry without a name, OverflowError for
# an entry with an impossible position.
NO_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, RuntimeError, IndexError, OverflowError)
# assumed: AWS's limit isn't known. Python can't remove folders that are much deeper.
DEEPEST = 256
# assumed: Lambda doesn't unpack others. With bzip2 and LZMA, a few kilobytes may become gigabytes in one step.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# How many packages are read at the same time: each takes the memory of its archive, and a share of the disk's time.
READERS = 4
ARCHIVES, VALID_S = "/slslab/archives", 600


@dataclass(frozen=True)
class Image:
    """A container image: the name in the request, and the image that had this name in the engine at that time."""

    uri: str
    id: str
    size: int


@dataclass(frozen=True)
class Code:
    """A function's code: a directory, with its size in bytes as Lambda counts it and its SHA-256 (Base64); or an image.

    The `sha256` of an image is its digest. `unzipped` is the size of the directory's files, bytes. The `archive`
    is kept, because AWS lets people download it; a directory used in place doesn't have one.
    """

    directory: Path | None
    size: int
    sha256: str
    image: Image | None = None
    unzipped: int = 0
    archive: Path | None = None


class Packages:
    """Unpacked packages below one directory, and directories that are used in place (hot reload) if they are allowed.

    Uploaded archives can be downloaded. Answers give their location as a URL that the `owner` has signed, as AWS does
    with S3. https://docs.aws.amazon.com/lambda/latest/api/API_FunctionCodeLocation.html: it is valid for ten minutes.

    `fetch` returns the body of an object in the stack's S3, given bucket, key, version and the most bytes it may have;
    `find_image` a container image by its name. `largest_bytes` is the unzipped size of the largest package since it was
    last set to 0. Files are read and removed on separate threads, so that large packages don't hold up anything else.
    """

    def __init__(
        self,
        home: Path,
        limits: Limits,
        fetch: Callable[[str, str, str | None, int], bytes],
        find_image: Callable[[str], Image],
        owner: Pair,
    ) -> None:
        self._home = home.resolve()  # environments open code by its real path
        self._limits = limits
        self._fetch = fetch
        self._find_image = find_image
        self._owner = owner
        self._lock = threading.Lock()
        self._known: dict[Path, Path] = {}
        self._held: set[Path | None] = set()
        self._readers = ThreadPoolExecutor(READERS, "package-reader")
        self._remover = ThreadPoolExecutor(1, "package-remover")
        self._roots: list[str] = []
        self.largest_bytes = 0

    def allow(self, root: Path) -> None:
        """Let hot reload use this directory and those below it."""
        self._roots.append(os.path.realpath(root))

    @asynccontextmanager
    async def stored(self, name: str, code: Mapping[str, Any], released: Callable[[], None]) -> AsyncIterator[Code]:
        """Store the code of a request on another thread; release it and call `released` at the block's end."""
        stored = await asyncio.wrap_future(self._readers.submit(self.store, name, code))
        try:
            yield stored
        finally:
            self.release(stored)
            released()

    def store(self, name: str, code: Mapping[str, Any]) -> Code:
        """Store the code of a request and keep it until its `release`.

        Raises InvalidParameterValueException if the request holds no valid code.
        """
        if "ZipFile" in code and code.keys() & {"S3Bucket", "S3Key", "S3ObjectVersion", "ImageUri"}:
            # as users report it
            raise invalid("Please do not provide other FunctionCode parameters when providing a ZipFile.")
        bucket, key = code.get("S3Bucket"), str(code.get("S3Key", ""))
        if uri := code.get("ImageUri"):
            return self._of_image(str(uri))
        if bucket == HOT_RELOAD_BUCKET:
            return self._local_directory(key)
        if bucket is not None:
            if not key:
                raise invalid("Code in an S3 bucket needs S3Bucket and S3Key.")
            version = code.get("S3ObjectVersion")
            return self._unpack(name, self._fetch(str(bucket), key, version, self._limits.unzipped_bytes))
        if "ZipFile" not in code:
            raise invalid(
                "Code needs ZipFile, S3Bucket and S3Key, or S3Bucket 'hot-reload' with the absolute path of a local "
                "directory as S3Key."
            )
        try:
            archive = base64.b64decode(code["ZipFile"], validate=True)
        except ValueError as error:
            raise _not_a_zip() from error
        if len(archive) > self._limits.zipped_bytes:
            # measured: AWS returns its error for too large bodies, though this is another limit.
            raise ServiceError(
                413,
                "RequestEntityTooLargeException",
                f"Zipped size must be smaller than {self._limits.zipped_bytes} bytes",
            )
        return self._unpack(name, archive)

    def release(self, code: Code) -> None:
        """Keep the code only as long as a function uses it; by now it is registered or refused."""
        with self._lock:
            self._held.discard(code.directory)

    def remove_unused(self, codes: Iterable[Code]) -> None:
        """Start to remove all unpacked packages except these codes."""
        with self._lock:
            unused = self._known.keys() - self._held - {code.directory for code in codes}
            archives = [self._known.pop(directory) for directory in unused]
        for archive in archives:
            self._remover.submit(archive.unlink)
        for directory in unused:
            self._remover.submit(shutil.rmtree, directory, ignore_errors=True)

    def route(self) -> Route:
        """Return the route that serves archives; the gate has already verified the URL's signature."""
        return Route(f"{ARCHIVES}/{{name}}", self._read)

    def location(self, code: Code, host: str) -> str:
        """Return where a client that reaches this server as `host` finds a package's archive.

        A directory that is used in place has no archive: its own URL is the answer.
        """
        if code.archive is None:
            assert code.directory is not None
            return code.directory.as_uri()
        import botocore.auth
        import botocore.awsrequest
        import botocore.credentials

        presigned: Any = botocore.awsrequest.AWSRequest("GET", f"http://{host}{ARCHIVES}/{code.archive.name}")
        pair = botocore.credentials.Credentials(self._owner.key_id, self._owner.secret, self._owner.token or None)
        botocore.auth.SigV4QueryAuth(pair, "lambda", REGION, expires=VALID_S).add_auth(presigned)
        return str(presigned.url)

    async def _read(self, request: Request) -> Response:
        # A function can sign such a URL with its own keys.
        principal(request).require("lambda:GetFunction", "*")
        name = request.path_params["name"]
        with self._lock:
            archive = next((archive for archive in self._known.values() if archive.name == name), None)
        if archive is None:
            raise missing(f"There is no archive {name} any more: ask for its location again.")
        return FileResponse(archive, media_type="application/zip")

    def settle(self) -> None:
        """Wait until the packages that are unused now are removed."""
        self._remover.submit(os.getpid).result()

    def close(self) -> None:
        """Wait for all started work."""
        self._readers.shutdown()
        self._remover.shutdown()

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
                entries = package.infolist()
                if not entries or any(entry.compress_type not in METHODS for entry in entries):
                    raise _not_a_zip()
                # No entry is inflated beyond the size that is written here.
                unzipped = sum(entry.file_size for entry in entries)
                self._check_size(unzipped)
                if sum(entry.compress_size for entry in entries) > len(archive):
                    raise _not_a_zip()  # entries overlap, and the same bytes would be inflated many times
                _extract(package, directory)
        except NO_ARCHIVE as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise _not_a_zip() from error
        stored = directory.with_name(f"{directory.name}.zip")
        try:
            stored.write_bytes(archive)
        except OSError as error:
            stored.unlink(missing_ok=True)
            shutil.rmtree(directory, ignore_errors=True)
            raise ServiceError(500, "ServiceException", f"The package cannot be kept: {error}.") from error
        with self._lock:
            self._held.add(directory)
            self._known[directory] = stored
        digest = base64.b64encode(hashlib.sha256(archive).digest()).decode()
        return Code(directory, len(archive), digest, unzipped=unzipped, archive=stored)

    def _local_directory(self, path: str) -> Code:
        """Return the code of a directory below a root, by its real path.

        A function can read its code even if only the emulator's user may, and somebody else may have written it. So
        directories outside are refused without revealing whether they exist.
        """
        wrong = invalid(f"The code directory {path!r} is not an absolute path of an existing directory.")
        if not os.path.isabs(path):
            raise wrong
        try:
            directory = Path(os.path.realpath(path))
        except ValueError as error:  # it contains a NUL byte
            raise wrong from error
        if not any(directory.is_relative_to(root) for root in self._roots):
            raise self._not_allowed(path)
        try:
            size = self._size(directory)
        except (OSError, RecursionError) as error:
            raise wrong from error
        self._check_size(size)
        return Code(directory, size, HOT_RELOAD_BUCKET, unzipped=size)

    def _not_allowed(self, path: str) -> ServiceError:
        if not self._roots:
            return invalid(
                f"The code directory {path!r} is refused: this emulator was given no directory for hot reload. "
                "Name one with `slslab up --code`, or as Emulator(code_roots=[…])."
            )
        return invalid(
            f"The code directory {path!r} is not below a directory that hot reload may use ({', '.join(self._roots)}). "
            f"Start slslab up with --code {path!r}, or there."
        )

    def _size(self, directory: Path) -> int:
        """Return the size of the files in a directory, bytes; stop counting beyond the limit."""
        opened, size = open_directory(str(directory)), 0
        try:
            for _, _, names, folder in os.fwalk(dir_fd=opened):
                for name in names:
                    with suppress(FileNotFoundError):  # its owner may change it meanwhile
                        size += os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
                if size > self._limits.unzipped_bytes:
                    break
        finally:
            os.close(opened)
        return size

    def _check_size(self, unzipped_bytes: int) -> None:
        limit = self._limits.unzipped_bytes
        if unzipped_bytes >= limit:  # measured: the limit itself is refused
            raise invalid(f"Unzipped size must be smaller than {limit} bytes")
        self.largest_bytes = max(self.largest_bytes, unzipped_bytes)


def unpacked(archive: bytes, directory: Path) -> Path:
    """Unpack an archive of our own making into a new directory; raises one of NO_ARCHIVE if it is not an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as package:
        _extract(package, directory)
    return directory


def _extract(package: zipfile.ZipFile, directory: Path) -> None:
    directory.mkdir(parents=True)
    links = []
    for entry in package.infolist():
        if entry.filename.count("/") > DEEPEST:
            raise ValueError(f"an entry is more than {DEEPEST} folders deep")
        path = Path(package.extract(entry, directory))
        if stat.S_ISLNK(entry.external_attr >> 16):
            links.append(path)
            continue
        # The environment's user must be able to read it; an executable file stays one.
        executable = path.is_dir() or entry.external_attr >> 16 & stat.S_IXUSR
        path.chmod(0o755 if executable else 0o644)
    for top, _, _ in os.walk(directory):  # including folders without their own entry
        os.chmod(top, 0o755)
    for path in links:  # last, so that nothing was unpacked through one
        target = path.read_bytes()
        path.unlink()
        os.symlink(target, os.fsencode(path))


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
