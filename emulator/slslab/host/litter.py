"""Give back to the host what large requests have left in a process."""

import ctypes
import gc
import os
import threading
import time
from pathlib import Path

from slslab.aws.limits import MB

# What the process may grow by until it looks for garbage. That takes 0.1 s and more, in which nothing else happens, and
# then has a pause of so many times as long.
LITTER_BYTES, PAUSES = 32 * MB, 20


class Litter:
    """Cycles of references, and free memory that the allocator keeps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._most = _resident_bytes() + LITTER_BYTES
        self._next_s = 0.0

    def collect(self) -> None:
        """Give it back to the host if the process has grown by LITTER_BYTES since this object was made."""
        with self._lock:
            began = time.monotonic()
            if began > self._next_s and _resident_bytes() > self._most:
                gc.collect()
                ctypes.CDLL(None).malloc_trim(0)
                ended = time.monotonic()
                self._next_s = ended + PAUSES * (ended - began)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
