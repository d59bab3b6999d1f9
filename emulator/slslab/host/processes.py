"""What a process of ours gives to those that it starts: their end with its own, and a limit of open files."""

import resource
import shutil
import threading

DESCRIPTORS = 65_536


def tied_to_this_process() -> list[str]:
    """Return a prefix to a command with which the kernel kills it when this process exits.

    It is empty where that is not possible; the reaper kills such processes.
    """
    setpriv = shutil.which("setpriv")
    # The kernel watches the thread that starts the command, and any other may end before the process.
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "KILL"]


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files: an environment takes a dozen of its host's process, 1,024 are soon gone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
