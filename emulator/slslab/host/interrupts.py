"""Decide where a signal handler may raise: not where the exception would be dropped, or would leave a lock locked."""

from types import FrameType

# Packages of the standard library that take locks in Python. An exception between taking a lock and the block that
# releases it would leave it locked, and the next thread that takes it would wait forever.
LOCKING = frozenset(("concurrent", "contextlib", "importlib", "logging", "multiprocessing", "queue", "threading"))
# File finalizers call these, and Python drops their exceptions (CPython: iobase_finalize in _io/iobase.c).
CLOSING = frozenset(("close", "closed"))


class Interrupts:
    """Decides where the main thread may be interrupted."""

    def __init__(self) -> None:
        self._at: object = None

    def may_raise(self, frame: FrameType | None) -> bool:
        """Return whether a handler may raise in this frame; if not, it asks again soon.

        A thread that is still at the same instruction is waiting, and an exception there only ends the wait.
        """
        at = frame and (frame.f_code, frame.f_lasti)
        waits, self._at = at == self._at, at
        return waits or not _is_delicate(frame)


def _is_delicate(frame: FrameType | None) -> bool:
    if frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in LOCKING:
        return True
    while frame is not None:
        if frame.f_code.co_name in CLOSING:
            return True
        frame = frame.f_back
    return False
