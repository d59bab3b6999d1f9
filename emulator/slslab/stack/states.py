"""The embedded Step Functions: our front over moto's interpreter, in a process of its own and gone with this one.

The process takes about two seconds to import its interpreter. Its address is there at once all the same: the socket is
bound here and handed over, and a client that comes early waits in the socket's queue.
"""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib.metadata import version
from types import TracebackType
from typing import IO, Any, Self

from slslab.environments.output import TraceFrames
from slslab.errors import HostError
from slslab.limits import Limits, lambda_limits

OWNER = "states"
Listener = Callable[[dict[str, Any]], None]


class EmbeddedStateMachines:
    """Step Functions on a loopback port of its own, as a context manager.

    `lambda_endpoint` is where Tasks invoke their functions; `environment` is added to the process's own (the
    emulator's mark, by which its reaper finds it); `limits` are AWS's unless changed; `on_event` gets a trace record
    for every state transition, on a thread of its own. The process starts on entering and comes up in the background;
    with `on_demand` it starts with the first request. Either way it ends with this process, however that ends.
    Raises HostError if the port is taken.

        with EmbeddedStateMachines(emulator.endpoint, emulator.mark) as states:
            boto3.client("stepfunctions", endpoint_url=states.endpoint)
    """

    def __init__(
        self,
        lambda_endpoint: str,
        environment: Mapping[str, str],
        *,
        limits: Limits | None = None,
        on_event: Listener | None = None,
        on_demand: bool = False,
        port: int = 0,
    ) -> None:
        self._lambda_endpoint = lambda_endpoint
        self._environment = environment
        self._limits = limits if limits is not None else lambda_limits()
        self._on_event = on_event
        self._on_demand = on_demand
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []
        self._asking = threading.Lock()
        self._answered = False

    @property
    def name(self) -> str:
        """Name and version of the interpreter."""
        return f"moto {version('moto')}"

    @property
    def pid(self) -> int | None:
        """The process; None before it has started."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        try:
            self._listener = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        except OSError as error:
            message = f"The port {self._port} cannot be bound: {os.strerror(error.errno or 0)}."
            raise HostError(message, "choose another, or 0 for any free one.") from error
        # Accepted connections inherit it.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.endpoint = "http://{}:{}".format(*self._listener.getsockname())
        self._errors = tempfile.TemporaryFile()
        self._ending, self._end = os.pipe()
        if self._on_demand:
            self._spawn(self._wait_for_request)
        else:
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._end)
        if self._on_demand:
            self._threads[0].join()
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.terminate()
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
        for thread in self._threads:
            thread.join()
        os.close(self._ending)
        self._listener.close()
        self._errors.close()

    def client_environment(self) -> dict[str, str]:
        """The variable by which AWS's clients find it."""
        return {"AWS_ENDPOINT_URL_SFN": self.endpoint}

    def ready(self) -> None:
        """Wait until it answers. Raises HostError with what it said if it ended instead."""
        if self._process is None:
            return  # it starts with the first request
        assert self._process.stdout is not None
        with self._asking:
            self._answered = self._answered or bool(self._process.stdout.readline())
        if not self._answered:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()[-500:]
            raise HostError(
                f"The embedded Step Functions did not start: {said or 'it said nothing'}.",
                "run `pip install 'moto[stepfunctions]'`, or `slslab doctor`.",
            )

    def _spawn(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, name="state-machines", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _wait_for_request(self) -> None:
        """Start the process when somebody connects, unless the end comes first."""
        requests = select.poll()
        for descriptor in (self._listener.fileno(), self._ending):
            requests.register(descriptor, select.POLLIN)
        if self._ending not in dict(requests.poll()):
            self._start()

    def _start(self) -> None:
        changed = {
            field.name: getattr(self._limits, field.name) for field in fields(self._limits) if field.name in OWN_LIMITS
        }
        handed_over = [self._listener.fileno()]
        environment = {**os.environ, **self._environment}
        environment.pop("SLSLAB_TRACE_FD", None)
        events, trace = os.pipe() if self._on_event is not None else (-1, -1)
        if self._on_event is not None:
            handed_over.append(trace)
            environment["SLSLAB_TRACE_FD"] = str(trace)
        command = [sys.executable, "-m", "slslab.statemachines", "--tied", f"--lambda-endpoint={self._lambda_endpoint}"]
        command += [f"--listener={self._listener.fileno()}", f"--limits={json.dumps(changed)}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=handed_over,
                env=environment,
                # A session of its own, so that Ctrl-C in the terminal reaches the command alone.
                start_new_session=True,
            )
        finally:
            if trace >= 0:
                os.close(trace)
        # Clients learn by it if the process ends; while it was held here they would wait for ever.
        self._listener.close()
        if self._on_event is not None:
            self._spawn(self._read, os.fdopen(events, "rb", buffering=0), self._on_event)

    def _read(self, events: IO[bytes], listener: Listener) -> None:
        own = {"record": "event", "function": OWNER, "environment": OWNER}
        frames = TraceFrames(OWNER, lambda event: listener({**event, **own}))
        with events:
            while chunk := events.read(1 << 16):
                frames.feed(chunk)


OWN_LIMITS = ("definition_bytes", "state_payload_bytes", "history_events", "map_concurrency")
