"""Start processes that end with the process that started them."""

import shutil
import threading


def tied_to_this_process() -> list[str]:
    """Return a prefix to a command with which the kernel kills it when this process exits.

    It is empty where that is not possible; the reaper kills such processes.
    """
    setpriv = shutil.which("setpriv")
    # The kernel watches the thread that starts the command, and any other may end before the process.
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "KILL"]
