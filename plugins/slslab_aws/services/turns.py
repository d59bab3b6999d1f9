"""Requests take turns at moto's tables. A request that computes for too long is ended, since all others wait for it."""

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# assumed: users' requests take less. Processor time, so that a busy host doesn't end any.
LIMIT_S = 2.0
LOOK_S = 0.25
# End it again after this time, in case moto caught the exception.
AGAIN_S = 1.0
_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)


class Overdue(BaseException):
    """Ends a request. Not an Exception, since moto catches many of those."""


class Turns:
    """Watches which thread has the lock of a condition. A wait for the condition itself takes no processor time."""

    def __init__(self, condition: threading.Condition) -> None:
        self._condition = condition
        self._mutex = threading.Lock()
        self._thread: int | None = None
        self._end_s = 0.0
        threading.Thread(target=self._watch, name="turns", daemon=True).start()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the lock in the block; raise Overdue inside it after LIMIT_S of processor time."""
        with self._condition:
            thread = threading.get_ident()
            with self._mutex:
                self._thread, self._end_s = thread, _processor_s(thread) + LIMIT_S
            try:
                yield
            finally:
                with self._mutex:
                    self._thread = None

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._mutex:
                if self._thread is not None and _processor_s(self._thread) > self._end_s:
                    _raise_in(self._thread, Overdue)
                    self._end_s += AGAIN_S


def _processor_s(thread: int) -> float:
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
