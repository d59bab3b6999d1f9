"""Run the command `slslab`, and handle signals from its first imports on.

Exit codes: 0 done, 1 the run failed, 2 the request was wrong, 3 the host can't do it. If a signal stopped the command,
the code is 128 plus its number: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP (the terminal was closed).
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

from slslab.host.interrupts import Interrupts

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_S = 0.01


def main(arguments: Sequence[str] | None = None) -> None:
    """Execute a command and exit with its code; a signal makes it clean up and exit without a traceback."""
    ending = _Ending()
    ending.take_signals()
    # These imports take most of a short command's time.
    from slslab.cli.root import execute

    try:
        ending.orderly = True
        code = execute(arguments)
        ending.orderly = False
    except KeyboardInterrupt:
        ending.orderly = False
        code = 128 + (ending.number or signal.SIGINT)
    sys.exit(code)


class _Ending:
    """Handles signals that stop the command: exits at once, or raises one KeyboardInterrupt while `orderly` is true.

    More signals don't interrupt an orderly end. For instance, a terminal that is closed sends SIGHUP, and the program
    that closed it may send SIGTERM.
    """

    def __init__(self) -> None:
        self.orderly = False
        self.number: int | None = None
        self._interrupts = Interrupts()

    def take_signals(self) -> None:
        """Handle these signals, except ignored ones (`nohup` ignores SIGHUP)."""
        for number in ENDINGS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._end)
        signal.signal(signal.SIGALRM, self._interrupt)
        sys.unraisablehook = self._lost

    def _end(self, number: int, frame: FrameType | None) -> None:
        if not self.orderly:
            os._exit(128 + number)
        if self.number is None:
            self.number = number
            self._interrupt(number, frame)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        if not self.orderly:
            return
        if self._interrupts.may_raise(frame):
            raise KeyboardInterrupt(signal.Signals(self.number or signal.SIGINT).name)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)

    def _lost(self, unraisable: "UnraisableHookArgs") -> None:
        """Retry the interrupt soon if it was lost in a destructor or a garbage collector's callback."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            sys.__unraisablehook__(unraisable)
