"""Zip archives of a template's folders, the same bytes for the same files."""

import io
import itertools
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

from slslab.aws.limits import lambda_limits
from slslab.errors import RequestError

# The earliest time that a zip archive can contain.
EPOCH = (1980, 1, 1, 0, 0, 0)
# Files there are views of the host, some without an end.
VIEWS = ("/dev", "/proc", "/sys")
HINT = "name a file or a folder next to the template."


def content_of(folder: Path, name: str, *, code: bool) -> bytes:
    """Return the content of a text file in `folder`, or the archive of a folder or file of code.

    A file that is an archive already is returned as it is. RequestError if it doesn't exist, can't be read, isn't text,
    or is larger than Lambda unzips.
    """
    path = folder / name
    try:
        if not path.is_file() and not (code and path.is_dir()):
            raise RequestError(f"there is no {'folder or file' if code else 'file'} {name}.", HINT)
        _check(path, name)
        if code and not (path.is_file() and zipfile.is_zipfile(path)):
            return _zipped(path)
        content = path.read_bytes()
        if not code:
            content.decode()  # ValueError unless it is text
        return content
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name or its content isn't text"
        raise RequestError(f"{name[:80]!r} cannot be read: {reason}.", HINT) from error


def inline(source: str) -> bytes:
    """Return the archive of code inside the template; documented: its file is index.py."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("index.py", EPOCH), source)
    return buffer.getvalue()


def _check(path: Path, name: str) -> None:
    most, size = lambda_limits().unzipped_bytes, 0
    for file in itertools.chain([path], _files(path)):
        if any(file.resolve().is_relative_to(view) for view in VIEWS):
            raise RequestError(f"{file if file != path else name} is a view of this host, not a file.", HINT)
        size += file.stat().st_size
        if size > most:
            raise RequestError(f"{name} has more than {most:,} bytes, the most that Lambda unzips.", HINT)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path, onerror=_raise):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (found for found in (Path(folder) / name for name in sorted(names)) if found.is_file())


def _raise(error: OSError) -> None:
    raise error


def _zipped(path: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in _files(path):
            entry = zipfile.ZipInfo(file.name if path.is_file() else file.relative_to(path).as_posix(), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            executable = os.access(file, os.X_OK)
            entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            archive.writestr(entry, file.read_bytes())
    return buffer.getvalue()
