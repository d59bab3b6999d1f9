"""Server processes: how they are waited for, tried again and stopped."""

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from slslab.errors import HostError
from slslab.host.output import PipeReader, TraceLines
from slslab.host.server_process import ATTEMPTS, ServerProcess, free_port, listening_socket
from slslab_workers.trace.event import Event


class Server(ServerProcess):
    """A Python program as a server, ready when the file that it writes exists."""

    title = "The server"
    hint = "look at it."
    port_taken = "port taken"
    starts = 0

    def __init__(self, program: str, directory: Path, limit_s: float = 20.0) -> None:
        super().__init__({"MARK": "here"})
        self._program = program
        self._directory = directory
        self._limit_s = limit_s

    def _start(self) -> None:
        self.starts += 1
        self._undo.callback(lambda: (self._directory / "undone").write_text(str(self.pid)))
        self._launch([sys.executable, "-c", self._program], {}, self._directory)
        self._wait((self._directory / "ready").exists, self._limit_s)


# The file appears with its text in it.
READY = """
import os, pathlib, time
pathlib.Path("writing").write_text(os.environ["MARK"])
os.rename("writing", "ready")
time.sleep(600)
"""


def test_a_server_runs_until_its_context_ends(tmp_path: Path) -> None:
    with Server(READY, tmp_path) as server:
        process = psutil.Process(server.pid)
        assert (tmp_path / "ready").read_text() == "here"
    # What the start registered was undone while the server still ran.
    assert (tmp_path / "undone").read_text() == str(process.pid)
    assert not process.is_running()
    with pytest.raises(AssertionError):
        _ = server.pid


def test_settling_hands_on_what_was_written_before_and_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the thread that reads it is late."""
    late, read = threading.Event(), PipeReader._read
    monkeypatch.setattr(PipeReader, "_read", lambda trace: late.wait() and read(trace))
    seen: list[int] = []
    trace = PipeReader("server", TraceLines("server", lambda event: seen.append(event["start_ns"])).feed)

    def write(number: int) -> None:
        record = Event(op="wait", phase="wait", start_ns=number, end_ns=number).record()
        os.write(trace.writing, json.dumps(record).encode() + b"\n")

    write(1)
    write(2)
    trace.settle()
    assert seen == [1, 2]
    late.set()
    write(3)
    os.close(trace.writing)
    trace.join()
    trace.settle()
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(("words", "starts"), [("disk full", 1), ("port taken", ATTEMPTS)])
def test_one_that_exits_is_an_error_at_once_and_tried_again_only_for_a_port(
    tmp_path: Path, words: str, starts: int
) -> None:
    server = Server(f"print('x' * 1000, {words!r}); raise SystemExit(1)", tmp_path)
    begun = time.monotonic()
    with pytest.raises(HostError, match=rf"^The server did not start: x+ {words}\.\n") as raised:
        server.__enter__()
    assert time.monotonic() - begun < 20
    assert len(raised.value.message) < 600
    assert server.starts == starts


def test_one_that_is_not_ready_in_time_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="did not start: it printed nothing"):
        Server("import time; time.sleep(600)", tmp_path, limit_s=0.1).__enter__()
    assert not psutil.pid_exists(int((tmp_path / "undone").read_text()))


def test_an_interrupted_start_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(READY, tmp_path)

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "_wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        server.__enter__()
    assert not psutil.pid_exists(int((tmp_path / "undone").read_text()))


def test_free_ports_are_none_that_connections_get() -> None:
    ports = [free_port() for _ in range(8)]
    with socket.socket() as listener, ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        clients = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(100)]
        assert max(ports) < min(client.getsockname()[1] for client in clients)


def test_a_server_gets_no_more_memory_than_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "memory_mb", 200)
    # The first is below the limit, with the interpreter's own memory; the second would be above it.
    program = "kept = bytearray(100 << 20)\ntry:\n    bytearray(150 << 20)\nexcept MemoryError:\n"
    with Server(program + "".join(f"    {line}\n" for line in READY.splitlines()), tmp_path):
        assert (tmp_path / "ready").exists()


def test_how_a_server_has_ended_is_known(tmp_path: Path) -> None:
    with Server(READY, tmp_path) as server:
        assert server.end() is None
        os.kill(server.pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while server.end() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.end() == "killed by SIGKILL"
    assert server.end() is None


def test_an_address_that_is_taken_is_an_error_with_a_hint() -> None:
    first = listening_socket("127.0.0.1", 0)
    port = first.getsockname()[1]
    name = f"{psutil.Process().name()} (process {os.getpid()})"
    with pytest.raises(HostError, match=re.escape(f"The port {port} is taken by {name}.")) as error:
        listening_socket("127.0.0.1", port, "--s3-port")
    assert error.value.hint == "stop it, or choose another with --s3-port, or 0 for any free one."
    with pytest.raises(HostError, match=r"The address 192\.0\.2\.1:0 cannot be bound") as error:
        listening_socket("192.0.2.1", 0)
    assert error.value.hint == "choose another with --port, or 0 for any free one."
    first.close()
