"""Give memory that large requests have left behind back to the host."""

import ctypes
import gc
import threading
import time

import psutil

from slslab.aws.limits import MB

# The process may grow by LITTER_BYTES before it collects garbage. A collection takes 0.1 s or more, during which
# nothing else runs, so it pauses for PAUSES times as long.
LITTER_BYTES, PAUSES = 32 * MB, 20


class Litter:
    """Reference cycles, and free memory that the allocator holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = psutil.Process()
        self._most = self._process.memory_info().rss + LITTER_BYTES
        self._next_s = 0.0

    def collect(self) -> None:
        """Free it if the process has grown by LITTER_BYTES since this object was made."""
        with self._lock:
            began = time.monotonic()
            if began > self._next_s and self._process.memory_info().rss > self._most:
                gc.collect()
                ctypes.CDLL(None).malloc_trim(0)
                ended = time.monotonic()
                self._next_s = ended + PAUSES * (ended - began)
