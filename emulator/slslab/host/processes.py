"""Tie child processes to this process's end, wait for theirs, and raise the limit of open files."""

import asyncio
import os
import resource
import shutil
import threading

DESCRIPTORS = 65_536


def tied_to_this_process() -> list[str]:
    """Return a command prefix that makes the kernel kill the command when this process exits.

    The prefix is empty where that isn't possible; the reaper kills such processes.
    """
    setpriv = shutil.which("setpriv")
    # The kernel watches the thread that starts the command; any thread but the main one may end before the process.
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "KILL"]


async def ended(process: int) -> None:
    """Wait until the process of a pidfd has ended, and close the pidfd."""
    loop, happened = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(process, happened.set)
    try:
        await happened.wait()
    finally:
        loop.remove_reader(process)
        os.close(process)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files: an environment needs a dozen in this process, so 1,024 run out soon."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
