"""The end of a server's process: by a signal, or with the process that started it."""

import os
import signal
import threading

ENDINGS = (signal.SIGINT, signal.SIGTERM)


def block_endings() -> None:
    """Keep the signals pending for `wait_for_end`; called before there are threads, which inherit it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)


def wait_for_end(*, tied: bool) -> None:
    """Wait for a signal or, if `tied`, for the end of standard input: the parent's, in whatever way it ends."""
    if tied:
        threading.Thread(target=_end_with_input, name="tie", daemon=True).start()
    signal.sigwait(ENDINGS)


def _end_with_input() -> None:
    # Not by sys.stdin: the interpreter's end would wait a second for a thread that reads it.
    while os.read(0, 65_536):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
