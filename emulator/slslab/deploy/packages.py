"""Zip archives of a template's folders, the same bytes for the same files."""

import io
import os
import stat
import zipfile
from pathlib import Path

# The first time that a zip archive can have.
EPOCH = (1980, 1, 1, 0, 0, 0)


def archive_of(path: Path) -> bytes:
    """Return the archive of a folder, of one file, or of what is an archive already."""
    if path.is_file() and zipfile.is_zipfile(path):
        return path.read_bytes()
    files = [path] if path.is_file() else sorted(found for found in path.rglob("*") if found.is_file())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            if "__pycache__" in file.parts:
                continue
            entry = zipfile.ZipInfo(file.name if path.is_file() else file.relative_to(path).as_posix(), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            executable = os.access(file, os.X_OK)
            entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            archive.writestr(entry, file.read_bytes())
    return buffer.getvalue()


def inline(source: str) -> bytes:
    """Return the archive of code that stands in the template; documented: its file is index.py."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("index.py", EPOCH), source)
    return buffer.getvalue()
