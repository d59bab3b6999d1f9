"""Append to a file so that a full disk leaves nothing half written."""

import os


def append(descriptor: int, line: bytes) -> None:
    """Append a line to a file, whole; OSError if that cannot be, and then not at all."""
    written = 0
    try:
        while written < len(line):
            written += os.write(descriptor, line[written:])
    except OSError:
        # The next line must not follow half a line.
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise
