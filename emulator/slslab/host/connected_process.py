"""Run a module in a process of its own, which answers over a connection: `python -m MODULE DESCRIPTOR`."""

import socket
import subprocess
import sys
from multiprocessing.connection import Connection


class ConnectedProcess:
    """The process of a module. It ends when `connection` closes, so also when this process ends."""

    def __init__(self, module: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self.connection = Connection(ours.detach())

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        self._process.kill()
        self._process.wait()
