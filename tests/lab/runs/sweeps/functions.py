"""What the tests of sweeps compute: worker processes import it from here."""

import os
import signal
import time
from pathlib import Path

from slslab.errors import RequestError

# Longer than what is not worth keeping.
SLOW_S = 0.004
# Until a second process has started, on a busy host.
SECOND_S = 30


def square(number: int) -> int:
    return number * number


def process(folder: Path, _number: int) -> int:
    """The process that computes, once another one does, too."""
    (folder / f"{os.getpid()}").touch()
    end = time.monotonic() + SECOND_S
    while len(list(folder.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(SLOW_S)
    return os.getpid()


def killed_at_five(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def refuse_three(number: int) -> int:
    if number == 3:
        raise RequestError("Three is refused.", "give four.")
    return number


def noted(folder: Path, number: int) -> int:
    """The square; a file for each time that it is computed."""
    time.sleep(SLOW_S)
    with (folder / f"{number}.txt").open("a") as file:
        file.write("computed\n")
    return square(number)


def interrupted_at_five(folder: Path, number: int) -> int:
    if number == 5:
        raise KeyboardInterrupt
    return noted(folder, number)
