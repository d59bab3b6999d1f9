"""Append to a file so that a full disk never leaves half a line."""

import os


def append(descriptor: int, line: bytes) -> None:
    """Append a whole line to a file; if that fails, append nothing and raise OSError."""
    written = 0
    try:
        while written < len(line):
            written += os.write(descriptor, line[written:])
    except OSError:
        # The next line must not follow half a line.
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise
