"""Entry point of the command `slslab`, and what a signal does to it from its first imports on.

Exit codes: 0 done, 1 the run failed, 2 the request was wrong, 3 the host cannot do it, and 128 and its number for a
signal that ended the command: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP (the terminal was closed).
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
    """Execute a command and exit with its code; a signal ends it in order, without a traceback."""
    ending = _Ending()
    ending.take_signals()
    # Its imports take most of a short command's time.
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
    """The handler of signals that end the command: as long as it holds nothing, at once; else `orderly`, once.

    An orderly end is a KeyboardInterrupt. Signals that follow it do not break it off: a terminal that is closed sends
    SIGHUP, for instance, and whoever closed it SIGTERM.
    """

    def __init__(self) -> None:
        self.orderly = False
        self.number: int | None = None
        self._interrupts = Interrupts()

    def take_signals(self) -> None:
        """Handle them, but for those that are ignored, as SIGHUP is below `nohup`."""
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
        """Interrupt again soon, where nothing can be raised: in a destructor, or a callback of the collector's."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            sys.__unraisablehook__(unraisable)
