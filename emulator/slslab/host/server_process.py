"""Run servers as child processes, at once or with their first request: start them, wait for them, report why one didn't
start, and stop them."""

import errno
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import psutil

from slslab.aws.keys import Keyring
from slslab.aws.limits import MB
from slslab.errors import HostError
from slslab.host.output import PipeReader, TraceLines
from slslab.host.priority import weigh_session
from slslab.host.processes import tied_to_this_process
from slslab.host.service_process import KEYS_VARIABLE

# The user's settings for AWS itself, and proxies, which don't lead to this host.
FOREIGN = re.compile(r"AWS_.*|SLSLAB_.*|.*_proxy", re.IGNORECASE)
NO_FILES = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}


def without_foreign(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for one of our programs: without the user's settings for AWS, slslab and proxies."""
    return {name: value for name, value in variables.items() if not FOREIGN.fullmatch(name)} | NO_FILES


ATTEMPTS = 3
END_LIMIT_S = 30.0
TAIL_CHARACTERS = 500
FIRST_PORT, LEAST_PORTS = 15_000, 1_000
# assumed: a server that stores users' data may use this share of the host's memory, so that the rest is left for
# functions. measured by benchmarks/object_store.py: the S3 server uses 105 MB while 16 clients put and get objects of
# 45 MB.
MEMORY_SHARE = 0.5


class NotReadyError(Exception):
    """A server has exited, or the limit has passed, before it was ready."""


class ServerProcess:
    """A server in a child process that ends with this one; a context manager.

    `on_event` receives the records that a module of ours writes to the descriptor named by SLSLAB_TRACE_FD, in a thread
    of its own.

    A subclass starts the server in `_start`, and sets `title`, and a better `hint`, for the error if that fails. The
    directory `_data` is removed after the server's end. If the server prints `port_taken`, another process has bound
    its port meanwhile, and the start is repeated with another port. Any interruption of the start, even Ctrl-C, stops
    the server.
    """

    title: str
    hint = "run `slslab doctor`; too little memory is the usual cause."
    port_taken = ""
    _data: Path | None = None

    def __init__(
        self, environment: Mapping[str, str], on_event: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self._environment = environment
        self._on_event = on_event
        self._process: subprocess.Popen[bytes] | None = None
        self._trace: PipeReader | None = None

    @property
    def pid(self) -> int:
        """The process id; an AssertionError if the server doesn't run."""
        return self._running.pid

    @property
    def memory_mb(self) -> int:
        """The memory that each of the server's processes may use, MB: half of the host's."""
        return int(psutil.virtual_memory().total * MEMORY_SHARE) // MB

    def end(self) -> str | None:
        """Return how the server ended by itself, such as "killed by SIGKILL"; None if it runs or hasn't started."""
        process = self._process
        if process is None:
            return None
        # Leaves the status for `_stop`.
        status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if status is None:
            return None
        if status.si_code == os.CLD_EXITED:
            return f"exit status {status.si_status}"
        return f"killed by {signal.Signals(status.si_status).name}"

    def settle(self) -> None:
        """Pass on all trace records that the server has written so far."""
        if self._trace is not None:
            self._trace.settle()

    def obituary(self, how: str) -> str:
        """Return a sentence about its end (`how`, from `end`), with the last words of its output."""
        words = " ".join(self._reason(self.output()).split())
        return (
            f"{self.title} ended ({how}; it may take {self.memory_mb:,} MB of memory){': ' * bool(words)}{words}. "
            "To restart it, run `slslab down` and `slslab up`."
        )

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def __enter__(self) -> Self:
        for _ in range(ATTEMPTS):
            with ExitStack() as self._undo:
                self._log = self._undo.enter_context(tempfile.TemporaryFile())
                self._undo.callback(self._stop)
                with suppress(NotReadyError):
                    self._start()
                    self._undo = self._undo.pop_all()
                    return self
                output = self.output()
            if not self.port_taken or self.port_taken not in output:
                break
        raise self._did_not_start(output)

    def __exit__(self, *_error: object) -> None:
        self._undo.close()

    def _start(self) -> None:
        """Launch the server and wait until it is ready, or raise NotReadyError.

        Whatever is registered on `_undo` is undone before the server is stopped.
        """
        raise NotImplementedError

    def _launch(self, command: Sequence[str], variables: Mapping[str, str], directory: Path) -> None:
        """Launch a program in a directory with these environment variables. It ends by a kill; its data isn't kept."""
        self._popen([*tied_to_this_process(), *command], variables, stdin=subprocess.DEVNULL, cwd=directory)

    def _launch_service(
        self,
        module: str,
        listener: socket.socket,
        keys: Keyring,
        options: Mapping[str, Any],
        variables: Mapping[str, str] = MappingProxyType({}),
        *,
        inherited: Sequence[int | None] = (),
    ) -> None:
        """Launch a module that calls `serve_child`; its service gets this socket, these keys and these options."""
        given = json.dumps({"listener": listener.fileno(), **options})
        variables = {**without_foreign(os.environ), KEYS_VARIABLE: keys.text(), **variables}
        self._launch_module(module, [given], variables, inherited=[listener.fileno(), *inherited])

    def _launch_module(
        self,
        module: str,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        *,
        inherited: Sequence[int | None] = (),
    ) -> None:
        """Launch a module of this package that ends when its standard input closes, and reports on standard output.

        The module also gets the descriptors in `inherited` that aren't None.
        """
        trace = None
        if self._on_event is not None:
            self._trace = PipeReader(f"trace of {module}", TraceLines(module, self._on_event).feed)
            trace = self._trace.writing
        # This process may itself have a trace descriptor.
        variables = {name: value for name, value in variables.items() if name != "SLSLAB_TRACE_FD"}
        if trace is not None:
            variables["SLSLAB_TRACE_FD"] = str(trace)
        try:
            self._popen(
                [sys.executable, "-P", "-m", module, *arguments],
                variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[descriptor for descriptor in (*inherited, trace) if descriptor is not None],
            )
        finally:
            if trace is not None:
                os.close(trace)

    def _popen(self, command: Sequence[str], variables: Mapping[str, str], **options: Any) -> None:
        # In a session of its own, so that Ctrl-C in the terminal reaches only this process.
        settings: dict[str, Any] = {
            "stdout": self._log,
            "stderr": self._log,
            "env": {**variables, **self._environment},
            **options,
        }
        self._process = subprocess.Popen(command, start_new_session=True, **settings)
        weigh_session(self._process.pid)
        resource.prlimit(self._process.pid, resource.RLIMIT_DATA, (self.memory_mb * MB,) * 2)

    def _wait(self, ready: Callable[[], object], limit_s: float, source: int | None = None) -> None:
        """Wait until `ready` returns something true; NotReadyError if the process exits instead, or the limit passes.

        `ready` is called when the descriptor `source` becomes readable, or without one every 20 ms, for a server that
        must be polled.
        """
        deadline = time.monotonic() + limit_s
        exited, poll = os.pidfd_open(self.pid), select.poll()
        try:
            for descriptor in (exited, *(() if source is None else (source,))):
                poll.register(descriptor, select.POLLIN)
            while (left := deadline - time.monotonic()) > 0:
                happened = dict(poll.poll(20 if source is None else 1000 * left))
                if (source is None or source in happened) and ready():
                    return
                if exited in happened:
                    break
            raise NotReadyError
        finally:
            os.close(exited)

    def _report(self, limit_s: float | None = None) -> Any:
        """Return the JSON that a module of this package prints when it is ready, or raise NotReadyError."""
        pipe = self._running.stdout
        assert pipe is not None
        if limit_s is not None:
            self._wait(lambda: True, limit_s, pipe.fileno())
        if line := pipe.readline():
            return json.loads(line)
        raise NotReadyError

    def output(self) -> str:
        """Return everything that the server has printed so far, except reports."""
        log = self._log.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")

    def _reason(self, output: str) -> str:
        return output.strip()[-TAIL_CHARACTERS:]

    def _did_not_start(self, output: str) -> HostError:
        return HostError(f"{self.title} did not start: {self._reason(output) or 'it printed nothing'}.", self.hint)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL if process.stdin is None else signal.SIGTERM)
            with process:  # closes its pipes
                try:
                    process.wait(END_LIMIT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
        if self._trace is not None:
            self._trace.join()
            self._trace = None
        if self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)


class LazyServer(ServerProcess):
    """A module of this package behind a socket that listens from the start.

    The socket is bound here and passed on. A client that connects before the process is ready waits in the socket's
    queue. A subclass launches the module with it in `_launch_at`; it may make another socket than HTTP's in `_listen`.
    Without `lazy` the process starts at once, in the background.
    """

    lazy = True
    _port, _port_option = 0, "--port"
    _answered = False

    @property
    def memory_mb(self) -> int:
        """The memory that the process may use, MB: enough for a thousand threads with stacks of 4 MB."""
        # assumed. measured: after a first request, Step Functions, the endpoint and moto's services use 43 to 97 MB.
        return min(4096, super().memory_mb)

    @property
    def pid(self) -> int | None:  # type: ignore[override]
        """The process id; None before the process has started."""
        return None if self._process is None else self._process.pid

    def ready(self) -> None:
        """Wait until it answers, unless it hasn't been started yet. Raises HostError if it exited instead."""
        if self._process is None:
            return
        try:
            with self._asking:
                self._answered = self._answered or bool(self._report())
        except NotReadyError:
            raise self._did_not_start(self.output()) from None

    def _listen(self) -> socket.socket:
        listener = listening_socket("127.0.0.1", self._port, self._port_option)
        self.endpoint = "http://{}:{}".format(*listener.getsockname())
        return listener

    def _launch_at(self, listener: socket.socket) -> None:
        """Launch the module, which inherits the socket."""
        raise NotImplementedError

    def _start(self) -> None:
        self._asking = threading.Lock()
        listener = self._undo.enter_context(self._listen())
        if not self.lazy:
            self._hand_over(listener)
            return
        ending = os.eventfd(0)
        self._undo.callback(os.close, ending)
        waiting = threading.Thread(target=self._wait_for_request, args=(listener, ending), daemon=True)
        waiting.start()
        self._undo.callback(waiting.join)
        self._undo.callback(os.eventfd_write, ending, 1)

    def _wait_for_request(self, listener: socket.socket, ending: int) -> None:
        poll = select.poll()
        for descriptor in (listener.fileno(), ending):
            poll.register(descriptor, select.POLLIN)
        if ending not in dict(poll.poll()):
            self._hand_over(listener)

    def _hand_over(self, listener: socket.socket) -> None:
        self._launch_at(listener)
        # If the process exits, its clients' connections break; with the socket open here, they would wait forever.
        listener.close()


def listening_socket(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a socket that listens at this address, for an HTTP server.

    HostError if the address isn't free; `option` is where the user chooses the port.
    """
    try:
        listener = socket.create_server((host, port), backlog=1024)
    except OSError as error:
        what = f"port {port}" if host == "127.0.0.1" else f"address {host}:{port}"
        taken = error.errno == errno.EADDRINUSE
        raise HostError(
            f"The {what} is taken by {_holder(port)}."
            if taken
            else f"The {what} cannot be bound: {os.strerror(error.errno or 0)}.",
            f"{'stop it, or ' if taken else ''}choose another with {option}, or 0 for any free one.",
        ) from error
    # Accepted connections inherit this; asyncio sets it only on sockets with an explicit protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _holder(port: int) -> str:
    for found in psutil.net_connections("tcp"):
        address: Any = found.laddr
        if found.status == psutil.CONN_LISTEN and address.port == port and found.pid is not None:
            with suppress(psutil.Error):  # it has just ended
                return f"{psutil.Process(found.pid).name()} (process {found.pid})"
    return "a process of another user"


def free_port() -> int:
    """Choose a free loopback port. Until a server binds it, no client's connection gets it.

    It is below the kernel's range for outgoing connections: a busy host uses thousands of those in a second.
    """
    given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    own = range(FIRST_PORT, given)
    # If the kernel's range covers all ports, let it choose one.
    for candidate in random.SystemRandom().sample(own, LEAST_PORTS) if len(own) >= LEAST_PORTS else [0]:
        with socket.socket() as holder, suppress(OSError):  # in use
            holder.bind(("127.0.0.1", candidate))
            return int(holder.getsockname()[1])
    raise HostError("This host has no free port.", "see `ss -ltn`.")
