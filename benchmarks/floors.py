"""Lower bounds for the in-database comparison: its arithmetic and its data transfer on this host."""

import multiprocessing
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch

from slslab_lab.studies.in_database.measurements import AVERAGE, RATE, UPDATE, Arm, Vector, body

FORK = multiprocessing.get_context("fork")
# Elements: a sum of 512 KB stays in one core's second-level cache while the gradients stream past.
BLOCK = 131_072
LOOPBACK = "loopback"


class Memory:
    """The arithmetic's lower bound: `threads` threads over the same arrays, into memory written before."""

    def __init__(self, name: str, parameters: Vector, gradients: Sequence[Vector], threads: int) -> None:
        out = np.zeros_like(parameters)
        # Read every byte of the gradients once, or of the parameters and a gradient.
        operations = {AVERAGE: partial(self._run, _mean_block), UPDATE: partial(self._run, _step_block)}
        self.arm = Arm(name, operations, lambda: out, exact=True)
        vectors = [torch.from_numpy(vector) for vector in (out, parameters, *gradients)]
        # For each block: the output, the parameters and every gradient.
        self._blocks = list(zip(*(torch.split(vector, BLOCK) for vector in vectors), strict=True))
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def _run(self, work: Callable[[Sequence[torch.Tensor]], object]) -> None:
        def share(number: int) -> None:
            for block in self._blocks[number :: self._threads]:
                work(block)

        list(self._pool.map(share, range(self._threads)))


def _mean_block(block: Sequence[torch.Tensor]) -> None:
    total, _, first, second, *rest = block
    torch.add(first, second, out=total)
    for part in rest:
        total.add_(part)
    total.div_(2 + len(rest))


def _step_block(block: Sequence[torch.Tensor]) -> None:
    out, parameters, gradient, *_ = block
    torch.sub(parameters, gradient, alpha=RATE, out=out)


class Loopback:
    """The transfer's lower bound: vectors over a socket to and from a forked process that does nothing else.

    It forks, so create it before any threads.
    """

    def __init__(self, gradients: Sequence[Vector]) -> None:
        # Receive all gradients' vectors, or two, and send one. Nothing is computed.
        operations = {AVERAGE: partial(self._move, len(gradients)), UPDATE: partial(self._move, 2)}
        self.arm = Arm(LOOPBACK, operations, lambda: None)
        self._buffer = memoryview(bytearray(gradients[0].nbytes))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._process = FORK.Process(target=_serve, args=(listener, gradients), daemon=True)
            self._process.start()
            self._socket = socket.create_connection(listener.getsockname())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the connection, which also ends the other process."""
        self._socket.close()
        self._process.join()

    def _move(self, count: int) -> None:
        self._socket.sendall(struct.pack("!I", count))
        for _ in range(count):
            _receive(self._socket, self._buffer)
        self._socket.sendall(self._buffer)
        if self._socket.recv(1) != b"+":
            raise EOFError("the other end of the loopback connection has gone")


def _serve(listener: socket.socket, vectors: Sequence[Vector]) -> None:
    """Send each requested number of vectors, receive one and confirm it, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # handled by the other end
    buffer = memoryview(bytearray(vectors[0].nbytes))
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while asked := connection.recv(4, socket.MSG_WAITALL):
        for vector in vectors[: struct.unpack("!I", asked)[0]]:
            connection.sendall(body(vector))
        _receive(connection, buffer)
        connection.sendall(b"+")


def _receive(connection: socket.socket, buffer: memoryview) -> None:
    position = 0
    while position < len(buffer):
        received = connection.recv_into(buffer[position:])
        if not received:
            raise EOFError("the other end of the loopback connection has gone")
        position += received
